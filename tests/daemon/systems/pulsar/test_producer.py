"""Records written to a topic, read back from an embedded broker, and by the official client from it."""

import asyncio
import random
import secrets
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Record, split_payload
from fastwire.pulsar.producing.batcher import Batching, BatchLimits
from fastwire.pulsar.producing.encoder import TooLargeError
from fastwire.pulsar.producing.producer import SendTimeout
from fastwire.pulsar.producing.router import HASHES, Hashing, Router
from fastwire.pulsar.producing.settings import Access, ProducerSettings
from fastwire.pulsar.protocol.request import BrokerError
from fastwire_daemon.config import TlsConfig
from fastwire_daemon.devbroker.pulsar import PulsarConnection, PulsarDevBroker, PulsarOptions, running
from fastwire_daemon.net.auth import TokenCredentials
from fastwire_daemon.net.tls import ClientTls
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.pulsar.producer import TopicProducer
from fastwire_daemon.systems.pulsar.writer import open_topic
from tests.brokers.certs import make_certificates
from tests.daemon.devbroker.pulsar.test_official_client import EARLIEST, client_of, receive
from tests.support.hostile.pulsar import NeverAnswers
from tests.support.pulsar.produce import client_settings
from tests.support.waiting import until
from tests.support.written_records import assert_read, records

C = pb.BaseCommand
EAGER = BatchLimits(delay_s=0.0)


@contextmanager
def serving(broker: PulsarDevBroker | None = None, **options: Any) -> Iterator[PulsarDevBroker]:
    with running(broker or PulsarDevBroker(replace(PulsarOptions(), **options))) as broker:
        yield broker
        assert broker.violations == []


def write(
    broker: PulsarDevBroker,
    work: Callable[[TopicProducer], Awaitable[None]],
    topic: str = "t",
    router: Router | None = None,
    **settings: Any,
) -> None:
    """Open the topic, do ``work``, and close it in order."""

    async def run() -> None:
        async with open_topic(client_settings(broker.url), topic, ProducerSettings(**settings), router=router) as one:
            await work(one)

    asyncio.run(run())


def read(broker: PulsarDevBroker, topic: str, count: int) -> list[pulsar.Message]:
    """Return the messages that the official client reads from a topic."""
    with client_of(broker) as client:
        consumer = client.subscribe(topic, f"s-{secrets.token_hex(4)}", initial_position=EARLIEST)
        return receive(consumer, count)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


# --- what is read back


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("batching", [None, *(BatchLimits(messages=3, keys=keys) for keys in Batching)])
def test_the_official_client_reads_every_field(codec: Compression, batching: BatchLimits | None) -> None:
    given = records(codec, batching, 10)

    async def work(producer: TopicProducer) -> None:
        sent = [await producer.put(record) for record in given]
        await producer.flush()
        assert sorted([(await each).sequence_id for each in sent]) == list(range(len(given)))
        assert producer.produced.records == len(given)

    with serving() as broker:
        write(broker, work, compression=codec, batching=batching, name="official")
        assert_read(read(broker, "t", len(given)), given, "official")


@pytest.mark.parametrize("codec", list(Compression))
def test_the_official_client_puts_chunks_together(codec: Compression) -> None:
    values = [noise(90_000 + number) for number in range(3)]

    async def work(producer: TopicProducer) -> None:
        sent = [await producer.put(Record(value=value, key=f"k{n}")) for n, value in enumerate(values)]
        await producer.put(Record(value=b"small"))
        await producer.flush()
        places = [await each for each in sent]
        assert all(place.first is not None and place.first < place.position for place in places)

    with serving(max_message_size=20_000) as broker:
        write(broker, work, compression=codec, chunking=True)
        found = read(broker, "t", 4)
        assert [message.data() for message in found] == [*values, b"small"]
        assert [message.partition_key() for message in found] == ["k0", "k1", "k2", ""]
        assert len(broker.positions("t")) > 12


def test_places_are_those_of_the_broker() -> None:
    async def work(producer: TopicProducer) -> None:
        first = await producer.send(Record(value=b"a"))
        assert (first.partition, first.position, first.batch_index, first.sequence_id) == (-1, Position(3, 0), 0, 0)
        futures = [await producer.put(Record(value=b"b")) for _ in range(3)]
        await producer.flush()
        assert [(f.result().position, f.result().batch_index) for f in futures] == [
            (Position(3, 1), n) for n in (0, 1, 2)
        ]
        assert producer.partitions == 0
        with pytest.raises(ProduceError, match="no partition 1"):
            await producer.put(Record(value=b"c"), partition=1)

    with serving() as broker:
        write(broker, work)


# --- partitions


@pytest.mark.parametrize("hashing", Hashing)
def test_keys_choose_the_partition_as_in_java(hashing: Hashing) -> None:
    keys = [f"key-{number}" for number in range(40)]

    async def work(producer: TopicProducer) -> None:
        assert producer.partitions == 5
        for key in keys:
            futures[key] = await producer.put(Record(value=key.encode(), key=key))
        await producer.flush()
        assert {key: future.result().partition for key, future in futures.items()} == partitions

    futures: dict[str, asyncio.Future[Any]] = {}
    partitions = {key: HASHES[hashing](key) % 5 for key in keys}
    with serving() as broker:
        broker.create_topic("t", 5)
        router = None if hashing is Hashing.JAVA else Router(5, hashing=hashing)  # Java's is the default
        write(broker, work, router=router, batching=EAGER)
        for message in read(broker, "t", 40):
            assert message.topic_name().endswith(f"-partition-{partitions[message.data().decode()]}")


def test_without_a_key_the_partition_changes_with_the_batch() -> None:
    async def work(producer: TopicProducer) -> None:
        places = []
        for _ in range(12):
            places.append(await producer.put(Record(value=b"x")))
        explicit = await producer.put(Record(value=b"x"), partition=2)
        await producer.flush()
        assert [place.result().partition for place in places] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0]
        assert explicit.result().partition == 2

    async def alone(producer: TopicProducer) -> None:
        assert [(await producer.send(Record(value=b"y"))).partition for _ in range(5)] == [2, 0, 1, 2, 0]

    with serving() as broker:
        broker.create_topic("t", 3)
        write(broker, work, batching=BatchLimits(messages=3, delay_s=60.0))
        write(broker, alone, router=Router(3, first=2), batching=None)


def test_a_partition_by_its_name_and_all_in_one() -> None:
    async def one(producer: TopicProducer) -> None:
        assert producer.partitions == 0
        await producer.send(Record(value=b"x", key="any"))

    async def single(producer: TopicProducer) -> None:
        assert {(await producer.send(Record(value=b"y"))).partition for _ in range(4)} == {1}

    with serving() as broker:
        broker.create_topic("t", 3)
        write(broker, one, "t-partition-2")
        assert broker.messages("t-partition-2") == 1
        write(broker, single, router=Router(2, first=1, rotate=False))


# --- names and numbers


def test_numbers_go_on_and_what_is_stored_is_not_stored_again() -> None:
    async def first(producer: TopicProducer) -> None:
        for number in range(5):
            await producer.put(Record(value=b"%d" % number))

    async def second(producer: TopicProducer) -> None:
        assert (await producer.send(Record(value=b"5"))).sequence_id == 5
        again = await producer.send(Record(value=b"3", sequence_id=3))
        assert again.position == Position(-1, -1)
        assert (await producer.send(Record(value=b"9", sequence_id=9))).sequence_id == 9
        assert (await producer.send(Record(value=b"10"))).sequence_id == 10

    with serving(deduplication=True) as broker:
        write(broker, first, name="me", batching=BatchLimits(messages=2))
        write(broker, second, name="me")
        assert [message.data() for message in read(broker, "t", 8)] == [b"0", b"1", b"2", b"3", b"4", b"5", b"9", b"10"]


# --- losing connections


@pytest.mark.parametrize("how", ["drop_connections", "unload", "restart", "cut"])
def test_whatever_is_lost_everything_is_stored_once_and_in_order(how: str) -> None:
    async def work(producer: TopicProducer) -> None:
        for number in range(600):
            if number % 150 == 75:
                if how == "cut":
                    broker.cut_after(500)  # among receipts
                elif how == "unload":
                    await asyncio.to_thread(broker.unload, "t")
                else:
                    await asyncio.to_thread(getattr(broker, how))
            await producer.put(Record(value=b"%d" % number, key=f"k{number % 7}"))
            if number % 10 == 0:
                await asyncio.sleep(0)

    with serving(deduplication=True, max_message_size=10_000) as broker:
        broker.create_topic("t", 2)
        write(broker, work, batching=BatchLimits(messages=10), name="me")
        found = [(message.partition_key(), int(message.data())) for message in read(broker, "t", 600)]
        assert broker.messages("t") == 600
        for key in {key for key, _ in found}:
            numbers = [number for of, number in found if of == key]
            assert numbers == sorted(numbers)


def test_a_producer_follows_its_topic_to_the_broker_that_is_named() -> None:
    with serving() as old, serving() as new:

        async def work(producer: TopicProducer) -> None:
            await producer.send(Record(value=b"old"))
            await asyncio.to_thread(old.unload, "t", new.url)
            await producer.send(Record(value=b"new"))

        write(old, work)
        assert (old.messages("t"), new.messages("t")) == (1, 1)


class SlowToOpen(NeverAnswers):
    """The first PRODUCER is not answered; notes what comes on producers."""

    def __init__(self) -> None:
        super().__init__(C.PRODUCER, times=1)
        self.heard: list[str] = []

    class Noting(NeverAnswers.connection):
        """Its connections."""

        def handle(self, command: pb.BaseCommand, body: bytes) -> None:
            if command.type in (C.PRODUCER, C.CLOSE_PRODUCER):
                self.broker.heard.append(C.Type.Name(command.type))
            super().handle(command, body)

    connection = Noting


async def test_a_request_for_a_producer_is_taken_back_when_no_answer_comes() -> None:
    hostile = SlowToOpen()
    with serving(hostile) as broker:
        client = replace(client_settings(broker.url), operation_timeout_s=0.2)
        with pytest.raises(ProduceError, match="not answered within"):
            await open_topic(client, "t", ProducerSettings()).__aenter__()
        await until(lambda: len(hostile.heard) > 1, "it is taken back")
    assert hostile.heard == ["PRODUCER", "CLOSE_PRODUCER"]


# --- refusals and limits


def test_what_is_too_large_fails_alone() -> None:
    async def work(producer: TopicProducer) -> None:
        small = await producer.put(Record(value=b"a"))
        large = await producer.put(Record(value=noise(20_000)))
        after = await producer.put(Record(value=b"c"))
        with pytest.raises(ProduceError, match=r"20,0\d\d bytes, the broker takes up to 10,000") as caught:
            await producer.flush()
        assert isinstance(caught.value.__cause__, TooLargeError)
        assert isinstance(large.exception(), ProduceError)
        assert (small.result().sequence_id, after.result().sequence_id) == (0, 2)
        await producer.flush()  # it was told once

    with serving(max_message_size=10_000) as broker:
        write(broker, work)
        assert broker.messages("t") == 2


class NoReceipts(PulsarDevBroker):
    """Takes entries, and keeps quiet about them."""

    class connection(PulsarConnection):  # noqa: N801
        """Its connections."""

        def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
            if kind != C.SEND_RECEIPT:
                super().send(kind, **parts)


async def test_no_more_than_so_much_waits_for_receipts() -> None:
    with serving(NoReceipts()) as broker:
        url = broker.url
        async with open_topic(client_settings(url), "t", ProducerSettings(send_timeout_s=0.5)) as producer:
            producer._most_pending_bytes = 3000
            futures = [await producer.put(Record(value=b"." * 900)) for _ in range(3)]
            assert producer._pending_bytes == sum(part.machine.weight for part in producer._parts) > 2700
            blocked = asyncio.create_task(producer.put(Record(value=b"." * 900)))
            futures.append(await blocked)
            assert all(future.done() for future in futures[:3])  # there is room when those before have failed
            with pytest.raises(ProduceError, match=r"no receipt within 0\.5 s") as caught:
                await producer.flush()
            assert isinstance(caught.value.__cause__, SendTimeout)
            assert all(isinstance(future.exception(), ProduceError) for future in futures)
            assert producer._pending_bytes == 0


async def test_a_timeout_says_what_the_broker_has_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic over its quota refuses producers; a record waits, and fails with the reason."""
    with serving() as broker:
        settings = ProducerSettings(send_timeout_s=0.4)
        async with open_topic(client_settings(broker.url), "t", settings) as producer:
            part = producer._parts[0]

            async def refused() -> None:
                raise BrokerError(
                    pb.ProducerBlockedQuotaExceededError, "Cannot create producer on topic with backlog quota"
                )

            monkeypatch.setattr(part, "_attach", refused)
            part._break("unloaded")
            with pytest.raises(
                ProduceError, match=r"no receipt within 0\.4 s: ProducerBlockedQuotaExceededError: Cannot"
            ):
                await producer.send(Record(value=b"x"))
            with pytest.raises(ProduceError):
                await producer.flush()


async def test_a_batch_that_is_due_at_once_can_grow() -> None:
    """The loop has no timer for a time that has passed."""
    with serving() as broker:
        async with open_topic(client_settings(broker.url), "t", ProducerSettings(batching=EAGER)) as producer:
            futures = [await producer.put(Record(value=b"x")) for _ in range(3)]
            await producer.flush()
            assert [future.result().batch_index for future in futures] == [0, 1, 2]


async def test_records_that_wait_for_room_are_not_overtaken() -> None:
    """Small records have room where a large one waits, and a cancelled call gives its turn to the next."""
    with serving() as broker:
        async with open_topic(client_settings(broker.url), "t", ProducerSettings(name="one")) as producer:
            producer._most_pending_bytes = 6000
            calls = [asyncio.create_task(producer.send(Record(value=bytes(5000 * (n % 2) + n)))) for n in range(40)]
            await asyncio.sleep(0)
            for call in calls[5::10]:
                call.cancel()
            sent = [
                one
                for one in await asyncio.gather(*calls, return_exceptions=True)
                if not isinstance(one, BaseException)
            ]
        assert len(sent) == 36
        assert [one.sequence_id for one in sent] == sorted(one.sequence_id for one in sent)
        assert [one.position for one in sent] == sorted(one.position for one in sent)


async def test_closing_fails_what_is_not_confirmed() -> None:
    with serving(NoReceipts()) as broker:
        url = broker.url
        opened = open_topic(client_settings(url), "t")
        producer = await opened.__aenter__()
        future = await producer.put(Record(value=b"x"))
        await opened.__aexit__(KeyError, KeyError(), None)
        assert "the producer was closed" in str(future.exception())
        with pytest.raises(ProduceError, match="closed"):
            await producer.put(Record(value=b"x"))


class Wrong(PulsarDevBroker):
    """The first receipts are for what comes later; a connection later all is well."""

    def __init__(self) -> None:
        super().__init__(PulsarOptions(deduplication=True))
        self.lies = 1

    class connection(PulsarConnection):  # noqa: N801
        """Its connections."""

        broker: "Wrong"

        def send(self, kind: "pb.BaseCommand.Type", **parts: Any) -> None:
            if kind == C.SEND_RECEIPT and self.broker.lies:
                self.broker.lies -= 1
                parts["send_receipt"].sequence_id += 1
            super().send(kind, **parts)


def test_a_receipt_out_of_order_costs_the_connection() -> None:
    async def work(producer: TopicProducer) -> None:
        for number in range(10):
            await producer.put(Record(value=b"%d" % number))

    with serving(Wrong()) as broker:
        write(broker, work, batching=None, name="me")
        assert broker.messages("t") == 10


def test_a_terminated_topic_takes_no_more() -> None:
    async def work(producer: TopicProducer) -> None:
        await producer.send(Record(value=b"x"))
        await asyncio.to_thread(broker.terminate, "t")
        with pytest.raises(ProduceError, match="TopicTerminatedError") as caught:
            await producer.send(Record(value=b"y"))
        assert isinstance(caught.value.__cause__, BrokerError)
        with pytest.raises(ProduceError, match="TopicTerminatedError"):
            await producer.put(Record(value=b"z"))
        with pytest.raises(ProduceError):
            await producer.flush()

    with serving() as broker:
        write(broker, work)
        with pytest.raises(ProduceError, match="TopicTerminatedError"):
            write(broker, work)


# --- schema


def test_a_schema_is_registered_and_named_by_each_entry() -> None:
    async def work(producer: TopicProducer) -> None:
        await producer.send(Record(value=b"{}"))

    def versions() -> list[bytes]:
        log = broker.topics["persistent://public/default/t"].log
        return [split_payload(log[at].body)[0].schema_version for at in range(log.start, log.end)]

    first = pb.Schema(name="t", type=pb.Schema.Json, schema_data=b'{"type":"record","name":"A","fields":[]}')
    second = pb.Schema(name="t", type=pb.Schema.Json, schema_data=b'{"type":"record","name":"B","fields":[]}')
    with serving() as broker:
        write(broker, work, schema=first)
        write(broker, work, schema=second)
        write(broker, work, schema=first)
        write(broker, work)
        assert [int.from_bytes(version, "big") for version in versions()[:3]] == [0, 1, 0]
        assert versions()[3] == b""
        with pytest.raises(ProduceError, match="IncompatibleSchema"):
            write(broker, work, schema=pb.Schema(name="t", type=pb.Schema.String, schema_data=b""))


# --- who may write


async def test_exclusive_access() -> None:
    with serving() as broker:
        url = broker.url
        client = client_settings(url)
        async with open_topic(client, "t", ProducerSettings(access=Access.EXCLUSIVE)) as producer:
            for access, code in ((Access.SHARED, "ProducerBusy"), (Access.EXCLUSIVE, "ProducerFenced")):
                with pytest.raises(ProduceError, match=code):
                    async with open_topic(client, "t", ProducerSettings(access=access)):
                        pass
            await producer.send(Record(value=b"x"))
            await asyncio.to_thread(broker.drop_connections)
            await producer.send(Record(value=b"y"))  # it comes back with the epoch that it had


async def test_waiting_for_exclusive_access() -> None:
    with serving() as broker:
        url = broker.url
        client = replace(client_settings(url), operation_timeout_s=0.3)

        async def second() -> None:
            settings = ProducerSettings(access=Access.WAIT_FOR_EXCLUSIVE)
            async with open_topic(client, "t", settings) as producer:
                await producer.send(Record(value=b"second"))

        async with open_topic(client, "t") as producer:
            waiting = asyncio.create_task(second())
            topic = broker.topics["persistent://public/default/t"]
            await until(lambda: broker.call(lambda: len(list(topic.producers)) == 2), "the second producer")
            await asyncio.sleep(0.5)  # longer than any request may take
            await producer.send(Record(value=b"first"))
            assert not waiting.done()
        await waiting
        assert [message.data() for message in read(broker, "t", 2)] == [b"first", b"second"]


async def test_fencing_takes_the_topic_away() -> None:
    with serving() as broker:
        url = broker.url
        client = client_settings(url)
        first = open_topic(client, "t", ProducerSettings(access=Access.EXCLUSIVE))
        loser = await first.__aenter__()
        await loser.send(Record(value=b"first"))
        fencing = ProducerSettings(access=Access.EXCLUSIVE_WITH_FENCING)
        async with open_topic(client, "t", fencing) as producer:
            await producer.send(Record(value=b"second"))
            with pytest.raises(ProduceError, match="ProducerFenced"):
                await loser.send(Record(value=b"third"))
            await producer.send(Record(value=b"fourth"))
        await first.__aexit__(KeyError, KeyError(), None)
        assert [message.data() for message in read(broker, "t", 3)] == [b"first", b"second", b"fourth"]


# --- TLS, and a token


def test_tls_and_a_token(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert, certificates.key)
    with serving(PulsarDevBroker(PulsarOptions(token="secret"), tls=context)) as broker:
        token = TokenCredentials(lambda: "secret")
        client = replace(
            client_settings(broker.url, credentials=token),
            tls=ClientTls(TlsConfig.model_validate({"ca": str(certificates.ca)})),
        )

        async def run(client: Any) -> None:
            async with open_topic(client, "t") as producer:
                await producer.send(Record(value=b"x"))

        asyncio.run(run(client))
        assert broker.messages("t") == 1
        with pytest.raises(FastwireError, match="certificate"):
            asyncio.run(run(client_settings(broker.url, credentials=token)))
