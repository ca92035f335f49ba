"""Source of TANK topics for one pipeline. The brokers keep no state of a consumer: the dataset is the only cursor."""

from collections.abc import Callable, Collection

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Position, Span
from fastwire.tank.format.error import BrokerError, PartitionStatus
from fastwire.tank.position import POSITIONS
from fastwire.tank.protocol.fetch import MOST_FETCH
from fastwire.tank.reading.response import Fetched
from fastwire.tank.reading.scan import CorruptBundle
from fastwire.tank.reading.slot import PartitionResult, SlotTable
from fastwire.wire.pool import Pool

from ....runtime.metrics import PipelineMetrics
from ...reading.atleaders import Freshness
from ...reading.ends import Ends
from ...reading.offsetlag import LogEnds, OffsetLag
from ...reading.pullsource import PullSource
from ...source import Assignment, First, SourceEvents
from ..cluster import Cluster
from ..link import Link
from ..refusal import is_for_good
from .leaders import TankLeaders, TankOffering, note_range
from .partition import Partition
from .settings import TankSettings
from .topics import TankTopics

CATCH_UP_S = 10.0  # for the leader of a cluster to have what the one before it had committed


class LeaderBehind(FastwireError):  # noqa: N818 - a state that passes
    """The leader's log ends before landed messages, and may not for long."""


class TankSource(PullSource[Cluster, Link, Partition]):
    """The Source of one pipeline (``systems.source``). ``events`` is the pipeline. All partitions are read."""

    system = "tank"
    broker_error = BrokerError
    confirms = False
    settings: TankSettings
    slots: SlotTable
    _leaders: TankLeaders

    def __init__(
        self,
        settings: TankSettings,
        events: SourceEvents,
        pool: Pool,
        *,
        metrics: PipelineMetrics | None = None,
        patient: bool = True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(events, metrics, patient=patient, on_progress=on_progress)
        self.settings = settings
        self._ends = Ends(settings.end)
        self.slots = SlotTable()
        self.cluster = Cluster(settings, self.slots, pool, self, settings.limits.within(pool.limit))
        self._topics = TankTopics(settings, self.cluster, self.slots, self.logs, self.partitions)
        # The partitions of a topic are asked for together; the cluster knows which leaders it has to ask for them.
        self._freshness = Freshness(lambda partition: partition.place[0], self._topics.ask, self.follow_topics)
        self._leaders = TankLeaders(self, self.cluster, self._freshness, self._tasks)
        self._lookup = TankOffering(
            self.cluster,
            settings.start,
            self._freshness,
            self._topics.known,
            self._offers,
            self._tasks,
            self,
            patient=patient,
        )
        self._stats = OffsetLag(self, metrics, settings.lag_poll_s)

    def _begin(self) -> None:
        self.assign(self.partitions)

    def is_for_good(self, error: FastwireError) -> bool:
        """Return True if ``error`` needs a change of the configuration or of the broker."""
        return is_for_good(error)

    async def ends(self, places: Collection[tuple[str, int]]) -> LogEnds:
        """Ask for the end of each log: the sequence of the next message."""
        found: dict[tuple[str, int], int] = {}
        failed: dict[tuple[str, int], FastwireError] = {}
        ranges = await self.cluster.ranges_of({topic for topic, _ in places})
        for topic, number in places:
            try:
                found[topic, number] = ranges[topic].of(number).last + 1
            except FastwireError as exc:
                failed[topic, number] = exc
        return LogEnds(found, failed)

    # --- first positions

    async def _first(self, partition: Partition, assignment: Assignment, coverage: Coverage) -> First | None:
        if coverage.start(partition.log) is None:
            offset = partition.start_offset(self.settings.start)
            partition.began = partition.before(partition.end if offset is None else offset)
            return First(partition.index, Span(partition.log, partition.began, partition.began, 0))
        at = partition.position(coverage)
        if partition.end < at.a:  # others may have landed more meanwhile
            topic, number = partition.place
            note_range(partition, (await self.cluster.ranges(topic)).of(number))
            if partition.end < at.a:
                self._doubt(partition)
                raise partition.broken(at, partition.before(partition.end), self._remedy(partition))
        partition.behind_since = None
        return partition.gap(at)

    def _reached(self, index: int, head: Position, coverage: Coverage) -> bool:
        partition = self.partitions[index]
        if not super()._reached(index, head, coverage):
            return False
        # A log that ends before what has landed is not at its end: it is about to be doubted, and may be stopped.
        return partition.over or partition.granted or partition.position(coverage).a <= partition.end

    def _doubt(self, partition: Partition) -> None:
        """Raise LeaderBehind while a new leader of a cluster may still get to know what is committed."""
        now = self._loop.time()
        if partition.behind_since is None:
            partition.behind_since = now
        if self.cluster.aware and now - partition.behind_since < CATCH_UP_S:
            raise LeaderBehind(f"the leader's log ends at {partition.end}, before what has landed")

    def _remedy(self, partition: Partition) -> str:
        topic, _ = partition.place
        now = self.settings.incarnations.get(topic, 0)
        return (
            "the topic was deleted and created again, or the broker has lost messages; to read the log that is there "
            f"now from its beginning, as another one, set incarnation = {{ {topic} = {now + 1} }} in the source"
        )

    # --- partitions that are read one at a time

    async def find(self, place: tuple[str, int]) -> Partition | None:
        """See ``PullSource.find``."""
        ranges = await self.cluster.existing(place[0])
        return self._topics.take(place) if ranges is not None and place[1] < ranges.count else None

    async def falls_short(self, partition: Partition, end: Position, *, silent: bool) -> int | None:
        """See ``PullSource.falls_short``: a topic that was created again may end there."""
        topic, number = partition.place
        ends = (await self.cluster.ranges(topic)).of(number).last + 1
        return ends if ends < end.a else None

    # --- what links tell

    def on_corrupt(self, bundle: CorruptBundle) -> None:
        """Stop the log of a bundle that cannot be decoded and may not become a dead letter."""
        partition = self.partitions[bundle.index]
        at = POSITIONS.format(bundle.position)
        if bundle.replaced:
            remedy = self._remedy(partition)
            self._stop(partition, f"{at} has landed, and the broker holds another message before it: {remedy}", "lost")
            return
        self._stop(partition, f"the bundle at {at} cannot be decoded ({bundle.reason}: {bundle.detail})", "undecodable")

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        """Handle the end of an answer."""
        if self._closing:
            return
        link.fetcher.done(fetched)
        for index in fetched.answered:
            partition = self.partitions[index]
            if partition.granted and partition.link is link:
                partition.answers += 1
                self._answered(partition, self.slots.result(index), self.slots.position(index))
        if not self.holding:
            link.pump()
        self._on_progress()

    def _answered(self, partition: Partition, result: PartitionResult, at: Position) -> None:
        """Handle the result of one partition in an answer (spec: tank 5.2, 5.5, 5.6, 5.7)."""
        if self.rests(partition):
            return
        if result.status in (PartitionStatus.OK, PartitionStatus.OK_SPARSE):
            if result.needed > MOST_FETCH:
                sizes = f"the bundle at {at.a} has {result.needed} bytes: brokers send {MOST_FETCH}"
                self._stop(partition, sizes, "unreadable")
            elif result.stuck:
                self._stuck(partition, result, at)
            else:
                partition.refusals.reset()
                partition.error = ""
        elif result.status != PartitionStatus.BOUNDARY:
            partition.error = str(BrokerError(PartitionStatus(result.status), str(partition.log)))
            self._leaders.refused(partition, result)
        elif at.a < result.first_available:
            self._reconsider(partition, "the position lies before the log")
        elif partition.log_start < at.a == result.first_available:
            partition.log_start = at.a  # the message before the position is gone: it is not requested again
            self._leaders.try_again(partition, soon=True)
        elif at.a > result.high_watermark + 1:
            self.part(partition, result.high_watermark + 1)
        else:
            partition.error = f"the leader reports {at.a} outside of its log, and a log that has it"
            self._leaders.try_again(partition, soon=False)

    def _stuck(self, partition: Partition, result: PartitionResult, at: Position) -> None:
        """Handle whole bundles without a message to read: the same request would get them again."""
        if result.high_watermark < at.a:  # they are not committed yet
            partition.error = f"messages from {at.a} on are not committed"
            self._leaders.try_again(partition, soon=True)
            return
        unreadable = f"the broker has messages from {at.a} on, up to {result.high_watermark}, and does not deliver them"
        if self.settings.on_unreadable == "continue":
            partition.unreadable_at = at.a
            self._reconsider(partition, unreadable)
        else:
            cure = 'on_unreadable = "continue" goes on behind them with a declared gap'
            self._stop(partition, f"{unreadable}; {cure}", "unreadable")
