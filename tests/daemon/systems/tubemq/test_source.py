"""The source of TubeMQ where registrations, GETs, COMMITs and events of the balance meet."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fastwire.coverage import Coverage
from fastwire.position import Position, Span
from fastwire.tubemq.format.error import Code
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.names import parse_master_url
from fastwire.wire.pool import Pool
from fastwire_daemon.config import parse_start
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.net.endpoint import own_host
from fastwire_daemon.pipeline.until_end import _is_behind
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.systems.source import SourceFailed
from fastwire_daemon.systems.tubemq.source import TubeMQSettings, commits
from fastwire_daemon.testing.system.scene import MemorySink, Scene
from tests.support.source_pipe import until
from tests.support.tubemq.source_pipe import GROUP, TubeMQPipe, reading, serving


def texts(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def values(pipe: TubeMQPipe) -> list[bytes]:
    return sorted((value for _, _, value in pipe.values.elements()), key=int)


async def landing(pipe: TubeMQPipe, rows: int) -> None:
    """Receive ``rows`` rows in all, and commit them."""
    await pipe.got(rows)
    pipe.commit()


async def confirmed(broker: TubeMQDevBroker, backlog: int = 0) -> None:
    await until(lambda: broker.backlog("t", GROUP) == backlog, f"a backlog of {backlog}")


def owners(broker: TubeMQDevBroker) -> set[str]:
    return {one.owner.client for one in broker.progress.values() if one.owner is not None}


# --- connections


async def test_each_connection_owns_partitions_under_an_id_of_its_own() -> None:
    """A GET of a lost connection that the Broker handles late names an id that owns nothing: it moves nothing."""
    async with serving() as broker, reading(broker) as pipe:
        broker.produce("t", texts(0, 10))
        await landing(pipe, 10)
        before = owners(broker)
        assert len(before) == 1
        broker.drop_connections()
        broker.produce("t", texts(10, 10))
        await landing(pipe, 20)
        await confirmed(broker)
        assert len(owners(broker)) == 1
        assert owners(broker).isdisjoint(before)
        assert values(pipe) == texts(0, 20)


async def test_a_broker_that_does_not_answer_registrations_is_tried_again() -> None:
    async with serving() as broker, reading(broker, request_timeout_s=0.2) as pipe:
        broker.produce("t", texts(0, 10))
        await landing(pipe, 10)
        broker.lose_answers(Method.BROKER_REGISTER, 3)
        broker.drop_connections()
        broker.produce("t", texts(10, 10))
        await landing(pipe, 20)
        assert values(pipe) == texts(0, 20)


@pytest.mark.parametrize("code", [Code.HB_NO_NODE, Code.DUPLICATE_PARTITION, Code.CERTIFICATE_FAILURE])
async def test_a_partition_that_the_broker_takes_away_comes_back(code: Code) -> None:
    """It is reported to the Master at once, which assigns it again."""
    async with serving() as broker, reading(broker) as pipe:
        pipe.eager = True
        broker.produce("t", texts(0, 10))
        await pipe.got(10)
        broker.fail(Method.GET, code)
        await until(lambda: pipe.count("revoked") > 0, "the loss")
        broker.produce("t", texts(10, 10))
        await landing(pipe, 20)
        assert values(pipe) == texts(0, 20)


@pytest.mark.parametrize("code", [Code.SERVER_CONSUME_SPEED_LIMIT, Code.FORBIDDEN])
async def test_codes_after_which_the_get_is_sent_again(code: int) -> None:
    async with serving() as broker, reading(broker) as pipe:
        await pipe.granted()
        broker.fail(Method.GET, code, 2)
        broker.produce("t", texts(0, 10))
        await landing(pipe, 10)
        assert pipe.count("revoked") == 0


@pytest.mark.parametrize("code", [Code.MOVED, Code.INTERNAL_SERVER_ERROR, Code.SERVICE_UNAVAILABLE, 999])
async def test_codes_after_which_the_partition_is_registered_again(code: int) -> None:
    """The Broker may have read messages before it failed, and would go on behind them."""
    async with serving() as broker, reading(broker) as pipe:
        pipe.eager = True
        await pipe.granted()
        broker.fail(Method.GET, code)
        broker.produce("t", texts(0, 10))
        await landing(pipe, 10)
        assert pipe.count("revoked") == 1
        assert values(pipe) == texts(0, 10)


async def test_the_end_comes_with_a_broker_that_is_silent() -> None:
    async with serving() as broker, reading(broker, request_timeout_s=0.2) as pipe:
        broker.produce("t", texts(0, 10))
        await pipe.got(10)
        for method in (Method.BROKER_REGISTER, Method.COMMIT, Method.CONSUMER_CLOSE, Method.CONSUMER_HEARTBEAT):
            broker.lose_answers(method, 100)
        async with asyncio.timeout(20):
            await pipe.source.close(10.0)


# --- Masters


@asynccontextmanager
async def silent() -> AsyncIterator[int]:
    """Accept connections at a port, and answer nothing."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        for writer in writers:
            writer.close()


async def test_a_master_that_is_silent_is_left_for_the_next_one() -> None:
    async with serving() as broker, silent() as port:
        broker.produce("t", texts(0, 10))
        url = f"tubemq://127.0.0.1:{port},127.0.0.1:{broker.port}"
        for start in ("earliest", "latest"):
            async with reading(broker, url=url, start=start, group=start, request_timeout_s=0.2) as pipe:
                await until(lambda pipe=pipe: pipe.assigned != [], "an assignment")  # type: ignore[misc]


async def test_a_stand_by_is_left_for_the_active_master() -> None:
    async with serving() as broker, serving() as other:
        other.standby = True
        url = f"tubemq://127.0.0.1:{other.port},127.0.0.1:{broker.port}"
        broker.produce("t", texts(0, 10))
        async with reading(broker, url=url) as pipe:
            await landing(pipe, 10)
            assert other.requests["CONSUMER_REGISTER"] > 0
            assert pipe.failure is None


async def test_the_start_waits_for_a_registration_and_not_for_any_answer() -> None:
    async with serving() as broker:
        broker.fail(Method.CONSUMER_REGISTER, Code.INTERNAL_SERVER_ERROR)
        async with reading(broker, started=False) as pipe:
            await pipe.source.start(pipe.coverage)
            assert broker.groups[GROUP].members != {}


async def test_a_topic_that_is_not_deployed_fails_the_source() -> None:
    async with serving() as broker, reading(broker, "missing") as pipe:
        await until(lambda: pipe.failure is not None, "the failure")
        assert "missing" in str(pipe.failure)


async def test_a_member_waits_for_a_master_that_does_not_know_the_topics_yet() -> None:
    """As after a switch of Masters, before the Brokers have found the new one; reading goes on meanwhile."""
    async with serving() as broker, reading(broker) as pipe:
        broker.produce("t", texts(0, 10))
        await pipe.got(10)
        broker.fail(Method.CONSUMER_REGISTER, Code.TOPIC_NOT_DEPLOYED)
        broker.forget_clients()
        await until(lambda: "431" in pipe.source.status()["membership"]["error"], "the refusal")
        broker.produce("t", texts(10, 10))
        await landing(pipe, 20)
        await until(lambda: broker.groups.get(GROUP) is not None, "another registration")
        assert pipe.failure is None


async def test_rules_of_flow_control_are_kept() -> None:
    """The Broker compares a rule's lag with bytes, so that it limits a member whose own rule does not hold yet."""
    rule = '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":21,"limitInM":1,"freqInMs":200}]}]'
    async with serving(transfer_bytes=50_000, limit_window_s=0.2) as broker:
        broker.set_rules(rule)
        broker.set_rules('[{"type":1,"rule":[{"zeroCnt":1,"freqInMs":50}]}]', GROUP)
        sent = [b"%d" % number + b" " * 60_000 for number in range(6)]
        broker.produce("t", sent)
        async with reading(broker) as pipe:
            await pipe.got(6)
            assert broker.limited > 0
            assert values(pipe) == sent
            known = pipe.source._member.membership
            assert (len(known.cluster_rules.limits), known.group_rules.empties) == (1, ((1, 50),))


# --- where reading begins


async def test_the_groups_offset_goes_before_start() -> None:
    """A partition that Coverage does not know is read from the group's offset, not from the beginning of its log."""
    async with serving(2) as broker:
        async with reading(broker) as pipe:
            broker.produce("t", texts(0, 10), 0)
            broker.produce("t", texts(10, 10), 1)
            await landing(pipe, 20)
            await confirmed(broker)
            one = next(log for log in pipe.coverage.logs() if log.partition == "1:0")
            at = pipe.coverage.end(one)
        assert at is not None
        known = Coverage()
        known.add(Span(one, at, at, 0))
        broker.produce("t", texts(20, 10), 1)
        for start in ("earliest", "latest"):
            async with reading(broker, coverage=known.copy(), start=start) as pipe:
                await pipe.got(10)
                await until(lambda pipe=pipe: len(pipe.assigned) == 2, "both partitions")  # type: ignore[misc]
                assert values(pipe) == texts(20, 10)


async def test_a_start_that_leaves_out_partitions_lands_nothing() -> None:
    async with serving(2) as broker:
        broker.produce("t", texts(0, 10), 0)
        pipe = TubeMQPipe(broker, start={"t/1:0": "0"})
        with pytest.raises(SourceFailed, match="start names no position for t/1:1"):
            await pipe.start()
        await pipe.close()
        assert values(pipe) == []
        async with reading(broker, start={"t/1:0": "140", "t/1:1": "0"}) as whole:
            await landing(whole, 5)
        async with reading(broker, start={"t/1:0": "0"}, coverage=whole.coverage) as again:
            broker.produce("t", texts(10, 10), 1)
            await again.got(10)


async def test_an_account_that_lists_no_partitions_reads_from_the_positions_of_start() -> None:
    async with serving() as broker:
        broker.produce("t", texts(0, 10), 0)
        broker.fail(Method.PRODUCER_REGISTER, Code.CERTIFICATE_FAILURE, 100)
        async with reading(broker, start={"t/1:0": "140"}) as pipe:
            await pipe.got(5)


@pytest.mark.parametrize(
    ("method", "start"), [(Method.CONSUMER_REGISTER, "earliest"), (Method.PRODUCER_REGISTER, "latest")]
)
async def test_a_login_that_is_refused_at_first(method: Method, start: str) -> None:
    async with serving(1) as broker:
        broker.fail(method, Code.CERTIFICATE_FAILURE, 2)
        pipe = TubeMQPipe(broker, start=start)
        starting = asyncio.ensure_future(pipe.start())
        await until(lambda: "CERTIFICATE_FAILURE" in pipe.source.unreachable_because, "a refusal")
        assert pipe.source.unreachable_since is not None
        assert not starting.done()
        await starting
        await until(lambda: len(pipe.assigned) == 1, "the partition")
        assert pipe.source.unreachable_since is None
        broker.produce("t", texts(0, 10), 0)
        await landing(pipe, 10)
        assert pipe.failure is None
        await pipe.close()


async def test_a_login_that_is_refused_later_is_repeated() -> None:
    async with serving(1) as broker, reading(broker) as pipe:
        await until(lambda: len(pipe.assigned) == 1, "the partition")
        broker.fail(Method.CONSUMER_HEARTBEAT, Code.CERTIFICATE_FAILURE, 1)
        await until(lambda: pipe.source.unreachable_since is not None, "a refusal")
        await until(lambda: pipe.source.unreachable_since is None, "an answer")
        broker.produce("t", texts(0, 10), 0)
        await landing(pipe, 10)
        assert pipe.failure is None


async def test_latest_is_the_end_of_the_partitions_that_were_there() -> None:
    """A partition that is added later is read from its beginning, however early it is registered."""
    async with serving(1) as broker:
        broker.produce("t", texts(0, 10), 0)
        async with reading(broker, start="latest") as pipe:
            await until(lambda: len(pipe.assigned) == 1, "the first partition")
            broker.grow_topic("t", 2)
            broker.produce("t", texts(10, 10), 1)
            broker.produce("t", texts(20, 10), 0)
            await landing(pipe, 20)
            assert values(pipe) == texts(10, 20)


async def test_progress_is_what_the_group_has_confirmed() -> None:
    async with serving() as broker:
        broker.produce("t", texts(0, 10))
        broker.trim("t", 28 * 2)
        async with reading(broker) as pipe:
            await landing(pipe, 8)
            await confirmed(broker)
            assert [one.progress for one in pipe.assigned] == [False], (
                "the log begins above 0, and nothing is confirmed"
            )
        async with reading(broker) as pipe:
            await until(lambda: pipe.assigned != [], "an assignment")
            assert [one.progress for one in pipe.assigned] == [True]
            await until(lambda: pipe.firsts != [], "a first position")
            assert pipe.firsts[0].progress
            assert pipe.firsts[0].span.start == Position(28 * 10, 0)


async def test_retention_is_a_declared_gap() -> None:
    async with serving() as broker:
        async with reading(broker) as pipe:
            broker.produce("t", texts(0, 10))
            await landing(pipe, 10)
        broker.produce("t", texts(10, 10))
        broker.trim("t", 28 * 15)
        async with reading(broker, coverage=pipe.coverage) as again:
            await landing(again, 5)
            assert values(again) == texts(15, 5)
            (first,) = again.firsts
            assert first.span.gap is not None
            assert first.span.gap.to == Position(28 * 15, 0)


async def test_the_end_is_not_where_a_read_finds_only_other_partitions() -> None:
    """A Broker answers 404 to a read that has skipped a thousand entries, and says by its wait that more may follow."""
    with running(TubeMQDevBroker(TubeMQOptions())) as broker:
        scene = Scene(broker, {"heartbeat": "50ms"})
        for _ in range(3):
            scene.produce(2500, 1)
            scene.produce(10, 0)
        sink = MemorySink()
        await scene.land(sink)
        assert sorted(sink.values) == sorted(scene.produced)


async def test_a_run_to_the_end_does_not_take_a_pause_for_the_end() -> None:
    """Positions have no order, so the source says whether a log is behind; else each pause would end a roll."""
    async with serving() as broker, reading(broker) as pipe:
        await until(lambda: pipe.assigned != [], "an assignment")
        await pipe.granted()
        await until(lambda: not pipe.source.partitions[0].in_flight, "no GET in flight")
        pipe.source.on_budget(Level.STOP)  # nothing more is requested
        broker.produce("t", texts(0, 10))
        head = broker.end_positions("t")[0]
        pipe.source.partitions[0].at_end = False
        assert _is_behind(pipe.source, 0, head)
        pipe.source.on_budget(Level.FREE)
        await until(lambda: not _is_behind(pipe.source, 0, head), "the end")
        await pipe.got(10)


# --- logs that are others


async def test_a_topic_that_is_created_again_stops_its_partitions() -> None:
    """Its messages are others at the same offsets; none of them is taken for one that has landed."""
    async with serving() as broker, reading(broker) as pipe:
        broker.produce("t", texts(0, 20))
        await landing(pipe, 20)
        await confirmed(broker)
        broker.delete_topic("t")
        broker.create_topic("t", 1)
        broker.produce("t", texts(100, 30))
        await until(lambda: pipe.count("stopped") == 1, "the stop")
        assert "created again" in pipe.told[-1][2]
        assert values(pipe) == texts(0, 20)


async def test_a_log_that_ends_before_what_has_landed_stops() -> None:
    async with serving() as broker:
        async with reading(broker) as pipe:
            for number in range(3):
                broker.produce("t", texts(10 * number, 10))
                await landing(pipe, 10 * number + 10)
        broker.delete_topic("t")
        broker.create_topic("t", 1)
        broker.produce("t", texts(0, 5))
        async with reading(broker, coverage=pipe.coverage) as again:
            await until(lambda: again.count("stopped") == 1, "the stop")
            assert "ends at 140" in again.told[-1][2]


async def test_a_message_beyond_the_memory_stops_its_partition() -> None:
    """It would come again after each reconnect; the other partitions go on."""
    async with serving(2) as broker, reading(broker, pool=Pool(8 << 20)) as pipe:
        broker.produce("t", [b"0" * (9 << 20)], 0)  # a frame may have 8 MiB, whatever the budget
        broker.produce("t", texts(0, 10), 1)
        await until(lambda: pipe.count("stopped") == 1, "the stop")
        assert "more memory (daemon.memory) lets it pass" in pipe.told[-1][2]
        await pipe.got(10)
        assert values(pipe) == texts(0, 10)


# --- COMMITs


@asynccontextmanager
async def streaming(broker: TubeMQDevBroker) -> AsyncIterator[None]:
    """Messages that keep coming: no GET finds the end for long."""

    async def stream() -> None:
        for number in itertools.count():
            broker.produce("t", texts(10 * number, 10))
            await asyncio.sleep(0.001)

    task = asyncio.create_task(stream())
    try:
        yield
    finally:
        task.cancel()


def confirmed_offset(broker: TubeMQDevBroker) -> int:
    (progress,) = broker.progress.values()
    return progress.committed or 0


async def test_the_offset_of_the_group_follows_a_stream_that_never_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "FOLLOW_S", 0.2)
    monkeypatch.setattr(commits, "LOOK_S", 0.05)
    async with serving() as broker, reading(broker) as pipe:
        pipe.eager = True  # it commits when it is asked to, and never else
        async with streaming(broker):
            await pipe.got(1)
            for _ in range(3):
                before = confirmed_offset(broker)
                await until(lambda offset=before: confirmed_offset(broker) > offset, "a COMMIT")  # type: ignore[misc]
        assert pipe.count("unconfirmed") >= 3
        assert pipe.count("revoked") == 0
        assert pipe.once()


async def test_reading_goes_on_when_what_was_fetched_does_not_land_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "FOLLOW_S", 0.1)
    monkeypatch.setattr(commits, "LOOK_S", 0.05)
    monkeypatch.setattr(commits, "HOLD_S", 0.2)
    async with serving() as broker, reading(broker) as pipe, streaming(broker):
        await pipe.got(1)
        before = confirmed_offset(broker)
        for tries in range(1, 4):
            await until(lambda count=tries: pipe.count("unconfirmed") >= count, "a partition that is held back")  # type: ignore[misc]
            rows = pipe.rows
            await until(lambda count=rows: pipe.rows > count, "more rows")  # type: ignore[misc]
        assert confirmed_offset(broker) == before
        assert pipe.once()


# --- identity


async def test_servers_are_shown_the_address_of_this_machine() -> None:
    url, start = parse_master_url("tubemq://h"), parse_start("earliest")
    settings = TubeMQSettings(url=url, topics=("t",), group="g1", start=start, cluster="c", host="192.0.2.7")
    identity = settings.membership()
    assert identity.host == "192.0.2.7"
    assert identity.client_id.startswith("g1_192.0.2.7-")
    assert identity.client_id.endswith("-Pull-fastwire")
    assert settings.consumer_id() != settings.consumer_id()
    assert TubeMQSettings(url=url, topics=("t",), group="g1", start=start, cluster="c").host == own_host()
