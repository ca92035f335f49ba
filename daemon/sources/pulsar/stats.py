"""What connections have counted, and what brokers say of our consumers: for metrics and the status page (pulsar 22)."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastwire.errors import FastwireError
from fastwire.position import Position, format_position
from fastwire.pulsar import pulsar_pb2 as pb

from ...logs import get_logger
from ...metrics import PipelineMetrics
from ...pulsar.link import Link

if TYPE_CHECKING:
    from .partition import Partition
    from .source import PulsarSource

__all__ = ["Stats"]

LEAST_S = 0.06  # a log: a thousand of them every 15 s would take more of a core than idling may
AT_ONCE = 8  # questions under way; the answers are wanted soon, not at once
MOST_SHOWN = 100  # logs on the status page, those with the largest backlog

log = get_logger("source")


@dataclass(frozen=True, slots=True)
class _Told:
    """What the broker has said of one log."""

    consumer: pb.CommandConsumerStatsResponse
    head: Position | None
    cursor: Position | None


class Stats:
    """Asks the broker about every log that we read, ``lag_poll_s`` (with many logs: more) after it was asked last.

    A log that was not answered for is unknown and not in the sums; with none known there is no lag to report at all.
    """

    def __init__(self, source: "PulsarSource", metrics: PipelineMetrics | None) -> None:
        self._source = source
        self._metrics = metrics
        self._told: dict[int, _Told] = {}  # by index of the log
        self._asked_at = 0.0
        self._task: asyncio.Task[None] | None = None
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

    def look(self, now: float) -> None:
        """Ask the broker if it is time."""
        source = self._source
        if self._task is not None and not self._task.done():
            return
        if not any(partition.granted for partition in source.partitions):
            self._take({})  # what others read is theirs to report
        elif not self._asked_at or now - self._asked_at >= max(
            source.settings.lag_poll_s, len(source.partitions) * LEAST_S
        ):
            self._asked_at = now
            self._task = source.run(self._ask_all(), "stats")

    def status(self, now: float) -> dict[str, Any] | None:
        """The lag, and the logs with the largest backlog; None if nothing is known."""
        if not self._told:
            return None
        largest = sorted(self._told.items(), key=lambda item: -item[1].consumer.msgBacklog)[:MOST_SHOWN]
        return {
            "asked_s_ago": round(now - self._asked_at, 1),
            "backlog_entries": self._backlog(),
            "behind_logs": self._behind(),
            "known_logs": len(self._told),
            "logs": {str(self._source.logs[index]): self._shown(index, told) for index, told in largest},
        }

    def close(self) -> None:
        """Nothing is known any more."""
        self._take({})

    async def _ask_all(self) -> None:
        told: dict[int, _Told] = {}
        left = iter([partition for partition in self._source.partitions if partition.granted])

        async def ask_in_turn() -> None:
            for partition in left:
                if (answer := await self._ask(partition)) is not None:
                    told[partition.index] = answer

        # A task each would be thousands where there are thousands of partitions.
        await asyncio.gather(*(ask_in_turn() for _ in range(AT_ONCE)))
        self._take(told)

    async def _ask(self, partition: "Partition") -> _Told | None:
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
        return _Told(answer.consumerStatsResponse, partition.head, cursor)

    def _take(self, told: dict[int, _Told]) -> None:
        self._told = told
        if self._metrics is None:
            return
        if told:
            self._metrics.lag(self._backlog(), self._behind())
        else:
            self._metrics.lag_unknown()

    def _backlog(self) -> int:
        return sum(told.consumer.msgBacklog for told in self._told.values())

    def _behind(self) -> int:
        return sum(self._is_behind(index, told) for index, told in self._told.items())

    def _is_behind(self, index: int, told: _Told) -> bool:
        """Whether the broker held a record that had not come to us, nor was confirmed by a peer."""
        head = told.head
        if head is None or (told.cursor is not None and told.cursor >= head):
            return False
        received = self._source.position(index)
        return received is None or received < head

    def _shown(self, index: int, told: _Told) -> dict[str, Any]:
        consumer, received = told.consumer, self._source.position(index)
        return {
            "backlog_entries": consumer.msgBacklog,
            "unacked_messages": consumer.unackedMessages,
            "available_permits": consumer.availablePermits,
            "blocked_on_unacked": consumer.blockedConsumerOnUnackedMsgs,
            "messages_per_s": round(consumer.msgRateOut, 3),
            "bytes_per_s": round(consumer.msgThroughputOut, 3),
            "redelivered_per_s": round(consumer.msgRateRedeliver, 3),
            "connected_since": consumer.connectedSince,
            "head": _text(told.head),
            "received": _text(received),
            "cursor": _text(told.cursor),
        }


def _text(position: Position | None) -> str | None:
    return None if position is None else format_position("pulsar", position)
