"""The Pulsar source when another entry comes than the next: the cursor is moved, or a filter holds entries back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fastwire.position import Log, Position, Span
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from tests.support.pulsar.source_scene import FULL, ORDERED, TYPES, landed, reading, serving
from tests.support.source_pipe import Pipe, entries, until


@pytest.mark.parametrize("kind", TYPES)
async def test_what_has_landed_is_acknowledged_again_after_a_reset_of_an_idle_topic(kind: str) -> None:
    async with serving(read_ahead=1000) as broker:
        broker.append("t", entries(0, 20))
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.got(200)
            await pipe.drained()
            for _ in range(2):
                broker.reset_cursor("t", "s")
                assert pipe.backlog() == 200
                await until(lambda: pipe.backlog() == 0, "acknowledged again")
            assert pipe.once() and pipe.rows == 200


@pytest.mark.parametrize("kind", TYPES)
async def test_what_has_landed_and_comes_again_is_told_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def again() -> list[Any]:
        return [one for one in caplog.records if "came again" in one.message]

    async with serving(read_ahead=1000) as broker:
        broker.append("t", entries(0, 20))
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.got(200)
            await pipe.drained()
            assert not again()
            for _ in range(2):
                broker.reset_cursor("t", "s", 5)
                await until(lambda: pipe.backlog() == 0, "acknowledged again")
            await until(lambda: len(again()) == 1, "a warning")
        first, last = (position[:2] for position in broker.positions("t")[5:20:14])
        said = vars(again()[0])["fields"]
        assert said["first"] == f"{first[0]}:{first[1]}" and said["last"] == f"{last[0]}:{last[1]}"
        assert said["entries"] == 15


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_what_was_skipped_lands_when_the_cursor_is_set_back(kind: str) -> None:
    async with serving(read_ahead=1000) as broker:
        broker.append("t", entries(0, 10))
        async with reading(broker, subscription_type=kind, started=False) as pipe:
            await pipe.start()
            await pipe.got(100)
            await pipe.drained()
        broker.append("t", entries(10, 400))
        broker.skip("t", "s", 300)
        async with reading(broker, subscription_type=kind, coverage=pipe.coverage) as pipe:
            await pipe.got(1000)
            await pipe.drained()
            broker.reset_cursor("t", "s")
            await pipe.got(4000)
            await pipe.drained()
            assert pipe.once()


@asynccontextmanager
async def skipped_in_many_places(kind: str) -> AsyncIterator[tuple[PulsarDevBroker, Pipe]]:
    """A reader of a subscription that has passed every second one of 200 entries without landing it."""
    async with serving(read_ahead=1000) as broker:
        async with reading(broker, subscription_type=kind):
            await until(lambda: broker.subscriptions("t") == ["s"], "a subscription")
        coverage = landed()
        for ledger, entry in broker.append("t", entries(0, 200))[::2]:
            at = Position(ledger, entry)
            coverage.add(Span(Log("pulsar", "c", FULL, "-1"), Position(ledger, entry - 1), at, 10))
        broker.skip("t", "s", 200)
        broker.append("t", entries(200, 1))
        async with reading(broker, subscription_type=kind, coverage=coverage) as pipe:
            await pipe.got(10)
            await pipe.drained()
            yield broker, pipe


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_what_was_skipped_in_many_places_lands_when_the_cursor_is_set_back(kind: str) -> None:
    async with skipped_in_many_places(kind) as (broker, pipe):
        await until(lambda: pipe.source.partitions[0].cursor == Position(3, 199), "the broker was asked")
        broker.reset_cursor("t", "s")
        await pipe.got(1010)
        await pipe.drained()
        assert pipe.once()


@pytest.mark.parametrize("kind", ORDERED)
async def test_an_entry_that_a_filter_puts_off_stops_a_log_that_is_read_in_order(kind: str) -> None:
    async with serving() as broker:
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.granted()
            broker.reschedule("t", "s", [5])
            broker.append("t", entries(0, 20))
            await pipe.got(190)
            broker.pass_rescheduled("t", "s")
            await until(lambda: pipe.count("stopped") == 1, "the log stops", lambda: pipe.told)
            assert pipe.count("diverged") == 1  # nothing behind the entry lands
            [error] = [one[2] for one in pipe.told if one[0] == "stopped"]
            assert "3:5 came behind 3:19" in error and "subscription_type" in error
            assert pipe.rows == 190
        assert broker.backlog("t", "s") == 200
        async with reading(broker, subscription_type="shared", coverage=pipe.coverage) as pipe:
            await pipe.got(200)
            await pipe.drained()
            assert pipe.once()


@pytest.mark.parametrize("kind", ORDERED)
async def test_an_entry_that_a_filter_puts_off_until_later_ones_are_acknowledged_is_lost(kind: str) -> None:
    """A limit of the broker's, which docs/delivery.md names: a cumulative ack passes what it did not send."""
    async with serving() as broker:
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.granted()
            broker.reschedule("t", "s", [5])
            broker.append("t", entries(0, 20))
            await pipe.got(190)
            await pipe.drained()
            broker.pass_rescheduled("t", "s")
            broker.append("t", entries(20, 1))
            await pipe.got(200)
            await pipe.drained()
        async with reading(broker, subscription_type=kind, coverage=pipe.coverage) as again:
            broker.append("t", entries(21, 1))
            await again.got(10)
            await again.drained()
        landed = pipe.landed + again.landed
        assert {int(value.split(b":")[0]) for _, _, value in landed} == set(range(22)) - {5}
        assert set(landed.values()) == {1}
        for one in (pipe, again):
            assert (one.count("stopped"), one.count("diverged"), one.dead_letters, one.failure) == (0, 0, [], None)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_an_entry_that_a_filter_puts_off_lands_where_order_is_not_kept(kind: str) -> None:
    async with serving() as broker, reading(broker, subscription_type=kind) as pipe:
        await pipe.granted()
        broker.reschedule("t", "s", [5])
        broker.append("t", entries(0, 20))
        await pipe.got(190)
        pipe.commit()
        await until(lambda: pipe.backlog() == 10, "acknowledged around it")
        broker.pass_rescheduled("t", "s")
        await pipe.got(200)
        await pipe.drained()
        assert pipe.once() and pipe.dead_letters == []
