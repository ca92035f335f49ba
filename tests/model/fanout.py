"""A daemon with a dataset for each topic: the pipelines and sinks are the real ones, over a loop that goes in steps.

The calls of sinks run beside each other, as on threads, but one operation of the disk at a time and in turn. So a
process can be killed between any two operations of datasets that commit at the same time.
"""

import asyncio
import selectors
from asyncio import events
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from greenlet import GreenletExit, getcurrent, greenlet

from fastwire.columns.scan import Stop
from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire.pulsar.format.payload import Record, encode_single_entry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.encoders.base import EncoderOptions, WritableFile
from fastwire_daemon.net import backoff
from fastwire_daemon.pipeline.fanout.fanout import FanOut
from fastwire_daemon.pipeline.fanout.places import Found, Places
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.runtime.budget import Budget
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.workers import Workers
from fastwire_daemon.systems.source import Assignment, First, SourceEvents
from tests.support.pulsar.frames import message_frame, put

from .broker import Assigned, OrderedBroker, Row
from .reader import CHECKPOINT_EVERY, LEDGER, log_of
from .world import Process, SimDisk

POLICY = RollPolicy(max_rows=2, max_age_s=3600.0, max_idle_s=1.0)
MOST_UNACKED = 2
MOST_WAITS = 1_000  # without a row or an end; the longest pause before a sink is tried again is shorter
LOOK_S = 1.0  # between two questions to a broker that has nothing
METRICS = DaemonMetrics("0").pipeline("p")


def place_of(topic: str) -> str:
    return f"/data/{topic}"


def options_of(cluster: str = "cluster") -> DatasetOptions:
    return DatasetOptions(system="pulsar", cluster=cluster, columns=("value",), extension="rows")


class Call:
    """The calls of one sink in their order; that which runs stands before an operation."""

    def __init__(self, turns: "Turns") -> None:
        self._turns = turns
        self._waiting: deque[Callable[[], None]] = deque()
        self._running: greenlet | None = None
        self._at = ("", "")

    def put(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)
        if self not in self._turns.calls:
            self._turns.calls.append(self)

    def end(self) -> None:
        """There is nothing to end."""

    def go(self, step: Callable[[str, str], str | None]) -> bool:
        """Do one operation and go to the next; return False if there is nothing more to do."""
        if self._running is None:
            if not self._waiting:
                return False
            self._running = greenlet(self._waiting.popleft())
            at = self._running.switch()
        else:
            at = self._running.switch(step(*self._at))
        if self._running.dead:
            self._running = None
            return bool(self._waiting)
        self._at = at
        return True

    def kill(self) -> None:
        if self._running is not None:
            self._running.throw(GreenletExit)
            self._running = None


class Turns(selectors.SelectSelector):
    """Waits for nothing: calls of sinks go on in turn, and when there is none, time jumps to what is due."""

    def __init__(self, step: Callable[[str, str], str | None]) -> None:
        super().__init__()
        self._step = step
        self.calls: deque[Call] = deque()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if self.calls:
            self.calls.rotate(-1)
            if not self.calls[-1].go(self._step):
                self.calls.pop()
        else:
            self.now += timeout or 0.0
        return super().select(0)


class TurnsLoop(asyncio.SelectorEventLoop):
    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        super().__init__(turns)

    def time(self) -> float:
        return self._turns.now


class TurnWorkers(Workers):
    """Makes what runs the calls of a sink in turn."""

    def __init__(self, turns: Turns) -> None:
        super().__init__(0, "none")
        self._turns = turns

    def calls(self) -> Call:
        return Call(self._turns)


class LinesEncoder:
    """A line for each row, as the judge reads it; ``topic`` is that of the dataset."""

    extension = "rows"
    compressions: ClassVar[Mapping[str, str]] = {"none": ""}
    pending_bytes = 0
    topic = ""

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        self._file = file
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        for value in batch.column("value").to_pylist():
            topic, row = value.split(b"/")
            assert topic == self.topic.encode(), f"a row of {topic} in the dataset of {self.topic}"
            self._file.write(row + b"\n")
        self.rows += batch.num_rows

    def flush(self) -> None:
        """There is no buffer."""

    def finish(self) -> None:
        """A file has no end of its own."""


class SimPlaces(Places):
    """The datasets on the simulated disk."""

    needed_columns = frozenset({"value"})

    def __init__(self, disk: SimDisk, topics: Iterable[str]) -> None:
        self._disk = disk
        self._topics = topics

    def name(self, topic: str) -> str:
        return topic

    def check(self, topic: str) -> None:
        """The names differ."""

    def make_sink(self, topic: str) -> DatasetSink:
        encoder = type("Lines", (LinesEncoder,), {"topic": topic})
        sink = DatasetSink(place_of(topic), options_of(), encoder, medium=self._disk, many=True)
        sink._writer.checkpoint_every = CHECKPOINT_EVERY
        return sink

    def find(self) -> Found:
        """Of what has landed, each pipeline tells when it opens its dataset."""
        return Found("cluster", Coverage())


class SimSource:
    """The source of all topics: each has a broker in miniature, and its records go through the real scanner."""

    system = "pulsar"
    cluster_id = ""
    confirms = True
    shared = True
    offering = False
    standing_by = False
    unreachable_since = None
    unreachable_because = ""
    backlog = None
    stage_ns: ClassVar[dict[str, int]] = {}

    def __init__(self, brokers: Mapping[str, OrderedBroker], process: Process, fanout: SourceEvents) -> None:
        self._events = fanout
        self._process = process
        self._brokers = brokers
        self._of = [(broker, each) for broker in brokers.values() for each in range(broker.partitions)]
        self.logs: list[Log] = [
            log_of(each, topic) for topic, broker in brokers.items() for each in range(broker.partitions)
        ]
        self._slots = SlotTable(self.logs)
        for index in range(len(self.logs)):
            self._slots.add(index, index, ordered=True)
            self._slots.attach(index, 1)
        self._scanner = Scanner(self._slots, Pool(1 << 24), 1, columns=frozenset({"value"}), buffer_bytes=1 << 12)
        self._in_force: dict[int, Assignment] = {}
        self._granted: set[int] = set()
        self.started = False

    async def start(self, coverage: Coverage) -> None:
        self.started = True
        for broker in self._brokers.values():
            broker.connect(self._process)

    def pump(self) -> bool:
        """Take a row of each log; return False if there is none."""
        came = False
        assigned = []
        for index, (broker, partition) in enumerate(self._of):
            if index in self._in_force and index not in self._granted:
                continue
            event = broker.receive(self._process, partition, MOST_UNACKED)
            came = came or event is not None
            if isinstance(event, Assigned):
                self._granted.discard(index)
                acked = broker.floor(partition)
                cursor = Position(LEDGER, acked) if acked >= 0 else None
                each = Assignment(index, self.logs[index], cursor=cursor, progress=acked >= 0)
                self._in_force[index] = each
                assigned.append(each)
            elif isinstance(event, Row):
                self._scan(index, partition, event.number)
        if (chunk := self._scanner.take_chunk()) is not None:
            self._events.on_chunk(chunk)
        if assigned:
            self._events.on_assigned(assigned)
        return came

    def _scan(self, index: int, partition: int, number: int) -> None:
        value = b"%s/%d:%d" % (self.logs[index].topic.encode(), partition, number)
        body = encode_single_entry(Record(value=value), producer_name="p", sequence_id=number, publish_time=1).body
        put(self._scanner, message_frame(body, consumer=index, ledger=LEDGER, entry=number))
        assert self._scanner.scan() == Stop.NEED_BYTES

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        first = Position(LEDGER, -1)
        return [First(each.index, Span(each.log, first, first, 0)) for each in assignments if each.log not in coverage]

    def holds(self, assignment: Assignment) -> bool:
        return self._in_force.get(assignment.index) is assignment

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        for each in assignments:
            if self.holds(each):
                self._granted.add(each.index)
                self.landed(coverage, [each.index])

    def landed(self, coverage: Coverage, indexes: Collection[int] | None = None) -> None:
        for index in range(len(self.logs)) if indexes is None else indexes:
            end = coverage.end(self.logs[index])
            if end is None:
                continue
            self._slots.set_landed(index, end)
            broker, partition = self._of[index]
            if end.b > broker.floor(partition):
                self._process.step("ack", self.logs[index].topic)
                broker.ack(partition, end.b)

    def void(self, indexes: Collection[int] | None = None) -> None:
        for index in range(len(self.logs)) if indexes is None else indexes:
            self._slots.void_staged(index)
            self._granted.discard(index)
            if self._in_force.pop(index, None) is not None and not self._process.dead:
                broker, partition = self._of[index]
                broker.send_again(self._process, partition)

    def position(self, index: int) -> Position | None:
        return self._slots.staged_position(index)

    def waiting(self) -> Mapping[int, str]:
        return {}

    def status(self) -> dict[str, Any]:
        return {}

    def resume(self) -> None:
        """Nothing is paused."""

    def on_budget(self, level: object) -> None:
        """Memory is no concern here."""

    async def close(self, timeout: float) -> None:
        """All acks are sent at once."""


class SteppedFanOut(FanOut):
    """The real one; its calls of sinks go in turn, and the datasets are found without a thread."""

    def begin(self, turns: Turns) -> None:
        self._workers = TurnWorkers(turns)

    async def _find(self) -> None:
        self._take_found(self._places.find())


class Daemon:
    """The program of one process."""

    fanout_class: type[SteppedFanOut] = SteppedFanOut

    def __init__(self, disk: SimDisk, brokers: Mapping[str, OrderedBroker], process: Process) -> None:
        self._disk = disk
        self._brokers = brokers
        self._process = process
        self._to_judge, process.step = process.step, self._step
        self._turns = Turns(self._step)
        self._loop = TurnsLoop(self._turns)
        self._program: greenlet | None = None
        self._errors: list[BaseException] = []
        self._loop.set_exception_handler(self._note)
        backoff._RANDOM.seed(0)

    has_seen = True

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._errors.append(context.get("exception") or AssertionError(context["message"]))

    def _step(self, kind: str, path: str) -> str | None:
        if self._process.dead:
            raise GreenletExit
        if getcurrent() is not self._program:  # the call of a sink: it waits for its turn
            assert self._program is not None
            told: str | None = self._program.switch((kind, path))
            return told
        events._set_running_loop(None)
        try:
            return self._to_judge(kind, path)
        finally:
            events._set_running_loop(self._loop)

    def run(self) -> None:
        self._program = getcurrent()
        events._set_running_loop(self._loop)
        try:
            self._turn(self._loop.create_task(self._live()))
        finally:
            events._set_running_loop(None)
            self._loop.close()

    def _turn(self, life: "asyncio.Task[None]") -> None:
        """Let the loop turn until ``life`` is over; when the process is killed, clear away what is left of it."""
        try:
            while not life.done():
                self._loop._run_once()  # type: ignore[attr-defined]
                if self._process.dead:
                    raise GreenletExit
                if self._errors:
                    raise self._errors[0]
        finally:
            self._process.dead = True  # so that no operation is done any more
            for call in self._turns.calls:
                call.kill()
            while left := asyncio.all_tasks(self._loop):
                for task in left:
                    task.cancel()
                self._loop._run_once()  # type: ignore[attr-defined]
        life.result()

    async def _live(self) -> None:
        source: list[SimSource] = []

        def make_source(fanout: SourceEvents, cluster: str | None) -> Any:
            source.append(SimSource(self._brokers, self._process, fanout))
            return source[0]

        places = SimPlaces(self._disk, self._brokers)
        fanout = self.fanout_class("p", make_source, places, Budget(Pool(1 << 24)), METRICS, POLICY)
        fanout.begin(self._turns)
        pipeline = asyncio.create_task(fanout.run())
        waits = 0
        while not pipeline.done():
            await asyncio.sleep(0)
            if not (source and source[0].started) or source[0].pump():
                waits = 0
            elif fanout.queued or fanout.holds_records or fanout.assigning:
                waits += 1
                assert waits < MOST_WAITS, "records or assignments wait for ever"
                await asyncio.sleep(LOOK_S)
            elif all(broker.finished() for broker in self._brokers.values()):
                fanout.drain("the end")
                break
            else:
                waits = 0
                self._process.step("idle", "")
                await asyncio.sleep(LOOK_S)
        await pipeline
