"""The interface that a system implements so that Spark can read it.

The driver's process has one ``Broker``, each task one ``RangeReader``. Both are made by ``systems``.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from fastwire.position import Position

from .ranges import Partition, Range

__all__ = ["Broker"]


class Broker(Protocol):
    """The driver's conversation with the brokers of one query.

    Methods raise FastwireError when what they want cannot be had for longer than the query's patience.
    """

    def partitions(self) -> list[Partition]:
        """What the query reads now; topics that do not exist have none."""

    def topics(self) -> set[str]:
        """Those of the topics that were named which ``partitions`` has found."""

    def heads(
        self, partitions: Iterable[Partition], known: Mapping[Partition, Position] = ...
    ) -> dict[Partition, Position]:
        """Where each ends now, never younger than the query's poll interval; those that do not exist are left out.

        ``known`` is up to where a query has read: there ends what cannot be asked for a while, as long as others can.
        What of that is not known is left out, and where nothing is known everything is waited for.
        """

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        """Return the first position of each partition that exists."""

    def incarnation(self, topic: str) -> str:
        """Another text when a topic was deleted and made again, as of the last ``heads``; "" if there is no telling."""

    def at_time(self, partition: Partition, time_ms: int) -> Position | None:
        """The position whose next record is the first one of that time or later; None if there is no such record."""

    def rows(self, partition: Partition, start: Position, end: Position) -> int:
        """Return the approximate number of records between two positions."""

    def bytes_per_row(self) -> float:
        """Return the approximate size of a record, in bytes."""

    def limited(self, partition: Partition, start: Position, end: Position, rows: int) -> Position:
        """An end after about ``rows`` records, before ``end`` or at it, and behind ``start`` in any case."""

    def ranges(self, partition: Partition, start: Position, end: Position, pieces: int) -> list[Range]:
        """One range, or up to ``pieces`` that tile it exactly."""

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Tell the brokers that records up to these positions are durable elsewhere and not needed by this query."""

    def close(self) -> None:
        """Close the connections; subscriptions stay."""
