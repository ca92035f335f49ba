"""The partitions to read, and the logs that they are.

A log is one topic id, so a topic that was made again is another log. So is what follows where the cluster has lost
records that had landed and reading goes on all the same: the id then ends with the number of such breaks.
"""

from collections.abc import Collection, MutableSequence
from dataclasses import dataclass, field, replace

from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.metadata import NO_ID, Topic, topic_id_text
from fastwire.kafka.slot import SlotTable
from fastwire.position import Coverage, Log, Position

from ...earlier import EarlierLogs
from ...source import SourceFailed
from ...stage import Stage
from ..cluster import MISSING_S, Cluster
from .partition import Partition
from .settings import KafkaSettings

__all__ = ["Changes", "Topics", "unbroken"]


@dataclass(slots=True)
class Changes:
    """Changes of the metadata: new partitions, those replaced by another log, and those deleted with their topics."""

    added: list[Partition] = field(default_factory=list)
    replaced: list[Partition] = field(default_factory=list)
    gone: list[Partition] = field(default_factory=list)


class Topics:
    """The partitions of the topics that are meant; ``logs`` and ``partitions`` are filled by log index.

    Either topics are named in the settings, and a missing one is a failure at first, or a pattern chooses among all
    topics of the cluster, and they may come and go. ``names`` are those that were there at the last look.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        slots: SlotTable,
        logs: MutableSequence[Log],
        partitions: MutableSequence[Partition],
    ) -> None:
        self.names = settings.topics
        self._settings = settings
        self._cluster = cluster
        self._slots = slots
        self._logs = logs
        self._partitions = partitions
        self._earlier = EarlierLogs()
        self._latest: dict[tuple[str, int], Partition] = {}

    def learn(self, coverage: Coverage) -> None:
        """Note the logs in ``coverage``, which earlier runs have read."""
        pattern = self._settings.pattern
        self._earlier = EarlierLogs(
            (unbroken(log) for log in coverage.logs() if log.cluster == self._settings.cluster),
            None if pattern is None else pattern.matches,
        )

    async def ask(self, also: Collection[str] = ()) -> None:
        """Bring the metadata up to date; ``also`` are topics that others want to know about."""
        by_name = self._settings.pattern is None
        await self._cluster.refresh({*self._settings.topics, *also} if by_name else None)

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
    def known(self) -> frozenset[str]:
        """The topics of which an earlier run has landed records."""
        return self._earlier.topics

    @property
    def in_doubt(self) -> bool:
        """True if a topic may be deleted: the metadata should be requested again soon."""
        if self._settings.pattern is None:
            return False
        known = map(self._cluster.metadata.topics.get, self.names)
        return any(topic is None or topic.error == Code.UNKNOWN_TOPIC_OR_PARTITION for topic in known)

    def compare(self, coverage: Coverage, now: float, *, first: bool = False) -> Changes:
        """Compare the metadata with the known partitions, and return the changes."""
        changes = Changes()
        topics, pattern = self._cluster.metadata.topics, self._settings.pattern
        if pattern is not None:
            names = self._cluster.metadata.matching(pattern)
            self.names = tuple(name for name in names if self._is_there(topics[name], now))
            there = frozenset(self.names)
            changes.gone += [one for one in self._latest.values() if one.place[0] not in there and not one.over]
        for name in self.names:
            topic = topics.get(name)
            if topic is not None and not topic.error:
                for number in sorted(topic.leaders):
                    self._take_in(topic, number, coverage, changes, first=first)
        return changes

    def _is_there(self, topic: Topic, now: float) -> bool:
        """Return True if a matching topic exists. A topic for which brokers only reported errors does not count."""
        if not topic.error:
            return True
        return topic.name in self.names and self._cluster.metadata.missing_s(topic.name, now) < MISSING_S

    def _take_in(self, topic: Topic, number: int, coverage: Coverage, changes: Changes, *, first: bool) -> None:
        known = self._latest.get((topic.name, number))
        # Brokers before 2.8 know no ids; a cluster may have some of them for a while.
        if known is not None and (topic.topic_id in (known.topic_id, NO_ID) or known.topic_id == NO_ID):
            known.topic_id = topic.topic_id if known.topic_id == NO_ID else known.topic_id
            if known.stage is Stage.GONE:
                known.move(Stage.IDLE)
                changes.added.append(known)
            return
        if known is not None:
            changes.replaced.append(known)
        log = self._log(topic.name, number, topic.topic_id, coverage)
        late = not first or self._earlier.is_late(unbroken(log))
        changes.added.append(self._add(_newest(log, coverage), topic.topic_id, late=late))

    def newest(self, partition: Partition, coverage: Coverage) -> Partition:
        """Return ``partition``, or its successor: another reader may have found a break before."""
        log = _newest(partition.log, coverage)
        return partition if log == partition.log else self._add(log, partition.topic_id, late=True)

    def go_on(self, partition: Partition, position: Position) -> Partition:
        """Continue behind a break, as another log that begins at ``position``."""
        made = self._add(_behind_break(partition.log), partition.topic_id, late=True)
        made.resumes_at = position
        return made

    def _log(self, name: str, number: int, topic_id: bytes, coverage: Coverage) -> Log:
        """Return the log of a partition. A topic without an id is the one known last, and may get an id later."""
        without = Log("kafka", self._settings.cluster, name, str(number), "0")
        if topic_id != NO_ID:
            log = replace(without, incarnation=topic_id_text(topic_id))
            return without if without in coverage and log not in coverage else log
        known = [one for one in coverage.logs() if replace(one, incarnation="0") == without]
        return unbroken(known[-1]) if known else without

    def _add(self, log: Log, topic_id: bytes, *, late: bool) -> Partition:
        place = log.topic, int(log.partition)
        partition = Partition(self._slots.add(log), log, place, topic_id, late=late)
        self._logs.append(log)
        self._partitions.append(partition)
        self._latest[place] = partition
        return partition


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
