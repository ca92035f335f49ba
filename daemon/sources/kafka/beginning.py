"""Where a log begins for us, or goes on: offsets of the cluster, and whether they still mean the same records."""

from fastwire.position import Coverage, Position, Span

from ...kafka.cluster import Cluster
from ..base import Assignment, First, LogStopped
from .partition import Partition
from .settings import KafkaSettings

__all__ = ["Beginnings"]


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
        first = partition.resolve_known(coverage)
        await self._check_epoch(partition, partition.position(coverage))
        return first

    async def _check_epoch(self, partition: Partition, at: Position) -> None:
        """Ask the leader whether its log has what has landed (kafka 13.3)."""
        if at.b < 0:
            return
        found = await self._cluster.epoch_end(partition.place, at.b)
        if found is not None and 0 <= found[1] < at.a:
            partition.refuse_truncated(at, found[1])

    async def _first(self, partition: Partition, assignment: Assignment) -> First | None:
        began = assignment.cursor
        if began is None:
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
