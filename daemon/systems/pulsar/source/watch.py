"""Periodic checks of consumers: the size of their permit window, and consumers that receive nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Log, Position
from fastwire.pulsar.position import POSITIONS, PULSAR_EARLIEST
from fastwire.pulsar.protocol.consumer import Run
from fastwire.pulsar.protocol.request import available_permits

from ....runtime.budget import permit_window
from ....runtime.logs import get_logger
from ...source import SourceEvents
from .coverage import MOST_HOLES, MOST_INTERVALS, skipped_holes
from .host import Host
from .partition import Partition

LOOK_S = 1.0
QUIET_S = 2.0  # without a record, with permits granted and records unacknowledged: ask the broker for the reason
MOST_QUIET_S = 60.0

log = get_logger("source")


class Watched(Host[Partition], Protocol):
    """A source, as its watch sees it."""

    events: SourceEvents
    logs: list[Log]
    partitions: list[Partition]

    @property
    def memory_limit(self) -> int:
        """The memory budget of the process, in bytes."""


@dataclass(slots=True)
class _Seen:
    """State of one consumer at the last look."""

    at: float = 0.0  # the time of the last record
    ask_after: float = QUIET_S
    debited: int = 0
    debits: int = 0
    messages_per_entry: float = 1.0


@dataclass(slots=True)
class _Again:
    """Landed entries that are redelivered first after a subscribe."""

    first: Position
    last: Position
    entries: int = 0
    grew: bool = True  # since the last look


class Watch:
    """Checks the consumers of a source that need it, once a second."""

    def __init__(self, source: Watched) -> None:
        self._source = source
        self._seen: dict[int, _Seen] = {}
        self._recent: set[int] = set()
        self._looked_at = 0.0
        self._asking: set[int] = set()
        self._settling: set[int] = set()
        self._granted: set[int] = set()  # consumers without records since their grant
        self._again: dict[int, _Again] = {}
        self._logged_again: set[int] = set()
        self._kept: dict[int, int] = {}  # by log index, holes that the broker's cursor has passed

    def touched(self, consumers: Iterable[int]) -> None:
        """Note that these consumers have received records."""
        self._recent.update(consumers)

    def granted(self, partition: Partition) -> None:
        """Note that records were requested."""
        self._granted.add(partition.index)
        self._again.pop(partition.index, None)

    def came(self, partition: Partition, landed: Sequence[Run]) -> None:
        """Note received entries; ``landed`` are those that landed before, as (ledger, first, last)."""
        index = partition.index
        begins = index in self._granted
        self._granted.discard(index)
        if partition.began is not None and [run[::2] for run in landed] == [partition.began]:
            return  # a seek redelivers the entry at which a log begins
        if not landed or index in self._logged_again:
            return
        if begins:
            self._again[index] = _Again(Position(*landed[0][:2]), PULSAR_EARLIEST)
        again = self._again.get(index)
        if again is not None:
            again.last = Position(landed[-1][0], landed[-1][2])
            again.entries += sum(last - first + 1 for _, first, last in landed)
            again.grew = True

    def _tell_again(self) -> None:
        """Log the redelivered entries of each log once, as soon as no more of them arrive."""
        for index, again in tuple(self._again.items()):
            if again.grew:
                again.grew = False
                continue
            del self._again[index]
            self._logged_again.add(index)
            log.warning(
                "entries that have landed came again, and were acknowledged without landing twice: after a crash or a "
                "lost connection, or because the cursor was set back; if the dataset is of another cluster, they are "
                "lost",
                topic=str(self._source.logs[index]),
                first=POSITIONS.format(again.first),
                last=POSITIONS.format(again.last),
                entries=again.entries,
            )

    def landed(self, partition: Partition, coverage: Coverage) -> None:
        """Note landed entries; if they leave too many holes, ask the broker for its cursor."""
        if partition.index not in self._settling and self._has_holes(partition, coverage):
            self._settling.add(partition.index)
            self._source.run(self._ask_floor(partition, coverage), f"floor of {partition.log}")

    def _has_holes(self, partition: Partition, coverage: Coverage) -> bool:
        """Return True if the coverage of ``partition`` has too many holes.

        In an ordered subscription holes are parts of messages that are held, or they come from a time as a shared one.
        Another client may have acknowledged the entries in them, and cumulative acks would wait for these entries.
        """
        intervals = len(coverage.intervals(partition.log))
        if partition.consumer.ordered:
            assembly = self._source.cluster.completion.assembly
            return intervals > 1 and not assembly.holds(partition.consumer.consumer_id)
        return intervals > MOST_INTERVALS + self._kept.get(partition.index, 0)

    async def _ask_floor(self, partition: Partition, coverage: Coverage) -> None:
        try:
            cursor = await partition.ask_cursor()
            if cursor is not None and not partition.consumer.ordered:
                cursor = self._floor(partition, coverage, cursor)
            if cursor is not None and cursor.b >= 0:
                self._source.slots.set_landed(partition.consumer.consumer_id, cursor)
                self._source.events.on_floor(partition.index, cursor)
        except FastwireError as exc:
            log.debug("cannot ask what is settled", topic=str(partition.log), error=str(exc))
        finally:
            self._settling.discard(partition.index)

    def _floor(self, partition: Partition, coverage: Coverage, cursor: Position) -> Position:
        """Return the position up to which ``cursor`` settles a shared log; skipped entries are kept, up to a limit.

        An operator who sets the cursor back wants what was skipped to land.
        """
        skipped = skipped_holes(coverage, partition.log, cursor)
        self._kept[partition.index] = len(skipped)
        if not skipped:
            return cursor
        if len(skipped) <= MOST_HOLES:
            return skipped[0][0]
        self._kept[partition.index] = 0
        log.warning(
            "the subscription has passed records in many places without landing them: they are taken as acknowledged, "
            "and would not land if its cursor were set back",
            topic=str(partition.log),
            places=len(skipped),
            first=POSITIONS.format(skipped[0][0]),
            last=POSITIONS.format(skipped[-1][1]),
        )
        return cursor

    def due(self, now: float) -> bool:
        """Return True if a look is due."""
        return now - self._looked_at >= LOOK_S

    def look(self, now: float) -> None:
        """Check consumers that received records, and those that receive none although they could."""
        self._looked_at = now
        self._expire()
        self._tell_again()
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
            if consumer.uncounted or self._awaits_acks(partition):
                known.ask_after = min(known.ask_after * 2, MOST_QUIET_S)
                self._ask(partition)

    def _expire(self) -> None:
        """Count the time in which missing parts of chunked messages could have arrived."""
        source = self._source
        assembly = source.cluster.completion.assembly
        if not len(assembly) or source.holding:
            return
        reading = {one.consumer.consumer_id: one for one in source.partitions if one.reading}
        torn = assembly.expired(reading, LOOK_S)
        for number, one in reading.items() if torn else ():
            one.give_up([each for each in torn if each.entry.consumer_id == number])
        for number, parts in assembly.returned(reading).items():
            reading[number].give_back(parts)

    def _size(self, consumer_id: int, seen: _Seen) -> None:
        source = self._source
        debited, debits = source.slots.debited(consumer_id), source.slots.debits(consumer_id)
        if debits < seen.debits:  # after a reconnect the count begins anew
            seen.debited = seen.debits = 0
        if debits > seen.debits:
            seen.messages_per_entry = max(1.0, (debited - seen.debited) / (debits - seen.debits))
        seen.debited, seen.debits = debited, debits
        largest = source.slots.largest_entry(consumer_id)
        if largest:
            permit_bytes = int(largest / seen.messages_per_entry) + 1
            partition = source.partitions[consumer_id]
            reading = len(source.partitions)
            window = permit_window(source.memory_limit, reading, permit_bytes, source.most_permits)
            partition.consumer.permits.window = window

    def _awaits_acks(self, partition: Partition) -> bool:
        """Return True if a shared consumer has permits and entries that have not landed."""
        consumer = partition.consumer
        if consumer.ordered or consumer.outstanding <= 0:
            return False
        return not all(landed for *_, landed in self._source.slots.entry_runs(consumer.consumer_id))

    def _ask(self, partition: Partition) -> None:
        """Ask the broker for its count of permits, and if it waits for acks."""
        consumer_id = partition.consumer.consumer_id
        if consumer_id in self._asking:
            return
        self._asking.add(consumer_id)
        self._source.run(self._ask_stats(partition), f"stats of {partition.log}")

    async def _ask_stats(self, partition: Partition) -> None:
        consumer = partition.consumer

        async def anew() -> None:
            partition.reestablish("permits cannot be counted")

        try:
            stats = await partition.ask_stats(anew, lambda: partition.granted)
            if stats is None or consumer.ordered:
                return
            if stats.blockedConsumerOnUnackedMsgs:
                setting = "maxUnackedMessagesPerConsumer"
            elif stats.unackedMessages and stats.msgBacklog > stats.unackedMessages and available_permits(stats) > 0:
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
        finally:
            self._asking.discard(consumer.consumer_id)
