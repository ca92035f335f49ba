"""What has to be looked at now and then: how many permits suit a consumer, and those that get nothing for them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import PULSAR_EARLIEST, Coverage, Position

from ...budget import permit_window
from ...logs import get_logger
from .coverage import MOST_INTERVALS

if TYPE_CHECKING:
    from .partition import Partition
    from .source import PulsarSource

__all__ = ["Watch"]

LOOK_S = 1.0
QUIET_S = 2.0  # without a record, though permits are out and records unacknowledged: ask the broker why
MOST_QUIET_S = 60.0
# Reasons after which the broker may have debited more than we can know (pulsar 13.4).
UNCOUNTED = ("ChecksumMismatch", "BatchDeSerializeError: broker entry", "BatchDeSerializeError: metadata",
             "BatchDeSerializeError: MessageMetadata", "BatchDeSerializeError: num_messages")  # fmt: skip

log = get_logger("source")


@dataclass(slots=True)
class _Seen:
    """What was last seen of one consumer."""

    at: float = 0.0  # last time that something came
    ask_after: float = QUIET_S
    position: Position = PULSAR_EARLIEST
    debited: int = 0
    messages_per_entry: float = 1.0


class Watch:
    """The slow clock of a source, once a second, over those consumers that need it."""

    def __init__(self, source: "PulsarSource") -> None:
        self._source = source
        self._seen: dict[int, _Seen] = {}
        self._recent: set[int] = set()
        self._looked_at = 0.0
        self._asking: set[int] = set()
        self._settling: set[int] = set()

    def touched(self, consumers: Iterable[int]) -> None:
        """These consumers got something."""
        self._recent.update(consumers)

    def diverted(self, chunk: Chunk) -> None:
        """Entries were damaged: where not even their metadata can be trusted, our count of permits cannot be either."""
        for letter in chunk.diverted:
            partition = self._source.partition_of(letter.log)
            if partition is not None and letter.reason.startswith(UNCOUNTED):
                partition.distrust = True

    def landed(self, partition: "Partition", coverage: Coverage) -> None:
        """More has landed: where that has left too many holes, ask the broker what it holds for confirmed."""
        if partition.index not in self._settling and self._has_holes(partition, coverage):
            self._settling.add(partition.index)
            self._source.run(self._ask_floor(partition), f"floor of {partition.log}")

    def _has_holes(self, partition: "Partition", coverage: Coverage) -> bool:
        """Read in order, holes are parts that we hold, or come from a time of reading shared.

        What was in those may have been confirmed by somebody else, and our cumulative acks would wait for it.
        """
        intervals = len(coverage.intervals(partition.log))
        if partition.consumer.ordered:
            assembly = self._source.cluster.completion.assembly
            return intervals > 1 and not assembly.holds(partition.consumer.consumer_id)
        return intervals > MOST_INTERVALS

    async def _ask_floor(self, partition: "Partition") -> None:
        try:
            cursor = await partition.ask_cursor()
            if cursor is not None and cursor.b >= 0:
                self._source.slots.set_landed(partition.consumer.consumer_id, cursor)
                self._source.events.on_settled(partition.index, cursor)
        except FastwireError as exc:
            log.debug("cannot ask what is settled", topic=str(partition.log), error=str(exc))
        finally:
            self._settling.discard(partition.index)

    def due(self, now: float) -> bool:
        """Whether it is time to look."""
        return now - self._looked_at >= LOOK_S

    def look(self, now: float) -> None:
        """Look at consumers that got something, and at those that do not although they might."""
        self._looked_at = now
        self._expire()
        recent, self._recent = self._recent, set()
        for consumer_id in recent:
            seen = self._seen.setdefault(consumer_id, _Seen())
            seen.at = now
            seen.ask_after = QUIET_S
            self._size(consumer_id, seen)
        for partition in self._source.partitions:
            consumer = partition.consumer
            known = self._seen.get(consumer.consumer_id)
            if known is None or not partition.granted or now - known.at < known.ask_after:
                continue
            if partition.distrust:
                partition.reestablish("permits cannot be counted after a damaged entry")
                known.ask_after = MOST_QUIET_S
            elif not consumer.ordered and consumer.outstanding > 0:
                known.ask_after = min(known.ask_after * 2, MOST_QUIET_S)
                self._ask(partition)

    def _expire(self) -> None:
        """Count the time in which missing parts of chunked messages could have come."""
        source = self._source
        assembly = source.cluster.completion.assembly
        if not len(assembly) or source.holding:
            return
        reading = [one for one in source.partitions if one.reading]
        torn = assembly.expired((one.consumer.consumer_id for one in reading), LOOK_S)
        for one in reading if torn else ():
            one.give_up([each for each in torn if each.entry.consumer_id == one.consumer.consumer_id])

    def _size(self, consumer_id: int, seen: _Seen) -> None:
        source = self._source
        position, debited = source.slots.last_position(consumer_id), source.slots.debited(consumer_id)
        # After a reconnect the count begins anew.
        if debited > seen.debited and position.a == seen.position.a and position.b > seen.position.b:
            seen.messages_per_entry = max(1.0, (debited - seen.debited) / (position.b - seen.position.b))
        seen.position, seen.debited = position, debited
        largest = source.slots.largest_entry(consumer_id)
        if largest:
            permit_bytes = int(largest / seen.messages_per_entry) + 1
            partition = source.partitions[consumer_id]
            reading = len(source.partitions)
            window = permit_window(source.memory_limit, reading, permit_bytes, source.most_permits)
            partition.consumer.permits.window = window

    def _ask(self, partition: "Partition") -> None:
        """Ask the broker whether it waits for our acks."""
        consumer_id = partition.consumer.consumer_id
        if consumer_id in self._asking or all(landed for *_, landed in self._source.slots.entry_runs(consumer_id)):
            return
        self._asking.add(consumer_id)
        self._source.run(self._ask_stats(partition), f"stats of {partition.log}")

    async def _ask_stats(self, partition: "Partition") -> None:
        consumer_id = partition.consumer.consumer_id
        link = partition.link
        try:
            if link is None:
                return
            reply = await link.ask(lambda connection, now: connection.consumer_stats(consumer_id, now))
            stats = reply.consumerStatsResponse
            if stats.blockedConsumerOnUnackedMsgs:
                setting = "maxUnackedMessagesPerConsumer"
            elif stats.unackedMessages and stats.msgBacklog > stats.unackedMessages and stats.availablePermits > 0:
                setting = "maxUnackedMessagesPerSubscription"
            else:
                return
            if not partition.granted:
                return
            log.warning(
                "the broker delivers nothing more until records are acknowledged",
                topic=str(partition.log),
                unacked=stats.unackedMessages,
                setting=setting,
            )
            self._source.events.on_stalled(partition.index, stats.unackedMessages, setting)
        except FastwireError as exc:
            log.debug("cannot ask for the consumer's state", topic=str(partition.log), error=str(exc))
        finally:
            self._asking.discard(consumer_id)
