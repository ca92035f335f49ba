"""Generated records as entries of Pulsar."""

from collections.abc import Callable, Iterator

from fastwire.pulsar.format.payload import (
    Compression,
    Entry,
    Record,
    encode_block_entry,
    encode_single_entry,
    encode_values,
)

from ..load import Load


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
