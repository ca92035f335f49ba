"""The end of a pipeline by ``--until-end``, with a source and a sink that only take notes."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from fastwire.coverage import Coverage
from fastwire.position import Position, Span
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.pipeline import until_end
from fastwire_daemon.pipeline.failure import PipelineFailed
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.runtime.errors import LogRefusedError
from fastwire_daemon.systems.source import Assignment, First
from tests.support.pipeline_bed import LOG, Bed, Chunks, NotingSink, NotingSource


async def test_does_not_wait_for_a_log_that_the_sink_refuses() -> None:
    refused = replace(LOG, topic="persistent://public/default/refused")

    bed = Bed(until_end=True)
    heads = {0: Position(1, 0), 1: Position(1, 0)}

    def prepare(source: NotingSource) -> None:
        source.logs.append(refused)
        source.peer_is_done = False

        async def all_heads() -> dict[int, Position]:
            return heads

        source.heads = all_heads  # type: ignore[method-assign]

    bed.prepare = prepare
    await bed.running()
    bed.sink.fail["commit"] = [LogRefusedError("no such folder", lambda log: log == refused)]
    await bed.give()
    bed.pipeline.on_revoked([0], "test")
    await bed.until(lambda: "void" in bed.notes)
    bed.chunks = Chunks(bed.pool)
    await bed.give()
    bed.source.received = Position(1, 0)
    assert bed.task is not None
    with pytest.raises(PipelineFailed, match="cannot be written: no such folder"):
        await asyncio.wait_for(bed.task, 60)
    assert bed.pipeline.figures.rows_committed == 10


async def test_waits_for_what_was_there_at_the_start() -> None:
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


async def test_commits_the_first_position_of_an_empty_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the next run would take the topic for a new one, and its later partitions with it."""
    monkeypatch.setattr(until_end, "LOOK_S", 0.001)
    bed = Bed(until_end=True)
    asked, found = asyncio.Event(), asyncio.Event()
    looks: list[str] = []

    def prepare(source: NotingSource) -> None:
        source.assign, source.offering = False, True
        resolve, waiting = source.resolve, source.waiting

        async def slowly(assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
            looks.clear()
            asked.set()
            await found.wait()
            return await resolve(assignments, coverage)

        def look() -> Mapping[int, str]:
            looks.append("look")
            return waiting()

        source.resolve, source.waiting = slowly, look  # type: ignore[method-assign]

    bed.prepare = prepare
    bed.task = asyncio.create_task(bed.pipeline.run())
    await bed.until(lambda: len(looks) > 2)
    bed.source.events.on_assigned([bed.source.assignment()])
    bed.source.offering = False
    await asyncio.wait_for(asked.wait(), 60)
    await bed.until(lambda: len(looks) > 2)
    assert not bed.done
    found.set()
    await bed.task
    assert len(bed.sink.coverage) == 1


@pytest.mark.parametrize("confirms", [True, False])
async def test_waits_for_the_broker_to_confirm_if_it_can(confirms: bool) -> None:
    """The end is asked for with an empty Coverage, which leaves the broker's cursor, only where there is a cursor."""
    bed = Bed(until_end=True)
    asked: list[Coverage] = []
    landed = asyncio.Event()

    def prepare(source: NotingSource) -> None:
        source.confirms = confirms
        source.head = Position(1, 0)

        async def unfinished(heads: Mapping[int, Position], coverage: Coverage) -> list[int]:
            if not landed.is_set():
                return [0]
            asked.append(coverage)
            return []

        source.unfinished = unfinished  # type: ignore[method-assign]

    bed.prepare = prepare
    await bed.running()
    await bed.give()
    bed.source.received = Position(1, 0)
    landed.set()
    assert bed.task is not None
    await bed.task
    assert any(not len(coverage) for coverage in asked) == confirms


async def test_sees_what_another_instance_lands() -> None:
    """A stand-by of one dataset: no record ever arrives here."""
    bed = Bed(until_end=True)

    def prepare(source: NotingSource) -> None:
        source.assign, source.peer_is_done = False, False
        source.standing_by, source.confirms = True, False
        source.head = Position(1, 1)

    bed.prepare = prepare
    bed.task = asyncio.create_task(bed.pipeline.run())
    await bed.until(lambda: "refresh" in bed.notes)
    assert not bed.done
    bed.sink.coverage.add(Span(LOG, PULSAR_EARLIEST, Position(1, 1), 20))
    async with asyncio.timeout(60):
        await bed.task


async def test_gives_up_without_a_broker() -> None:
    bed = Bed(until_end=True)

    def prepare(source: NotingSource) -> None:
        source.assign = False
        source.unreachable_since = asyncio.get_running_loop().time() - 31
        source.unreachable_because = "the door is shut"

    bed.prepare = prepare
    with pytest.raises(PipelineFailed, match="no broker could be reached for 30 s: the door is shut"):
        await bed.pipeline.run()


async def test_records_that_the_broker_holds_back_end_the_run_after_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a shared subscription records may be delayed, or with another consumer that does not confirm them."""
    monkeypatch.setattr(until_end, "LOOK_S", 0.01)
    monkeypatch.setattr(until_end, "PEER_POLL_S", 0.01)
    monkeypatch.setattr(until_end, "STANDSTILL_S", 1.5)
    monkeypatch.setattr(until_end, "TOLD_S", (0.2, 60.0))
    bed = Bed(until_end=True, policy=RollPolicy(max_age_s=0.0, max_idle_s=0.05))

    def prepare(source: NotingSource) -> None:
        source.head = Position(1, 5)
        source.peer_is_done = False

    bed.prepare = prepare
    with caplog.at_level(logging.WARNING, "fastwire.pipeline"):
        await bed.running()
        await bed.give(2)
        bed.source.received = Position(1, 5)
        assert bed.task is not None
        with pytest.raises(PipelineFailed, match=r"no progress for \d+ s: .* or their delivery is delayed"):
            await asyncio.wait_for(bed.task, 60)
    assert bed.sink.rows == 20  # what came has landed
    (told,) = [one for one in caplog.records if one.getMessage() == "the end waits for records"]
    fields = told.__dict__["fields"]
    assert (fields["waiting"], fields["logs"]) == (1, [str(LOG)])


async def ended(bed: Bed, prepare: Callable[[NotingSink], None]) -> None:
    """Land one record of a bed with ``until_end``, and let the pipeline end."""

    def there(source: NotingSource) -> None:
        source.head = Position(1, 0)

    bed.prepare = there
    await bed.running()
    prepare(bed.sink)
    await bed.give()
    bed.source.received = Position(1, 0)
    assert bed.task is not None
    await asyncio.wait_for(bed.task, 60)


async def test_files_that_are_not_published_at_the_end_are_an_error() -> None:
    bed = Bed(until_end=True)

    def stopped(sink: NotingSink) -> None:
        sink.unpublished = "the table has a constraint"  # type: ignore[attr-defined]

    with pytest.raises(PipelineFailed, match="what has landed is not in the table: the table has a constraint"):
        await ended(bed, stopped)
    assert bed.pipeline.figures.rows_committed == 10


@pytest.mark.parametrize("answer", ["tried once more", "waited for"])
async def test_files_are_published_at_the_end(answer: str) -> None:
    bed = Bed(until_end=True)

    def late(sink: NotingSink) -> None:
        if answer == "waited for":
            sink.publishing = True  # type: ignore[attr-defined]
        sink.unpublished = "" if answer == "waited for" else "the catalog was away"  # type: ignore[attr-defined]
        looks, refresh = [0], sink.refresh

        def answered() -> Coverage:
            looks[0] += bed.pipeline.is_draining
            if looks[0] > (2 if answer == "waited for" else 0):
                sink.publishing = False  # type: ignore[attr-defined]
                sink.unpublished = ""  # type: ignore[attr-defined]
            return refresh()

        sink.refresh = answered  # type: ignore[method-assign]

    await ended(bed, late)
    assert bed.pipeline.state == "ended"


async def test_a_service_that_never_answers_is_waited_for_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(until_end, "PUBLISH_LIMIT_S", 0.05)
    bed = Bed(until_end=True)

    def silent(sink: NotingSink) -> None:
        sink.publishing = True  # type: ignore[attr-defined]

    with pytest.raises(PipelineFailed, match="is not in the table: its service has not answered within"):
        await ended(bed, silent)
