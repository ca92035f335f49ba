"""Log ends as reported by brokers, for metrics and the status page."""

from typing import Protocol

from fastwire.kafka.question import LATEST
from fastwire.position import Position

from ....runtime.logs import get_logger
from ...lag import Lag, LogLag, SourceLike
from ..cluster import Cluster
from .partition import Partition
from .settings import KafkaSettings

__all__ = ["Stats"]

log = get_logger("source")


class Asking(SourceLike, Protocol):
    """A source, as its statistics see it."""

    cluster: Cluster
    settings: KafkaSettings
    partitions: list[Partition]

    def landed_up_to(self, partition: Partition) -> Position:
        """Return the end of the durable records of a partition."""


class Stats(Lag):
    """Lag in offsets: from what has landed to the end of the log at the isolation level of the source."""

    _source: Asking

    async def _ask(self) -> dict[int, LogLag]:
        source = self._source
        # Partitions without a link have no known leader at the moment.
        read = {one.place: one for one in source.partitions if one.granted and one.link is not None}
        committed = source.settings.limits.read_committed
        ends = await source.cluster.list_offsets(dict.fromkeys(read, LATEST), read_committed=committed)
        for error in ends.failed.values():
            log.debug("cannot ask where a log ends", error=str(error))
        lags = {}
        for place, (end, _) in ends.found.items():
            one = read.get(place)
            if one is not None and one.granted:
                done = source.landed_up_to(one)
                lags[one.index] = LogLag(max(end - done.a, 0), Position(end, -1), done)
        return lags
