"""The pipeline's order of things, with a source and a sink that only take notes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fastwire.columns.chunk import marker_chunk
from fastwire.position import PULSAR_EARLIEST, Coverage, Position, Span
from fastwire_daemon.errors import DatasetMismatchError, FencedError, SinkDoneError, SinkFailedError, Superseded
from fastwire_daemon.pipeline import PipelineFailed
from fastwire_daemon.roll import RollPolicy
from fastwire_daemon.sources.base import Assignment, First, LogStopped, SourceFailed
from tests.pipeline_bed import LOG, Bed, NotingSource, UnloggedNotes, run


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
