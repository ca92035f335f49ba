"""Offers partitions to the pipeline, each as soon as its leader has reported the log's start and end offsets."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from fastwire.errors import FastwireError
from fastwire.kafka.error import BrokerError
from fastwire.kafka.question import EARLIEST, LATEST
from fastwire.position import Coverage, Position

from ....runtime.logs import get_logger
from ....runtime.tasks import Tasks
from ...earlier import TOGETHER_S
from ...offers import Offers
from ..cluster import Cluster
from ..refusal import is_for_good
from .atleaders import AGAIN_S, AtLeaders, Freshness
from .partition import Partition
from .settings import KafkaSettings
from .topics import Topics, unbroken

__all__ = ["Offering"]

log = get_logger("source")


class Owner(Protocol):
    """The owner of the assignment: a consumer group, or none."""

    def owns(self, partition: Partition) -> bool:
        """Return True if this client reads the partition."""

    async def committed(self, places: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Return the committed offsets and epochs; partitions without one are left out."""


class Offering:
    """Asks leaders for the start and end offsets of logs, and offers the assigned partitions.

    ``heads`` are the ends of the logs that were there at the start, by log index and without empty ones; ``found`` is
    set when all of them are known or over, ``assigned`` when the group has given us something, or nothing. ``refuse``
    is told of what no waiting can cure; unless ``patient``, that is also a cluster of which no leader can be reached.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        freshness: Freshness,
        topics: Topics,
        offers: Offers,
        tasks: Tasks,
        refuse: Callable[[FastwireError], None],
        *,
        patient: bool,
    ) -> None:
        self.heads: dict[int, Position] = {}
        self.found = asyncio.Event()
        self.assigned = asyncio.Event()
        self.coverage = Coverage()
        self._settings = settings
        self._cluster = cluster
        self._topics = topics
        self._offers = offers
        self._refuse = refuse
        self._patient = patient
        self._loop = asyncio.get_running_loop()
        self._owner: Owner | None = None
        self._without_head: set[Partition] = set()
        self._reached = False  # some leader has answered
        self._unreached: set[Partition] = set()  # of those without a head, until then
        self._ours: set[Partition] = set()  # to be offered
        self._together_until = float("inf")
        self._unknown = AtLeaders("offsets", freshness, tasks, self._look, self._failed)

    @property
    def failing(self) -> dict[Partition, str]:
        """The partitions whose leader has not reported the offsets of their logs yet, with the error."""
        return self._unknown.failing

    def start(self, owner: Owner, partitions: Iterable[Partition]) -> None:
        """Begin with ``partitions``, which exist at the start; their log ends are requested for any owner."""
        self._owner = owner
        self._together_until = self._loop.time() + TOGETHER_S
        self._without_head.update(partitions)
        self._unknown.add(self._without_head)
        self._note_found()

    def offer(self, partitions: Collection[Partition]) -> None:
        """Offer each of these assigned partitions when the offsets of its log are known."""
        self._ours.update(partitions)
        self._unknown.add(partitions)
        if not partitions:
            self.assigned.set()

    def again(self, partition: Partition) -> None:
        """Offer ``partition`` once more after a moment, because its assignment could not be resolved."""
        self._ours.add(partition)
        self._unknown.add([partition], AGAIN_S)

    def drop(self, partition: Partition) -> None:
        """Forget a partition that is no longer assigned, or is over."""
        self._ours.discard(partition)
        if partition.over:
            self._without_head.discard(partition)
            self._note_found()
            if not self._ours:
                self.assigned.set()
        if partition not in self._without_head:
            self._unknown.drop(partition)

    def tell(self) -> None:
        """Pass the offers to the pipeline.

        What Coverage can tell later of a topic that is new to it rests on first positions that are committed together,
        so partitions of one wait for each other for a while; unless all begin at their beginning, whatever happens.
        """
        waiting: frozenset[str] = frozenset()
        if self._ours and self._settings.start.kind != "earliest" and self._loop.time() < self._together_until:
            waiting = frozenset(one.place[0] for one in self._ours) - self._topics.known
        self._offers.tell(waiting)

    # --- at the leaders

    async def _look(self, partitions: Collection[Partition]) -> Mapping[Partition, FastwireError]:
        failed = await self._ask_offsets(partitions)
        answered = [one for one in partitions if one not in failed]
        self._note_heads(answered)
        # The dataset has the last word on what it knows, so nothing has to wait for the group's offsets.
        new = [one for one in answered if one in self._ours and self.coverage.start(one.log) is None]
        self._offer(set(answered) - set(new), {})
        if new and self._owner is not None:
            try:
                committed = await self._owner.committed([one.place for one in new])
            except FastwireError as exc:
                return failed | dict.fromkeys(new, exc)
            self._offer(new, self._without_outdated(new, committed))
        return failed

    async def _ask_offsets(self, partitions: Collection[Partition]) -> dict[Partition, FastwireError]:
        """Ask for the start and end of these logs at the reader's isolation level; returns those that failed."""
        places = [one.place for one in partitions]
        committed = self._settings.limits.read_committed
        starts, ends = await asyncio.gather(
            self._cluster.list_offsets(dict.fromkeys(places, EARLIEST), read_committed=committed),
            self._cluster.list_offsets(dict.fromkeys(places, LATEST), read_committed=committed),
        )
        failed: dict[Partition, FastwireError] = {}
        for one in partitions:
            try:
                one.log_start, one.end = starts.of(one.place)[0], ends.of(one.place)[0]
                one.error = one.error if one.over else ""
            except FastwireError as exc:
                failed[one] = exc
        return failed

    def _offer(self, partitions: Iterable[Partition], committed: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        offered = [one for one in partitions if one in self._ours]
        for one in sorted(offered, key=lambda each: each.index):
            self._ours.discard(one)
            if self._owner is not None and self._owner.owns(one) and not one.granted and not one.over:
                at = committed.get(one.place)
                one.committed = None if at is None else Position(*at)
                self._offers.add(one.offer())
        if offered:
            self.tell()
            self.assigned.set()

    def _without_outdated(
        self, partitions: Iterable[Partition], committed: Mapping[tuple[str, int], tuple[int, int]]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the committed offsets that are not those of an earlier incarnation of the topic.

        A commit names a topic, so one that was on its way while the topic was deleted and created again is stored for
        the new one. An offset up to which records of an earlier incarnation have landed is taken for such a commit:
        what another dataset of the group has landed of the new one may land twice then, but no record is lost.
        """
        kept = dict(committed)
        places = {replace(one.log, incarnation=""): (one.place, unbroken(one.log)) for one in partitions}
        for known in self.coverage.logs():
            place, now = places.get(replace(known, incarnation=""), (None, None))
            if place is None or place not in kept or unbroken(known) == now:
                continue
            landed = self.coverage.end(known) or self.coverage.start(known)
            if landed is not None and kept[place][0] <= landed.a:
                offset, _ = kept.pop(place)
                log.warning(
                    "the group's offset is that of the topic that was deleted: reading begins at the beginning",
                    topic=str(now),
                    offset=offset,
                )
        return kept

    def _note_heads(self, partitions: Iterable[Partition]) -> None:
        for one in self._without_head.intersection(partitions):
            self._reached = True
            self._without_head.discard(one)
            if one.head is not None:
                self.heads[one.index] = one.head
        self._note_found()

    def _note_found(self) -> None:
        if not self._without_head:
            self.found.set()

    def _failed(self, partition: Partition, error: FastwireError) -> None:
        if partition not in self._without_head:
            return
        if is_for_good(error):
            self._refuse(error)
        elif not self._patient and not self._reached and not isinstance(error, BrokerError):
            self._unreached.add(partition)
            if self._unreached >= self._without_head:
                self._refuse(error)
