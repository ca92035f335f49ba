"""Resolve the first offset of a partition, and validate known offsets against its leader."""

from datetime import datetime

from fastwire.coverage import Coverage
from fastwire.kafka.position import POSITIONS
from fastwire.kafka.protocol.question import LATEST
from fastwire.position import Position, Span

from ....runtime.logs import get_logger
from ...reading.pulled import LogBroken
from ...source import Assignment, First, LogStopped
from ..cluster import Cluster
from .partition import Partition
from .settings import KafkaSettings

LOST = "records were lost by an unclean election, or the log was truncated"
REPLACED = (
    "and the broker holds another record before it: records were lost and others have taken their offsets, or the "
    'broker was restored from a backup; on_truncation = "continue" reads the log that is there now from its beginning, '
    "as another one"
)

log = get_logger("source")


class FirstPositions:
    """Finds the first positions of logs, and checks those of known ones against their leaders (spec: kafka 13)."""

    def __init__(self, settings: KafkaSettings, cluster: Cluster) -> None:
        self._settings = settings
        self._cluster = cluster

    async def resolve(self, partition: Partition, assignment: Assignment, coverage: Coverage) -> First | None:
        """Return the position to commit before ``partition`` is read, or None if nothing needs a commit.

        Raises LogStopped where it must not be read, and what the cluster's answers raise.
        """
        partition.landed = None
        if coverage.start(partition.log) is None:
            return await self._first(partition, assignment)
        at = partition.landed = partition.position(coverage)
        if at == partition.replaced_at:
            raise LogBroken(f"{partition.log}: {POSITIONS.format(at)} has landed, {REPLACED}", partition.beginning)
        end = await self.parting(partition, at)
        if end is not None:
            raise partition.broken(at, end, LOST)
        if partition.end < at.a:
            await self._check_end(partition, at)
        return partition.gap(at)

    async def _check_end(self, partition: Partition, at: Position) -> None:
        """Look again: others may have landed more meanwhile, and an open transaction hides what is stored."""
        stored = await self.stored(partition)
        if stored < at.a:
            raise partition.broken(at, Position(stored, -1), LOST)

    async def stored(self, partition: Partition) -> int:
        """Return the end of the leader's log, including open transactions."""
        found = await self._cluster.list_offsets({partition.place: LATEST}, read_committed=False)
        return found.of(partition.place)[0]

    async def parting(self, partition: Partition, at: Position) -> Position | None:
        """Ask the leader where its log parts from one that was read up to ``at``; None: nowhere (spec: kafka 13.3).

        The epoch is the last one that both logs have, so a later divergence is found before more records are read.
        """
        if at.b < 0:
            return None
        found = await self._cluster.epoch_end(partition.place, at.b)
        if found is None:
            return None
        epoch, end = found
        if 0 <= end < at.a:
            return Position(end, epoch)
        if epoch != at.b:
            # All of that epoch was compacted away before this leader had it; or the leader was elected uncleanly twice,
            # and the records that it holds instead are indistinguishable from them.
            log.warning(
                "the leader does not know the epoch of what was read last: fine in a topic that is compacted",
                topic=str(partition.log),
                position=POSITIONS.format(at),
                leader_knows=epoch,
            )
        return None

    async def _first(self, partition: Partition, assignment: Assignment) -> First | None:
        began, progress = assignment.cursor, assignment.progress
        if partition.resumes_at is not None:
            began = partition.resumes_at
        elif began is not None and not await self._holds(partition, began.a):
            log.warning(
                "the group's offset lies outside of the log: start decides where to begin",
                topic=str(partition.log),
                offset=began.a,
                log_begins=partition.log_start,
                log_ends=partition.end,
                start=str(self._settings.start.kind),
            )
            began, progress = None, False
        if began is None:
            began = await self._start(partition)
        if partition.assignment is not assignment:
            return None
        partition.began = began
        return First(partition.index, Span(partition.log, began, began, 0), progress)

    async def _holds(self, partition: Partition, offset: int) -> bool:
        """Return True if ``offset`` lies in the log; committed offsets may be newer than the known end of the log."""
        if offset < partition.log_start:
            return False
        return offset <= partition.end or offset <= await self.stored(partition)

    async def _start(self, partition: Partition) -> Position:
        """Return the first position of a log that neither Coverage nor the group knows."""
        start = self._settings.start
        at = partition.start_offset(start)
        if at is not None:
            return Position(at, -1)
        if start.group:
            return await self._at_group(partition, start.group)
        assert start.time is not None
        return await self.at_time(partition, start.time)

    async def _at_group(self, partition: Partition, group: str) -> Position:
        """Return the offset that another group has committed; without one the beginning, so that nothing is missed.

        Raises LogStopped if it lies behind the log, which is then not the one that the group has read.
        """
        link = await self._cluster.coordinator(group, "ask")
        committed = (await self._cluster.committed(link, group, [partition.place])).get(partition.place)
        if committed is None or committed[0] < partition.log_start:
            none = "the group has committed no offset of this partition: reading begins at its beginning"
            log.warning(
                none if committed is None else "the group's offset is gone: reading begins where the log begins",
                topic=str(partition.log),
                group=group,
                offset=None if committed is None else committed[0],
                begins_at=partition.log_start,
            )
            return Position(partition.log_start, -1)
        if not await self._holds(partition, committed[0]):
            raise LogStopped(
                f"{partition.log}: group {group} has committed offset {committed[0]}, and the log ends at "
                f"{partition.end}: the topic was made again since"
            )
        return Position(*committed)

    async def at_time(self, partition: Partition, time: datetime) -> Position:
        """Return the position before the first record of ``time`` or later, or the end of the log."""
        milli = int(time.timestamp() * 1000)
        committed = self._settings.limits.read_committed
        found = await self._cluster.list_offsets({partition.place: milli}, read_committed=committed)
        offset, _ = found.of(partition.place)
        return Position(offset if offset >= 0 else partition.end, -1)
