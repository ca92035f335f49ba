"""Generated records in a Pulsar broker in memory."""

from collections.abc import Callable

from fastwire.pulsar.format.payload import Entry
from fastwire.pulsar.names.topic import parse_topic
from fastwire_daemon.systems.load import Load
from fastwire_daemon.systems.pulsar.load import entries

ENTRIES_PER_CALL = 64  # how much is appended to a broker in memory at a time


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
