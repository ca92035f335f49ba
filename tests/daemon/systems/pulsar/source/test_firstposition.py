"""First positions of the Pulsar source: ``start``, or behind what has landed; missing records are reported."""

from datetime import UTC, datetime

import pytest

from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.systems.pulsar.client import beside
from fastwire_daemon.systems.pulsar.source import pulsarsource
from fastwire_daemon.systems.pulsar.source.coverage import Landed, declared_gap, landed_of, newly_landed
from fastwire_daemon.systems.reading.stage import Stage
from tests.support.pulsar.source_scene import FULL, TYPES, landed, reading, serving
from tests.support.source_pipe import entries, until

# --- where to begin


@pytest.mark.parametrize("kind", ["failover", "shared"])
async def test_start_at_a_time(kind: str) -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 10))
        at = datetime.fromtimestamp(1_700_000_000 + 6, UTC).isoformat()
        async with reading(broker, start=at, subscription_type=kind) as pipe:
            await pipe.got(40)
            assert min(int(value[2].partition(b":")[0]) for value in pipe.values) == 6
            await pipe.drained()


async def test_a_start_beyond_the_end_or_without_a_position_stops_the_log() -> None:
    async with serving(partitions=2) as broker:
        broker.append("t-partition-0", entries(0, 2))
        async with reading(broker, start={"t-partition-0": "99:0"}) as pipe:
            await until(lambda: pipe.count("stopped") == 2, "two stops")
            texts = " ".join(one[2] for one in pipe.told if one[0] == "stopped")
            assert "the start 99:0 lies beyond the last position" in texts
            assert f"start names no position for {FULL}-partition-1" in texts
            assert pipe.source.status()["partitions"] == {"stopped": 2}


async def test_progress_of_the_subscription_is_where_an_unknown_log_begins() -> None:
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


async def test_brokers_that_do_not_tell_the_cursor() -> None:
    async with serving(tell_mark_delete=False) as broker:
        broker.append("t", entries(0, 5))
        async with reading(broker, start="latest") as pipe:
            await pipe.granted()
            assert pipe.assigned[0].cursor is None
            assert pipe.coverage.start(pipe.log()) == Position(*broker.positions("t")[-1][:2])
            broker.append("t", entries(5, 1))
            await pipe.got(10)


# --- known logs


@pytest.mark.parametrize("kind", TYPES)
async def test_landed_records_that_come_again_are_cut_and_acknowledged(kind: str) -> None:
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


async def test_less_than_has_landed_stops_the_log_and_names_incarnation() -> None:
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


@pytest.mark.parametrize("kind", TYPES)
async def test_a_restored_broker_with_other_entries_of_the_same_ledger_ids_stops_the_log(kind: str) -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 10))
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.got(100)
            await pipe.drained()
        places = broker.positions("t")
        async with reading(broker, coverage=pipe.coverage, subscription_type=kind) as same:
            broker.append("t", entries(10, 2))
            await same.got(20)
            await same.drained()
            assert same.count("stopped") == 0
    async with serving() as other:
        other.append("t", entries(50, 15))
        assert other.positions("t")[:10] == places
        for _ in range(2):
            async with reading(other, coverage=pipe.coverage, subscription_type=kind) as again:
                await until(lambda: again.count("stopped") == 1, "a stop")
                assert "the broker has another entry at" in again.told[-1][2]
                assert again.rows == 0 and other.backlog("t", "s") == 150
        async with reading(other, coverage=pipe.coverage, subscription_type=kind, incarnation=1) as anew:
            await anew.got(150)


@pytest.mark.parametrize("kind", TYPES)
async def test_a_broker_that_is_restored_under_a_running_daemon_stops_the_log(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsarsource, "AWAY_S", 0.0)
    async with serving() as broker:
        broker.append("t", entries(0, 10))
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.got(100)
            await pipe.drained()
            broker.drop_connections()  # the same log goes on
            broker.append("t", entries(10, 2))
            await pipe.got(120)
            await pipe.drained()
            await broker.stop()
            other = PulsarDevBroker(PulsarOptions())
            await other.start(port=broker.port)
            try:
                other.create_topic("t")
                other.append("t", entries(50, 15))
                await until(lambda: pipe.count("stopped") == 1, "a stop", lambda: pipe.told)
                assert "the broker has another entry at" in pipe.told[-1][2]
                assert pipe.rows == 120
            finally:
                await other.stop()


async def test_a_last_entry_that_cannot_be_read_is_waited_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = 0

    async def silent(*_: object) -> int | None:
        nonlocal tried
        tried += 1
        raise TimeoutError

    async with serving() as broker:
        broker.append("t", entries(0, 10))
        async with reading(broker) as pipe:
            await pipe.got(100)
            await pipe.drained()
        broker.append("t", entries(10, 2))
        monkeypatch.setattr(beside, "witness_at", silent)
        async with reading(broker, coverage=pipe.coverage) as again:
            await again.got(20)
            assert tried == pulsarsource.MOST_UNCOMPARED
            await again.drained()
            monkeypatch.setattr(pulsarsource, "AWAY_S", 0.0)
            broker.drop_connections()  # as many attempts for each time
            broker.append("t", entries(12, 2))
            await again.got(40)
        assert tried == 2 * pulsarsource.MOST_UNCOMPARED
        assert "the last landed entry was not compared" in caplog.text


async def test_a_last_entry_that_the_broker_has_deleted_proves_nothing() -> None:
    async with serving(ledger_entries=5) as broker:
        broker.append("t", entries(0, 10))
        async with reading(broker) as pipe:
            await pipe.got(100)
            await pipe.drained()
        broker.append("t", entries(10, 5))
        broker.trim("t", *broker.positions("t")[10][:2])
        async with reading(broker, coverage=pipe.coverage) as again:
            await again.got(50)
            assert again.count("stopped") == 0


async def test_what_the_broker_has_skipped_is_a_declared_gap() -> None:
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


async def test_a_new_ledger_is_no_gap() -> None:
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
