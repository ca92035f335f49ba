"""Counters of connections and consumer statistics of brokers, for metrics and the status page (spec: pulsar 22)."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from fastwire.errors import FastwireError
from fastwire.pulsar.protocol.request import available_permits

from ....runtime.logs import get_logger
from ....runtime.metrics import PipelineMetrics
from ...reading.lag import Lag, LogLag, SourceLike
from ..cluster import Cluster
from ..link import Link
from .partition import Partition

__all__ = ["Stats"]

AT_ONCE = 8  # concurrent requests

log = get_logger("source")


class Asking(SourceLike, Protocol):
    """A source, as its statistics see it."""

    cluster: Cluster
    partitions: list[Partition]


class Stats(Lag):
    """Backlog in entries, as the broker counts it for the subscription."""

    _source: Asking

    def __init__(self, source: Asking, metrics: PipelineMetrics | None, poll_s: float) -> None:
        super().__init__(source, metrics, poll_s)
        self._discarded = 0  # the part that is in the metrics already

    # --- what connections count

    def count(self, links: Iterable[Link]) -> None:
        """Add the counts since the last call to the metrics."""
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
            metrics.deduplicated(landed, "landed")
            metrics.deduplicated(staged, "staged")
            metrics.redelivered(redelivered)
        discarded = self._source.cluster.completion.discarded
        metrics.discarded(discarded - self._discarded)
        self._discarded = discarded

    # --- what brokers say

    async def _ask(self) -> dict[int, LogLag]:
        lags: dict[int, LogLag] = {}
        left = iter([partition for partition in self._source.partitions if partition.granted])

        async def ask_in_turn() -> None:
            for partition in left:
                if (answer := await self._ask_about(partition)) is not None:
                    lags[partition.index] = answer

        # One task per partition would be thousands of tasks.
        await asyncio.gather(*(ask_in_turn() for _ in range(AT_ONCE)))
        return lags

    async def _ask_about(self, partition: Partition) -> LogLag | None:
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
            "available_permits": available_permits(stats),
            "blocked_on_unacked": stats.blockedConsumerOnUnackedMsgs,
            "messages_per_s": round(stats.msgRateOut, 3),
            "bytes_per_s": round(stats.msgThroughputOut, 3),
            "redelivered_per_s": round(stats.msgRateRedeliver, 3),
            "connected_since": stats.connectedSince,
        }
        return LogLag(stats.msgBacklog, partition.head, cursor, more)
