"""What brokers say of the ends of our logs: for metrics and the status page."""

from typing import TYPE_CHECKING

from fastwire.errors import FastwireError
from fastwire.kafka.question import LATEST
from fastwire.position import Position

from ...logs import get_logger
from ..lag import Lag, Told

if TYPE_CHECKING:
    from .source import KafkaSource

__all__ = ["Stats"]

log = get_logger("source")


class Stats(Lag):
    """The lag in offsets: from what has landed to the end of the log, as far as we may read it."""

    _source: "KafkaSource"

    async def _ask(self) -> dict[int, Told]:
        source = self._source
        # Who leads the others is being found out.
        read = {one.place: one for one in source.partitions if one.granted and one.link is not None}
        try:
            ends = await source.cluster.list_offsets(
                dict.fromkeys(read, LATEST), read_committed=source.settings.limits.read_committed
            )
        except FastwireError as exc:
            log.debug("cannot ask where the logs end", error=str(exc))
            return {}
        told = {}
        for place, one in read.items():
            if one.granted and place in ends:
                end, done = ends[place][0], source.landed_up_to(one)
                told[one.index] = Told(max(end - done.a, 0), Position(end, -1), done)
        return told
