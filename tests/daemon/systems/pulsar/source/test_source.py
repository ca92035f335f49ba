"""The Pulsar source against the embedded broker, which checks permits, acks and manners: each row once, to the end."""

import asyncio
from pathlib import Path

import pytest

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.config import AuthConfig
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.net.auth import credentials
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.systems.source import SourceFailed
from tests.support.hostile.pulsar import NeverAnswers
from tests.support.loops import BOTH
from tests.support.pulsar.round_trip import round_trips
from tests.support.pulsar.source_scene import TYPES, reading, serving
from tests.support.source_pipe import Pipe, entries, entry, until

# --- everything once


@BOTH
@pytest.mark.parametrize("kind", TYPES)
async def test_all_partitions_once_and_an_empty_backlog(kind: str) -> None:
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


async def test_a_plain_topic_and_one_partition_by_name() -> None:
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


async def test_a_small_chunk_is_handed_on_when_it_is_old() -> None:
    async with serving() as broker:
        async with reading(broker) as pipe:
            await pipe.granted()
            for number in range(3):
                broker.append("t", [entry(number, rows=1)])
                await pipe.got(number + 1)


async def test_nothing_is_asked_for_before_the_grant() -> None:
    async with serving(partitions=2) as broker:
        broker.append("t-partition-0", entries(0, 5))
        async with reading(broker, started=False) as pipe:
            pipe.auto = False
            await pipe.start()
            await until(lambda: len(pipe.assigned) == 2, "assignments")
            await round_trips(broker)
            assert [one.granted for one in broker.consumers("t", "s")] == [0, 0]
            one = next(one for one in pipe.assigned if one.log.partition == "0")
            assert (one.head, one.progress) == (Position(*broker.positions("t-partition-0")[-1][:2]), False)
            await pipe.take(pipe.assigned)
            pipe.source.grant(pipe.assigned, pipe.coverage)  # a second time is nothing
            await pipe.got(50)


# --- the end


@pytest.mark.parametrize("kind", TYPES)
async def test_until_end(kind: str) -> None:
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


@pytest.mark.parametrize("kind", TYPES)
async def test_closing_sends_the_acks_that_wait(kind: str) -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 50))
        async with reading(broker, subscription_type=kind) as pipe:
            await pipe.got(500)
            pipe.commit()
        assert broker.backlog("t", "s") == 0
        assert broker.consumers("t", "s") == []
        await until(lambda: not broker.connections, "the end of the connection")


async def test_consumers_are_closed_only_when_their_acks_are_confirmed() -> None:
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


async def test_metrics_count_permits_acks_and_connections() -> None:
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


async def test_closing_before_anything_was_there() -> None:
    broker = PulsarDevBroker()
    await broker.start()
    url = broker.url
    await broker.stop()
    pipe = Pipe(broker, url=url)
    starting = asyncio.ensure_future(pipe.source.start(pipe.coverage))
    await until(lambda: bool(pipe.source.unreachable_because), "a try that fails")
    assert pipe.source.unreachable_since is not None
    starting.cancel()
    await pipe.close()


@pytest.mark.parametrize("at_first", ["refused", "missing"])
async def test_a_token_that_comes_late(tmp_path: Path, at_first: str) -> None:
    file = tmp_path / "token"
    if at_first == "refused":
        file.write_text("expired")
    async with serving(token="secret") as broker:
        broker.append("t", entries(0, 1))
        pipe = Pipe(broker, credentials=credentials(AuthConfig.model_validate({"token_file": str(file)})))
        starting = asyncio.ensure_future(pipe.start())
        await until(lambda: bool(pipe.source.unreachable_because), "a failure")
        assert not starting.done()
        said = "AuthenticationError" if at_first == "refused" else "cannot read the token file"
        assert said in pipe.source.unreachable_because
        assert pipe.source.unreachable_since is not None
        file.write_text("secret")
        await starting
        await pipe.got(10)
        assert pipe.source.unreachable_since is None
        await pipe.close()


async def test_refused_for_good() -> None:
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


# --- many


async def test_a_thousand_partitions_need_no_task_each() -> None:
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
