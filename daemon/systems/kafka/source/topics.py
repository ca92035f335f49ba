"""The partitions to read, and the logs that they are.

A log is one topic id, so a topic that was made again is another log. So is what follows where the cluster has lost
records that had landed and reading goes on all the same: the id then ends with the number of such breaks.
"""

from collections.abc import Collection, Iterable, MutableSequence
from dataclasses import replace

from fastwire.coverage import Coverage
from fastwire.grammar import NamePattern
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.protocol.metadata import NO_ID, Topic, topic_id_text
from fastwire.kafka.reading.slot import SlotTable
from fastwire.position import Log, Position

from ...reading.topics import MISSING_S, Changes, Topics
from ...source import SourceFailed
from ..cluster import Cluster
from .partition import Partition
from .settings import KafkaSettings


class KafkaTopics(Topics[Partition]):
    """The partitions of Kafka's topics."""

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        slots: SlotTable,
        logs: MutableSequence[Log],
        partitions: MutableSequence[Partition],
    ) -> None:
        super().__init__(settings.topics, settings.pattern, settings.cluster, logs, partitions)
        self._settings = settings
        self._cluster = cluster
        self._slots = slots

    def _as_found(self, log: Log) -> Log:
        return unbroken(log)

    async def ask(self, also: Collection[str] = ()) -> None:
        """Bring the metadata up to date; ``also`` are topics that others want to know about."""
        by_name = self._settings.pattern is None
        taken = (name for name, _ in self._latest)
        await self._cluster.refresh({*self._settings.topics, *taken, *also} if by_name else None)

    def check(self, *, patient: bool) -> None:
        """Raise BrokerError for a named topic with an error; SourceFailed for a missing one, unless ``patient``."""
        for name in self._settings.topics:
            topic = self._cluster.metadata.topics.get(name)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if code == Code.UNKNOWN_TOPIC_OR_PARTITION and not patient:
                raise SourceFailed(
                    f"{self._settings.url}: {name} does not exist; fastwire reads topics and creates none"
                )
            if code:
                raise BrokerError(code, name)

    def described(self) -> list[tuple[str, int]]:
        """Each topic that is there with the number of its partitions."""
        topics, pattern = self._cluster.metadata.topics, self._settings.pattern
        names = self._settings.topics if pattern is None else self._cluster.metadata.matching(pattern)
        return [(name, len(topics[name].leaders)) for name in names if name in topics and not topics[name].error]

    @property
    def in_doubt(self) -> bool:
        """True if a topic may be deleted: the metadata should be requested again soon."""
        if self._settings.pattern is None:
            return False
        known = map(self._cluster.metadata.topics.get, self.names)
        return any(topic is None or topic.error == Code.UNKNOWN_TOPIC_OR_PARTITION for topic in known)

    def _matching(self, pattern: NamePattern, now: float) -> tuple[str, ...]:
        topics = self._cluster.metadata.topics
        names = self._cluster.metadata.matching(pattern)
        return tuple(name for name in names if self._is_there(topics[name], now))

    def _numbers(self, name: str) -> Iterable[int]:
        topic = self._cluster.metadata.topics.get(name)
        return () if topic is None or topic.error else sorted(topic.leaders)

    def _is_there(self, topic: Topic, now: float) -> bool:
        """Return True if a matching topic exists. A topic for which brokers only reported errors does not count."""
        if not topic.error:
            return True
        return topic.name in self.names and self._cluster.metadata.missing_s(topic.name, now) < MISSING_S

    def _take_in(self, name: str, number: int, coverage: Coverage, changes: Changes[Partition], *, first: bool) -> None:
        topic_id = self._cluster.metadata.topics[name].topic_id
        known = self._latest.get((name, number))
        # Brokers before 2.8 know no ids; a cluster may have some of them for a while.
        if known is not None and (topic_id in (known.topic_id, NO_ID) or known.topic_id == NO_ID):
            known.topic_id = topic_id if known.topic_id == NO_ID else known.topic_id
            self._keep(known, changes)
            return
        if known is not None:
            changes.replaced.append(known)
        replaced = any(one.place[0] == name for one in changes.replaced)
        log = self._log(name, number, topic_id, coverage, replaced=replaced)
        late = self._is_late(log, first=first)
        made = self._add_log(_newest(log, coverage), topic_id, late=late)
        made.recreated = replaced or self._earlier.is_recreated(log)
        changes.added.append(made)

    def newest(self, partition: Partition, coverage: Coverage) -> Partition:
        """Return ``partition``, or its successor: another reader may have found a break before."""
        log = _newest(partition.log, coverage)
        return partition if log == partition.log else self._add_log(log, partition.topic_id, late=True)

    def go_on(self, partition: Partition, position: Position) -> Partition:
        """Continue behind a break, as another log that begins at ``position``."""
        made = self._add_log(_behind_break(partition.log), partition.topic_id, late=True)
        made.resumes_at = position
        return made

    def _log(self, name: str, number: int, topic_id: bytes, coverage: Coverage, *, replaced: bool) -> Log:
        """Return the log of a partition; ``replaced``: of a topic that is known to be another one than before.

        A topic without an id is the one known last. One with an id is that known last if it had no id yet.
        """
        without = log = Log("kafka", self._settings.cluster, name, str(number), "0")
        if topic_id != NO_ID:
            log = replace(without, incarnation=topic_id_text(topic_id))
            if replaced or log in coverage or without not in coverage:
                return log
        known = [one for one in coverage.logs() if replace(one, incarnation="0") == without]
        last = unbroken(known[-1]) if known else without
        return last if topic_id == NO_ID or last == without else log

    def _add_log(self, log: Log, topic_id: bytes, *, late: bool) -> Partition:
        place = log.topic, int(log.partition)
        return self._add(Partition(self._slots.add(log), log, place, topic_id, late=late))


def _behind_break(log: Log) -> Log:
    topic_id, _, breaks = log.incarnation.partition("+")
    return replace(log, incarnation=f"{topic_id}+{int(breaks or 0) + 1}")


def unbroken(log: Log) -> Log:
    """Return the log from before the first break."""
    return replace(log, incarnation=log.incarnation.partition("+")[0])


def _newest(log: Log, coverage: Coverage) -> Log:
    """Return the log behind the last break that ``coverage`` knows."""
    while (behind := _behind_break(log)) in coverage:
        log = behind
    return log
