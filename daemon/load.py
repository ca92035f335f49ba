"""Records to try things with: small JSON documents, numbered, as entries of Pulsar or batches of Kafka."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastwire.kafka import payload as kafka
from fastwire.pulsar.payload import Compression, Entry, Record, encode_block_entry, encode_single_entry, encode_values
from fastwire.pulsar.topic import parse_topic

__all__ = ["Load", "fill"]

DEVICES = 1024
ENTRIES_PER_CALL = 64  # how much is appended to a broker in memory at a time


@dataclass(frozen=True, slots=True)
class Load:
    """``records`` numbered documents of about ``record_bytes`` bytes, the same ones each time.

    Number n belongs to partition n modulo ``partitions``, and the device that it speaks of, its key, always to the
    same one. ``batch`` 0 makes entries without a batch around their one record. ``partitions`` 0 is for a topic that
    has none.
    """

    records: int = 1_000_000
    partitions: int = 4
    batch: int = 1000
    record_bytes: int = 100
    compression: Compression = Compression.LZ4
    keys: bool = True
    first: int = 0  # number of the first record
    producer: str = "fastwire-load"

    def record(self, number: int) -> bytes:
        """Return one document; ``number`` can be read back from it."""
        head = (
            f'{{"number":{number},"device":"{_device(number)}","celsius":{number * 7919 % 6000 / 100 - 20:.2f},'
            f'"trace":"{number * 2654435761 & 0xFFFFFFFF:08x}","note":"'
        )
        return (head + _TEXT[: max(self.record_bytes - len(head) - 2, 0)] + '"}').encode()

    def entries(self, now_ms: Callable[[], int]) -> Iterator[tuple[int, Entry]]:
        """Yield partition and entry, round the partitions; ``now_ms`` gives the publish time of each."""
        for partition, numbers in self._parts():
            yield partition, self._entry(partition, numbers, now_ms())

    def batches(self, now_ms: Callable[[], int]) -> Iterator[tuple[int, bytes, int]]:
        """Yield partition, record batch of Kafka and its number of records, round the partitions.

        All records of a batch are of the time that ``now_ms`` gives for it.
        """
        codec = kafka.Compression[_KAFKA_NAMES.get(self.compression.name, self.compression.name)]
        for partition, numbers in self._parts():
            keys = [_device(number).encode() for number in numbers] if self.keys else None
            block = kafka.encode_values(list(map(self.record, numbers)), keys)
            batch = kafka.encode_block_batch(block, len(numbers), base_timestamp=now_ms(), compression=codec)
            yield partition, batch, len(numbers)

    def _parts(self) -> Iterator[tuple[int, range]]:
        """Partition and numbers of each entry or batch."""
        spread = max(self.partitions, 1)
        step = max(self.batch, 1)
        end = self.first + self.records
        for start in range(self.first, end, step * spread):
            for partition in range(spread):
                first = start + (partition - start) % spread
                numbers = range(first, min(start + step * spread, end), spread)
                if numbers:
                    yield partition, numbers

    def _entry(self, partition: int, numbers: range, publish_time: int) -> Entry:
        producer_name = f"{self.producer}-{partition}"
        sequence_id = (numbers[0] - self.first) // max(self.partitions, 1)
        if not self.batch:
            return encode_single_entry(
                Record(value=self.record(numbers[0]), key=_device(numbers[0]) if self.keys else None),
                producer_name=producer_name,
                sequence_id=sequence_id,
                publish_time=publish_time,
                compression=self.compression,
            )
        values = list(map(self.record, numbers))
        keys = [_device(number).encode() for number in numbers] if self.keys else None
        return encode_block_entry(
            encode_values(values, sequence_id, keys),
            len(values),
            producer_name=producer_name,
            sequence_id=sequence_id,
            publish_time=publish_time,
            compression=self.compression,
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

    for partition, entry in load.entries(now_ms):
        entries = waiting.setdefault(partition, [])
        entries.append(entry)
        records += entry.messages
        stored += len(entry.body)
        if len(entries) == ENTRIES_PER_CALL:
            flush(partition)
    for partition in list(waiting):
        flush(partition)
    return stored


def _device(number: int) -> str:
    return f"dev-{number % DEVICES:04d}"


_KAFKA_NAMES = {"ZLIB": "GZIP"}  # the same deflate under another head

_TEXT = "the quick brown fox jumps over the lazy dog, " * 2000
