"""Logs that become other logs, and offsets that administrators move: what notices it, while the daemon runs and after.

A message has no offset of its own, so a position counts messages behind an offset, and the id of the last one that has
landed says whether it is still the same log.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fastwire.coverage import Coverage
from fastwire_daemon.dataset.commitlog.checkpoint import Checkpoint
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.systems.tubemq.source import commits
from tests.support.source_pipe import until
from tests.support.tubemq.source_pipe import GROUP, TubeMQPipe, reading, serving


def texts(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def values(pipe: TubeMQPipe) -> list[bytes]:
    return sorted((value for _, _, value in pipe.values.elements()), key=int)


async def land(broker: TubeMQDevBroker, pipe: TubeMQPipe, first: int, count: int) -> None:
    broker.produce("t", texts(first, count))
    await pipe.got(first + count)
    pipe.commit()


def durable(coverage: Coverage) -> Coverage:
    """Return what a new process reads from a dataset."""
    return Checkpoint.decode(Checkpoint(1, coverage).encode(), 1).coverage


@asynccontextmanager
async def landed(broker: TubeMQDevBroker, count: int) -> AsyncIterator[Coverage]:
    """Land ``count`` messages in GETs of ten, and end."""
    async with reading(broker) as pipe:
        for first in range(0, count, 10):
            await land(broker, pipe, first, 10)
        await until(lambda: broker.backlog("t", GROUP) == 0, "the group's offset")
    yield durable(pipe.coverage)


# --- a log that is another one after a restart


@pytest.mark.parametrize("lost", [5, 15])
async def test_a_log_that_was_cut_and_has_grown_again_stops_after_a_restart(lost: int) -> None:
    """The dataset keeps the id of the last message, and the Broker holds another one there."""
    async with serving() as broker, landed(broker, 20) as coverage:
        broker.lose_messages("t", lost)
        broker.produce("t", texts(100, 40))
        async with reading(broker, coverage=coverage) as again:
            await until(lambda: again.count("stopped") == 1, "the stop")
            assert "other messages than those that have landed" in again.told[-1][2]
            assert "incarnation = { t = 1 }" in again.told[-1][2]
            assert values(again) == []


@pytest.mark.parametrize("lost", [5, 15])
async def test_a_log_that_was_cut_stops_after_a_restart(lost: int) -> None:
    async with serving() as broker, landed(broker, 20) as coverage:
        broker.lose_messages("t", lost)
        async with reading(broker, coverage=coverage) as again:
            await until(lambda: again.count("stopped") == 1, "the stop")
            assert f"ends at {(20 - lost) * 28}" in again.told[-1][2]


async def test_a_cut_among_other_partitions_is_found_at_the_end_of_the_log() -> None:
    """The end of the store does not show it, because other partitions have filled it."""
    async with serving(2) as broker, landed(broker, 20) as coverage:
        broker.lose_messages("t", 5)
        broker.produce("t", texts(100, 40), 1)
        async with reading(broker, coverage=coverage) as again:
            await until(lambda: again.count("stopped") == 1, "the stop")
            assert "log ends before" in again.told[-1][2]


async def test_a_dataset_of_an_older_version_goes_on() -> None:
    """It does not say which message was the last one."""
    async with serving() as broker, landed(broker, 20) as coverage:
        async with reading(broker, coverage=Coverage.from_json(coverage.to_json())) as again:
            broker.produce("t", texts(20, 5))
            await again.got(5)
            assert values(again) == texts(20, 5)


@pytest.mark.parametrize("filters", [{}, {"t": ["a"]}])
async def test_incarnation_reads_the_log_that_is_there_now_from_its_beginning(filters: dict[str, list[str]]) -> None:
    """Whatever the group's offset is, which belongs to the log of before."""
    kinds = {"$msgType$": "a"} if filters else {}
    async with serving() as broker:
        for value in texts(0, 20):
            broker.append("t", value, attributes=kinds)
        async with reading(broker, filters=filters) as pipe:
            await pipe.got(20)
            pipe.commit()
            await until(lambda: broker.backlog("t", GROUP) == 0, "the group's offset")
        broker.lose_messages("t", 5)
        for value in texts(100, 40):
            broker.append("t", value, attributes=kinds)
        more: dict[str, Any] = {"filters": filters, "incarnations": {"t": 1}}
        async with reading(broker, coverage=durable(pipe.coverage), **more) as again:
            await again.got(55)
            again.commit()
            assert values(again) == texts(0, 15) + texts(100, 40)
        async with reading(broker, coverage=durable(again.coverage), **more) as third:
            broker.append("t", b"200", attributes=kinds)
            await third.got(1)
            assert values(third) == [b"200"]


async def test_incarnation_without_an_earlier_log_goes_on_at_the_groups_offset() -> None:
    async with serving() as broker, landed(broker, 20):
        async with reading(broker, incarnations={"t": 1}) as again:
            broker.produce("t", texts(20, 5))
            await again.got(5)
            assert values(again) == texts(20, 5)


# --- offsets that an administrator moves


async def test_a_groups_offset_that_is_moved_forwards_at_the_end_loses_nothing() -> None:
    async with serving() as broker, reading(broker) as pipe:
        pipe.eager = True
        await land(broker, pipe, 0, 10)
        await until(lambda: broker.backlog("t", GROUP) == 0, "the group's offset")
        for first in (10, 20):  # the second time behind the same message
            pipe.source.on_budget(Level.STOP)
            await asyncio.sleep(0)
            broker.produce("t", texts(first, 10))
            broker.move_offset("t", GROUP)
            pipe.source.on_budget(Level.FREE)
            broker.produce("t", texts(first + 100, 0))
        broker.produce("t", texts(30, 10))
        await pipe.got(40)
        assert values(pipe) == texts(0, 40)
        assert pipe.once()


async def test_a_groups_offset_that_is_moved_forwards_at_the_end_is_found_without_another_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commits, "FOLLOW_S", 0.2)
    monkeypatch.setattr(commits, "LOOK_S", 0.1)
    async with serving() as broker, reading(broker) as pipe:
        pipe.eager = True
        await land(broker, pipe, 0, 10)
        await until(lambda: broker.backlog("t", GROUP) == 0, "the group's offset")
        pipe.source.on_budget(Level.STOP)
        await asyncio.sleep(0)
        broker.produce("t", texts(10, 10))
        broker.move_offset("t", GROUP)
        pipe.source.on_budget(Level.FREE)
        await pipe.got(20)
        assert values(pipe) == texts(0, 20)
        assert pipe.once()


async def test_a_groups_offset_that_is_moved_forwards_under_a_backlog_loses_nothing() -> None:
    async with serving(transfer_bytes=100, first_transfer_bytes=100) as broker:
        broker.produce("t", texts(0, 200))
        async with reading(broker) as pipe:
            pipe.eager = True
            await pipe.got(20)
            broker.move_offset("t", GROUP, 28 * 150)
            await pipe.got(200)
            assert pipe.count("revoked") >= 1
            assert values(pipe) == texts(0, 200)
            assert pipe.once()


async def test_a_groups_offset_that_is_moved_backwards_lands_nothing_twice() -> None:
    async with serving() as broker, reading(broker) as pipe:
        pipe.eager = True
        for first in (0, 10):
            await land(broker, pipe, first, 10)
        await until(lambda: broker.backlog("t", GROUP) == 0, "the group's offset")
        broker.move_offset("t", GROUP, 28 * 15)
        broker.produce("t", texts(20, 10))
        await pipe.got(30)
        assert values(pipe) == texts(0, 30)
        assert pipe.once()


async def test_an_offset_that_moves_before_a_commit_loses_nothing() -> None:
    """The answer to the COMMIT shows it before a GET does."""
    async with serving() as broker, reading(broker) as pipe:
        pipe.eager = True
        broker.produce("t", texts(0, 10))
        await pipe.got(10)
        broker.produce("t", texts(10, 10))
        await pipe.got(20)
        pipe.source.on_budget(Level.STOP)
        broker.produce("t", texts(20, 10))
        broker.move_offset("t", GROUP)
        pipe.commit()
        await until(lambda: pipe.count("revoked") == 1, "the look")
        pipe.source.on_budget(Level.FREE)
        await pipe.got(30)
        assert values(pipe) == texts(0, 30)


async def test_retention_that_overtakes_a_reader_is_a_declared_gap() -> None:
    async with serving(transfer_bytes=100, first_transfer_bytes=100) as broker:
        broker.produce("t", texts(0, 200))
        async with reading(broker) as pipe:
            pipe.eager = True
            await pipe.got(20)
            pipe.source.on_budget(Level.STOP)
            broker.trim("t", 28 * 150)
            pipe.source.on_budget(Level.FREE)
            await until(lambda: b"199" in values(pipe), "the end")
            assert any(first.span.gap is not None for first in pipe.firsts)


async def test_entries_of_other_partitions_are_no_jump() -> None:
    async with serving(10) as broker:
        for number in range(300):
            broker.produce("t", texts(number, 1), number % 10)
        async with reading(broker) as pipe:
            pipe.eager = True
            await pipe.got(300)
            for number in range(300, 600):
                broker.produce("t", texts(number, 1), number % 7)
            await pipe.got(600)
            assert values(pipe) == texts(0, 600)
            assert pipe.once()


async def test_many_entries_of_other_partitions_behind_the_last_message_are_looked_at_once() -> None:
    """The GET that returns the last message passes over them, and the answer to the COMMIT at the end shows it."""
    async with serving(2) as broker:
        async with reading(broker, node=(1, 0)) as pipe:
            pipe.eager = True
            for first in (0, 10):  # GETs that pass over nothing
                await land(broker, pipe, first, 10)
            pipe.source.on_budget(Level.STOP)
            broker.produce("t", texts(20, 10))
            broker.produce("t", texts(30, 900), 1)
            pipe.source.on_budget(Level.FREE)
            await pipe.got(930)
            pipe.commit()
            await until(lambda: broker.progress[GROUP, "t", 0].committed == 28 * 930, "the group's offset")
            await until(lambda: broker.progress[GROUP, "t", 0].delta == 0, "the end")
            assert pipe.count("revoked") <= 1
            assert values(pipe) == texts(0, 930)
            assert pipe.once()


async def test_an_operator_who_moves_a_group_at_its_end_leaves_out_nothing() -> None:
    async with serving() as broker, reading(broker, node=(1, 0)) as pipe:
        pipe.eager = True
        await land(broker, pipe, 0, 10)
        await until(lambda: broker.backlog("t", GROUP) == 0, "the group's offset")
        broker.move_to_end(GROUP)
        await until(lambda: len(pipe.assigned) == 2, "the move")
        await pipe.granted()  # what comes before it is left out
        broker.produce("t", texts(10, 10))
        await pipe.got(20)
        assert values(pipe) == texts(0, 20)
        assert not any(first.span.gap for first in pipe.firsts)
