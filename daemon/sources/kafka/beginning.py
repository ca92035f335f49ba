"""Where a log begins for us, or goes on: offsets of the cluster, and whether they still mean the same records."""

from fastwire.kafka.question import LATEST
from fastwire.position import Coverage, Position, Span, format_position

from ...kafka.cluster import Cluster
from ...logs import get_logger
from ..base import Assignment, First, LogStopped
from .partition import Partition
from .settings import KafkaSettings

__all__ = ["Beginnings"]

log = get_logger("source")


class Beginnings:
    """Finds the first positions of logs, and checks those of known ones against their leaders (kafka 13)."""

    def __init__(self, settings: KafkaSettings, cluster: Cluster) -> None:
        self._settings = settings
        self._cluster = cluster

    async def resolve(self, partition: Partition, assignment: Assignment, coverage: Coverage) -> First | None:
        """What is to be committed before ``partition`` is read, if anything.

        Raises LogStopped where it must not be read, and what the cluster's answers raise.
        """
        if coverage.start(partition.log) is None:
            return await self._first(partition, assignment)
        at = partition.position(coverage)
        end = await self.parting(partition, at)
        if end is not None:
            raise partition.broken(at, end)
        if partition.end < at.a:
            await self._check_end(partition, at)
        return partition.gap(at)

    async def _check_end(self, partition: Partition, at: Position) -> None:
        """Look again: others may have landed more meanwhile, and an open transaction hides what is stored."""
        stored = await self.stored(partition)
        if stored < at.a:
            raise partition.broken(at, Position(stored, -1))

    async def stored(self, partition: Partition) -> int:
        """Where the leader's log ends, whoever may read that far."""
        found = await self._cluster.list_offsets({partition.place: LATEST}, read_committed=False)
        return found[partition.place][0]

    async def parting(self, partition: Partition, at: Position) -> Position | None:
        """Ask the leader where its log parts from one that was read up to ``at``; None: nowhere (kafka 13.3).

        The epoch is the last one that both have: by it a later break is found before anything more was read.
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
            # All of that epoch was compacted away before this leader had it; or it was elected twice without being in
            # sync, and what it holds instead can be told from that by nobody.
            log.warning(
                "the leader does not know the epoch of what was read last: fine in a topic that is compacted",
                topic=str(partition.log),
                position=format_position("kafka", at),
                leader_knows=epoch,
            )
        return None

    async def _first(self, partition: Partition, assignment: Assignment) -> First | None:
        began = assignment.cursor
        if partition.resumes_at is not None:
            began = partition.resumes_at
        elif began is None:
            began = Position(await self._start_offset(partition), -1)
        else:
            _check_within(partition, "the group's offset", began.a)
        if partition.assignment is not assignment:
            return None
        partition.began = began
        return First(partition.index, Span(partition.log, began, began, 0), assignment.progress)

    async def _start_offset(self, partition: Partition) -> int:
        """Where a log begins for us that neither Coverage nor the group knows."""
        start = self._settings.start
        name, number = partition.place
        at = start.positions.get(f"{name}-{number}")
        if at is not None:
            _check_within(partition, "the start", at.a)
            return at.a
        if partition.late or start.kind == "earliest":
            return partition.log_start
        if start.kind == "latest":
            return partition.end
        if start.time is not None:
            milli = int(start.time.timestamp() * 1000)
            committed = self._settings.limits.read_committed
            found = await self._cluster.list_offsets({partition.place: milli}, read_committed=committed)
            return found[partition.place][0] if found[partition.place][0] >= 0 else partition.end
        raise LogStopped(f"{partition.log}: start names no position for {name}-{number}")


def _check_within(partition: Partition, what: str, offset: int) -> None:
    if not partition.log_start <= offset <= partition.end:
        raise LogStopped(
            f"{partition.log}: {what} {offset} lies outside of the log, which has {partition.log_start} to "
            f"{partition.end}"
        )
