"""Offers partitions to the pipeline, each as soon as its leader has reported the log's start and end offsets."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Any, Generic, Protocol, TypeVar

from fastwire.errors import FastwireError
from fastwire.position import Position

from ...config import Start
from ...runtime.tasks import Tasks
from ..links.linkbook import LinkBook
from ..source import Assignment
from .atleaders import AtLeaders, Freshness
from .earlier import TOGETHER_S
from .offers import Offers
from .pulled import PulledPartition

C = TypeVar("C", bound=LinkBook[Any, Any])
P = TypeVar("P", bound=PulledPartition[Any])


class Refusals(Protocol):
    """Classifies errors of a system."""

    def refuse(self, error: FastwireError) -> None:
        """Fail with ``error``, which a retry cannot cure."""

    def is_fatal(self, error: FastwireError) -> bool:
        """Return True if ``error`` ends the source."""

    def is_answer(self, error: FastwireError) -> bool:
        """Return True if ``error`` is a broker's answer."""


class OffsetLookup(ABC, Generic[C, P]):
    """Asks leaders of a cluster for the start and end offsets of logs, and offers the assigned partitions.

    ``heads`` are the ends of the logs that were there at the start, by log index and without empty ones; ``found`` is
    set when all of them are known or over, ``assigned`` when the first partition is offered, or there is none. An error
    that no retry can cure is passed to ``refusals``; unless ``patient``, that is also a cluster of which no leader can
    be reached. ``known`` returns the topics of which an earlier run has landed records.
    """

    def __init__(
        self,
        cluster: C,
        start: Start,
        freshness: Freshness[P],
        known: Callable[[], Set[str]],
        offers: Offers,
        tasks: Tasks,
        refusals: Refusals,
        *,
        patient: bool,
    ) -> None:
        self.heads: dict[int, Position] = {}
        self.found = asyncio.Event()
        self.assigned = asyncio.Event()
        self._cluster = cluster
        self._start = start
        self._known = known
        self._offers = offers
        self._refusals = refusals
        self._patient = patient
        self._loop = asyncio.get_running_loop()
        self._without_head: set[P] = set()
        self._reached = False  # some leader has answered
        self._unreached: set[P] = set()  # of those without a head, until then
        self._ours: set[P] = set()  # to be offered
        self._together_until = float("inf")
        self._unknown = AtLeaders("offsets", freshness, tasks, self._look, self._failed)

    @property
    def failing(self) -> dict[P, str]:
        """The partitions whose leader has not reported the offsets of their logs yet, with the error."""
        return self._unknown.failing

    def start(self, partitions: Iterable[P]) -> None:
        """Begin with ``partitions``, which exist at the start; their log ends are requested for any owner."""
        self._together_until = self._loop.time() + TOGETHER_S
        self._without_head.update(partitions)
        self._unknown.add(self._without_head)
        self._note_found()

    def offer(self, partitions: Collection[P]) -> None:
        """Offer each of these assigned partitions when the offsets of its log are known."""
        self._ours.update(partitions)
        self._unknown.add(partitions)
        if not partitions:
            self.assigned.set()

    def again(self, partition: P, delay_s: float) -> None:
        """Offer ``partition`` once more after ``delay_s``, because its assignment could not be resolved."""
        self._ours.add(partition)
        self._unknown.add([partition], delay_s)

    def drop(self, partition: P) -> None:
        """Forget a partition that is no longer assigned, or is over."""
        self._ours.discard(partition)
        if partition.over:
            self._without_head.discard(partition)
            self._note_found()
            if not self._ours:
                self.assigned.set()
        if partition not in self._without_head:
            self._unknown.drop(partition)

    @property
    def offering(self) -> bool:
        """True while the offsets of assigned partitions are not known."""
        return bool(self._ours)

    def tell(self) -> None:
        """Pass the offers to the pipeline.

        What Coverage can tell later of a topic that is new to it rests on first positions that are committed together,
        so partitions of one wait for each other for a while; unless all begin at their beginning, whatever happens.
        """
        waiting: frozenset[str] = frozenset()
        if self._ours and self._start.kind != "earliest" and self._loop.time() < self._together_until:
            waiting = frozenset(one.place[0] for one in self._ours) - self._known()
        self._offers.tell(waiting)

    # --- at the leaders

    async def _look(self, partitions: Collection[P]) -> Mapping[P, FastwireError]:
        failed = await self._ask_offsets(partitions)
        answered = [one for one in partitions if one not in failed]
        for one in answered:
            one.error = one.error if one.over else ""
        self._note_heads(answered)
        return {**failed, **await self._answered(answered)}

    @abstractmethod
    async def _ask_offsets(self, partitions: Collection[P]) -> Mapping[P, FastwireError]:
        """Ask for the start and end of these logs, and note them; return those that failed, with their errors."""

    async def _answered(self, partitions: Collection[P]) -> Mapping[P, FastwireError]:
        """Offer partitions whose offsets are known; return those for which something else could not be asked."""
        self._offer(partitions)
        return {}

    def _offer(self, partitions: Iterable[P]) -> None:
        offered = [one for one in partitions if one in self._ours]
        for one in sorted(offered, key=lambda each: each.index):
            self._ours.discard(one)
            if self._owns(one) and not one.granted and not one.over:
                self._offers.add(self._assignment(one))
        if offered:
            self.tell()
            self.assigned.set()

    def _owns(self, partition: P) -> bool:
        """Return True if this client reads the partition."""
        return True

    def _assignment(self, partition: P) -> Assignment:
        return partition.offer()

    def _note_heads(self, partitions: Iterable[P]) -> None:
        for one in self._without_head.intersection(partitions):
            self._reached = True
            self._without_head.discard(one)
            if one.head is not None:
                self.heads[one.index] = one.head
        self._note_found()

    def _note_found(self) -> None:
        if not self._without_head:
            self.found.set()

    def _failed(self, partition: P, error: FastwireError) -> None:
        if partition not in self._without_head:
            return
        if self._refusals.is_fatal(error):
            self._refusals.refuse(error)
        elif not self._patient and not self._reached and not self._refusals.is_answer(error):
            self._unreached.add(partition)
            if self._unreached >= self._without_head:
                self._refusals.refuse(error)
