"""The driver's side of systems whose records are numbered: beginnings, sizes, and ranges that are split anywhere."""

from abc import abstractmethod
from collections.abc import Iterable
from itertools import pairwise

from fastwire.columns.chunk import Chunk
from fastwire.position import Position, parse_position

from .broker import Broker
from .connections import Connections
from .offsetrangereader import Look
from .offsetranges import OffsetRanges
from .options import Options
from .rangereader import ReadingRules
from .ranges import QueryPartition, Range

SAMPLE_RECORDS = 100


class OffsetBroker(Broker[OffsetRanges]):
    """The part of a ``Broker`` that needs nothing but the numbers of records."""

    def __init__(self, connections: Connections[OffsetRanges], options: Options) -> None:
        super().__init__(connections, options)
        self._beginnings: dict[QueryPartition, Position] = {}  # known since the last heads

    @abstractmethod
    async def _ask_beginnings(self, partitions: list[QueryPartition]) -> dict[QueryPartition, Position]:
        """Return the first positions of the partitions that exist."""

    def beginnings(self, partitions: Iterable[QueryPartition]) -> dict[QueryPartition, Position]:
        """Return the first offsets of the logs; they are requested at most as often as the heads."""
        wanted = list(partitions)
        new = [partition for partition in wanted if partition not in self._beginnings]
        if new:
            self._beginnings |= self.patiently("asking where topics begin", lambda: self._ask_beginnings(new))
        return {each: self._beginnings[each] for each in wanted if each in self._beginnings}

    def rows(self, partition: QueryPartition, start: Position, end: Position) -> int:
        """Return the difference of the offsets: holes count as records."""
        return max(0, end.a - start.a)

    def _look(self, partition: QueryPartition, start: int, end: int, witness: int | None = None) -> Look:
        first, last = (parse_position(self._options.system, str(each)) for each in (start, end))
        rules = ReadingRules(
            patience_s=self._options.patience_s, fail_on_data_loss=False, name=f"{self._options.prefix}-look"
        )
        part = Range(system=self._options.system, partition=partition, start=first, end=last)
        return Look(self._cluster, part, rules, witness)

    async def _chunks(self, partition: QueryPartition, start: int, end: int) -> list[Chunk]:
        """Read a few records."""
        look = self._look(partition, start, end)
        await look.read(_nowhere)
        return look.chunks

    def _sample(self, partition: QueryPartition, head: Position) -> None:
        """Read the last records before the head, of which there may be none."""

        async def look() -> None:
            for chunk in await self._chunks(partition, max(begin, head.a - SAMPLE_RECORDS), head.a):
                if chunk.rows:
                    self._saw(chunk.payload_bytes, chunk.rows)

        begin = self.beginnings([partition]).get(partition, head).a
        if begin < head.a:
            self.patiently(f"looking into {partition}", look)

    def limited(self, partition: QueryPartition, start: Position, end: Position, rows: int) -> Position:
        """Return an end after ``rows`` numbers. What else is known of ``end`` holds for all that lies before it."""
        return Position(min(start.a + rows, end.a), end.b)

    def ranges(self, partition: QueryPartition, start: Position, end: Position, pieces: int) -> list[Range]:
        """Split the range at any offset."""
        count = min(pieces, end.a - start.a)
        cuts = [start, *(Position(start.a + (end.a - start.a) * each // count, end.b) for each in range(1, count)), end]
        return [
            Range(
                system=self._options.system,
                partition=partition,
                start=one,
                end=two,
                incarnation=self.incarnation(partition.topic),
            )
            for one, two in pairwise(cuts)
        ]


async def _nowhere(batch: object) -> None:
    """Take nothing: a look keeps its chunks."""
