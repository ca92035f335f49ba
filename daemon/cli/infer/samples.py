"""The newest values of topics."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

WINDOWS = ("-1m", "-1h", "-1d", "-30d")
MOST_ROWS, MOST_TURNS = 200_000, 20  # so many records, or times as many as are wanted, are read at most in a window
MOST_BYTES = 256 << 20


class Samples:
    """The newest values of each partition, with at most ``MOST_BYTES`` of memory over all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[tuple[str, int], deque[bytes | None]] = {}
        self._bytes = 0

    def add(self, partition: tuple[str, int], value: bytes | None) -> None:
        """Take the next value of a partition of a topic; the oldest ones make room for it."""
        kept = self._kept.setdefault(partition, deque())
        kept.append(value)
        self._bytes += len(value or b"")
        while len(kept) > self._most or (self._bytes > MOST_BYTES and len(kept) > 1):
            self._bytes -= len(kept.popleft() or b"")

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    @property
    def partitions(self) -> int:
        """The number of partitions that have values."""
        return len(self._kept)

    def values(self) -> Iterator[bytes | None]:
        """Yield about as many as are wanted, the newest ones of each partition."""
        share = -(-self._most // max(1, len(self._kept)))
        for kept in self._kept.values():
            yield from list(kept)[-share:]


def newest(url: str, topics: Sequence[str], records: int, connection: Mapping[str, Any]) -> Samples:
    """Return samples of ``topics`` with about ``records`` values.

    It reads the last minute, and longer times while that has too few records; systems that find no record by its time
    are read from the beginning. Where that is very much, only the first part is read. Raises as ``read`` does.
    """
    from ...prompt.read import Records, read

    def behind(start: str) -> Records:
        return read(
            url,
            topics,
            start=start,
            columns=["topic", "partition", "value"],
            limit=max(MOST_ROWS, MOST_TURNS * records),
            progress=False,
            **connection,
        )

    for window in WINDOWS:
        try:
            taken = behind(window)
        except ValueError:
            continue  # the system has no such start; a fault of other arguments is that of the last one, too
        found = _of(taken, records)
        if len(found) >= records:
            return found
    return _of(behind("earliest"), records)


def _of(taken: "Iterable[pa.RecordBatch]", records: int) -> Samples:
    found = Samples(records)
    for batch in taken:
        for topic, partition, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found.add((topic, partition), value)
    return found
