"""Records of the producer in a real Kafka broker, as the official client reads them."""

import subprocess
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from fastwire.kafka.names import parse_bootstrap_url
from fastwire.kafka.producing.payload import Compression, Record
from fastwire.kafka.producing.producer import ProducerSettings
from fastwire.producer import BatchLimits
from fastwire_daemon.systems.kafka.cluster import ClientCluster
from fastwire_daemon.systems.kafka.fence import fence
from fastwire_daemon.systems.kafka.producer import TopicProducer
from fastwire_daemon.systems.kafka.settings import ClientSettings
from fastwire_daemon.systems.produced import ProduceError
from tests.brokers.kafka import KafkaBroker
from tests.real.daemon import ROOT, command
from tests.real.test_kafka import BEGAN_MS, Sent, records

pytestmark = pytest.mark.broker


def read(broker: KafkaBroker, topic: str, partitions: int) -> list[Sent]:
    """Everything, by partition and offset, as the official client has it; offsets have no holes."""
    consumer = Consumer(
        {"bootstrap.servers": broker.servers, "group.id": "x", "log_level": 0, "enable.auto.commit": False}
    )
    found = []
    try:
        for number in range(partitions):
            end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            consumer.assign([TopicPartition(topic, number, 0)])
            for offset in range(end):
                message = consumer.poll(30)
                assert message is not None
                assert message.error() is None
                assert message.offset() == offset
                headers: Any = tuple(message.headers() or [])
                found.append(Sent(number, message.key(), message.value(), headers, message.timestamp()[1]))
    finally:
        consumer.close()
    return found


def ours(one: Sent) -> Record:
    return Record(value=one.value, key=one.key, headers=one.headers, timestamp=one.milli)


def client(url: str) -> ClientSettings:
    return ClientSettings(url=parse_bootstrap_url(url))


@pytest.mark.parametrize("codec", list(Compression))
async def test_every_field(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], codec: Compression) -> None:
    topic = fresh_name("produced")
    plain_kafka.create_topic(topic, 3)
    sent = records(900, 3, seed=int(codec))

    settings = ProducerSettings(compression=codec, batching=BatchLimits(records=50))
    async with (
        ClientCluster(client(plain_kafka.url)) as cluster,
        TopicProducer(cluster, topic, settings) as producer,
    ):
        futures = [await producer.put(ours(one), partition=one.partition) for one in sent]
        await producer.flush()
        places = [(future.result().partition, future.result().offset) for future in futures]
        assert places == [(number % 3, number // 3) for number in range(900)]
        assert producer.produced.records == 900
    assert read(plain_kafka, topic, 3) == sorted(sent, key=lambda one: one.partition)


async def test_keys_go_where_the_java_client_sends_them(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("keys")
    plain_kafka.create_topic(topic, 7)
    keys = [b"key %d" % number for number in range(300)] + [b"", b"\xff\x00\x80"]
    places: dict[bytes | None, int | None] = {}
    official = Producer({"bootstrap.servers": plain_kafka.servers, "log_level": 0, "partitioner": "murmur2_random"})
    for key in keys:
        official.produce(
            topic, key=key, on_delivery=lambda _, message: places.update({message.key(): message.partition()})
        )
    assert official.flush(60) == 0

    async with ClientCluster(client(plain_kafka.url)) as cluster, TopicProducer(cluster, topic) as producer:
        futures = [await producer.put(Record(key=key, value=b"x", timestamp=BEGAN_MS)) for key in keys]
        await producer.flush()
        found = {key: future.result().partition for key, future in zip(keys, futures, strict=True)}
        # librdkafka takes an empty key for none (and anything goes); Java does not.
        assert {key: found[key] for key in keys if key} == {key: places[key] for key in keys if key}


async def test_connections_that_break_lose_and_double_nothing(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("broken")
    plain_kafka.create_topic(topic, 2)
    breaks = 0

    settings = ProducerSettings(batching=BatchLimits(records=20))
    async with (
        ClientCluster(client(plain_kafka.url)) as cluster,
        TopicProducer(cluster, topic, settings) as producer,
    ):
        for number in range(6000):
            future = await producer.put(Record(value=b"%d" % number, timestamp=BEGAN_MS), partition=number % 2)
            if number % 300 == 150:
                held = future
            if number % 300 == 299:
                await held  # so it is connected again, and what came behind is on its way
                for (purpose, *_), link in tuple(cluster.links.items()):
                    if purpose == "produce" and link.ready:
                        link.abort("the test breaks it")
                        breaks += 1
        await producer.flush()
        assert producer.produced.records == 6000
    assert breaks > 5
    landed = [int(one.value or b"") for one in read(plain_kafka, topic, 2)]
    assert landed == [*range(0, 6000, 2), *range(1, 6000, 2)]


async def test_a_broker_that_restarts(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("restarted")
    plain_kafka.create_topic(topic, 1)

    async with ClientCluster(client(plain_kafka.url)) as cluster, TopicProducer(cluster, topic) as producer:
        for number in range(100):
            await producer.put(Record(value=b"%d" % number, timestamp=BEGAN_MS))
        plain_kafka.stop(at_once=True)  # nothing may be read meanwhile: the loop stands still
        for number in range(100, 200):
            await producer.put(Record(value=b"%d" % number, timestamp=BEGAN_MS))
        plain_kafka.start()
        await producer.flush()
    assert [int(one.value or b"") for one in read(plain_kafka, topic, 1)] == list(range(200))


async def test_a_record_that_is_too_large(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("large")
    plain_kafka.create_topic(topic, 1, max_message_bytes="2000")

    async with ClientCluster(client(plain_kafka.url)) as cluster, TopicProducer(cluster, topic) as producer:
        sizes = [100] * 50 + [3000] + [100] * 50
        futures = [await producer.put(Record(value=b"x" * size, timestamp=BEGAN_MS)) for size in sizes]
        with pytest.raises(ProduceError, match="MESSAGE_TOO_LARGE"):
            await producer.flush()
        failed = [place for place, future in enumerate(futures) if future.exception() is not None]
        assert failed == [50]
    assert [len(one.value or b"") for one in read(plain_kafka, topic, 1)] == [100] * 100


async def test_a_topic_that_is_not_there(plain_kafka: KafkaBroker) -> None:
    async with ClientCluster(client(plain_kafka.url)) as cluster:
        with pytest.raises(ProduceError, match="nobody-made-this: does not exist, and the broker does not make it"):
            await TopicProducer(cluster, "nobody-made-this").open()


def test_the_command(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("command")
    plain_kafka.create_topic(topic, 2)
    lines = [
        {"value": "a", "key": "k", "properties": {"h": "1"}, "event_time": BEGAN_MS, "partition": 1},
        {"value": None, "key": {"base64": "/wA="}, "event_time": BEGAN_MS, "partition": 0},
    ]

    def produce(*arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        words = command("produce", plain_kafka.url, topic, *arguments)
        return subprocess.run(words, input=data, capture_output=True, timeout=60, cwd=ROOT)

    done = produce("--format", "jsonl", "--compression", "gzip", data=b"\n".join(map(orjson.dumps, lines)))
    assert done.returncode == 0, done.stderr
    assert b"2 records confirmed" in done.stderr
    assert read(plain_kafka, topic, 2) == [
        Sent(0, b"\xff\x00", None, (), BEGAN_MS),
        Sent(1, b"k", b"a", (("h", b"1"),), BEGAN_MS),
    ]
    assert b"3,000 records confirmed" in produce("--load", "3000", "--compression", "zstd").stderr
    assert len(read(plain_kafka, topic, 2)) == 3002
    refused = produce("--format", "jsonl", data=b'{"value": "a", "ordering_key": "b"}')
    assert (refused.returncode, b'line 1: Kafka has no "ordering_key"' in refused.stderr) == (1, True)
    refused = produce("--compression", "zlib")
    assert (refused.returncode, b"Kafka has no zlib" in refused.stderr) == (2, True)


async def test_a_fenced_producer_stores_nothing_more(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str]
) -> None:
    """A producer that lives on after its process was taken for dead; partition 1 has none of its records."""
    topic = fresh_name("fenced")
    plain_kafka.create_topic(topic, 2)
    async with ClientCluster(client(plain_kafka.url)) as cluster:
        former = TopicProducer(cluster, topic, sender="former")
        await former.open()
        for number in range(3):
            await former.put(Record(value=b"%d" % number), partition=0)
        await former.flush()
        async with ClientCluster(client(plain_kafka.url)) as later:
            await fence(later, topic, "former")
        await former.put(Record(value=b"late"), partition=0)
        with pytest.raises(ProduceError, match="another process has fenced this producer"):
            await former.flush()
        await former.close()
        async with TopicProducer(cluster, topic, sender="former") as next_one:
            await next_one.put(Record(value=b"3"), partition=0)
    consumer = Consumer({"bootstrap.servers": plain_kafka.servers, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [consumer.poll(30) for _ in range(4)]
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in range(2)]
    consumer.close()
    assert [message and message.value() for message in found] == [b"0", b"1", b"2", b"3"]
    assert ends == [5, 0]  # the marker has an offset, too
