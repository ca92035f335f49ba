"""The interface that a system implements so that Spark can read it.

The driver's process has one ``Broker``, each task one ``RangeReader``. Both are made by ``systems``.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from fastwire.position import Position

from .ranges import QueryPartition, Range
from .witness import WitnessBroker

__all__ = ["Broker"]


class Broker(WitnessBroker, Protocol):
    """The driver's conversation with the brokers of one query.

    Methods raise FastwireError when what they want cannot be had for longer than the query's patience.
    """

    def partitions(self) -> list[QueryPartition]:
        """Return the partitions that the query reads now; topics that do not exist have none."""

    def topics(self) -> set[str]:
        """Return the named topics that ``partitions`` has found."""

    def heads(
        self, partitions: Iterable[QueryPartition], known: Mapping[QueryPartition, Position] = ...
    ) -> dict[QueryPartition, Position]:
        """Return the end of each partition that exists, at most as old as the query's poll interval.

        ``known`` holds the positions up to which a query has read. A partition that is not available for a while ends
        there as long as others are available, or is left out if it is not in ``known``. With an empty ``known`` the
        call waits for all partitions.
        """

    def beginnings(self, partitions: Iterable[QueryPartition]) -> dict[QueryPartition, Position]:
        """Return the first position of each partition that exists."""

    def incarnation(self, topic: str) -> str:
        """Return a text that changes when a topic is created again, as of the last ``heads``; "" if unknown."""

    def at_time(self, partition: QueryPartition, time_ms: int) -> Position | None:
        """Return the position before the first record of that time or later; None if there is no such record."""

    def rows(self, partition: QueryPartition, start: Position, end: Position) -> int:
        """Return the approximate number of records between two positions."""

    def bytes_per_row(self) -> float:
        """Return the approximate size of a record, in bytes."""

    def limited(self, partition: QueryPartition, start: Position, end: Position, rows: int) -> Position:
        """Return an end after about ``rows`` records: behind ``start``, and at most ``end``."""

    def ranges(self, partition: QueryPartition, start: Position, end: Position, pieces: int) -> list[Range]:
        """Return one range, or up to ``pieces`` ranges that cover it exactly."""

    def commit(self, positions: Mapping[QueryPartition, Position]) -> None:
        """Tell the brokers that records up to these positions are durable elsewhere and not needed by this query."""

    def close(self) -> None:
        """Close the connections; subscriptions stay."""
