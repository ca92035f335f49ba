"""Records of the producer in a real broker, as the official client and the broker itself see them."""

import asyncio
import hashlib
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Record
from fastwire.pulsar.producing.batcher import Batching, BatchLimits
from fastwire.pulsar.producing.router import java_string_hash
from fastwire.pulsar.producing.settings import Access, ProducerSettings
from fastwire_daemon.config import TlsConfig
from fastwire_daemon.net.auth import TokenCredentials
from fastwire_daemon.net.tls import ClientTls
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.pulsar.entryencryptor import EntryEncryptor
from fastwire_daemon.systems.pulsar.producer import TopicProducer
from fastwire_daemon.systems.pulsar.settings import ClientSettings
from fastwire_daemon.systems.pulsar.writer import open_topic
from tests.brokers.pulsar import PulsarBroker
from tests.real.matrix import quiet_client
from tests.support.pulsar.produce import client_settings
from tests.support.tcp_proxy import Proxy
from tests.support.waiting import eventually, until
from tests.support.written_records import assert_read, records

pytestmark = pytest.mark.broker

EARLIEST = pulsar.InitialPosition.Earliest
WAIT_MS = 20_000
BATCHING = {"single": None} | {keys.value: BatchLimits(messages=7, keys=keys) for keys in Batching}


def write(
    client: ClientSettings | str, topic: str, work: Callable[[TopicProducer], Awaitable[None]], **settings: Any
) -> None:
    async def run() -> None:
        where = client_settings(client) if isinstance(client, str) else client
        async with open_topic(where, topic, ProducerSettings(**settings)) as producer:
            await work(producer)

    asyncio.run(run())


def read(url: str, topic: str, count: int, **parts: Any) -> list[pulsar.Message]:
    """Exactly ``count`` messages, and no more."""
    client = quiet_client(url, **{name: parts.pop(name) for name in ("authentication",) if name in parts})
    consumer = client.subscribe(topic, "witness", initial_position=EARLIEST, **parts)
    found = [consumer.receive(WAIT_MS) for _ in range(count)]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(200)
    client.close()
    return found


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("kind", list(BATCHING))
def test_every_field_with_every_codec(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], codec: Compression, kind: str
) -> None:
    topic, batching = fresh_name("fields"), BATCHING[kind]
    given = records(codec, batching, 29)
    places: dict[bytes | None, Position] = {}

    async def work(producer: TopicProducer) -> None:
        futures = [await producer.put(record) for record in given]
        await producer.flush()
        places.update({record.value: future.result().position for record, future in zip(given, futures, strict=True)})

    write(plain_pulsar.service_url, topic, work, compression=codec, batching=batching, name=f"us-{topic}")
    messages = read(plain_pulsar.service_url, topic, len(given))
    for message in messages:
        place = message.message_id()
        value = None if message.has_null_value() else message.data()
        assert places[value] == Position(place.ledger_id(), place.entry_id())
    assert_read(messages, given, f"us-{topic}")


@pytest.mark.parametrize("codec", list(Compression))
def test_chunks(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], codec: Compression) -> None:
    topic = fresh_name("chunks")
    noise = random.Random(5).randbytes(12 << 20)

    async def work(producer: TopicProducer) -> None:
        sent = await producer.send(Record(value=noise, key="large", properties=(("a", "b"),)))
        assert sent.first is not None and sent.first.b == sent.position.b - 2
        await producer.send(Record(value=b"small"))

    write(plain_pulsar.service_url, topic, work, compression=codec, chunking=True)
    large, small = read(plain_pulsar.service_url, topic, 2)
    assert hashlib.sha256(large.data()).digest() == hashlib.sha256(noise).digest()
    assert (large.partition_key(), large.properties(), small.data()) == ("large", {"a": "b"}, b"small")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An RSA key: its public and its private half as PEM files."""
    folder = tmp_path_factory.mktemp("keys")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public, private = folder / "public.pem", folder / "private.pem"
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return public, private


@pytest.mark.parametrize("kind", ["single", "mixed", "chunked"])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_the_official_client_decrypts(
    plain_pulsar: PulsarBroker,
    fresh_name: Callable[[str], str],
    keys: tuple[Path, Path],
    kind: str,
    codec: Compression,
) -> None:
    topic = fresh_name("encrypted")
    public, private = keys
    size = 6 << 20 if kind == "chunked" else 1000
    values = [random.Random(number).randbytes(size) for number in range(3)]

    async def work(producer: TopicProducer) -> None:
        for value in values:
            await producer.put(Record(value=value, key="k"))

    write(
        plain_pulsar.service_url,
        topic,
        work,
        compression=codec,
        batching=BATCHING["mixed"] if kind == "mixed" else None,
        chunking=True,
        encrypt=EntryEncryptor({"key": public.read_bytes()}),
    )
    reader = pulsar.CryptoKeyReader(str(public), str(private))
    found = read(plain_pulsar.service_url, topic, 3, crypto_key_reader=reader)
    assert [message.data() for message in found] == values


def test_keys_and_turns_over_partitions(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("partitions")
    plain_pulsar.admin.create_topic(topic, 4)

    async def work(producer: TopicProducer) -> None:
        for number in range(40):
            await producer.put(Record(value=b"%d" % number, key=f"key-{number}"))
        assert {(await producer.send(Record(value=b"none"))).partition for _ in range(8)} == {0, 1, 2, 3}

    write(plain_pulsar.service_url, topic, work)
    for message in read(plain_pulsar.service_url, topic, 48):
        partition = int(message.topic_name().rpartition("-")[2])
        if key := message.partition_key():
            assert partition == java_string_hash(key) % 4


def test_lost_connections_and_an_unload_lose_and_double_nothing(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("lost")
    plain_pulsar.admin.create_topic(topic)
    path = f"/admin/v2/persistent/public/default/{topic}"
    plain_pulsar.admin.call("POST", f"{path}/deduplicationEnabled", True)
    cuts: list[int] = []
    with Proxy(plain_pulsar.port) as proxy:

        async def work(producer: TopicProducer) -> None:
            for number in range(3000):
                if number in (500, 1500):
                    await asyncio.to_thread(eventually, lambda: proxy.connections > len(cuts), "a connection")
                    proxy.cut()
                    cuts.append(number)
                if number == 2500:
                    await asyncio.to_thread(plain_pulsar.admin.call, "PUT", f"{path}/unload")
                await producer.put(Record(value=b"%d" % number))
                if number % 20 == 0:
                    await asyncio.sleep(0.001)

        write(proxy.url, topic, work, name=f"us-{topic}", batching=BatchLimits(messages=10))
        assert proxy.connections >= 3
    assert [int(message.data()) for message in read(plain_pulsar.service_url, topic, 3000)] == list(range(3000))

    async def again(producer: TopicProducer) -> None:
        sent = await producer.send(Record(value=b"3000"))
        assert sent.sequence_id == 3000
        assert (await producer.send(Record(value=b"7", sequence_id=7))).position == Position(-1, -1)

    write(plain_pulsar.service_url, topic, again, name=f"us-{topic}")


async def test_access_modes(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("access")
    client = client_settings(plain_pulsar.service_url)

    async def send_when_let(value: bytes) -> None:
        settings = ProducerSettings(access=Access.WAIT_FOR_EXCLUSIVE)
        async with open_topic(client, topic, settings) as producer:
            await producer.send(Record(value=value))

    async with open_topic(client, topic, ProducerSettings(access=Access.EXCLUSIVE)) as first:
        for access, code in ((Access.SHARED, "ProducerBusy"), (Access.EXCLUSIVE, "ProducerFenced")):
            with pytest.raises(ProduceError, match=code):
                async with open_topic(client, topic, ProducerSettings(access=access)):
                    pass
        waiting = asyncio.create_task(send_when_let(b"third"))
        await first.send(Record(value=b"first"))
        await until(lambda: plain_pulsar.admin.stats(topic)["waitingPublishers"] == 1, "a producer that waits")
        assert not waiting.done()
    await waiting

    loser = open_topic(client, topic, ProducerSettings(access=Access.EXCLUSIVE))
    lost = await loser.__aenter__()
    fencing = ProducerSettings(access=Access.EXCLUSIVE_WITH_FENCING)
    async with open_topic(client, topic, fencing) as winner:
        await winner.send(Record(value=b"fourth"))
        with pytest.raises(ProduceError, match="ProducerFenced"):
            await lost.send(Record(value=b"never"))
    await loser.__aexit__(KeyError, KeyError(), None)
    found = read(plain_pulsar.service_url, topic, 3)
    assert [message.data() for message in found] == [b"first", b"third", b"fourth"]


def test_a_schema_is_registered(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("schema")
    text = b'{"type":"record","name":"A","fields":[{"name":"a","type":["null","string"],"default":null}]}'
    schema = pb.Schema(name="A", type=pb.Schema.Json, schema_data=text)

    async def work(producer: TopicProducer) -> None:
        await producer.send(Record(value=b'{"a":"b"}'))

    write(plain_pulsar.service_url, topic, work, schema=schema)
    (message,) = read(plain_pulsar.service_url, topic, 1)
    assert message.schema_version().encode("latin-1") == bytes(8)
    kept = plain_pulsar.admin.call("GET", f"/admin/v2/schemas/public/default/{topic}/schema")
    assert kept["type"] == "JSON"
    with pytest.raises(ProduceError, match="IncompatibleSchema"):
        write(plain_pulsar.service_url, topic, work, schema=pb.Schema(name="s", type=pb.Schema.Int32, schema_data=b""))


def test_tls_and_a_token(guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    assert guarded_pulsar.certificates is not None
    topic, token = fresh_name("guarded"), guarded_pulsar.token("admin")
    tls = ClientTls(TlsConfig.model_validate({"ca": str(guarded_pulsar.certificates.ca)}))
    client = client_settings(guarded_pulsar.tls_url, credentials=TokenCredentials(lambda: token))

    async def work(producer: TopicProducer) -> None:
        await producer.send(Record(value=b"welcome"))

    write(replace(client, tls=tls), topic, work)
    (message,) = read(guarded_pulsar.service_url, topic, 1, authentication=pulsar.AuthenticationToken(token))
    assert message.data() == b"welcome"
    with pytest.raises(ProduceError, match="AuthenticationError"):
        write(client_settings(guarded_pulsar.service_url), topic, work)


def test_delayed_records_and_tombstones(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    """The official client gets a delayed record when its time has come, and a tombstone as one."""
    topic = fresh_name("delayed")
    client = quiet_client(plain_pulsar.service_url)
    consumer = client.subscribe(topic, "witness", consumer_type=pulsar.ConsumerType.Shared)
    due = int(time.time() * 1000) + 3000

    async def work(producer: TopicProducer) -> None:
        for record in (Record(value=b"later", deliver_at=due), Record(value=b"now"), Record(value=None, key="gone")):
            await producer.put(record)
        await producer.flush()

    write(plain_pulsar.service_url, topic, work, batching=BatchLimits())
    first, second, last = (consumer.receive(WAIT_MS) for _ in range(3))
    assert {first.data(), second.data()} == {b"now", b""}
    gone = next(message for message in (first, second) if message.has_null_value())
    assert gone.partition_key() == "gone"
    assert last.data() == b"later"
    assert time.time() * 1000 >= due - 1000  # a broker rounds by its tick
    client.close()


def test_the_command(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    """Lines, JSON lines and a load, as somebody types them."""
    topic = fresh_name("command")

    def typed(text: str, *options: str) -> None:
        command = [sys.executable, "-m", "fastwire_daemon.cli", "produce", plain_pulsar.service_url, topic, *options]
        done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=90)
        assert done.returncode == 0, done.stderr

    typed("one\ntwo\n")
    typed('{"value": "three", "key": "k", "properties": {"a": "b"}}\n', "--format", "jsonl")
    typed("", "--load", "25")
    messages = read(plain_pulsar.service_url, topic, 28)
    assert {message.data() for message in messages} > {b"one", b"two", b"three"}
    (third,) = [message for message in messages if message.data() == b"three"]
    assert (third.partition_key(), third.properties()) == ("k", {"a": "b"})
