"""Consumer group of the source: committed offsets, for monitoring, and the assignment of partitions.

Offsets follow the landed records. They only inform people and tools: the dataset knows what has landed.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.kafka.format.error import RETRY, BrokerError, Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.protocol.question import NO_MEMBER
from fastwire.position import Position

from ....net.backoff import Backoff
from ....runtime.logs import get_logger
from ...reading.pullsource import PullSource
from ...reading.stage import Stage
from ..cluster import Cluster
from ..link import Link
from ..refusal import is_for_good
from .partition import Partition
from .settings import KafkaSettings

COMMIT_S = 1.0  # between two commits while records flow
COORDINATOR_S = 10.0  # the longest wait for the group's offsets if no group assigns the partitions
# Errors during a rebalance: the member that still owns the partition commits.
_LATER = RETRY | {
    Code.ILLEGAL_GENERATION,
    Code.UNKNOWN_MEMBER_ID,
    Code.REBALANCE_IN_PROGRESS,
    Code.STALE_MEMBER_EPOCH,
}

log = get_logger("source")


Reader = PullSource[Cluster, Link, Partition]


class Alone:
    """Reads all partitions without a group: no offsets are committed."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def run(self) -> None:
        """Assign all partitions to the reader."""
        self._reader.assign(self._reader.partitions)

    def owns(self, partition: Partition) -> bool:
        """Return True if this client reads the partition."""
        return True

    def topics_changed(self, added: Sequence[Partition]) -> None:
        """Handle new partitions, or a changed set of topics."""
        self._reader.assign(added)

    def gone(self, partitions: Iterable[Partition]) -> None:
        """Forget the offsets of partitions whose topics were deleted."""

    def granted(self, partitions: Iterable[Partition], coverage: Coverage) -> None:
        """Note that ``partitions`` are read from now on; commit landed offsets that the group lacks."""

    def void(self, partitions: Iterable[Partition]) -> None:
        """Note that records of ``partitions`` that have not landed are discarded."""

    def landed(self, coverage: Coverage, partitions: Iterable[Partition]) -> None:
        """Note that ``coverage`` has landed, which has changed for no other ones than ``partitions``."""

    async def committed(self, places: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[int, int]]:
        """Return the group's committed offsets and epochs; partitions without one are left out."""
        return {}

    async def leave(self) -> None:
        """Commit the last offsets."""

    @property
    def standing_by(self) -> bool:
        """See ``Source.standing_by``."""
        return False

    def status(self) -> dict[str, Any]:
        """Return the fields of the status page."""
        return {"kind": "none"}


class Group(Alone):
    """Reads every partition, and commits offsets without being a member (spec: kafka 5.1, OffsetCommit)."""

    def __init__(self, reader: Reader, settings: KafkaSettings, cluster: Cluster) -> None:
        super().__init__(reader)
        self._settings = settings
        self._cluster = cluster
        # By partition, not by its place: an offset is one of this incarnation of the topic.
        self._landed: dict[Partition, Position] = {}  # until it is committed
        self._confirmed: dict[Partition, Position] = {}  # committed at the broker
        # Ends of what had landed at the start; the group's committed offset may be higher or lower.
        self._unchecked: dict[Partition, Position] = {}
        self._unanswered_since: float | None = None  # the time of the first failed request for the group's offsets
        self._warned = False  # that these offsets are unavailable
        self._behind: set[Partition] = set()  # partitions whose committed offset was behind; each is logged once
        self._wake = asyncio.Event()
        self._error = ""

    async def run(self) -> None:
        """Assign all partitions to the reader, and commit offsets until cancelled."""
        await super().run()
        backoff = Backoff()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                if self._landed:
                    await self._commit()
            except FastwireError as exc:
                self._error = str(exc)
                self._wake.set()
                warn = is_for_good(exc)
                await asyncio.sleep(backoff.failed(log, "cannot commit offsets, retrying", exc, warn=warn))
            else:
                self._error = ""
                backoff.reset()
                await asyncio.sleep(COMMIT_S)

    def gone(self, partitions: Iterable[Partition]) -> None:
        """See ``Alone.gone``."""
        for partition in partitions:
            self._landed.pop(partition, None)

    def granted(self, partitions: Iterable[Partition], coverage: Coverage) -> None:
        """See ``Alone.granted``."""
        for partition in partitions:
            self._confirmed.pop(partition, None)
            at, known = coverage.end(partition.log), partition.committed
            if at is not None and (known is None or known.a < at.a):
                self._landed[partition] = at
                if known is None:
                    self._unchecked[partition] = partition.landed or at
                self._wake.set()

    def landed(self, coverage: Coverage, partitions: Iterable[Partition]) -> None:
        """See ``Alone.landed``."""
        for partition in partitions:
            deleted = partition.stage in (Stage.REPLACED, Stage.GONE)
            if not partition.was_granted or deleted or not self._commits(partition):
                continue
            at = coverage.end(partition.log)
            known = self._landed.get(partition) or self._confirmed.get(partition, partition.committed)
            if at is not None and known != at:
                self._landed[partition] = at
        if self._landed:
            self._wake.set()

    async def committed(self, places: Iterable[tuple[str, int]]) -> Mapping[tuple[str, int], tuple[int, int]]:
        """See ``Alone.committed``."""
        group = self._settings.group
        try:
            found = await self._cluster.committed(await self._cluster.coordinator(group, "ask"), group, places)
        except FastwireError as exc:
            if not self._may_go_without(exc):
                raise
            return {}
        self._unanswered_since = None
        return found

    def _may_go_without(self, error: FastwireError) -> bool:
        """Return True if reading may begin without the group's offsets, because no group assigns partitions."""
        now = asyncio.get_running_loop().time()
        if self._unanswered_since is None:
            self._unanswered_since, self._warned = now, False
        if not self._reader.is_fatal(error) and now - self._unanswered_since < COORDINATOR_S:
            return False
        if not self._warned:
            self._warned = True
            log.warning(
                "the group's offsets cannot be had: what the dataset does not know begins where start says",
                group=self._settings.group,
                error=str(error),
            )
        return True

    async def leave(self) -> None:
        """See ``Alone.leave``."""
        if self._landed:
            try:
                await self._commit()
            except FastwireError as exc:
                log.warning("the last offsets were not committed; the dataset knows them", error=str(exc))

    def status(self) -> dict[str, Any]:
        """See ``Alone.status``."""
        return {"kind": "none: all partitions are read", "error": self._error}

    def _commits(self, partition: Partition) -> bool:
        """Return True if this client commits the offset of ``partition``."""
        return True

    def _committing(self) -> Body:
        return NO_MEMBER

    async def _coordinator(self) -> Link:
        return await self._cluster.coordinator(self._settings.group)

    async def _commit(self) -> None:
        link = await self._coordinator()
        await self._lower(link)
        if not self._landed:
            return
        sent = dict(self._landed)
        offsets = {one.place: (at.a, at.b) for one, at in sent.items()}
        failed = await self._cluster.commit(link, self._settings.group, offsets, self._committing())
        for one, at in sent.items():
            code = failed.get(one.place)
            if code not in _LATER:
                self._done(one, at, confirmed=code is None)
        for place, code in failed.items():
            raise BrokerError(code, f"offset of {place[0]} partition {place[1]}")

    async def _lower(self, link: Link) -> None:
        """Leave out the landed offsets that the group already has, where this is not checked yet."""
        unchecked = self._unchecked.keys() & self._landed.keys()
        if not unchecked:
            return
        known = await self._cluster.committed(link, self._settings.group, [one.place for one in unchecked])
        for one in sorted(unchecked, key=lambda each: each.place):
            began, (offset, _) = self._unchecked.pop(one), known.get(one.place, (-1, -1))
            # What the log has lost, a gap says: a crash may have come between its commit and that of the offset.
            if offset >= 0 and max(offset, one.log_start) < began.a:
                self._tell_behind(one, offset, began)
            at = self._landed.get(one)
            if at is not None and offset >= at.a:
                self._done(one, at, confirmed=True)

    def _done(self, partition: Partition, at: Position, *, confirmed: bool) -> None:
        """Note that ``at`` is not to be committed any more; while that was on its way, the topic may have gone."""
        if self._landed.get(partition) == at:
            del self._landed[partition]
            if confirmed:
                self._confirmed[partition] = at

    def _tell_behind(self, partition: Partition, offset: int, landed: Position) -> None:
        """Log once for each partition that the group's committed ``offset`` was behind what has landed."""
        if partition in self._behind:
            return
        self._behind.add(partition)
        log.warning(
            "the committed offset was behind what has landed: reading goes on where that ends, and the offset "
            "follows. After a crash this is right; an offset that was reset has no effect on this dataset (to land "
            "the records again, use a new path); of another cluster's dataset, the records in between are lost",
            topic=partition.log.topic,
            partition=partition.place[1],
            committed=offset,
            landed=landed.a,
        )
