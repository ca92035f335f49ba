"""A scanner that is fed with bytes, and all that came out of it: the same for systems whose partitions are fetched."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa

from fastwire.columns.scan import Stop
from fastwire.position import Span
from tests.support.times import rows_with_times

Row = dict[str, Any]


class Scanned(ABC):
    """Closed chunks of ``scanner``: their rows, spans and dead letters."""

    def __init__(self, scanner: Any) -> None:
        self.scanner = scanner
        self.rows: list[Row] = []
        self.spans: list[Span] = []
        self.dead_letters: list[Any] = []
        self.unfit_times = 0

    @abstractmethod
    def _found(self) -> None:
        """Take what the scanner has found beside records."""

    def feed(self, data: bytes, cuts: Iterable[int] = ()) -> None:
        """Receive ``data`` in pieces that end at ``cuts``, and take everything that comes of it."""
        for piece in _pieces(data, cuts):
            rest = memoryview(piece)
            while rest:
                room = self.scanner.get_buffer()
                size = min(len(room), len(rest))
                room[:size] = rest[:size]
                room.release()
                self.scanner.received(size)
                rest = rest[size:]
                self._scan()

    def _scan(self) -> None:
        while True:
            match self.scanner.scan():
                case Stop.NEED_BYTES:
                    return
                case Stop.CHUNK_FULL:
                    self.take()
                case Stop.FOUND:
                    self._found()
                case Stop.OUTPUT_CAP:
                    self.scanner.resume()

    def take(self) -> None:
        """Close the open chunk, and add what it holds."""
        chunk = self.scanner.take_chunk()
        if chunk is None:
            return
        if chunk.rows:
            batch = pa.record_batch(chunk)
            batch.validate(full=True)
            self.rows += rows_with_times(batch)
            self.unfit_times += chunk.unfit_times
        self.spans += chunk.spans()
        self.dead_letters += chunk.dead_letters


def _pieces(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    edges = sorted({0, len(data), *(cut for cut in cuts if 0 < cut < len(data))})
    for first, last in pairwise(edges):
        yield data[first:last]
