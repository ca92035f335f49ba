"""The pipeline's order of things, with a source and a sink that only take notes."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from fastwire.columns.chunk import Chunk, marker_chunk
from fastwire.coverage import Coverage
from fastwire.position import Position, Span
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.net.backoff import Backoff
from fastwire_daemon.pipeline.failure import PipelineFailed
from fastwire_daemon.pipeline.pipeline import SINK_LIMIT_S
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.pipeline.sinkfailures import SinkFailures
from fastwire_daemon.runtime.errors import (
    DatasetMismatchError,
    DiskFullError,
    FencedError,
    LogRefusedError,
    SinkDoneError,
    SinkFailedError,
    Superseded,
)
from fastwire_daemon.runtime.logs import get_logger
from fastwire_daemon.systems.source import Assignment, First, LogStopped, SourceFailed
from tests.support.pipeline_bed import LOG, Bed, NotingSink, NotingSource, UnloggedNotes


async def test_lines_of_its_source_name_the_pipeline(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fastwire"):
        bed = Bed()

        def prepare(source: NotingSource) -> None:
            start = source.start

            async def tell_and_start(coverage: Coverage) -> None:
                get_logger("source").info("connected", broker="a:1")
                await start(coverage)

            source.start = tell_and_start  # type: ignore[method-assign]

        bed.prepare = prepare
        await bed.running()
        await bed.end()
        get_logger("service").info("after")
    fields = {record.message: record.fields for record in caplog.records if hasattr(record, "fields")}
    assert fields["connected"] == {"pipeline": "p", "broker": "a:1"}
    assert fields["after"] == {}


async def test_nothing_is_asked_for_before_its_first_position_is_committed() -> None:
    bed = Bed()
    await bed.running()
    expected = ["open", "start", "refresh", "resolve", "write 0", "commit", "landed", "grant 1"]
    assert bed.notes == expected
    assert bed.source.cluster == "c"
    assert bed.sink.coverage.start(LOG) == PULSAR_EARLIEST
    await bed.end()


async def test_an_ack_follows_the_commit() -> None:
    bed = Bed()
    await bed.running()
    del bed.notes[:]
    await bed.give(3)
    assert bed.notes == ["write 30"]
    assert bed.pipeline.figures.rows_received == 30 and bed.pipeline.figures.rows_committed == 0
    await bed.end()
    assert bed.notes == ["write 30", "commit", "landed", "source closed", "sink closed"]
    assert bed.source.landed_at == Position(1, 2)
    assert bed.pipeline.figures.rows_committed == 30
    assert bed.pool.used < 2 << 20  # the scanner's buffers; the chunks are back


class GatedSink(NotingSink):
    """Its first write of rows lasts until the gate opens."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(notes)
        self.gate, self.inside = threading.Event(), threading.Event()

    def write(self, chunk: Chunk) -> None:
        if chunk.rows:
            self.inside.set()
            assert self.gate.wait(60)
        super().write(chunk)


@pytest.mark.parametrize("ask", ["revoked", "soon"])
async def test_what_is_revoked_while_the_first_chunk_is_written_is_committed_at_once(ask: str) -> None:
    bed = Bed(GatedSink)
    await bed.running()
    bed.notes.clear()
    bed.pipeline.on_chunk(bed.chunks.next())
    await bed.until(bed.sink.inside.is_set)
    if ask == "revoked":
        bed.source.events.on_revoked([0], "rebalance")
    else:
        bed.pipeline.commit_soon("the end is near")
    bed.sink.gate.set()
    await bed.until(lambda: "landed" in bed.notes)
    assert bed.notes == ["write 10", "commit", "landed"]
    await bed.end()


async def test_revoked_logs_are_committed_at_once() -> None:
    bed = Bed()
    await bed.running()
    await bed.give()
    bed.source.events.on_revoked([0], "connection lost")
    await bed.until(lambda: bed.notes[-1] == "landed")
    assert bed.pipeline.figures.rows_committed == 10
    await bed.end()


async def test_a_stalled_broker_is_committed_for() -> None:
    bed = Bed()
    await bed.running()
    await bed.give()
    bed.source.events.on_stalled(0, 20, "maxUnackedMessagesPerConsumer")
    await bed.until(lambda: bed.pipeline.figures.rows_committed == 10)
    await bed.give(2)
    await bed.until(lambda: bed.pipeline.figures.rows_committed == 30)  # 16 rows are the limit of a roll now
    await bed.end()


@pytest.mark.parametrize("error", [Superseded("somebody was first"), SinkFailedError("fsync failed")])
@pytest.mark.parametrize("method", ["write", "commit"])
async def test_a_void_roll_is_read_again(error: Exception, method: str) -> None:
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
    assert bed.pipeline.figures.rows_committed == 0
    await bed.end()
    assert bed.sink.rows == 0


async def test_files_that_a_table_did_not_take_are_tried_again_without_a_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fastwire_daemon.sinks.thread.PUBLISH_AGAIN_S", 0.01)
    bed = Bed()
    await bed.running()
    bed.sink.unpublished = "the catalog is away"
    await bed.give()
    del bed.notes[:]

    def later(what: Callable[[], bool]) -> bool:
        bed.now += 0.001
        return what()

    await bed.until(lambda: later(lambda: bed.notes.count("refresh") == 3))
    assert bed.notes == ["refresh"] * 3
    bed.sink.unpublished = ""
    now = bed.now
    await bed.until(lambda: later(lambda: bed.now > now + 0.1))
    assert bed.notes.count("refresh") <= 4
    await bed.end()


async def test_what_the_broker_has_lost_never_lands() -> None:
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


async def test_what_the_broker_has_lost_does_not_land_with_the_first_position_of_another_log() -> None:
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


@pytest.mark.parametrize("ending", ["drain", "failure"])
async def test_what_the_broker_has_lost_does_not_land_at_the_end(ending: str) -> None:
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


async def test_what_a_sink_without_a_log_was_given_stays_given() -> None:
    bed = Bed(sink=UnloggedNotes)
    await bed.running()
    await bed.give(3)
    del bed.notes[:]
    bed.pipeline.on_diverged(0, "an unclean election")
    await bed.until(lambda: any(note.startswith("grant") for note in bed.notes))
    assert bed.notes == ["commit", "landed", "void", "resolve", "grant 1"]
    assert bed.source.landed_at == Position(1, 2)
    await bed.end()


@pytest.mark.parametrize("call", ["write", "commit"])
async def test_a_drain_that_cannot_commit_fails_without_an_ack(call: str) -> None:
    bed = Bed()
    await bed.running()
    await bed.give()
    bed.sink.fail[call] = [SinkFailedError("no space left")]
    del bed.notes[:]
    bed.pipeline.on_chunk(bed.chunks.next())
    with pytest.raises(
        PipelineFailed, match=r"has not committed its last records: no space left; none are lost"
    ) as caught:
        await bed.end()
    assert caught.value.exit_code == 1
    assert (bed.pipeline.state, bed.pipeline.error) == ("failed", str(caught.value))
    assert "landed" not in bed.notes and bed.notes[-2:] == ["source closed", "sink closed"]


async def test_a_drain_whose_records_another_writer_has_landed_is_complete() -> None:
    bed = Bed()
    await bed.running()
    await bed.give()
    bed.sink.fail["commit"] = [Superseded("faster")]
    await bed.end()
    assert bed.pipeline.state == "ended"


async def test_the_time_of_the_last_commit_is_that_of_rows() -> None:
    """The first positions of new logs are committed before any row arrives."""
    bed = Bed()
    await bed.running()
    assert bed.pipeline.figures.commits == 1 and bed.pipeline.figures.last_commit_at is None
    bed.now += 5
    await bed.give()
    bed.now += 2
    await bed.end()
    assert bed.pipeline.figures.first_row_at is not None and bed.pipeline.figures.last_commit_at is not None
    assert (bed.pipeline.figures.first_row_at[0], bed.pipeline.figures.last_commit_at[0]) == (105.0, 107.0)
    bed.now += 3
    (commit,) = bed.pipeline.status()["recent_commits"]
    assert (commit["s_ago"], commit["rows"], commit["reason"]) == (3.0, 10, "shutdown")


async def test_a_sink_whose_reader_has_gone_ends_the_pipeline_without_an_error() -> None:
    bed = Bed()
    await bed.running()
    bed.sink.fail["write"] = [SinkDoneError("closed")]
    bed.pipeline.on_chunk(bed.chunks.next())
    assert bed.task is not None
    await bed.task
    assert bed.pipeline.state == "ended"


@pytest.mark.parametrize("method", ["open", "commit"])
async def test_a_sink_that_fails_at_the_start_is_tried_again(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    waits = _failing(0, bed, monkeypatch)
    bed.sink.fail[method] = [SinkFailedError("the store refuses it: ExpiredToken") for _ in range(4)]
    await bed.running()
    assert len(waits) == 4 and waits[0] < waits[3] and bed.pipeline.state == "running"
    await bed.end()


@pytest.mark.parametrize("method", ["open", "commit"])
async def test_a_run_until_the_end_gives_up_a_sink_that_never_works(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = Bed(until_end=True)
    waits: list[float] = []

    async def wait(self: SinkFailures, seconds: float, why: object) -> None:
        waits.append(seconds)
        bed.now += seconds

    monkeypatch.setattr(SinkFailures, "wait", wait)
    bed.sink.fail[method] = [SinkFailedError("read-only file system") for _ in range(20)]
    with pytest.raises(PipelineFailed, match="read-only file system") as caught:
        await bed.pipeline.run()
    assert caught.value.exit_code == 1 and sum(waits) == pytest.approx(SINK_LIMIT_S, abs=0.01)
    assert "grant 1" not in bed.notes and bed.pipeline.state == "failed"


async def test_a_fault_of_the_program_is_a_failed_pipeline() -> None:
    bed = Bed()
    bed.sink.fail["commit"] = [ZeroDivisionError("oops")]
    with pytest.raises(ZeroDivisionError):
        await bed.pipeline.run()
    assert (bed.pipeline.state, bed.pipeline.error) == ("failed", "internal error: ZeroDivisionError: oops")


@pytest.mark.parametrize("method", ["open", "commit"])
async def test_a_full_disk_never_ends_the_pipeline(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    waits = _failing(0, bed, monkeypatch)
    bed.sink.fail[method] = [DiskFullError("cannot commit: No space left on device") for _ in range(3)]
    await bed.running()
    assert len(waits) == 3 and waits[0] < waits[2]
    await bed.end()


async def test_a_writer_that_was_fenced_opens_anew_at_any_time() -> None:
    bed = Bed()
    bed.sink.fail["open"] = [FencedError("taken for dead")]
    await bed.running()
    assert bed.notes[:2] == ["open", "open"]
    await bed.end()


def _failing(times: int, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the next commits fail; what is waited for after each, in seconds, is noted and not waited for."""
    waits: list[float] = []

    async def wait(self: SinkFailures, seconds: float, why: object) -> None:
        waits.append(seconds)

    monkeypatch.setattr(SinkFailures, "wait", wait)
    bed.sink.fail["commit"] = [SinkFailedError("no such folder") for _ in range(times)]
    return waits


async def test_a_sink_that_fails_again_and_again_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    await bed.running()
    waits = _failing(12, bed, monkeypatch)
    for failures in range(1, 13):
        await bed.give()
        bed.pipeline.on_revoked([0], "test")
        await bed.until(lambda wanted=failures: len(waits) == wanted)  # type: ignore[misc]
    assert all(later >= earlier * 1.5 or later > 45 for earlier, later in pairwise(waits)), waits
    assert 0.4 <= waits[0] <= 0.5 and 45 < waits[-1] <= 60
    # A commit without rows is no sign that rows can land.
    await bed.until(lambda: bed.notes[-1].startswith("grant"))
    bed.sink.coverage = Coverage()
    commits = bed.pipeline.figures.commits
    bed.pipeline.on_assigned([bed.source.assignment()])
    await bed.until(lambda: bed.pipeline.figures.commits > commits)
    bed.sink.fail["commit"] = [SinkFailedError("no such folder")]
    await bed.give()
    bed.pipeline.on_revoked([0], "test")
    await bed.until(lambda: len(waits) == 13)
    assert waits[-1] > 45
    # Rows that land are.
    await bed.give()
    bed.pipeline.on_revoked([0], "test")
    await bed.until(lambda: bed.pipeline.figures.rows_committed > 0)
    bed.sink.fail["commit"] = [SinkFailedError("no such folder")]
    await bed.give()
    bed.pipeline.on_revoked([0], "test")
    await bed.until(lambda: len(waits) == 14)
    assert waits[-1] <= 0.5
    await bed.end()


async def test_the_pause_after_a_failure_is_told_and_only_a_drain_ends_it() -> None:
    bed = Bed()
    await bed.running()
    bed.pipeline._sink_failures._backoff = Backoff(first_s=3600)
    bed.sink.fail["commit"] = [SinkFailedError("no such folder")]
    await bed.give()
    bed.pipeline.on_revoked([0], "test")
    await bed.until(lambda: bed.pipeline.waiting is not None)
    opened = bed.notes.count("open")
    assert "no such folder" in str(bed.pipeline.status()["waiting"])
    bed.pipeline.on_assigned([bed.source.assignment()])  # anything else that happens
    for _ in range(20):
        await asyncio.sleep(0)
    assert bed.notes.count("open") == opened and bed.pipeline.waiting is not None
    await bed.end()
    assert bed.notes.count("open") == opened


async def test_logs_that_the_sink_refuses_are_given_up_and_the_others_land() -> None:
    refused = replace(LOG, topic="persistent://public/default/refused")

    bed = Bed()
    await bed.running()
    bed.source.logs.append(refused)
    bed.pipeline.on_assigned([Assignment(1, refused)])
    await bed.until(lambda: bed.notes[-1] == "grant 1")
    await bed.give()
    bed.sink.fail["commit"] = [LogRefusedError("no such folder", lambda log: log == refused)]
    bed.pipeline.on_assigned([Assignment(1, refused)])
    bed.pipeline.on_revoked([0], "test")
    # It starts over at once: it is another roll without that log.
    await bed.until(lambda: bed.notes.count("void") == 1 and bed.notes[-1].startswith("grant"))
    assert bed.notes[-1] == "grant 1", "only the assignment of the other log"
    assert bed.notes.count("stop 1") == 1, "the source has it among the stopped ones, whose backlog counts"
    stopped = bed.pipeline.status()["stopped_partitions"]
    assert list(stopped) == ["persistent://public/default/refused 0"]
    assert "cannot be written: no such folder" in stopped["persistent://public/default/refused 0"]
    assert bed.pipeline._sink_failures._backoff.failures == 0
    bed.pipeline.on_assigned([Assignment(1, refused)])
    await bed.until(lambda: bed.notes[-1] == "grant 0")
    await bed.give()
    bed.pipeline.on_revoked([0], "test")
    await bed.until(lambda: bed.pipeline.figures.rows_committed > 0)
    # A failure that names no log any more waits as any other does.
    bed.sink.fail["commit"] = [LogRefusedError("no such folder", lambda log: log == refused)]
    await bed.give()
    bed.pipeline.on_revoked([0], "test")
    await bed.until(lambda: bed.pipeline.waiting is not None)
    await bed.end()


async def test_the_last_log_that_the_sink_refuses_ends_the_pipeline() -> None:
    bed = Bed()
    await bed.running()
    await bed.give()
    bed.sink.fail["commit"] = [LogRefusedError("no such folder", lambda log: True)]
    bed.pipeline.on_revoked([0], "test")
    assert bed.task is not None
    with pytest.raises(PipelineFailed, match=r"every partition has stopped; the last one: .* no such folder"):
        await bed.task


async def test_a_dataset_is_not_made_for_a_subscription_with_progress() -> None:
    bed = Bed()
    bed.sink.exists = False
    bed.prepare = lambda source: setattr(source, "progress", True)
    with pytest.raises(PipelineFailed, match=r"sink\.create = true") as caught:
        await bed.pipeline.run()
    assert caught.value.exit_code == 78
    assert "create" not in bed.notes and "grant 1" not in bed.notes
    assert bed.notes[-2:] == ["source closed", "sink closed"]


async def test_a_dataset_is_made_before_a_cursor_may_move() -> None:
    bed = Bed(create=True)
    bed.sink.exists = False
    bed.prepare = lambda source: setattr(source, "progress", True)
    await bed.running()
    assert bed.notes.index("create") < bed.notes.index("resolve")
    await bed.end()


async def test_a_dataset_of_another_shape_is_exit_78() -> None:
    bed = Bed()
    bed.sink.fail["open"] = [DatasetMismatchError("other columns")]
    with pytest.raises(PipelineFailed, match="other columns") as caught:
        await bed.pipeline.run()
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(("configuration", "code"), [(True, 78), (False, 1)])
async def test_a_refused_source_ends_the_pipeline(configuration: bool, code: int) -> None:
    bed = Bed()
    error = SourceFailed("not allowed", configuration=configuration)
    bed.prepare = lambda source: setattr(source, "start_error", error)
    with pytest.raises(PipelineFailed, match="not allowed") as caught:
        await bed.pipeline.run()
    assert caught.value.exit_code == code
    assert bed.pipeline.state == "failed" and bed.pipeline.error == "not allowed"


async def test_what_was_taken_is_committed_when_the_source_fails() -> None:
    bed = Bed()
    await bed.running()
    await bed.give()
    bed.source.events.on_failed(SourceFailed("gone for good"))
    assert bed.task is not None
    with pytest.raises(PipelineFailed):
        await bed.task
    assert bed.sink.rows == 10 and bed.source.landed_at == Position(1, 0)


async def test_the_last_stopped_log_ends_the_pipeline() -> None:
    bed = Bed()
    await bed.running()
    bed.source.events.on_stopped(0, LogStopped("raise incarnation"))
    assert bed.task is not None
    with pytest.raises(PipelineFailed, match="raise incarnation"):
        await bed.task


async def test_max_records_drains() -> None:
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


async def test_the_queue_is_bounded() -> None:
    bed = Bed()
    await bed.running()
    assert bed.pipeline.on_chunk(bed.chunks.next())
    assert not bed.pipeline.on_chunk(bed.chunks.next())
    await bed.end()
    assert bed.sink.rows == 20


async def test_settled_floors_reach_the_sink() -> None:
    bed = Bed()
    await bed.running()
    bed.source.events.on_floor(0, Position(1, 5))
    await bed.until(lambda: "floors 1" in bed.notes)
    await bed.end()


def test_a_marker_chunk_has_spans_and_no_rows() -> None:
    chunk = marker_chunk([Span(LOG, PULSAR_EARLIEST, PULSAR_EARLIEST, 0)])
    assert chunk.rows == 0 and len(chunk.spans()) == 1


async def test_an_instance_that_stands_by_is_ready() -> None:
    """It has no log, and an orchestrator must neither wait for one nor restart it."""
    bed = Bed()

    def idle(source: NotingSource) -> None:
        source.assign = False

    bed.prepare = idle
    assert not bed.pipeline.ready
    bed.task = asyncio.create_task(bed.pipeline.run())
    await bed.until(lambda: "start" in bed.notes)
    assert (bed.pipeline.state, bed.pipeline.ready) == ("starting", False)
    bed.source.standing_by = True
    assert bed.pipeline.ready
    bed.source.unreachable_since = 1.0
    assert not bed.pipeline.ready
    await bed.end()
    assert not bed.pipeline.ready
