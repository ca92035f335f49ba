"""Counters of connections and consumer statistics of brokers, for metrics and the status page (spec: pulsar 22)."""

import asyncio
import secrets
from collections.abc import Iterable
from typing import Any, Protocol

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.request import SubscribeRequest, available_permits

from ....runtime.logs import get_logger
from ....runtime.metrics import PipelineMetrics
from ...reading.lag import Lag, LogLag, SourceLike
from ..cluster import Cluster
from ..link import Link
from ..routed import TopicRoute, close_on_broker
from .partition import Partition

AT_ONCE = 8  # concurrent requests
READERS = 1 << 32  # the first consumer id of readers; those of partitions are small

log = get_logger("source")


class Asking(SourceLike, Protocol):
    """A source, as its statistics see it."""

    cluster: Cluster
    partitions: list[Partition]

    def landed_up_to(self, partition: Partition) -> Position:
        """Return the position up to which all entries of a partition have landed, or were acknowledged before."""


class Stats(Lag):
    """Backlog in entries, as the broker counts it for the subscription.

    A stopped partition has no consumer, so that other instances get it. It is asked about by a reader, which takes
    nothing: the broker counts the entries behind its position.
    """

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
            metrics.permits.inc(permits)
            metrics.acks.inc(acks)
            metrics.receipts.inc(receipts)
            metrics.deduplicated["landed"].inc(landed)
            metrics.deduplicated["staged"].inc(staged)
            metrics.redelivered.inc(redelivered)
        discarded = self._source.cluster.completion.discarded
        metrics.discarded.inc(discarded - self._discarded)
        self._discarded = discarded

    # --- what brokers say

    def _growth(self, before: Position, after: Position) -> int:
        return max(1, after.b - before.b if after.a == before.a else after.b + 1)

    async def _ask(self) -> dict[int, LogLag]:
        lags: dict[int, LogLag] = {}
        left = iter([partition for partition in self._source.partitions if partition.counts])

        async def ask_in_turn() -> None:
            for partition in left:
                ask = self._ask_about if partition.granted else self._ask_about_stopped
                if (answer := await ask(partition)) is not None:
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
        return LogLag(stats.msgBacklog, partition.head, cursor, _more(stats))

    async def _ask_about_stopped(self, partition: Partition) -> LogLag | None:
        landed = self._source.landed_up_to(partition)
        reader = reader_behind(partition, landed)
        try:
            link = await TopicRoute(reader.topic, partition.service).link(self._source.cluster)
            await link.ask(lambda connection, now: connection.subscribe(reader, now))
            try:
                answer = await link.ask(lambda connection, now: connection.consumer_stats(reader.consumer_id, now))
            finally:
                await close_on_broker(
                    link, lambda now: link.connection.close_consumer(reader.consumer_id, now), reader.topic
                )
        except FastwireError as exc:
            log.debug("cannot ask for the backlog of a stopped log", topic=str(partition.log), error=str(exc))
            return self._lags.get(partition.index)
        return LogLag(answer.consumerStatsResponse.msgBacklog, partition.head, landed)


def reader_behind(partition: Partition, position: Position) -> SubscribeRequest:
    """Return the subscription of a reader that begins behind ``position`` of a partition."""
    want = partition.consumer.want
    begin = position if position.b < 0 else Position(position.a, position.b + 1)
    return SubscribeRequest(
        topic=want.topic,
        subscription=f"fastwire-backlog-{secrets.token_hex(5)}",
        subscription_type=pb.CommandSubscribe.Exclusive,
        consumer_id=READERS + want.consumer_id,
        consumer_name=want.consumer_name,
        create=False,
        reader_from=begin,
        latest=position.b >= 0,  # nothing is behind it
    )


def _more(stats: pb.CommandConsumerStatsResponse) -> dict[str, Any]:
    return {
        "unacked_messages": stats.unackedMessages,
        "available_permits": available_permits(stats),
        "blocked_on_unacked": stats.blockedConsumerOnUnackedMsgs,
        "messages_per_s": round(stats.msgRateOut, 3),
        "bytes_per_s": round(stats.msgThroughputOut, 3),
        "redelivered_per_s": round(stats.msgRateRedeliver, 3),
        "connected_since": stats.connectedSince,
    }
