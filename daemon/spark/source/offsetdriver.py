"""The driver's side of systems whose records are numbered: beginnings, sizes, and ranges that are split anywhere."""

import time
from abc import abstractmethod
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeVar

from fastwire.position import Position

from ...net.endpoint import LinkLost
from .brokerbase import BrokerBase
from .connections import Connections, RangeBook
from .offsetrangereader import Records
from .options import Options
from .ranges import QueryPartition, Range

__all__ = ["OffsetBroker"]

SAMPLE_RECORDS = 100

B = TypeVar("B", bound=RangeBook[Any, Any])


class OffsetBroker(BrokerBase[B]):
    """The part of a ``Broker`` that needs nothing but the numbers of records."""

    def __init__(self, connections: Connections[B], options: Options) -> None:
        super().__init__(connections, options)
        self._beginnings: dict[QueryPartition, Position] = {}  # known since the last heads

    @abstractmethod
    async def _ask_beginnings(self, partitions: list[QueryPartition]) -> dict[QueryPartition, Position]:
        """Return the first positions of the partitions that exist."""

    @abstractmethod
    async def _records(self, partition: QueryPartition, offset: int) -> Records:
        """Begin to read a partition at an offset."""

    @abstractmethod
    def incarnation(self, topic: str) -> str:
        """See ``Broker``."""

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

    def _sample(self, partition: QueryPartition, head: Position) -> None:
        """Read the last records before the head, of which there may be none."""

        async def look() -> None:
            cluster = self._cluster
            records = await self._records(partition, max(begin, head.a - SAMPLE_RECORDS))
            begun_at = time.monotonic()
            try:
                while records.position.a < head.a and not cluster.chunks:
                    await records.news()
                    waited_since = max(begun_at, cluster.throttled_until)
                    if time.monotonic() - waited_since >= self._options.patience_s:
                        raise LinkLost(records.silence())
                for chunk in cluster.take_all():
                    if chunk.rows:
                        self._saw(chunk.payload_bytes, chunk.rows)
            finally:
                records.close()

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
