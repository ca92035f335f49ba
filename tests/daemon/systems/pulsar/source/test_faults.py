"""The Pulsar source when brokers and networks do what they do: go away, close, lie, stay silent."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.consumer import Phase
from fastwire_daemon.config import TlsConfig
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.net.auth import TokenCredentials, token_from
from fastwire_daemon.net.tls import ClientTls
from fastwire_daemon.systems.reading import clustered
from fastwire_daemon.systems.reading.stage import Stage
from fastwire_daemon.systems.source import LogStopped
from tests.brokers.certs import make_certificates
from tests.support.hostile import pulsar as hostile
from tests.support.pulsar.source_scene import FULL, TYPES, landed, reading, serving
from tests.support.source_pipe import Pipe, entries, until

C = pb.BaseCommand


async def flaky(broker: PulsarDevBroker, **more: Any) -> Pipe:
    """A source that is half through 200 entries with nothing committed."""
    broker.append("t", entries(0, 100))
    pipe = await Pipe(broker, most_permits=200, **more).start()
    await pipe.got(1000)
    return pipe


async def rest(broker: PulsarDevBroker, pipe: Pipe) -> None:
    """Everything came once, whatever happened, and is confirmed in the end."""
    broker.append("t", entries(100, 100))
    await pipe.got(2000)
    await pipe.drained()
    assert pipe.once()
    assert pipe.rows == len(pipe.values) == 2000
    await pipe.close()


# --- connections end


@pytest.mark.parametrize("kind", TYPES)
async def test_a_cut_connection_with_an_open_roll(kind: str) -> None:
    async with serving() as broker:
        pipe = await flaky(broker, subscription_type=kind)
        broker.drop_connections()
        await until(lambda: pipe.count("revoked") == 1, "a revocation")
        await pipe.granted()
        # Nothing was committed: the broker sends all of it again, and it is cut without an ack.
        await until(lambda: sum(one.debited for one in broker.consumers("t", "s")) >= 1000, "all of it again")
        async with reading(broker, subscription="other") as other:
            await other.got(1000)
            await other.drained("other")  # what is acknowledged meanwhile takes less time
        assert broker.backlog("t", "s") == 1000
        await rest(broker, pipe)
        kinds = [one[0] for one in pipe.told]
        assert kinds == ["assigned", "revoked", "assigned"]


def open_chunk(pipe: Pipe) -> bool:
    """Return whether there are received records that the pipeline has not seen yet."""
    return any(link.connection.open_since is not None for link in pipe.source.cluster.links.values())


@contextmanager
def unhurried() -> Iterator[None]:
    """No chunk is handed on because it is old: on a busy machine nobody would ever see an open one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clustered, "CHUNK_AGE_S", float("inf"))
        yield


@pytest.mark.parametrize("kind", TYPES)
async def test_records_of_an_unfinished_chunk_survive_their_connection(kind: str) -> None:
    async with serving() as broker:
        pipe = await flaky(broker, subscription_type=kind)
        with unhurried():
            broker.append("t", entries(100, 10))
            await until(lambda: open_chunk(pipe), "an unfinished chunk")
            broker.drop_connections()
        await pipe.got(1100)
        broker.append("t", entries(110, 90))
        await pipe.got(2000)
        await pipe.drained()
        assert pipe.once()
        await pipe.close()


@pytest.mark.parametrize("kind", TYPES)
async def test_consumers_that_the_broker_closes(kind: str) -> None:
    async with serving() as broker:
        pipe = await flaky(broker, subscription_type=kind)
        for round_ in range(1, 4):
            broker.close_consumers("t", "s")
            await until(lambda: pipe.count("revoked") == round_, "a revocation")  # noqa: B023
            await pipe.granted()
        pipe.commit()
        broker.unload("t")
        await until(lambda: pipe.count("revoked") == 4, "a revocation")
        await rest(broker, pipe)
        assert pipe.source.status()["reconnects"] == {"closed_by_broker": 4}
        assert broker.accepted == 1


async def test_a_topic_that_moves_to_a_named_broker() -> None:
    async with serving() as broker:
        pipe = await flaky(broker)
        (connection,) = broker.connections
        before = list(connection.commands)  # type: ignore[attr-defined]
        broker.unload("t", broker.url)
        await until(lambda: pipe.count("revoked") == 1, "a revocation")
        await pipe.granted()
        await rest(broker, pipe)
        after = connection.commands[len(before) :]  # type: ignore[attr-defined]
        assert "LOOKUP" not in after
        assert "SUBSCRIBE" in after


async def test_a_named_broker_that_is_not_there() -> None:
    async with serving() as broker:
        pipe = await flaky(broker)
        broker.unload("t", "pulsar://127.0.0.1:1")
        await until(lambda: pipe.count("revoked") == 1, "a revocation")
        await rest(broker, pipe)


async def test_a_terminated_topic_is_read_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "fastwire.source"):
        async with serving() as broker:
            pipe = await flaky(broker)
            broker.terminate("t")
            pipe.commit()
            await until(lambda: "topic was terminated" in caplog.text, "the end")
            await pipe.drained()
            await pipe.close()


# --- the roll is void


@pytest.mark.parametrize("kind", TYPES)
async def test_a_void_roll_is_sent_again(kind: str) -> None:
    async with serving() as broker:
        pipe = await flaky(broker, subscription_type=kind)
        pipe.commit()
        await until(lambda: broker.backlog("t", "s") == 0, "acks")
        broker.append("t", entries(100, 50))
        await pipe.got(1500)
        pipe.source.void()
        pipe.drop_roll()
        await pipe.got(2000)
        broker.append("t", entries(150, 50))
        await pipe.got(2500)
        await pipe.drained()
        twice = {value for value, count in pipe.values.items() if count == 2}
        assert {int(value[2].partition(b":")[0]) for value in twice} == set(range(100, 150))
        assert len(pipe.values) == 2000
        assert pipe.count("revoked") == 0
        await pipe.close()


async def test_an_unfinished_chunk_is_void_too() -> None:
    async with serving() as broker:
        pipe = await flaky(broker)
        await pipe.drained()
        with unhurried():
            broker.append("t", entries(100, 10))
            await until(lambda: open_chunk(pipe), "an unfinished chunk")
            pipe.source.void()
        pipe.drop_roll()
        await pipe.got(1100)
        await pipe.drained()
        assert pipe.once()
        await pipe.close()


async def test_a_roll_that_a_peer_has_superseded() -> None:
    async with serving() as broker:
        pipe = await flaky(broker)
        # Another writer has landed the first sixty: they are acknowledged and cut, the rest comes again.
        pipe.source.void()
        pipe.drop_roll()
        pipe.coverage = landed(broker.positions("t")[59][:2])
        pipe.source.landed(pipe.coverage)
        await pipe.got(1400)
        assert broker.backlog("t", "s") == 400
        await pipe.drained()
        await pipe.close()


# --- what comes is damaged


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("damage", ["crc", "sizes"])
async def test_damaged_entries_are_put_aside_and_confirmed(kind: str, damage: str) -> None:
    options = PulsarOptions(enforce_window=False)
    broker = hostile.BadCrc(options, every=10) if damage == "crc" else hostile.HostileSizes(options, every=10)
    async with serving(broker):
        broker.append("t", entries(0, 100))
        async with reading(broker, subscription_type=kind, most_permits=100_000) as pipe:
            await pipe.got(900)
            await until(lambda: len(pipe.dead_letters) == 10, "dead letters")
            assert {letter.position.b % 10 for letter in pipe.dead_letters} == {9}
            await pipe.drained()
            assert pipe.once()


@pytest.mark.usefixtures("asks_soon")
@pytest.mark.parametrize("kind", TYPES)
async def test_permits_lost_to_damage_come_back_in_place(kind: str) -> None:
    # Each damaged entry of ten costs ten permits, of which one is known: the window leaks away.
    async with serving(hostile.BadCrc(every=2)) as broker:
        broker.append("t", entries(0, 40))
        async with reading(broker, subscription_type=kind, most_permits=100) as pipe:
            await pipe.got(200)
            await pipe.drained()
            assert len(pipe.dead_letters) == 20
            await until(lambda: broker.consumers("t", "s")[0].permits == 100, "a whole window")
            assert pipe.count("revoked") == 0


@pytest.mark.usefixtures("asks_soon")
@pytest.mark.parametrize("kind", TYPES)
async def test_permits_lost_to_damage_come_back_although_the_broker_tells_no_count(kind: str) -> None:
    async with serving(hostile.Reticent(every=2)) as broker:
        broker.append("t", entries(0, 40))
        async with reading(broker, subscription_type=kind, most_permits=100) as pipe:
            pipe.eager = True
            await pipe.got(200)
            await pipe.drained()
            assert (len(pipe.landed), set(pipe.landed.values())) == (200, {1})
            assert pipe.count("revoked") > 0


@pytest.mark.usefixtures("asks_soon")
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("stated", [1, 9, 11, 1000])
async def test_message_permits_that_never_agree_end_no_connection(stated: int, kind: str) -> None:
    """The broker debits ten of each entry, and states another number; its own count is used once it is silent."""
    options = PulsarOptions(enforce_window=False)
    async with serving(hostile.StatesPermits(stated, options)) as broker:
        broker.append("t", entries(0, 20))
        async with reading(broker, subscription_type=kind, most_permits=100) as pipe:
            await pipe.got(200)
            await pipe.drained()
            ours = pipe.source.partitions[0].consumer
            await until(lambda: broker.consumers("t", "s")[0].permits == ours.outstanding, "one count")
            broker.append("t", entries(20, 20))
            await pipe.got(400)
            await pipe.drained()
            assert (pipe.rows, pipe.count("revoked"), pipe.count("assigned")) == (400, 0, 1)


async def test_on_corrupt_stop() -> None:
    async with serving(hostile.BadCrc(every=10)) as broker:
        broker.append("t", entries(0, 30))
        async with reading(broker, on_corrupt="stop") as pipe:
            await until(lambda: pipe.count("stopped") == 1, "a stop")
            assert "cannot be decoded (ChecksumMismatch" in pipe.told[-1][2]
            assert 'on_corrupt = "dead_letter" would keep it as a dead letter' in pipe.told[-1][2]
            assert pipe.rows == 90
            await until(lambda: broker.consumers("t", "s") == [], "the consumer is closed")
            pipe.commit()
            assert pipe.coverage.end(pipe.log()) == Position(*broker.positions("t")[8][:2])


async def test_a_log_that_is_given_up_while_it_subscribes_leaves_no_consumer_behind() -> None:
    async with serving() as broker, reading(broker) as pipe:
        await pipe.granted()
        partition = pipe.source.partitions[0]
        partition.reestablish("a test")
        async with asyncio.timeout(30):
            while partition.consumer.phase is not Phase.SUBSCRIBING:
                await asyncio.sleep(0)  # it is over in a moment
        partition.stop(LogStopped("given up"))
        assert pipe.source.status()["partitions"] == {"stopped": 1}
        await until(lambda: partition.consumer.phase is Phase.DETACHED, "the consumer is closed")
        assert broker.consumers("t", "s") == []
        assert pipe.source.status()["partitions"] == {"stopped": 1}


@pytest.mark.parametrize("kind", ["total", "short", "command", "garbage"])
async def test_broken_framing_ends_the_connection_and_nothing_else(kind: str) -> None:
    async with serving(hostile.BadLengths(kind, times=2)) as broker:
        broker.append("t", entries(0, 50))
        async with reading(broker, most_permits=100) as pipe:
            await pipe.got(500)
            await pipe.drained()
            assert pipe.once()
            assert pipe.source.status()["reconnects"]["protocol_error"] > 0


async def test_repeats_are_cut() -> None:
    async with serving(hostile.Repeats(every=3)) as broker:
        broker.append("t", entries(0, 50))
        async with reading(broker, most_permits=100) as pipe:
            await pipe.got(500)
            await pipe.drained()
            assert pipe.rows == 500


@pytest.mark.parametrize(
    "make",
    [
        lambda: hostile.UnknownCommands(every=3),
        lambda: hostile.WrongRequestIds(),
        lambda: hostile.CutInFrame(every=7, times=3),
        lambda: hostile.ClosingConsumers(every=20, times=3),
        lambda: hostile.OverDelivery(extra=5_000),
    ],
    ids=["unknown commands", "wrong request ids", "cuts in frames", "closing consumers", "over-delivery"],
)
async def test_brokers_with_bad_manners(make: Any) -> None:
    async with serving(make()) as broker:
        broker.append("t", entries(0, 100))
        async with reading(broker, most_permits=150) as pipe:
            await pipe.got(1000)
            await pipe.drained()
            assert pipe.once()


# --- nobody answers


@pytest.mark.parametrize("kind", [C.LOOKUP, C.PARTITIONED_METADATA, C.SUBSCRIBE, C.GET_LAST_MESSAGE_ID, C.CONNECT])
async def test_requests_that_stay_unanswered(kind: "pb.BaseCommand.Type", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire.pulsar.protocol.connection.CONNECT_TIMEOUT_S", 0.3)
    async with serving(hostile.NeverAnswers(kind, times=2)) as broker:
        broker.append("t", entries(0, 5))
        async with reading(broker, operation_timeout_s=0.2) as pipe:
            await pipe.got(50)
            await pipe.drained()
            if kind == C.SUBSCRIBE:
                commands = [word for one in broker.connections for word in one.commands]  # type: ignore[attr-defined]
                places = [word for word in commands if word in ("SUBSCRIBE", "CLOSE_CONSUMER")]
                assert places == ["CLOSE_CONSUMER", "CLOSE_CONSUMER", "SUBSCRIBE"]


async def reads_from_the_end(made: PulsarDevBroker) -> None:
    """Earlier records are left out and later ones are read, however long that takes."""
    async with serving(made) as broker:
        broker.append("t", entries(0, 5))
        async with reading(broker, start="latest", operation_timeout_s=0.2) as pipe:
            await pipe.granted()
            broker.append("t", entries(5, 2))
            await pipe.got(20)
            assert pipe.rows == 20
            await pipe.drained()


async def test_a_seek_that_stays_unanswered_is_tried_again() -> None:
    await reads_from_the_end(hostile.NeverAnswers(C.SEEK, times=2))


async def test_a_subscribe_after_a_seek_that_stays_unanswered() -> None:
    """Whoever subscribes again closes first, also here; the embedded broker insists on it."""

    class SilentAfterSeek(hostile.NeverAnswers):
        class connection(hostile.NeverAnswers.connection):  # noqa: N801
            def handle(self, command: pb.BaseCommand, body: bytes) -> None:
                if command.type == C.SEEK:
                    self.broker.kinds = (C.SUBSCRIBE, C.GET_LAST_MESSAGE_ID)
                super().handle(command, body)

    await reads_from_the_end(SilentAfterSeek(times=2))


async def test_a_silent_broker_is_left() -> None:
    async with serving() as broker:
        async with reading(broker, keep_alive_s=0.2) as pipe:
            await pipe.granted()
            broker.muted = True
            await until(lambda: pipe.count("revoked") == 1, "a revocation")
            broker.muted = False
            broker.append("t", entries(0, 3))
            await pipe.got(30)
            assert pipe.source.status()["reconnects"]["silent"] == 1


async def test_a_seek_whose_connection_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as broker:
        broker.append("t", entries(0, 5))
        async with reading(broker, start="latest", started=False) as pipe:
            pipe.auto = False
            await pipe.start()
            await until(lambda: len(pipe.assigned) == 1, "an assignment")
            broker.drop_connections()
            # What was cut is not in force any more; the log comes again.
            assert await pipe.source.resolve(pipe.assigned[:1], pipe.coverage) == []
            await until(lambda: len(pipe.assigned) == 2, "another assignment")
            pipe.source.grant(pipe.assigned[:1], pipe.coverage)
            assert broker.consumers("t", "s")[0].granted == 0
            await pipe.take(pipe.assigned[1:])
            broker.append("t", entries(5, 1))
            await pipe.got(10)


# --- credentials


async def test_a_token_is_read_again_for_connections_and_challenges(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with serving(token="first") as broker:
        credentials = TokenCredentials(token_from(f"file://{file}"))
        async with reading(broker, credentials=credentials) as pipe:
            await pipe.granted()
            file.write_text("second\n")
            broker.options = PulsarOptions(token="second")
            broker.challenge()
            broker.append("t", entries(0, 2))
            await pipe.got(20)
            assert pipe.count("revoked") == 0
            broker.drop_connections()
            broker.append("t", entries(2, 2))
            await pipe.got(40)
            # A token that is gone ends the connection, and comes back with the file.
            file.unlink()
            broker.challenge()
            await until(lambda: pipe.count("revoked") == 2, "a revocation")
            await until(lambda: "cannot read the token file" in pipe.source.partitions[0].error, "the reason")
            file.write_text("second")
            broker.append("t", entries(4, 2))
            await pipe.got(60)


async def test_tls_and_a_token(tmp_path: Path) -> None:
    import ssl

    certs = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.cert, certs.key)
    async with serving(PulsarDevBroker(PulsarOptions(token="x"), tls=context)) as broker:
        broker.append("t", entries(0, 50, rows=100, size=100))
        tls = ClientTls(TlsConfig.model_validate({"ca": str(certs.ca)}))
        async with reading(broker, tls=tls, credentials=TokenCredentials(lambda: "x")) as pipe:
            await pipe.got(5000)
            await pipe.drained()
        other = ClientTls(TlsConfig.model_validate({"ca": str(certs.other_ca)}))
        pipe = Pipe(broker, tls=other)
        starting = asyncio.ensure_future(pipe.start())
        await until(lambda: "certificate" in pipe.source.unreachable_because, "a reason")
        assert not starting.done()
        assert pipe.source.unreachable_since is not None
        starting.cancel()
        await pipe.close()


# --- another cluster


async def test_a_topic_that_moves_to_another_cluster_is_a_new_log() -> None:
    async with serving() as broker, serving() as other:
        pipe = await flaky(broker)
        await pipe.drained()
        other.append("t", entries(500, 3))
        (connection,) = broker.connections
        moved = pb.CommandTopicMigrated(
            resource_id=0, resource_type=pb.CommandTopicMigrated.Consumer, brokerServiceUrl=other.url
        )
        connection.send(C.TOPIC_MIGRATED, topicMigrated=moved)  # type: ignore[attr-defined]
        broker.close_consumers("t", "s")
        await pipe.got(1030)
        assert [log.cluster for log in pipe.source.logs] == ["c", f"127.0.0.1:{other.port}"]
        assert pipe.source.partitions[0].stage is Stage.REPLACED
        pipe.commit()
        await until(lambda: other.backlog("t", "s") == 0, "acks to the other cluster")
        assert pipe.source.logs[1].topic == FULL
        await pipe.close()


async def test_a_log_that_is_given_up_without_a_connection_is_left_alone() -> None:
    async with serving() as broker:
        pipe = await flaky(broker)
        await pipe.drained()
        (partition,) = pipe.source.partitions
        await broker.stop()
        await until(lambda: partition.error.startswith("cannot connect"), "an attempt that fails")
        partition.stop(LogStopped("enough"))
        await broker.start(port=broker.port)
        await until(lambda: not partition._busy, "the end of the attempts")
        assert (partition.stage, partition.error) == (Stage.STOPPED, "enough")
        await pipe.close()


# --- memory


async def test_lost_connections_give_their_buffers_back_at_once() -> None:
    async with serving() as broker:
        pipe = await flaky(broker)
        await pipe.drained()
        before = pipe.pool.used
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                broker.drop_connections()
                revoked = pipe.count("revoked")
                await until(lambda: pipe.count("revoked") > revoked, "a revocation")  # noqa: B023
                await pipe.granted()
            await broker.stop()
            for _ in range(3):
                pipe.source.cluster.failure = ""
                await until(lambda: pipe.source.cluster.failure, "an attempt that fails")
            await broker.start(port=broker.port)
            await pipe.granted()
            await until(lambda: pipe.pool.used == before, "the buffers")  # one may just be in use
        finally:
            gc.enable()
        await pipe.close()
