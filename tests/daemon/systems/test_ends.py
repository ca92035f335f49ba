"""Ends of bounded runs: within a batch, at a time, and which run a restart belongs to."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fastwire.coverage import Coverage
from fastwire.kafka.producing.payload import Compression
from fastwire.position import Log, Position, Span, Until
from fastwire_daemon.config import End, parse_config
from fastwire_daemon.dataset.commitlog.checkpoint import Checkpoint
from fastwire_daemon.dataset.commitlog.entry import LogEntry
from fastwire_daemon.devbroker.pulsar import topics
from fastwire_daemon.runtime.clock import now_ms
from fastwire_daemon.systems.reading.ends import Ends
from fastwire_daemon.systems.source import First, LogStopped
from tests.support.kafka import source_scene as kafka
from tests.support.kafka.source_pipe import batch, batches
from tests.support.pulsar import source_scene as pulsar
from tests.support.source_pipe import entries, until
from tests.support.tank import source_pipe as tank

LOG = Log("kafka", "c", "t", "0")
SECOND = 1_700_000_000


def positions(offset: int, name: str = "t-0") -> End:
    return End(positions={name: Position(offset, -1)})


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("offset", [0, 1, 15, 20, 39, 40])
async def test_an_end_within_a_batch_of_kafka(offset: int, compression: Compression) -> None:
    async with kafka.serving() as broker:
        broker.append("t", [batch(number, compression=compression) for number in range(4)])
        async with kafka.reading(broker, end=positions(offset)) as pipe:
            await pipe.got(offset)
            await until(lambda: pipe.source.has_ended(pipe.source.partitions[0]), "the end")
            broker.append("t", batches(4, 1))
            await until(lambda: pipe.source.partitions[0].link is None, "no more requests")
            kafka.assert_once(pipe, offset)
            pipe.commit()
            assert (pipe.coverage.end(pipe.log()) or Position(0, -1)).a == offset


async def test_a_roll_that_is_void_at_its_end_is_read_again() -> None:
    async with kafka.serving() as broker:
        broker.append("t", batches(0, 4))
        async with kafka.reading(broker, end=positions(15)) as pipe:
            await pipe.got(15)
            pipe.drop_roll()
            pipe.source.void()
            await pipe.got(30)
            pipe.commit()
            assert pipe.coverage.end(pipe.log()) == Position(15, 0)


@pytest.mark.parametrize("seconds", [-5, 2, 100])
async def test_an_end_at_a_time_of_kafka(seconds: int) -> None:
    """The first record of the time or later, and all behind it, do not land; without one all that is there does."""
    wanted = {-5: 0, 2: 20, 100: 40}[seconds]
    async with kafka.serving() as broker:
        broker.append("t", batches(0, 4))
        async with kafka.reading(broker, end=End(datetime.fromtimestamp(SECOND + seconds, UTC))) as pipe:
            await until(lambda: pipe.source.partitions[0].until == Position(wanted, -1), "the end")
            await pipe.got(wanted)
            kafka.assert_once(pipe, wanted)


@pytest.mark.parametrize("sequence", [1, 6, 11, 17])
async def test_an_end_within_a_bundle_of_tank(sequence: int) -> None:
    async with tank.serving() as broker:
        for _ in range(2):
            broker.produce("t", [b"%d" % number for number in range(10)], 0)
        async with tank.reading(broker, end=End(positions={"t/0": Position(sequence, 0)})) as pipe:
            await pipe.got(sequence - 1)
            await until(lambda: pipe.source.has_ended(pipe.source.partitions[0]), "the end")
            assert pipe.rows == sequence - 1


@pytest.mark.parametrize("kind", pulsar.ORDERED)
@pytest.mark.parametrize("seconds", [-5, 0, 3, 7, 100])
async def test_an_end_at_a_time_of_pulsar(kind: str, seconds: int) -> None:
    """The time of an entry is that of its publication; a time with no later entry is the end of the log."""
    wanted = max(0, min(10, seconds))
    async with pulsar.serving(ledger_entries=3) as broker:
        broker.append("t", entries(0, 10))
        end = End(datetime.fromtimestamp(SECOND + seconds, UTC))
        async with pulsar.reading(broker, subscription_type=kind, end=end) as pipe:
            await pipe.got(wanted * 10)
            await until(lambda: pipe.source.partitions[0].ended, "the end")
            assert pipe.rows == wanted * 10
            log = pipe.source.logs[0]

            def has_landed() -> bool:
                pipe.commit()
                end = pipe.coverage.until(log)
                return end is not None and pipe.coverage.end(log) == end.position

            await until(has_landed, "Coverage up to the end")


async def test_an_end_at_a_time_where_the_clock_of_a_broker_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers count a time back from their own; begun too late, the run would go on beyond its end."""
    monkeypatch.setattr(topics, "now_ms", lambda: now_ms() + 3000)
    async with pulsar.serving() as broker:
        broker.append("t", entries(0, 10))
        async with pulsar.reading(broker, end=End(datetime.fromtimestamp(SECOND + 5, UTC))) as pipe:
            await pipe.got(50)
            await until(lambda: pipe.source.partitions[0].ended, "the end")
            assert pipe.rows == 50


async def test_an_end_of_a_log_without_records() -> None:
    async with kafka.serving() as broker, kafka.reading(broker, end=End()) as pipe:
        await until(lambda: bool(pipe.firsts), "the first position")
        until_ = pipe.coverage.until(pipe.log())
        assert until_ is not None
        assert until_.position.a == 0
        broker.append("t", batches(0, 1))
        assert pipe.source.has_ended(pipe.source.partitions[0])


# --- runs


def landed(up_to: int, until_: Until | None = None) -> Coverage:
    coverage = Coverage()
    coverage.add(Span(LOG, Position(0, -1), Position(0, -1), 0, until=until_))
    if up_to:
        coverage.add(Span(LOG, Position(0, -1), Position(up_to, 0), up_to))
    return coverage


async def resolved(end: End | None, coverage: Coverage, now: int = 50) -> Until | None:
    """Return the end that a start commits, None for that of before."""
    first = await Ends(end).add(
        0, LOG, None, coverage, name="t-0", now=lambda: Position(now, -1), at=lambda time: at(time.timestamp())
    )
    return None if first is None else first.span.until


async def at(seconds: float) -> Position:
    return Position(int(seconds), -1)


async def test_a_run_up_to_now_goes_on_until_it_has_ended() -> None:
    first = await resolved(End(), landed(10))
    assert first is not None
    assert first.position == Position(50, -1)
    assert await resolved(End(), landed(10, first), now=70) is None
    later = await resolved(End(), landed(50, first), now=70)
    assert later is not None
    assert later.position == Position(70, -1)
    assert later.run > first.run


async def test_a_run_up_to_a_time_is_looked_up_once() -> None:
    end = End(datetime.fromtimestamp(40, UTC))
    first = await resolved(end, landed(10))
    assert first == Until(Position(40, -1), "1970-01-01T00:00:40Z")
    assert await resolved(end, landed(40, first)) is None
    assert await resolved(End(datetime.fromtimestamp(41, UTC)), landed(10, first)) is not None
    assert await resolved(None, landed(10, first)) is None


async def test_a_table_names_every_partition() -> None:
    with pytest.raises(LogStopped, match="end names no position for t-0"):
        await resolved(positions(5, "t-1"), landed(10))
    first = await resolved(positions(5), landed(10))
    assert first is not None
    assert await resolved(positions(5), landed(10, first)) is None
    assert await resolved(positions(6), landed(10, first)) is not None


async def test_a_first_position_keeps_what_it_says() -> None:
    given = First(0, Span(LOG, Position(3, -1), Position(3, -1), 0), progress=True)
    first = await Ends(End()).add(0, LOG, given, Coverage(), name="t-0", now=lambda: None)
    assert first is not None
    assert (first.index, first.span, first.progress) == (0, given.span, True)
    assert first.span.until is not None
    assert first.span.until.position == Position(3, -1)  # an empty log ends where it begins


def test_the_log_and_checkpoints_keep_ends() -> None:
    until_ = Until(Position(50, -1), "now")
    spans = (
        Span(LOG, Position(0, -1), Position(0, -1), 0, until=until_),
        Span(LOG, Position(0, -1), Position(9, 2), 9),
    )
    entry = LogEntry(writer="0" * 16, roll=1, at="", spans=spans)
    checkpoint = Checkpoint()
    checkpoint.fold(LogEntry.decode(entry.encode(), "1"))
    assert checkpoint.coverage.until(LOG) == until_
    assert checkpoint.copy().coverage.until(LOG) == until_
    assert Checkpoint.decode(checkpoint.encode(), 1).coverage.until(LOG) == until_


# --- the configuration


def config(**more: Any) -> str:
    keys = {"url": "kafka://h", "topics": ["t"], "subscription": "g", "start": "earliest"} | more
    return (
        "[pipelines.p.source]\n"
        + "".join(f"{key} = {toml(value)}\n" for key, value in keys.items() if value)
        + ('[pipelines.p.sink]\ntype = "discard"\n')
    )


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{name}" = "{at}"' for name, at in value.items()) + " }"
    return repr(value)


def test_ends_of_a_configuration() -> None:
    for value, end in (
        ("now", End()),
        ("2024-01-01T00:00:00Z", End(datetime(2024, 1, 1, tzinfo=UTC))),
        ({"t-0": "7"}, End(positions={"t-0": Position(7, -1)})),
    ):
        assert parse_config(config(end=value)).pipelines["p"].source.end == end
    assert parse_config(config()).pipelines["p"].source.end is None


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"end": "latest"}, 'must be "now"'),
        ({"end": "-1h"}, "another time after each restart"),
        ({"end": "2999-01-01T00:00:00Z"}, "is not past yet"),
        ({"end": {"u-0": "7"}}, "is not a partition of a topic of this pipeline"),
        ({"end": {"t-0": "x"}}, "is not a position of kafka"),
        ({"url": "tank://h", "subscription": "", "end": "2024-01-01T00:00:00Z"}, "finds no message by its time"),
        ({"url": "pulsar://h", "subscription_type": "shared", "end": "now"}, "has no order to end in"),
    ],
)
def test_ends_that_are_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(Exception, match=why):
        parse_config(config(**more))
