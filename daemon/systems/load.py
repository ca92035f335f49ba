"""Records to try things with: small numbered JSON documents, the same ones each time."""

from collections.abc import Iterator
from dataclasses import dataclass

DEVICES = 1024


@dataclass(frozen=True, slots=True)
class Load:
    """``records`` numbered documents of about ``record_bytes`` bytes.

    Number n belongs to partition n modulo ``partitions``, and the device that it speaks of, its key, always to the
    same one. ``batch`` 0 makes entries without a batch around their one record. ``partitions`` 0 is for a topic that
    has none. ``compression`` is the name of a codec.
    """

    records: int = 1_000_000
    partitions: int = 4
    batch: int = 1000
    record_bytes: int = 100
    compression: str = "LZ4"
    keys: bool = True
    first: int = 0  # number of the first record

    def record(self, number: int) -> bytes:
        """Return one document; ``number`` can be read back from it."""
        head = (
            f'{{"number":{number},"device":"{self.key(number)}","celsius":{number * 7919 % 6000 / 100 - 20:.2f},'
            f'"trace":"{number * 2654435761 & 0xFFFFFFFF:08x}","note":"'
        )
        return (head + _TEXT[: max(self.record_bytes - len(head) - 2, 0)] + '"}').encode()

    def key(self, number: int) -> str:
        """Return the key of a document: the name of its device."""
        return f"dev-{number % DEVICES:04d}"

    def parts(self) -> Iterator[tuple[int, range]]:
        """Yield the partition and the numbers of each batch, round the partitions."""
        spread = max(self.partitions, 1)
        step = max(self.batch, 1)
        end = self.first + self.records
        for start in range(self.first, end, step * spread):
            for partition in range(spread):
                first = start + (partition - start) % spread
                numbers = range(first, min(start + step * spread, end), spread)
                if numbers:
                    yield partition, numbers


_TEXT = "the quick brown fox jumps over the lazy dog, " * 2000
