"""Generated records as entries of Pulsar."""

from collections.abc import Callable, Iterator

from fastwire.pulsar.payload import Compression, Entry, Record, encode_block_entry, encode_single_entry, encode_values
from fastwire.pulsar.topic import parse_topic

from ..load import Load

__all__ = ["entries", "fill"]

ENTRIES_PER_CALL = 64  # how much is appended to a broker in memory at a time


def entries(load: Load, now_ms: Callable[[], int], *, producer: str = "fastwire-load") -> Iterator[tuple[int, Entry]]:
    """Yield partition and entry, round the partitions; ``now_ms`` returns the publish time of each in milliseconds."""
    codec = Compression[load.compression]
    for partition, numbers in load.parts():
        name, published = f"{producer}-{partition}", now_ms()
        sequence_id = (numbers[0] - load.first) // max(load.partitions, 1)
        if not load.batch:
            key = load.key(numbers[0]) if load.keys else None
            record = Record(value=load.record(numbers[0]), key=key)
            yield (
                partition,
                encode_single_entry(
                    record, producer_name=name, sequence_id=sequence_id, publish_time=published, compression=codec
                ),
            )
            continue
        values = list(map(load.record, numbers))
        keys = [load.key(number).encode() for number in numbers] if load.keys else None
        block = encode_values(values, sequence_id, keys)
        yield (
            partition,
            encode_block_entry(
                block,
                len(values),
                producer_name=name,
                sequence_id=sequence_id,
                publish_time=published,
                compression=codec,
            ),
        )


def fill(
    append: Callable[[str, list[Entry]], object],
    topic: str,
    load: Load,
    now_ms: Callable[[], int],
    progress: Callable[[int], None] = lambda records: None,
) -> int:
    """Append a load straight into a broker in memory, past the network, and return the bytes of its entries.

    ``append`` is the broker's method of that name. ``progress`` is called with the number of records so far.
    """
    name = parse_topic(topic)
    waiting: dict[int, list[Entry]] = {}
    records = stored = 0

    def flush(partition: int) -> None:
        append(str(name.of_partition(partition) if load.partitions else name), waiting.pop(partition))
        progress(records)

    for partition, entry in entries(load, now_ms):
        held = waiting.setdefault(partition, [])
        held.append(entry)
        records += entry.messages
        stored += len(entry.body)
        if len(held) == ENTRIES_PER_CALL:
            flush(partition)
    for partition in list(waiting):
        flush(partition)
    return stored
