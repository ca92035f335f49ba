"""What a system has to offer so that Spark can read it: the seam between the source and its systems.

The driver's process has one ``Broker``; each task has one ``read``. Both are made by ``systems``.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from fastwire.position import Position

from .ranges import Partition, Range

__all__ = ["Broker", "RangeRows"]


class Broker(Protocol):
    """The driver's conversation with the brokers of one query.

    Methods raise FastwireError when what they want cannot be had for longer than the query's patience.
    """

    def partitions(self) -> list[Partition]:
        """What the query reads now; topics that do not exist have none."""

    def topics(self) -> set[str]:
        """Those of the topics that were named which ``partitions`` has found."""

    def heads(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        """Where each ends now, never younger than the query's poll interval; those that do not exist are left out."""

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        """From where all of each partition that exists is read."""

    def incarnation(self, topic: str) -> str:
        """Another text when a topic was deleted and made again, as of the last ``heads``; "" if there is no telling."""

    def at_time(self, partition: Partition, time_ms: int) -> Position | None:
        """The position whose next record is the first one of that time or later; None if there is no such record."""

    def rows(self, partition: Partition, start: Position, end: Position) -> int:
        """About how many records lie between two positions."""

    def bytes_per_row(self) -> float:
        """About how large a record is."""

    def limited(self, partition: Partition, start: Position, end: Position, rows: int) -> Position:
        """An end after about ``rows`` records, before ``end`` or at it, and behind ``start`` in any case."""

    def ranges(self, partition: Partition, start: Position, end: Position, pieces: int) -> list[Range]:
        """One range, or up to ``pieces`` that tile it exactly."""

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Everything up to here is durable elsewhere: the brokers need not keep it for this query."""

    def close(self) -> None:
        """Leave; subscriptions stay."""


class RangeRows(Protocol):
    """The rows of one range, in a task."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows in order."""

    def rest(self) -> None:
        """Nobody takes rows just now: stay alive."""
