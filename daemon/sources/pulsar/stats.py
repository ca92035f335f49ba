"""What connections have counted, and what brokers say of our consumers: for metrics and the status page (pulsar 22)."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastwire.errors import FastwireError

from ...logs import get_logger
from ...metrics import PipelineMetrics
from ...pulsar.link import Link
from ..lag import Lag, Told

if TYPE_CHECKING:
    from .partition import Partition
    from .source import PulsarSource

__all__ = ["Stats"]

AT_ONCE = 8  # questions under way; the answers are wanted soon, not at once

log = get_logger("source")


class Stats(Lag):
    """The backlog in entries, as the broker counts it for our subscription."""

    _source: "PulsarSource"

    def __init__(self, source: "PulsarSource", metrics: PipelineMetrics | None, poll_s: float) -> None:
        super().__init__(source, metrics, poll_s)
        self._discarded = 0  # that the metrics have

    # --- what connections count

    def count(self, links: Iterable[Link]) -> None:
        """Add to the metrics what was counted since the last time."""
        metrics = self._metrics
        if metrics is None:
            return
        for link in links:
            now = link.counters()
            permits, acks, receipts, landed, staged, redelivered = (
                new - old for new, old in zip(now, link.counted, strict=True)
            )
            link.counted = now
            metrics.granted(permits)
            metrics.acks_sent(acks)
            metrics.ack_receipts(receipts)
            metrics.cut(landed, "landed")
            metrics.cut(staged, "staged")
            metrics.redelivered(redelivered)
        discarded = self._source.cluster.completion.discarded
        metrics.discarded(discarded - self._discarded)
        self._discarded = discarded

    # --- what brokers say

    async def _ask(self) -> dict[int, Told]:
        told: dict[int, Told] = {}
        left = iter([partition for partition in self._source.partitions if partition.granted])

        async def ask_in_turn() -> None:
            for partition in left:
                if (answer := await self._ask_about(partition)) is not None:
                    told[partition.index] = answer

        # A task each would be thousands where there are thousands of partitions.
        await asyncio.gather(*(ask_in_turn() for _ in range(AT_ONCE)))
        return told

    async def _ask_about(self, partition: "Partition") -> Told | None:
        consumer_id = partition.consumer.consumer_id
        link = partition.link
        if link is None:
            return None
        try:
            answer = await link.ask(lambda connection, now: connection.consumer_stats(consumer_id, now))
            cursor = await partition.ask_cursor()
        except FastwireError as exc:
            log.debug("cannot ask for the backlog", topic=str(partition.log), error=str(exc))
            return None
        stats = answer.consumerStatsResponse
        more = {
            "unacked_messages": stats.unackedMessages,
            "available_permits": stats.availablePermits,
            "blocked_on_unacked": stats.blockedConsumerOnUnackedMsgs,
            "messages_per_s": round(stats.msgRateOut, 3),
            "bytes_per_s": round(stats.msgThroughputOut, 3),
            "redelivered_per_s": round(stats.msgRateRedeliver, 3),
            "connected_since": stats.connectedSince,
        }
        return Told(stats.msgBacklog, partition.head, cursor, more)
