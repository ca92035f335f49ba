"""The pipeline's order of things, with a source and a sink that only take notes."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from fastwire.columns.chunk import Chunk, marker_chunk
from fastwire.position import PULSAR_EARLIEST, Coverage, Log, Position, Span
from fastwire.pulsar.payload import Record, encode_batch_entry
from fastwire.pulsar.pulsar_pb2 import BaseCommand, CommandMessage, MessageIdData
from fastwire.pulsar.scan import Scanner, Stop
from fastwire.pulsar.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.budget import Budget
from fastwire_daemon.errors import DatasetMismatchError, FencedError, SinkDoneError, SinkFailedError, Superseded
from fastwire_daemon.metrics import DaemonMetrics
from fastwire_daemon.pipeline import Pipeline, PipelineFailed
from fastwire_daemon.roll import Roll, RollPolicy
from fastwire_daemon.sources.base import Assignment, First, LogStopped, SourceEvents, SourceFailed

LOG = Log("pulsar", "c", "persistent://public/default/t", "0", "0")


class Chunks:
    """Makes real chunks of consecutive entries with ten rows each."""

    def __init__(self, pool: Pool) -> None:
        slots = SlotTable([LOG])
        slots.add(0, 0, ordered=True)
        slots.attach(0, 1)
        self._scanner = Scanner(slots, pool, 1)
        self._entry = 0

    def next(self, entries: int = 1) -> Chunk:
        for _ in range(entries):
            self._feed()
        chunk = self._scanner.take_chunk()
        assert chunk is not None
        return chunk

    def _feed(self) -> None:
        records = [Record(value=b"v%d" % i) for i in range(10)]
        entry = encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=1)
        where = MessageIdData(ledgerId=1, entryId=self._entry)
        self._entry += 1
        message = CommandMessage(consumer_id=0, message_id=where)
        command = BaseCommand(type=BaseCommand.MESSAGE, message=message).SerializeToString()
        frame = (4 + len(command) + len(entry.body)).to_bytes(4, "big") + len(command).to_bytes(4, "big")
        frame += command + entry.body
        buffer = self._scanner.get_buffer()
        buffer[: len(frame)] = frame
        self._scanner.received(len(frame))
        assert self._scanner.scan() == Stop.NEED_BYTES


class NotingSource:
    """Does nothing but write down what the pipeline asks of it."""

    system = "pulsar"

    def __init__(self, notes: list[str], events: SourceEvents, cluster: str | None) -> None:
        self.notes = notes
        self.events = events
        self.cluster = cluster
        self.logs = [LOG]
        self.landed_at: Position | None = None
        self.received: Position | None = None
        self.head: Position | None = None
        self.peer_is_done = True
        self.unreachable_since: float | None = None
        self.stage_ns = {"decode": 1_000_000_000}
        self.unreachable_because = ""
        self.start_error: Exception | None = None
        self.firsts = True
        self.assign = True
        self.progress = False

    async def start(self, coverage: Coverage) -> None:
        self.notes.append("start")
        if self.start_error is not None:
            raise self.start_error
        if self.assign:
            self.events.on_assigned([self.assignment()])

    def assignment(self) -> Assignment:
        return Assignment(0, LOG, self.head, Position(1, 5) if self.progress else None, self.progress)

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        self.notes.append("resolve")
        known = coverage.start(LOG) is not None
        return [] if known or not self.firsts else [First(0, Span(LOG, PULSAR_EARLIEST, PULSAR_EARLIEST, 0))]

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        self.notes.append(f"grant {len(list(assignments))}")

    def landed(self, coverage: Coverage) -> None:
        self.landed_at = coverage.end(LOG)
        self.notes.append("landed")

    def void(self) -> None:
        self.notes.append("void")
        self.events.on_assigned([self.assignment()])

    def resume(self) -> None: ...
    def on_budget(self, level: object) -> None: ...

    def position(self, index: int) -> Position | None:
        return self.received

    async def heads(self) -> Mapping[int, Position]:
        return {} if self.head is None else {0: self.head}

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        end = coverage.end(LOG) or self.landed_at
        return [index for index, head in heads.items() if (end is None or end < head) and not self.peer_is_done]

    def status(self) -> dict[str, Any]:
        return {}

    async def close(self, timeout: float) -> None:
        self.notes.append("source closed")


class NotingSink:
    """A sink with a log in memory; ``fail`` holds errors to raise, by method."""

    exists = True
    cluster = "c"
    needed_columns = frozenset[str]()
    staged_bytes = 0
    unpooled_bytes = 0
    too_many_files = False
    stage_ns: ClassVar[dict[str, int]] = {"encode": 3_000_000_000}
    committed_files = 0
    committed_bytes = 0
    waiting: str | None = None

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes
        self.coverage = Coverage()
        self.open_spans: list[Span] = []
        self.rows = 0
        self.fail: dict[str, list[Exception]] = {}

    def _maybe_fail(self, what: str) -> None:
        if self.fail.get(what):
            raise self.fail[what].pop(0)

    def open(self) -> Coverage:
        self.notes.append("open")
        self._maybe_fail("open")
        self.open_spans = []
        return self.coverage.copy()

    def write(self, chunk: Chunk) -> None:
        self.notes.append(f"write {chunk.rows}")
        self._maybe_fail("write")
        self.open_spans += chunk.spans()

    def commit(self) -> Coverage:
        self.notes.append("commit")
        self._maybe_fail("commit")
        for span in self.open_spans:
            self.coverage.add(span)
            self.rows += span.rows
        self.open_spans = []
        return self.coverage.copy()

    def refresh(self) -> Coverage:
        self.notes.append("refresh")
        return self.coverage.copy()

    def create_dataset(self) -> None:
        self.notes.append("create")
        self.exists = True

    def settle(self, floors: Mapping[Log, Position]) -> None:
        self.notes.append(f"settle {len(floors)}")

    def interrupt(self) -> None: ...

    def close(self) -> None:
        self.notes.append("sink closed")


class UnloggedNotes:
    """The same without a log."""

    def __init__(self, notes: list[str]) -> None:
        inner = NotingSink(notes)
        self.open, self.write, self.commit, self.close = inner.open, inner.write, inner.commit, inner.close


class Bed:
    """A pipeline under test, running."""

    def __init__(self, sink: Callable[[list[str]], Any] = NotingSink, **options: Any) -> None:
        self.notes: list[str] = []
        self.sink = sink(self.notes)
        self.pool = Pool(64 << 20)
        self.chunks = Chunks(self.pool)
        self.now = 100.0
        self.made: list[NotingSource] = []
        self.prepare: Callable[[NotingSource], None] = lambda source: None
        policy = options.pop("policy", RollPolicy())
        self.pipeline = Pipeline(
            "p",
            self._make,
            self.sink,
            Budget(self.pool),
            DaemonMetrics("0").pipeline("p"),
            policy,
            clock=lambda: self.now,
            **options,
        )
        self.task: asyncio.Task[None] | None = None

    def _make(self, events: SourceEvents, cluster: str | None) -> NotingSource:
        source = NotingSource(self.notes, events, cluster)
        self.prepare(source)
        self.made.append(source)
        return source

    @property
    def source(self) -> NotingSource:
        return self.made[-1]

    async def running(self) -> None:
        self.task = asyncio.create_task(self.pipeline.run())
        await self.until(lambda: any(note.startswith("grant") for note in self.notes) or bool(self.done))

    @property
    def done(self) -> bool:
        return self.task is not None and self.task.done()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():
                await asyncio.sleep(0.001)

    async def give(self, entries: int = 1) -> bool:
        def written() -> int:
            return sum(note.startswith("write") for note in self.notes)

        before = written()
        room = self.pipeline.on_chunk(self.chunks.next(entries))
        await self.until(lambda: written() > before)
        await asyncio.sleep(0.01)
        return room

    async def end(self) -> None:
        self.pipeline.drain("test")
        assert self.task is not None
        await self.task


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_nothing_is_asked_for_before_its_first_position_is_committed() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        expected = ["open", "start", "refresh", "resolve", "write 0", "commit", "landed", "grant 1"]
        assert bed.notes == expected
        assert bed.source.cluster == "c"
        assert bed.sink.coverage.start(LOG) == PULSAR_EARLIEST
        await bed.end()

    run(go())


def test_an_ack_follows_the_commit() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        del bed.notes[:]
        await bed.give(3)
        assert bed.notes == ["write 30"]
        assert bed.pipeline.rows_received == 30 and bed.pipeline.rows_committed == 0
        await bed.end()
        assert bed.notes == ["write 30", "commit", "landed", "source closed", "sink closed"]
        assert bed.source.landed_at == Position(1, 2)
        assert bed.pipeline.rows_committed == 30
        assert bed.pool.used < 2 << 20  # the scanner's buffers; the chunks are back

    run(go())


@pytest.mark.parametrize(
    ("policy", "step_s", "reason"),
    [
        (RollPolicy(max_rows=10), 0.0, "rows"),
        (RollPolicy(max_age_s=5, max_idle_s=1000), 5.0, "age"),
        (RollPolicy(max_age_s=1000, max_idle_s=3), 3.0, "idle"),
    ],
)
def test_a_roll_ends_by_the_policy(policy: RollPolicy, step_s: float, reason: str) -> None:
    roll = Roll(policy)
    roll.wrote(9, 0, 100.0)
    assert roll.due(0, 100.0) is None
    roll.wrote(1, 0, 100.0)
    assert roll.due(0, 100.0 + step_s) == reason


def test_a_roll_ends_by_bytes_and_progress_alone_waits_for_the_age() -> None:
    roll = Roll(RollPolicy(max_bytes=100, max_age_s=60, max_idle_s=1))
    roll.wrote(1, 0, 0.0)
    assert roll.due(99, 0.5) is None
    assert roll.due(100, 0.5) == "bytes"
    roll.restart()
    assert roll.due(1000, 100.0) is None and roll.next_look(100.0) is None
    roll.wrote(0, 0, 100.0)
    assert roll.due(0, 159.0) is None and roll.next_look(159.0) == 1.0
    assert roll.due(0, 160.0) == "age"


def test_an_unacknowledged_limit_makes_later_rolls_smaller() -> None:
    roll = Roll(RollPolicy(max_rows=1000))
    roll.limit_unacked(500)
    roll.limit_unacked(5000)
    roll.wrote(400, 0, 0.0)
    assert roll.due(0, 0.0) == "rows"


def test_revoked_logs_are_committed_at_once() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        await bed.give()
        bed.source.events.on_revoked([0], "connection lost")
        await bed.until(lambda: bed.notes[-1] == "landed")
        assert bed.pipeline.rows_committed == 10
        await bed.end()

    run(go())


def test_a_stalled_broker_is_committed_for() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        await bed.give()
        bed.source.events.on_stalled(0, 20, "maxUnackedMessagesPerConsumer")
        await bed.until(lambda: bed.pipeline.rows_committed == 10)
        await bed.give(2)
        await bed.until(lambda: bed.pipeline.rows_committed == 30)  # 16 rows are the limit of a roll now
        await bed.end()

    run(go())


@pytest.mark.parametrize("error", [Superseded("somebody was first"), SinkFailedError("fsync failed")])
@pytest.mark.parametrize("method", ["write", "commit"])
def test_a_void_roll_is_read_again(error: Exception, method: str) -> None:
    async def go() -> None:
        bed = Bed(policy=RollPolicy(max_rows=10))
        await bed.running()
        del bed.notes[:]
        bed.sink.fail[method] = [error]
        bed.pipeline.on_chunk(bed.chunks.next())
        await bed.until(lambda: "grant 1" in bed.notes)
        void = bed.notes.index("void")
        # Nothing is acknowledged between the failure and the new view of what is durable.
        assert bed.notes[void:] == ["void", "open", "landed", "refresh", "resolve", "grant 1"]
        assert bed.source.landed_at == PULSAR_EARLIEST
        assert bed.pipeline.rows_committed == 0
        await bed.end()
        assert bed.sink.rows == 0

    run(go())


def test_what_the_broker_has_lost_never_lands() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        await bed.give(3)
        del bed.notes[:]
        bed.pipeline.on_diverged(0, "an unclean election")
        bed.pipeline.on_revoked([0], "at the same time")
        await bed.until(lambda: any(note.startswith("grant") for note in bed.notes))
        assert bed.notes == ["void", "open", "landed", "refresh", "resolve", "grant 1"]
        assert bed.source.landed_at == PULSAR_EARLIEST
        await bed.give(1)
        await bed.end()
        assert bed.sink.rows == 10

    run(go())


def test_what_the_broker_has_lost_does_not_land_with_the_first_position_of_another_log() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        await bed.give(3)
        del bed.notes[:]
        resolve = bed.source.resolve

        async def resolving(assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
            bed.source.resolve = resolve  # type: ignore[method-assign]
            bed.pipeline.on_diverged(0, "an unclean election")
            await resolve(assignments, coverage)
            return [First(0, Span(replace(LOG, partition="1"), PULSAR_EARLIEST, PULSAR_EARLIEST, 0))]

        bed.source.resolve = resolving  # type: ignore[method-assign]
        bed.pipeline.on_assigned([bed.source.assignment()])
        await bed.until(lambda: any(note.startswith("grant") for note in bed.notes))
        assert "commit" not in bed.notes[: bed.notes.index("void")]
        await bed.end()
        assert bed.sink.rows == 0

    run(go())


@pytest.mark.parametrize("ending", ["drain", "failure"])
def test_what_the_broker_has_lost_does_not_land_at_the_end(ending: str) -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        await bed.give(3)
        bed.pipeline.on_diverged(0, "an unclean election")
        if ending == "drain":
            await bed.end()
        else:
            bed.pipeline.on_failed(SourceFailed("no more"))
            assert bed.task is not None
            with pytest.raises(PipelineFailed, match="no more"):
                await bed.task
        assert bed.sink.rows == 0

    run(go())


def test_what_a_sink_without_a_log_was_given_stays_given() -> None:
    async def go() -> None:
        bed = Bed(sink=UnloggedNotes)
        await bed.running()
        await bed.give(3)
        del bed.notes[:]
        bed.pipeline.on_diverged(0, "an unclean election")
        await bed.until(lambda: any(note.startswith("grant") for note in bed.notes))
        assert bed.notes == ["commit", "landed", "void", "resolve", "grant 1"]
        assert bed.source.landed_at == Position(1, 2)
        await bed.end()

    run(go())


def test_a_void_roll_ends_a_drain_without_an_ack() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        await bed.give()
        bed.sink.fail["commit"] = [SinkFailedError("no")]
        del bed.notes[:]
        await bed.end()
        assert bed.notes == ["commit", "source closed", "sink closed"]

    run(go())


def test_a_sink_whose_reader_has_gone_ends_the_pipeline_without_an_error() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        bed.sink.fail["write"] = [SinkDoneError("closed")]
        bed.pipeline.on_chunk(bed.chunks.next())
        assert bed.task is not None
        await bed.task
        assert bed.pipeline.state == "stopped"

    run(go())


@pytest.mark.parametrize("method", ["open", "commit"])
def test_a_sink_that_never_worked_ends_the_pipeline(method: str) -> None:
    async def go() -> None:
        bed = Bed()
        bed.sink.fail[method] = [SinkFailedError("read-only file system")] * 9
        with pytest.raises(PipelineFailed, match="read-only file system") as caught:
            await bed.pipeline.run()
        assert caught.value.exit_code == 1
        assert "grant 1" not in bed.notes

    run(go())


def test_a_writer_that_was_fenced_opens_anew_at_any_time() -> None:
    async def go() -> None:
        bed = Bed()
        bed.sink.fail["open"] = [FencedError("taken for dead")]
        await bed.running()
        assert bed.notes[:2] == ["open", "open"]
        await bed.end()

    run(go())


def test_a_dataset_is_not_made_for_a_subscription_with_progress() -> None:
    async def go() -> None:
        bed = Bed()
        bed.sink.exists = False
        bed.prepare = lambda source: setattr(source, "progress", True)
        with pytest.raises(PipelineFailed, match=r"sink\.create = true") as caught:
            await bed.pipeline.run()
        assert caught.value.exit_code == 78
        assert "create" not in bed.notes and "grant 1" not in bed.notes
        assert bed.notes[-2:] == ["source closed", "sink closed"]

    run(go())


def test_a_dataset_is_made_before_a_cursor_may_move() -> None:
    async def go() -> None:
        bed = Bed(create=True)
        bed.sink.exists = False
        bed.prepare = lambda source: setattr(source, "progress", True)
        await bed.running()
        assert bed.notes.index("create") < bed.notes.index("resolve")
        await bed.end()

    run(go())


def test_a_dataset_of_another_shape_is_exit_78() -> None:
    async def go() -> None:
        bed = Bed()
        bed.sink.fail["open"] = [DatasetMismatchError("other columns")]
        with pytest.raises(PipelineFailed, match="other columns") as caught:
            await bed.pipeline.run()
        assert caught.value.exit_code == 78

    run(go())


@pytest.mark.parametrize(("configuration", "code"), [(True, 78), (False, 1)])
def test_a_refused_source_ends_the_pipeline(configuration: bool, code: int) -> None:
    async def go() -> None:
        bed = Bed()
        error = SourceFailed("not allowed", configuration=configuration)
        bed.prepare = lambda source: setattr(source, "start_error", error)
        with pytest.raises(PipelineFailed, match="not allowed") as caught:
            await bed.pipeline.run()
        assert caught.value.exit_code == code
        assert bed.pipeline.state == "failed" and bed.pipeline.error == "not allowed"

    run(go())


def test_what_was_taken_is_committed_when_the_source_fails() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        await bed.give()
        bed.source.events.on_failed(SourceFailed("gone for good"))
        assert bed.task is not None
        with pytest.raises(PipelineFailed):
            await bed.task
        assert bed.sink.rows == 10 and bed.source.landed_at == Position(1, 0)

    run(go())


def test_the_last_stopped_log_ends_the_pipeline() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        bed.source.events.on_stopped(0, LogStopped("raise incarnation"))
        assert bed.task is not None
        with pytest.raises(PipelineFailed, match="raise incarnation"):
            await bed.task

    run(go())


def test_max_records_drains() -> None:
    async def go() -> None:
        bed = Bed(max_records=15)
        await bed.running()
        bed.pipeline.on_chunk(bed.chunks.next())
        states = [bed.pipeline.state]
        bed.pipeline.on_chunk(bed.chunks.next())
        states.append(bed.pipeline.state)
        assert states == ["running", "draining"]
        late = bed.chunks.next()
        assert not bed.pipeline.on_chunk(late) and late.nbytes == 0
        assert bed.task is not None
        await bed.task
        assert bed.sink.rows == 20

    run(go())


def test_until_end_waits_for_what_was_there_at_the_start() -> None:
    async def go() -> None:
        bed = Bed(until_end=True)

        def prepare(source: NotingSource) -> None:
            source.head = Position(1, 1)
            source.peer_is_done = False

        bed.prepare = prepare
        await bed.running()
        await bed.give(2)
        assert not bed.done
        bed.source.received = Position(1, 1)
        assert bed.task is not None
        await bed.task
        assert bed.sink.rows == 20

    run(go())


def test_until_end_gives_up_without_a_broker() -> None:
    async def go() -> None:
        bed = Bed(until_end=True)

        def prepare(source: NotingSource) -> None:
            source.assign = False
            source.unreachable_since = asyncio.get_running_loop().time() - 31
            source.unreachable_because = "the door is shut"

        bed.prepare = prepare
        with pytest.raises(PipelineFailed, match="no broker could be reached for 30 s: the door is shut"):
            await bed.pipeline.run()

    run(go())


def test_the_queue_is_bounded() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        assert bed.pipeline.on_chunk(bed.chunks.next())
        assert not bed.pipeline.on_chunk(bed.chunks.next())
        await bed.end()
        assert bed.sink.rows == 20

    run(go())


def test_settled_floors_reach_the_sink() -> None:
    async def go() -> None:
        bed = Bed()
        await bed.running()
        bed.source.events.on_settled(0, Position(1, 5))
        await bed.until(lambda: "settle 1" in bed.notes)
        await bed.end()

    run(go())


def test_a_marker_chunk_has_spans_and_no_rows() -> None:
    chunk = marker_chunk([Span(LOG, PULSAR_EARLIEST, PULSAR_EARLIEST, 0)])
    assert chunk.rows == 0 and len(chunk.spans()) == 1
