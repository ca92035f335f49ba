"""The partitions of TANK's topics, and the logs that they are.

A topic has no id, so a log is what the configuration says: the key ``incarnation`` counts how often a topic was created
again.
"""

from collections.abc import Iterable, Mapping, MutableSequence

from fastwire.coverage import Coverage
from fastwire.grammar import NamePattern
from fastwire.position import Log
from fastwire.tank.format.error import BrokerError, PartitionStatus
from fastwire.tank.reading.slot import SlotTable

from ...reading.topics import Changes, Topics
from ...source import SourceFailed
from ..cluster import Cluster
from .partition import Partition
from .settings import TankSettings


class TankTopics(Topics[Partition]):
    """The partitions of TANK's topics."""

    def __init__(
        self,
        settings: TankSettings,
        cluster: Cluster,
        slots: SlotTable,
        logs: MutableSequence[Log],
        partitions: MutableSequence[Partition],
    ) -> None:
        super().__init__(settings.topics, settings.pattern, settings.cluster, logs, partitions)
        self._settings = settings
        self._cluster = cluster
        self._slots = slots
        self._found: Mapping[str, int] = {}  # the topics of the cluster with the number of their partitions

    async def ask(self) -> None:
        """Ask for all topics."""
        self._found = await self._cluster.topics()

    def check(self, *, patient: bool) -> None:
        """Raise SourceFailed for a named topic that is missing, BrokerError if ``patient``."""
        for name in self._settings.topics:
            if name not in self._found:
                if patient:
                    raise BrokerError(PartitionStatus.UNKNOWN_TOPIC, name)
                raise SourceFailed(
                    f"{self._settings.url}: {name} does not exist; fastwire reads topics and creates none"
                )

    def described(self) -> list[tuple[str, int]]:
        """Return each topic that is there with the number of its partitions."""
        pattern = self._settings.pattern
        names = self._settings.topics if pattern is None else self._matching(pattern, 0.0)
        return [(name, self._found[name]) for name in names if name in self._found]

    def _matching(self, pattern: NamePattern, now: float) -> tuple[str, ...]:
        return tuple(sorted(filter(pattern.matches, self._found)))

    def _numbers(self, name: str) -> Iterable[int]:
        return range(self._found.get(name, 0))

    def _take_in(self, name: str, number: int, coverage: Coverage, changes: Changes[Partition], *, first: bool) -> None:
        known = self._latest.get((name, number))
        if known is not None:
            self._keep(known, changes)
            return
        log = Log("tank", self._settings.cluster, name, str(number), str(self._settings.incarnations.get(name, 0)))
        late = self._is_late(log, first=first)
        changes.added.append(self._add(Partition(self._slots.add(log), log, (name, number), late=late)))
