"""The Pulsar source against the embedded broker, which checks permits, acks and manners."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import uvloop

from fastwire.position import PULSAR_EARLIEST, Coverage, Log, Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.topic import parse_service_url
from fastwire.wire.pool import Pool
from fastwire_daemon.budget import Level
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.metrics import DaemonMetrics
from fastwire_daemon.sources.base import SourceFailed
from fastwire_daemon.sources.pulsar.coverage import Landed, declared_gap, landed_of, newly_landed
from fastwire_daemon.sources.pulsar.host import Stage
from tests.hostile.pulsar import NeverAnswers
from tests.source_pipe import Pipe, entries, entry, until

Loop = Callable[[], asyncio.AbstractEventLoop]

TYPES = ["exclusive", "failover", "shared", "key_shared"]
ORDERED = ["exclusive", "failover"]
FULL = "persistent://public/default/t"


def run(main: Callable[[], Coroutine[Any, Any, None]], loop: Loop = uvloop.new_event_loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@asynccontextmanager
async def serving(
    broker: PulsarDevBroker | None = None, partitions: int = 0, **options: Any
) -> AsyncIterator[PulsarDevBroker]:
    """A broker with the topic ``t``; in the end nobody may have broken a rule."""
    broker = broker or PulsarDevBroker(PulsarOptions(**options))
    await broker.start()
    broker.create_topic("t", partitions)
    try:
        yield broker
        assert broker.violations == []
    finally:
        await broker.stop()


@asynccontextmanager
async def reading(broker: PulsarDevBroker, *topics: str, started: bool = True, **more: Any) -> AsyncIterator[Pipe]:
    pipe = Pipe(broker, *topics, **more)
    try:
        yield await pipe.start() if started else pipe
    finally:
        await pipe.close()


def landed(*positions: Position | tuple[int, int], partition: int = -1, start: Position = PULSAR_EARLIEST) -> Coverage:
    coverage = Coverage()
    log = Log("pulsar", "c", FULL, str(partition), "0")
    coverage.add(Span(log, start, start, 0))
    for position in positions:
        coverage.add(Span(log, start, Position(*position), 1))
    return coverage


# --- everything once


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("kind", TYPES)
def test_all_partitions_once_and_an_empty_backlog(kind: str, loop: Loop) -> None:
    async def main() -> None:
        async with serving(partitions=4) as broker:
            for partition in range(4):
                broker.append(f"t-partition-{partition}", entries(0, 100))
            async with reading(broker, subscription_type=kind, most_permits=300) as pipe:
                await pipe.got(4000)
                assert broker.backlog("t", "s") == 4000  # nothing is confirmed before it is committed
                await pipe.drained()
                assert len(pipe.values) == 4000
                assert pipe.once()
                await until(lambda: all(one.permits == 300 for one in broker.consumers("t", "s")), "whole windows")
                for partition in range(4):
                    broker.append(f"t-partition-{partition}", entries(100, 7))
                await pipe.got(4280)
                await until(lambda: all(one.permits == 300 for one in broker.consumers("t", "s")), "whole windows")
                await pipe.drained()
                status = pipe.source.status()
                assert status["partitions"] == {"reading": 4}
                assert status["connections"][0]["consumers"] == 4
            assert broker.consumers("t", "s") == []

    run(main, loop)


def test_a_plain_topic_and_one_partition_by_name() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.create_topic("p", 3)
            broker.append("t", entries(0, 3))
            for partition in range(3):
                broker.append(f"p-partition-{partition}", entries(0, 3))
            async with reading(broker, "t", "p-partition-1") as pipe:
                await pipe.got(60)
                await pipe.drained()
                assert [(log.topic.rpartition("/")[2], log.partition) for log in pipe.source.logs] == [
                    ("t", "-1"),
                    ("p", "1"),
                ]

    run(main)


def test_a_small_chunk_is_handed_on_when_it_is_old() -> None:
    async def main() -> None:
        async with serving() as broker:
            async with reading(broker) as pipe:
                await pipe.granted()
                for number in range(3):
                    broker.append("t", [entry(number, rows=1)])
                    await pipe.got(number + 1)

    run(main)


def test_nothing_is_asked_for_before_the_grant() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            broker.append("t-partition-0", entries(0, 5))
            async with reading(broker, started=False) as pipe:
                pipe.auto = False
                await pipe.start()
                await until(lambda: len(pipe.assigned) == 2, "assignments")
                await asyncio.sleep(0.15)
                assert [one.granted for one in broker.consumers("t", "s")] == [0, 0]
                one = next(one for one in pipe.assigned if one.log.partition == "0")
                assert (one.head, one.progress) == (Position(*broker.positions("t-partition-0")[-1][:2]), False)
                await pipe.take(pipe.assigned)
                pipe.source.grant(pipe.assigned, pipe.coverage)  # a second time is nothing
                await pipe.got(50)

    run(main)


# --- where to begin


def test_start_latest_takes_what_comes_after() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            broker.append("t-partition-0", entries(0, 5))
            async with reading(broker, start="latest") as pipe:
                await pipe.granted()
                last = broker.positions("t-partition-0")[-1][:2]
                assert pipe.coverage.start(pipe.log(0)) == Position(*last)
                assert not any(first.progress for first in pipe.firsts)
                for partition in range(2):
                    broker.append(f"t-partition-{partition}", entries(5, 2))
                await pipe.got(40)
                assert {value[2].partition(b":")[0] for value in pipe.values} == {b"5", b"6"}
                await pipe.drained()

    run(main)


@pytest.mark.parametrize("kind", ["failover", "shared"])
def test_start_at_a_time(kind: str) -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 10))
            at = datetime.fromtimestamp(1_700_000_000 + 6, UTC).isoformat()
            async with reading(broker, start=at, subscription_type=kind) as pipe:
                await pipe.got(40)
                assert min(int(value[2].partition(b":")[0]) for value in pipe.values) == 6
                await pipe.drained()

    run(main)


def test_start_behind_a_position() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            for partition in range(2):
                broker.append(f"t-partition-{partition}", entries(0, 10))
            ledger, number, _ = broker.positions("t-partition-0")[3]
            start = {"t-partition-0": f"{ledger}:{number}", "t-partition-1": "-1:-1"}
            async with reading(broker, start=start) as pipe:
                await pipe.got(60 + 100)
                of_first = {int(value[2].partition(b":")[0]) for value in pipe.values if value[1] == "0"}
                assert of_first == set(range(4, 10))
                await pipe.drained()

    run(main)


def test_a_start_beyond_the_end_or_without_a_position_stops_the_log() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            broker.append("t-partition-0", entries(0, 2))
            async with reading(broker, start={"t-partition-0": "99:0"}) as pipe:
                await until(lambda: pipe.count("stopped") == 2, "two stops")
                texts = " ".join(one[2] for one in pipe.told if one[0] == "stopped")
                assert "the start 99:0 lies beyond the last position" in texts
                assert f"start names no position for {FULL}-partition-1" in texts
                assert pipe.source.status()["partitions"] == {"stopped": 2}

    run(main)


def test_progress_of_the_subscription_is_where_an_unknown_log_begins() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 5))
            async with reading(broker) as pipe:
                await pipe.got(50)
                await pipe.drained()
            broker.append("t", entries(5, 5))
            async with reading(broker, start="earliest") as pipe:
                await pipe.got(50)
                await pipe.drained()
                (first,) = pipe.firsts
                assert first.progress
                assert first.span.start == first.span.end == Position(*broker.positions("t")[4][:2])
                assert pipe.assigned[0].progress

    run(main)


def test_brokers_that_do_not_tell_the_cursor() -> None:
    async def main() -> None:
        async with serving(tell_mark_delete=False) as broker:
            broker.append("t", entries(0, 5))
            async with reading(broker, start="latest") as pipe:
                await pipe.granted()
                assert pipe.assigned[0].cursor is None
                assert pipe.coverage.start(pipe.log()) == Position(*broker.positions("t")[-1][:2])
                broker.append("t", entries(5, 1))
                await pipe.got(10)

    run(main)


# --- known logs


@pytest.mark.parametrize("kind", TYPES)
def test_landed_records_that_come_again_are_cut_and_acknowledged(kind: str) -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 10))
            coverage = landed(broker.positions("t")[5][:2])
            # The process died between its commit and its ack: the broker knows of nothing.
            async with reading(broker, coverage=coverage, subscription_type=kind) as pipe:
                await pipe.got(40)
                assert {int(value[2].partition(b":")[0]) for value in pipe.values} == set(range(6, 10))
                await until(lambda: broker.backlog("t", "s") == 40, "acks of what had landed")
                await pipe.drained()
                assert pipe.firsts == []

    run(main)


def test_less_than_has_landed_stops_the_log_and_names_incarnation() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 3))
            ledger, number, _ = broker.positions("t")[-1]
            async with reading(broker, coverage=landed((ledger, number + 1))) as pipe:
                await until(lambda: pipe.count("stopped") == 1, "a stop")
                assert "raise source.incarnation" in pipe.told[-1][2]
                assert (
                    f"{ledger}:{number + 1} has landed, but the broker's last position is {ledger}:{number}"
                    in pipe.told[-1][2]
                )
                assert pipe.rows == 0
                assert pipe.source.partitions[0].stage is Stage.STOPPED
            async with reading(broker, coverage=landed((ledger, number + 1)), incarnation=1) as pipe:
                await pipe.got(30)

    run(main)


def test_what_the_broker_has_skipped_is_a_declared_gap() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 10))
            positions = [Position(*one[:2]) for one in broker.positions("t")]
            async with reading(broker) as pipe:
                await pipe.got(100)
                await pipe.drained()  # somebody else's dataset, same subscription
            broker.append("t", entries(10, 2))
            coverage = landed(positions[3])
            async with reading(broker, coverage=coverage) as pipe:
                await pipe.got(20)
                (first,) = pipe.firsts
                assert first.span.start == first.span.end == positions[3]
                assert first.span.gap is not None
                assert first.span.gap.to == positions[9]
                await pipe.drained()
                assert len(pipe.coverage.intervals(pipe.log())) == 1

    run(main)


@pytest.mark.parametrize(
    ("base", "cursor", "gap"),
    [
        ((5, 3), (5, 3), False),
        ((5, 3), (5, 2), False),
        ((5, 3), (5, 4), True),
        ((5, 3), (4, 9), False),
        ((5, 3), (7, -1), False),  # the ledger was full, and the cursor has moved on by itself
        ((5, 3), (7, 0), True),
        ((5, -1), (5, 0), True),
        ((-1, -1), (5, -1), False),
        ((-1, -1), (5, 0), True),
        ((5, 3), (-1, -1), False),
    ],
)
def test_what_is_a_gap(base: tuple[int, int], cursor: tuple[int, int], gap: bool) -> None:
    assert declared_gap(Position(*base), Position(*cursor)) is gap


def test_what_has_landed_of_a_log() -> None:
    log = Log("pulsar", "c", FULL, "-1", "0")
    coverage = landed((5, 3))
    assert landed_of(coverage, log, None, ordered=True) == Landed(Position(5, 3), ())
    assert landed_of(landed(), log, None, ordered=True) == Landed(PULSAR_EARLIEST, ())
    coverage.add(Span(log, Position(5, 5), Position(5, 9), 4))
    coverage.add(Span(log, Position(6, -1), Position(6, 0), 1))
    coverage.add(Span(log, Position(6, 2), Position(8, 1), 1))
    above = coverage.intervals(log)[1:]
    for ordered in (False, True):
        assert landed_of(coverage, log, None, ordered=ordered) == Landed(Position(5, 3), above)
    both = Landed(Position(5, 3), above)
    assert both.runs == [(5, 6, 9), (6, 0, 0)]
    assert both.across == [(Position(6, 2), Position(8, 1))]
    # Read in order, what the broker's cursor has passed is settled.
    assert landed_of(coverage, log, Position(5, 4), ordered=True) == both
    assert landed_of(coverage, log, Position(5, 5), ordered=True) == Landed(Position(5, 9), above[1:])
    assert landed_of(coverage, log, Position(5, 5), ordered=False) == both
    assert landed_of(coverage, log, Position(6, 1), ordered=True) == Landed(Position(6, 0), above[2:])
    assert landed_of(coverage, log, Position(6, 2), ordered=True) == Landed(Position(8, 1), ())


def test_what_of_the_received_has_landed() -> None:
    log = Log("pulsar", "c", FULL, "-1", "0")
    coverage = landed((5, 3))
    coverage.add(Span(log, Position(5, 5), Position(5, 9), 4))
    received = [(4, 0, 7, False), (5, 0, 4, False), (5, 5, 12, False), (5, 20, 21, False), (5, 1, 2, True)]
    assert newly_landed(received, coverage, log) == [(4, 0, 7), (5, 0, 3), (5, 6, 9)]
    assert newly_landed(received, Coverage(), log) == []


def test_a_new_ledger_is_no_gap() -> None:
    async def main() -> None:
        async with serving(ledger_entries=5) as broker:
            broker.append("t", entries(0, 5))
            async with reading(broker) as pipe:
                await pipe.got(50)
                await pipe.drained()
                coverage = pipe.coverage
            broker.unload("t")
            broker.append("t", entries(5, 1))
            async with reading(broker, coverage=coverage) as pipe:
                await pipe.got(10)
                assert pipe.firsts == []
                await pipe.drained()

    run(main)


# --- roles


async def two(broker: PulsarDevBroker, kind: str, **more: Any) -> tuple[Pipe, Pipe]:
    one = Pipe(broker, subscription_type=kind, consumer_name="a", **more)
    other = Pipe(broker, subscription_type=kind, consumer_name="b", **more)
    other.coverage = one.coverage  # one dataset
    return one, other


def test_failover_hands_over_with_the_coverage_of_the_other() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            for partition in range(2):
                broker.append(f"t-partition-{partition}", entries(0, 20))
            one, other = await two(broker, "failover")
            await other.start()
            await other.got(400)
            other.commit()
            await one.start()
            # The active one is found anew for every change; somebody gets each partition, and nobody both.
            await until(
                lambda: sum(p.granted for p in one.source.partitions + other.source.partitions) == 2, "two readers"
            )
            other.commit()
            for partition in range(2):
                broker.append(f"t-partition-{partition}", entries(20, 20))
            await until(lambda: one.rows + other.rows == 800, "all rows")
            one.commit()
            other.commit()
            await other.close()
            await one.granted()
            for partition in range(2):
                broker.append(f"t-partition-{partition}", entries(40, 5))
            await until(lambda: one.rows + other.rows == 900, "the rest")
            await one.drained()
            assert one.once()
            assert other.once()
            assert not set(one.values) & set(other.values)
            await one.close()

    run(main)


def test_who_loses_the_role_is_told_and_holds_no_permits() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 5))
            one, other = await two(broker, "failover")
            await other.start()
            await other.got(50)
            other.commit()
            await one.start()
            await until(lambda: one.source.partitions[0].granted or bool(other.count("revoked")), "a change of roles")
            await asyncio.sleep(0.2)
            states = {state.name: state for state in broker.consumers("t", "s")}
            active = next(name for name, state in states.items() if state.active)
            passive = "a" if active == "b" else "b"
            assert states[passive].granted == 0
            stand_by = one if passive == "a" else other
            assert stand_by.source.status()["partitions"] == {"stand-by": 1}
            await one.close()
            await other.close()

    run(main)


def test_a_role_that_is_lost_before_the_grant_and_won_again() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 5))
            one, other = await two(broker, "failover")
            other.auto = False
            await other.start()
            await until(lambda: len(other.assigned) == 1, "an assignment")
            await one.start()
            await one.got(50)
            # What was assigned is not in force any more.
            await other.take(other.assigned)
            assert not other.source.partitions[0].granted
            one.commit()
            await one.close()
            await until(lambda: len(other.assigned) == 2, "another assignment")
            await other.take(other.assigned)
            broker.append("t", entries(5, 5))
            await other.got(50)
            await other.drained()
            assert not set(one.values) & set(other.values)
            await other.close()

    run(main)


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_peers_share_and_nothing_comes_twice(kind: str) -> None:
    async def main() -> None:
        async with serving() as broker:
            one, other = await two(broker, kind, most_permits=50)
            await one.start()
            await other.start()
            await one.granted()
            await other.granted()
            broker.append("t", entries(0, 100))
            await until(lambda: one.rows + other.rows == 1000, "all rows")
            one.commit()
            other.commit()
            await one.drained()
            assert not set(one.values) & set(other.values)
            await one.close()
            await other.close()

    run(main)


def test_many_intervals_make_the_source_ask_what_is_settled() -> None:
    async def main() -> None:
        async with serving() as broker:
            one, other = await two(broker, "shared", most_permits=20)
            other.coverage = Coverage()
            await one.start()
            await other.start()
            await one.granted()
            await other.granted()
            broker.append("t", entries(0, 400, rows=1))
            await until(lambda: one.rows + other.rows == 400, "all rows")
            assert min(one.rows, other.rows) > 64
            other.commit()
            one.commit()
            await one.drained()
            one.commit()
            await until(lambda: one.count("settled") > 0, "a floor")
            await until(lambda: len(one.coverage.intervals(one.log())) < 64, "few intervals")
            broker.append("t", entries(400, 10, rows=1))
            await until(lambda: one.rows + other.rows == 410, "the rest")
            other.commit()
            await one.drained()
            await one.close()
            await other.close()

    run(main)


def test_a_limit_of_unacknowledged_messages_is_told_by_its_name() -> None:
    async def main() -> None:
        async with serving(max_unacked=200) as broker:
            broker.append("t", entries(0, 30))
            async with reading(broker, subscription_type="shared") as pipe:
                await until(lambda: pipe.count("stalled") > 0, "a stall")
                assert ("stalled", 0, "maxUnackedMessagesPerConsumer") in pipe.told
                assert 200 <= pipe.rows < 300
                pipe.commit()
                await pipe.got(300)
                await pipe.drained()
                assert pipe.once()

    run(main)


# --- room and memory


def test_a_full_pipeline_stops_reading_until_it_has_room() -> None:
    async def main() -> None:
        async with serving() as broker:
            async with reading(broker) as pipe:
                await pipe.granted()
                pipe.room = False
                broker.append("t", entries(0, 400, rows=100, size=500))  # 20 MB
                await until(lambda: pipe.rows > 0, "a first chunk")
                await asyncio.sleep(0.3)
                stuck = pipe.rows
                assert stuck < 40_000
                assert pipe.source.status()["connections"][0]["paused"] == ["QUEUE"]
                await asyncio.sleep(0.2)
                assert pipe.rows == stuck
                pipe.room = True
                pipe.source.resume()
                await pipe.got(40_000)
                assert pipe.once()

    run(main)


def test_scarce_memory_stops_asking_and_then_reading() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 10))
            async with reading(broker, most_permits=100) as pipe:
                await pipe.got(100)
                await until(lambda: broker.consumers("t", "s")[0].permits == 100, "a whole window")
                pipe.source.on_budget(Level.HOLD)
                broker.append("t", entries(10, 30))
                await pipe.got(200)
                await asyncio.sleep(0.2)
                assert pipe.rows == 200  # what was granted, and no more
                assert broker.consumers("t", "s")[0].permits == 0
                pipe.source.on_budget(Level.STOP)
                assert pipe.source.status()["connections"][0]["paused"] == ["MEMORY"]
                pipe.source.on_budget(Level.HOLD)
                assert pipe.source.status()["connections"][0]["paused"] == []
                assert pipe.rows == 200
                pipe.source.on_budget(Level.FREE)
                await pipe.got(400)
                await until(lambda: broker.consumers("t", "s")[0].permits == 100, "a whole window")

    run(main)


def test_while_nothing_is_read_the_connection_lives() -> None:
    async def main() -> None:
        async with serving(keep_alive_s=0.2) as broker:
            async with reading(broker, keep_alive_s=0.2) as pipe:
                await pipe.granted()
                link = next(iter(pipe.source.cluster.links.values()))
                pipe.source.on_budget(Level.STOP)
                for _ in range(12):
                    # Ten seconds in the life of this test.
                    link.connection._suspended_ping_at = 0.0
                    await asyncio.sleep(0.1)
                pipe.source.on_budget(Level.FREE)
                broker.append("t", entries(0, 5))
                await pipe.got(50)
                assert pipe.count("revoked") == 0

    run(main)


def test_answers_are_read_while_the_pipeline_waits_for_them() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.create_topic("u")
            async with reading(broker, "u", "t", start="latest", most_permits=2000) as pipe:
                await pipe.granted()
                broker.append("t", entries(0, 3))
                pipe.auto = False
                broker.close_consumers("t", "s")
                await until(lambda: len(pipe.assigned) == 3, "a second assignment")
                pipe.room = False
                broker.append("u", entries(0, 500))
                await until(lambda: pipe.source.status()["connections"][0]["paused"] == ["QUEUE"], "a full pipeline")
                broker.append("u", entries(500, 500))
                # As if nothing was known of t: where it begins takes a seek, whose answer comes behind the records.
                async with asyncio.timeout(10):
                    (first,) = await pipe.source.resolve(pipe.assigned[2:], Coverage())
                assert first.span.start == Position(*broker.positions("t")[-1][:2])
                assert pipe.source.status()["connections"][0]["paused"] == ["QUEUE"]
                assert pipe.rows <= 5000 + 2000 + 10  # what was granted, and no more
                pipe.room = True
                pipe.source.resume()
                await pipe.got(10_000)

    run(main)


# --- the end


@pytest.mark.parametrize("kind", TYPES)
def test_until_end(kind: str) -> None:
    async def main() -> None:
        async with serving(partitions=3) as broker:
            broker.append("t-partition-0", entries(0, 5))
            broker.append("t-partition-1", entries(0, 5))
            async with reading(broker, subscription_type=kind) as pipe:
                heads = await pipe.source.heads()
                assert set(heads) == {0, 1}
                await pipe.got(100)
                assert set(await pipe.source.unfinished(heads, pipe.coverage)) == {0, 1}
                assert pipe.source.position(0) == heads[0]
                assert pipe.source.position(2) is None
                await pipe.drained()
                assert list(await pipe.source.unfinished(heads, pipe.coverage)) == []

    run(main)


def test_until_end_for_a_stand_by() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 5))
            one, other = await two(broker, "failover")
            await one.start()
            await one.got(50)
            await other.start()
            other.coverage = Coverage()
            heads = await other.source.heads()
            reader, stand_by = (one, other) if one.source.partitions[0].granted else (other, one)
            assert list(await stand_by.source.unfinished(heads, Coverage())) == [0]
            await reader.drained()
            assert list(await stand_by.source.unfinished(heads, Coverage())) == []
            await one.close()
            await other.close()

    run(main)


@pytest.mark.parametrize("kind", TYPES)
def test_closing_sends_the_acks_that_wait(kind: str) -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 50))
            async with reading(broker, subscription_type=kind) as pipe:
                await pipe.got(500)
                pipe.commit()
            assert broker.backlog("t", "s") == 0
            assert broker.consumers("t", "s") == []
            await until(lambda: not broker.connections, "the end of the connection")

    run(main)


def test_consumers_are_closed_only_when_their_acks_are_confirmed() -> None:
    async def main() -> None:
        async with serving(NeverAnswers(pb.BaseCommand.ACK)) as broker:
            broker.append("t", entries(0, 5))
            pipe = await Pipe(broker).start()
            await pipe.got(50)
            pipe.commit()
            (connection,) = broker.connections
            commands = connection.commands  # type: ignore[attr-defined]
            await pipe.source.close(0.3)
            assert "SUBSCRIBE" in commands
            assert "CLOSE_CONSUMER" not in commands
            await until(lambda: not broker.connections, "the end of the connection")

    run(main)


def test_metrics_count_permits_acks_and_connections() -> None:
    async def main() -> None:
        async with serving() as broker:
            metrics = DaemonMetrics("0")
            broker.append("t", entries(0, 5))
            async with reading(broker, most_permits=100, metrics=metrics.pipeline("m")) as pipe:
                await pipe.got(50)
                await until(lambda: broker.consumers("t", "s")[0].permits == 100, "a whole window")
                pipe.eager = True
                broker.drop_connections()
                await until(lambda: pipe.count("revoked") == 1, "a revocation")
                await pipe.granted()
                await pipe.drained()
            counts = metrics.render().decode()
            assert 'fastwire_source_granted_permits_total{pipeline="m"} 250.0' in counts
            assert 'fastwire_source_acks_sent_total{pipeline="m"} 1.0' in counts
            assert 'fastwire_source_ack_receipts_total{pipeline="m"} 1.0' in counts
            assert 'fastwire_source_reconnects_total{pipeline="m",reason="lost"} 1.0' in counts

    run(main)


def test_closing_before_anything_was_there() -> None:
    async def main() -> None:
        broker = PulsarDevBroker()
        await broker.start()
        url = broker.url
        await broker.stop()
        pipe = Pipe(broker, url=url)
        starting = asyncio.ensure_future(pipe.source.start(pipe.coverage))
        await asyncio.sleep(0.05)
        assert pipe.source.unreachable_since is not None
        starting.cancel()
        await pipe.close()

    run(main)


# --- refused


def test_refused_for_good() -> None:
    async def main() -> None:
        async with serving(token="secret") as broker:
            pipe = Pipe(broker)
            with pytest.raises(SourceFailed, match="AuthenticationError"):
                await pipe.start()
            await pipe.close()
        async with serving(auto_create=False) as broker:
            pipe = Pipe(broker, "missing")
            with pytest.raises(SourceFailed, match="TopicNotFound: persistent://public/default/missing does not exist"):
                await pipe.start()
            await pipe.close()
            async with reading(broker, "t", "missing-partition-1") as pipe:
                await until(lambda: pipe.failure is not None, "a refusal")
                assert "missing partition 1: the subscription is refused: TopicNotFound" in str(pipe.failure)
                assert await pipe.source.heads() == {}
        async with serving() as broker:
            pipe = Pipe(broker, "non-persistent://public/default/t")
            with pytest.raises(SourceFailed, match="non-persistent topics have no positions") as caught:
                await pipe.start()
            assert caught.value.configuration
            await pipe.close()

    run(main)


def test_a_busy_subscription_is_waited_for() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 5))
            one, other = await two(broker, "exclusive")
            await one.start()
            await one.got(50)
            await other.start()
            await until(lambda: "ConsumerBusy" in other.source.partitions[0].error, "a refusal")
            assert other.failure is None
            await one.drained()
            await one.close()
            broker.append("t", entries(5, 5))
            await other.got(50)
            await other.close()

    run(main)


# --- many


def test_a_thousand_partitions_need_no_task_each() -> None:
    async def main() -> None:
        async with serving(partitions=1000) as broker:
            async with reading(broker) as pipe:
                await pipe.granted()
                assert len(asyncio.all_tasks()) < 20
                await until(lambda: all(one.window == 50 for one in broker.consumers("t", "s")), "all permits")
                for partition in range(0, 1000, 10):
                    broker.append(f"t-partition-{partition}", entries(0, 2))
                await pipe.got(2000)
                await pipe.drained()
                assert pipe.once()
                assert max(pipe.told.count(one) for one in pipe.told) == 1
                assert pipe.count("assigned") < 100

    run(main)


def test_new_partitions_are_found_and_read_from_their_beginning() -> None:
    async def main() -> None:
        async with serving(partitions=2) as broker:
            async with reading(broker, start="latest", partition_poll_s=0.1) as pipe:
                await pipe.granted()
                broker._partitioned[FULL] = 3
                broker.create_topic("t-partition-2")
                broker.append("t-partition-2", entries(0, 4))
                await pipe.got(40)
                assert pipe.coverage.start(pipe.log(2)) == PULSAR_EARLIEST
                await until(lambda: len(pipe.source.logs) == 3, "a third log")

    run(main)


def test_several_hosts_and_the_first_one_dead() -> None:
    async def main() -> None:
        dead = PulsarDevBroker()
        await dead.start()
        port = dead.port
        await dead.stop()
        async with serving() as broker:
            broker.append("t", entries(0, 2))
            url = f"pulsar://127.0.0.1:{port},127.0.0.1:{broker.port}"
            assert len(parse_service_url(url).addresses) == 2
            async with reading(broker, url=url) as pipe:
                await pipe.got(20)

    run(main)


def test_lookups_follow_redirects_but_not_for_ever() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 2))
            broker.redirect(times=20)
            async with reading(broker) as pipe:
                await pipe.got(20)
            broker.redirect(times=21)
            async with reading(broker, subscription="other") as pipe:
                await until(lambda: "more than 20 redirects" in pipe.source.partitions[0].error, "a refusal")
                await pipe.got(20)

    run(main)


def test_permits_shrink_when_entries_are_large() -> None:
    async def main() -> None:
        async with serving() as broker:
            broker.append("t", entries(0, 30, rows=1, size=1_000_000))
            async with reading(broker, pool=Pool(64 << 20)) as pipe:
                await pipe.got(30)
                await until(lambda: pipe.source.partitions[0].consumer.permits.window == 16, "a small window")

    run(main)
