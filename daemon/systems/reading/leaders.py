"""Assignment of partitions to the connections of their leaders."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar

from fastwire.errors import FastwireError
from fastwire.position import Position

from ...net.endpoint import LinkLost
from ...runtime.logs import get_logger
from ...runtime.tasks import Tasks
from ..links.fetchlink import FetchLink
from .atleaders import AtLeaders, Freshness
from .pulled import PulledPartition

MOST_S = 2.0  # the longest pause before a partition whose leader has moved is tried again

L = TypeVar("L", bound=FetchLink[Any, Any, Any, Any])
P = TypeVar("P", bound=PulledPartition[Any])

log = get_logger("source")


class Slots(Protocol):
    """The positions of partitions, by log index."""

    def attach(self, index: int, position: Position, session: int, witness: int | None = None) -> None:
        """Read from ``position`` on; only answers to requests of ``session`` count from here on.

        ``witness`` is what the record before the position is known by, which the first answer is compared with.
        """

    def detach(self, index: int) -> None:
        """Drop all answers about this partition from now on."""

    def end_at(self, index: int, until: int) -> None:
        """Take nothing of this partition from the offset ``until`` on."""

    def position(self, index: int) -> Position:
        """Return the position before the next record to read."""

    def look_back(self, index: int) -> None:
        """Request the record before the position, too, and compare it with what it is known by."""


class LeaderReader(Protocol[P]):
    """The source, as far as ``Leaders`` uses it."""

    @property
    def slots(self) -> Slots:
        """The positions of the partitions, by log index."""

    @property
    def partitions(self) -> list[P]:
        """The partitions, by log index."""

    def placed(self, link: Any) -> None:
        """Request records on a connection with one more partition."""


class Leaders(ABC, Generic[L, P]):
    """Assigns each partition that is read to its leader's connection, and retries until it succeeds."""

    def __init__(self, reader: LeaderReader[P], freshness: Freshness[P], tasks: Tasks) -> None:
        self._source = reader
        self._freshness = freshness
        self._unplaced = AtLeaders("leaders", freshness, tasks, self._place)  # read, and by no connection

    @property
    def failing(self) -> dict[P, str]:
        """The partitions that are not read because their leader is missing or unreachable, with the error."""
        return self._unplaced.failing

    def place(self, partition: P, delay_s: float = 0.0) -> None:
        """Read ``partition`` from the position of its slot, in ``delay_s`` seconds."""
        self._unplaced.add([partition], delay_s)

    def forget(self, partition: P) -> None:
        """Stop reading ``partition``. What has come of it is passed on: another connection may send what follows."""
        self._unplaced.drop(partition)
        if partition.link is not None:
            partition.link.hand_on()
            partition.link.fetcher.drop(partition.index)
            partition.link = None

    def lost(self, link: L) -> None:
        """Place the partitions of a lost connection on other connections."""
        self._freshness.old = True
        for partition in self._source.partitions:
            if partition.link is link:
                partition.link = None
                self._unlinked(partition)
                if partition.granted:
                    self.place(partition)

    def _unlinked(self, partition: P) -> None:
        """Note that the connection of a partition is gone."""

    def try_again(self, partition: P, *, soon: bool) -> None:
        """Place ``partition`` once more after its leader has refused it, ``soon`` if that is likely to pass."""
        self.forget(partition)
        if soon:
            at_once = partition.refusals.failures == 0  # the leader may just have moved
            delay_s = min(partition.refusals.next(), MOST_S)
            delay_s = 0.0 if at_once else delay_s
        else:
            delay_s = partition.refusals.failed(log, "the leader refuses to be read from", partition.error)
        self.place(partition, delay_s)

    async def _place(self, partitions: Collection[P]) -> Mapping[P, FastwireError]:
        failures = await asyncio.gather(*map(self._try_to_place, partitions))
        return {partition: exc for partition, exc in zip(partitions, failures, strict=True) if exc is not None}

    async def _try_to_place(self, partition: P) -> FastwireError | None:
        try:
            if partition.granted and not partition.paused:
                await self._place_one(partition)
        except FastwireError as exc:
            return exc
        return None

    @abstractmethod
    async def _place_one(self, partition: P) -> None:
        """Read ``partition`` by the connection to its leader. Raises FastwireError."""

    def _read_by(self, partition: P, link: L, target: Any) -> None:
        """Read ``partition`` by ``link``, whose fetcher gets ``target``. Raises LinkLost."""
        if partition.paused:
            return  # since its connection was asked for
        if not link.ready:
            raise LinkLost(f"connection to {link} is closed")  # closed while something else was asked for
        if partition.log_start < self._source.slots.position(partition.index).a:
            self._source.slots.look_back(partition.index)  # another leader, or a broker that was away
        partition.link = link
        partition.error = ""
        link.fetcher.add(target)
        self._source.placed(link)
