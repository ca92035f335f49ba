"""Offers partitions of Kafka: their offsets at the leaders, and those that the group has committed."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.kafka.protocol.question import EARLIEST, LATEST
from fastwire.position import Log, Position

from ....runtime.logs import get_logger
from ....runtime.tasks import Tasks
from ...reading.atleaders import Freshness
from ...reading.offers import Offers
from ...reading.offsetlookup import OffsetLookup, Refusals
from ...source import Assignment
from ..cluster import Cluster
from .group import Alone
from .partition import Partition
from .settings import KafkaSettings
from .topics import unbroken

log = get_logger("source")


class KafkaOffsetLookup(OffsetLookup[Cluster, Partition]):
    """Offers the partitions that ``owner``, the group, assigns; it is set before the start."""

    owner: Alone

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        freshness: Freshness[Partition],
        known: Callable[[], Set[str]],
        offers: Offers,
        tasks: Tasks,
        refusals: Refusals,
        *,
        patient: bool,
    ) -> None:
        super().__init__(cluster, settings.start, freshness, known, offers, tasks, refusals, patient=patient)
        self.coverage = Coverage()  # as the source knows it
        self.follows_group = False  # see ``LimitedSource.follows_group``
        self._read_committed = settings.limits.read_committed
        self._committed: Mapping[tuple[str, int], tuple[int, int]] = {}  # of the partitions that are being offered

    async def _ask_offsets(self, partitions: Collection[Partition]) -> dict[Partition, FastwireError]:
        """Ask for the start and end of these logs at the reader's isolation level; returns those that failed."""
        places = [one.place for one in partitions]
        committed = self._read_committed
        starts, ends = await asyncio.gather(
            self._cluster.list_offsets(dict.fromkeys(places, EARLIEST), read_committed=committed),
            self._cluster.list_offsets(dict.fromkeys(places, LATEST), read_committed=committed),
        )
        failed: dict[Partition, FastwireError] = {}
        for one in partitions:
            try:
                one.log_start, one.end = starts.of(one.place)[0], ends.of(one.place)[0]
            except FastwireError as exc:
                failed[one] = exc
        return failed

    async def _answered(self, partitions: Collection[Partition]) -> Mapping[Partition, FastwireError]:
        # A dataset has the last word on what it knows, so nothing has to wait for the group's offsets.
        asked = [one for one in partitions if self.follows_group or self.coverage.start(one.log) is None]
        new = [one for one in asked if one in self._ours]
        self._offer_at(set(partitions) - set(new), {})
        if new:
            try:
                committed = await self.owner.committed([one.place for one in new])
                beyond = await self._beyond(new, committed)
            except FastwireError as exc:
                return dict.fromkeys(new, exc)
            self._offer_at(new, self._without_outdated(new, committed, beyond))
        return {}

    async def _beyond(
        self, partitions: Iterable[Partition], committed: Mapping[tuple[str, int], tuple[int, int]]
    ) -> list[Partition]:
        """Return the partitions of known logs whose committed offset lies behind the end of the log.

        The records before it were lost after the commit. What has landed of such a log tells where to go on.
        """
        doubtful = {
            one.place: one
            for one in partitions
            if committed.get(one.place, (0, 0))[0] > one.end and self.coverage.start(one.log) is not None
        }
        if not doubtful:
            return []
        # An open transaction hides what is stored.
        ends = await self._cluster.list_offsets(dict.fromkeys(doubtful, LATEST), read_committed=False)
        return [one for place, one in doubtful.items() if committed[place][0] > ends.of(place)[0]]

    def _offer_at(self, partitions: Iterable[Partition], committed: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        self._committed = committed
        self._offer(partitions)

    def _owns(self, partition: Partition) -> bool:
        return self.owner.owns(partition)

    def _assignment(self, partition: Partition) -> Assignment:
        at = self._committed.get(partition.place)
        partition.committed = None if at is None else Position(*at)
        return partition.offer()

    def _without_outdated(
        self,
        partitions: Iterable[Partition],
        committed: Mapping[tuple[str, int], tuple[int, int]],
        beyond: Iterable[Partition],
    ) -> dict[tuple[str, int], tuple[int, int]]:
        kept = dict(committed)

        def drop(one: Partition, why: str, **more: int) -> None:
            offset, _ = kept.pop(one.place)
            log.warning(why, topic=str(one.log), offset=offset, **more)

        for one in beyond:
            drop(
                one,
                "the group's offset lies behind the end of the log, so records were lost or the log is another one: "
                "reading goes on where the records that have landed end",
                log_ends=one.end,
            )
        for one in self._of_former_logs(partitions, kept):
            drop(
                one,
                "the group's offset may be that of the log before a break: reading goes on where the records of this "
                "log end that have landed",
            )
        for one in outdated(partitions, committed, self.coverage):
            drop(one, "the group's offset is that of the topic that was deleted: reading begins at the beginning")
        return kept

    def _of_former_logs(
        self, partitions: Iterable[Partition], committed: Mapping[tuple[str, int], tuple[int, int]]
    ) -> list[Partition]:
        """Return the partitions of known logs whose committed offset, which would be followed, may be another log's.

        It was stored before a break if a crash came before that of the log that is there now. In doubt records land
        twice, and none is lost. Brokers delete the offsets of a deleted topic themselves.
        """
        asked = {one: end for one in partitions if (end := self.coverage.end(one.log)) and one.place in committed}
        reached: dict[Log, int] = {}
        for known in self.coverage.logs() if asked else ():
            whole, end = unbroken(known), self.coverage.end(known)
            reached[whole] = max(reached.get(whole, 0), 0 if end is None else end.a)
        return [one for one, end in asked.items() if end.a < committed[one.place][0] <= reached[unbroken(one.log)]]


def outdated(
    partitions: Iterable[Partition], committed: Mapping[tuple[str, int], tuple[int, int]], coverage: Coverage
) -> list[Partition]:
    """Return the partitions whose committed offset is that of an earlier incarnation of the topic.

    A commit names a topic, so one that was on its way while the topic was deleted and created again is stored for
    the new one. If nothing of the new one has landed, an offset up to which records of an earlier incarnation have
    landed is taken for such a commit: what another dataset of the group has landed of the new one may land twice then,
    but no record is lost.
    """
    new = {replace(one.log, incarnation=""): one for one in partitions if coverage.start(one.log) is None}
    found = {}
    for known in coverage.logs():
        one = new.get(replace(known, incarnation=""))
        if one is None or one.place not in committed or unbroken(known) == unbroken(one.log):
            continue
        landed = coverage.end(known) or coverage.start(known)
        if landed is not None and committed[one.place][0] <= landed.a:
            found[one.place] = one
    return list(found.values())
