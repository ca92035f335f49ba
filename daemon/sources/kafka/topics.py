"""Which partitions there are to read, and as which logs.

A log is one topic id, so a topic that was made again is another log. So is what follows where the cluster has lost
records that had landed and reading goes on all the same: the id then ends with the number of such breaks.
"""

from collections.abc import MutableSequence
from dataclasses import replace

from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.metadata import NO_ID, topic_id_text
from fastwire.kafka.slot import SlotTable
from fastwire.position import Coverage, Log, Position

from ...kafka.cluster import Cluster
from ..base import SourceFailed
from .partition import Partition
from .settings import KafkaSettings

__all__ = ["Topics"]


class Topics:
    """The partitions of the configured topics; ``logs`` and ``partitions`` are filled by log index."""

    def __init__(
        self,
        settings: KafkaSettings,
        cluster: Cluster,
        slots: SlotTable,
        logs: MutableSequence[Log],
        partitions: MutableSequence[Partition],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._slots = slots
        self._logs = logs
        self._partitions = partitions
        self._latest: dict[tuple[str, int], Partition] = {}

    def check(self, *, patient: bool) -> None:
        """Raise BrokerError for a topic with an error; SourceFailed for a missing one, unless ``patient``."""
        for name in self._settings.topics:
            topic = self._cluster.metadata.topics.get(name)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if code == Code.UNKNOWN_TOPIC_OR_PARTITION and not patient:
                raise SourceFailed(
                    f"{self._settings.url}: {name} does not exist; fastwire reads topics and creates none"
                )
            if code:
                raise BrokerError(code, name)

    def add(self, coverage: Coverage, *, late: bool) -> tuple[list[Partition], list[Partition]]:
        """Take in what the metadata have and we do not: what is new, and what is gone for it."""
        added, replaced = [], []
        for name in self._settings.topics:
            topic = self._cluster.metadata.topics[name]
            for number in sorted(topic.leaders):
                known = self._latest.get((name, number))
                if known is not None and topic.topic_id in (known.topic_id, NO_ID):
                    continue  # brokers before 2.8 know no ids; a cluster may have some of them for a while
                if known is not None and known.topic_id == NO_ID:
                    known.topic_id = topic.topic_id
                    continue
                if known is not None:
                    replaced.append(known)
                log = self._log(name, number, topic.topic_id, coverage)
                added.append(self._add(_newest(log, coverage), topic.topic_id, late=late))
        return added, replaced

    def newest(self, partition: Partition, coverage: Coverage) -> Partition:
        """``partition``, or the one that goes on for it: others may have found a break before us."""
        log = _newest(partition.log, coverage)
        return partition if log == partition.log else self._add(log, partition.topic_id, late=True)

    def go_on(self, partition: Partition, position: Position) -> Partition:
        """Go on behind a break, as another log that begins at ``position``."""
        made = self._add(_behind_break(partition.log), partition.topic_id, late=True)
        made.resumes_at = position
        return made

    def _log(self, name: str, number: int, topic_id: bytes, coverage: Coverage) -> Log:
        """The log of a partition; a topic without an id is the one that was known last, and may get an id later."""
        without = Log("kafka", self._settings.cluster, name, str(number), "0")
        if topic_id != NO_ID:
            log = replace(without, incarnation=topic_id_text(topic_id))
            return without if without in coverage and log not in coverage else log
        known = [one for one in coverage.logs() if replace(one, incarnation="0") == without]
        return replace(without, incarnation=known[-1].incarnation.partition("+")[0]) if known else without

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


def _newest(log: Log, coverage: Coverage) -> Log:
    """The log behind the last break that ``coverage`` knows."""
    while (behind := _behind_break(log)) in coverage:
        log = behind
    return log
