"""The client for people against real brokers, with the official client as producer and as witness."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pulsar
import pyarrow as pa
import pytest

from fastwire_daemon.pulsar import Client, DeadLetterPolicy, MessageId, RedeliveryBackoff, connect
from tests.brokers.pulsar import PulsarBroker
from tests.real.matrix import quiet_client
from tests.support.pulsar.client_scene import take, values
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker

PATIENCE_S = 120.0
QUICK = RedeliveryBackoff(0.1, 1.0, 0.1)


async def with_client(broker: PulsarBroker, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.timeout(PATIENCE_S), connect(broker.service_url) as client:
        await work(client)


def run(broker: PulsarBroker, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """Do ``work`` with a client of ``broker``."""
    asyncio.run(with_client(broker, work))


@pytest.fixture
def topic(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> str:
    """A topic without partitions that nobody else knows."""
    name = fresh_name("client")
    plain_pulsar.admin.create_topic(name)
    return name


def produce(broker: PulsarBroker, topic: str, numbers: range, *, batch: int = 10) -> None:
    client = quiet_client(broker.service_url)
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=batch,
        batching_max_publish_delay_ms=60_000,
    )
    for number in numbers:
        producer.send_async(b"%d" % number, lambda *_: None, properties={"n": str(number)})
        if number % batch == batch - 1:
            producer.flush()
    producer.flush()
    client.close()


async def backlog_is(broker: PulsarBroker, topic: str, subscription: str, wanted: int) -> None:
    await asyncio.to_thread(eventually, lambda: broker.admin.backlog(topic, subscription) == wanted, "the backlog")


def test_nacks_and_dead_letters(plain_pulsar: PulsarBroker, topic: str) -> None:
    produce(plain_pulsar, topic, range(30))

    async def work(client: Client) -> None:
        policy = DeadLetterPolicy(most_redeliveries=2, initial_subscription="look")
        counts: dict[int, int] = {}
        async with client.subscribe(
            topic, "s", type="shared", start="earliest", nack_backoff=QUICK, dead_letters=policy
        ) as consumer:
            while sum(counts.get(number, 0) for number in range(10, 20)) < 30:
                chunk = await consumer.receive()
                assert chunk is not None
                for row, value in enumerate(values(chunk)):
                    counts[int(value)] = counts.get(int(value), 0) + 1
                    if 10 <= int(value) < 20:
                        await chunk.nack(row)
                    else:
                        await chunk.ack(row)
            await backlog_is(plain_pulsar, topic, "s", 0)
        assert counts == {number: 3 if 10 <= number < 20 else 1 for number in range(30)}

    run(plain_pulsar, work)
    witness = quiet_client(plain_pulsar.service_url)
    dead = witness.subscribe(f"{topic}-s-DLQ", "look")
    found = [dead.receive(10_000) for _ in range(10)]
    assert sorted(int(one.data()) for one in found) == list(range(10, 20))
    for one in found:
        assert one.properties()["n"] == one.data().decode()
        assert one.properties()["REAL_TOPIC"] == f"persistent://public/default/{topic}"
        assert one.properties()["ORIGIN_MESSAGE_ID"].count(":") == 3
    witness.close()


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_seeks(plain_pulsar: PulsarBroker, topic: str, kind: Any) -> None:
    produce(plain_pulsar, topic, range(50))

    async def work(client: Client) -> None:
        async with client.subscribe(topic, "s", type=kind, start="earliest") as consumer:
            first = await take(consumer, 50)
            ids = {int(value): chunk.message_id(row) for chunk in first for row, value in enumerate(values(chunk))}
            for chunk in first:
                await chunk.ack(receipt=True)
            await backlog_is(plain_pulsar, topic, "s", 0)
            await consumer.seek(ids[33])
            again = [int(value) for chunk in await take(consumer, 17) for value in values(chunk)]
            assert sorted(again) == list(range(33, 50))
            await consumer.seek(datetime(2020, 1, 1, tzinfo=UTC))
            assert sum(chunk.rows for chunk in await take(consumer, 50)) == 50
            await consumer.seek("earliest")
            assert sum(chunk.rows for chunk in await take(consumer, 50)) == 50
            await consumer.seek("latest")
            await asyncio.to_thread(produce, plain_pulsar, topic, range(50, 60))
            assert sum(chunk.rows for chunk in await take(consumer, 10)) == 10
            assert MessageId.from_bytes(bytes(ids[7])) == ids[7]
            official = pulsar.MessageId.deserialize(bytes(ids[7]))
            assert (official.entry_id(), official.batch_index()) == (ids[7].entry, ids[7].batch_index)

    run(plain_pulsar, work)


def test_readers(plain_pulsar: PulsarBroker, topic: str) -> None:
    produce(plain_pulsar, topic, range(50))

    async def work(client: Client) -> None:

        async def read(start: Any, **more: Any) -> list[int]:
            chunks = [chunk async for chunk in client.read(topic, start, **more).up_to_now()]
            return [number for chunk in chunks for number in map(int, pa.record_batch(chunk)["value"].to_pylist())]

        assert await read("earliest") == list(range(50))
        (last,) = (await client.read(topic, "earliest").last_message_ids()).values()
        assert last.batch_index == 9
        at = MessageId(last.ledger, last.entry - 1, 4)
        assert await read(at) == list(range(35, 50))
        assert await read(at, inclusive=True) == list(range(34, 50))
        assert await read("latest", inclusive=True) == [49]
        assert await read("latest") == []
        reader = client.read(topic, "latest")
        assert not await reader.has_more()
        await asyncio.sleep(2.0)  # brokers go back by whole seconds
        between = datetime.now(UTC)
        await asyncio.to_thread(produce, plain_pulsar, topic, range(50, 60))
        assert await reader.has_more()
        assert await read(between) == list(range(50, 60))
        assert await read(datetime.now(UTC) - between + timedelta(seconds=60)) == list(range(60))
        assert await read(datetime.now(UTC) - between) == list(range(50, 60))

    run(plain_pulsar, work)


def test_a_restart_of_the_broker(plain_pulsar: PulsarBroker, topic: str) -> None:
    """The topic is unloaded under a consumer: nothing is missed, nothing comes twice, acks arrive."""
    produce(plain_pulsar, topic, range(50))

    async def work(client: Client) -> None:
        async with client.subscribe(topic, "s", type="shared", start="earliest") as consumer:
            first = await take(consumer, 50)
            await asyncio.to_thread(plain_pulsar.admin.unload, topic)
            for chunk in first:
                await chunk.ack()
            await asyncio.to_thread(produce, plain_pulsar, topic, range(50, 60))
            late = [int(value) for chunk in await take(consumer, 10) for value in values(chunk)]
            assert late == list(range(50, 60))
            await consumer.redeliver()
            again = await take(consumer, 10)
            assert sum(chunk.rows for chunk in again) == 10
            for chunk in again:
                await chunk.ack(receipt=True)
            await backlog_is(plain_pulsar, topic, "s", 0)

    run(plain_pulsar, work)


def test_single_records_of_a_batch(plain_pulsar: PulsarBroker, topic: str) -> None:
    """Acknowledged messages of a batch do not come to the next consumer, ours or the official one."""
    produce(plain_pulsar, topic, range(10))

    async def work(client: Client) -> None:
        options: Any = {"type": "shared", "start": "earliest", "batch_index_acks": True}
        async with client.subscribe(topic, "s", **options) as consumer:
            (chunk,) = await take(consumer, 10)
            await chunk.ack([0, 2, 9], receipt=True)
        async with client.subscribe(topic, "s", **options) as consumer:
            (chunk,) = await take(consumer, 7)
            assert [int(value) for value in values(chunk)] == [1, 3, 4, 5, 6, 7, 8]
            await chunk.ack(slice(0, 5), receipt=True)

    run(plain_pulsar, work)
    witness = quiet_client(plain_pulsar.service_url)
    consumer = witness.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    assert sorted(int(consumer.receive(10_000).data()) for _ in range(2)) == [7, 8]
    witness.close()


def test_partitions_that_are_added(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("client-grow")
    plain_pulsar.admin.create_topic(topic, 1)

    async def work(client: Client) -> None:
        async with client.subscribe(topic, "s", start="latest", partition_poll_s=0.5) as consumer:
            await asyncio.to_thread(plain_pulsar.admin.grow, topic, 3)
            await asyncio.to_thread(produce, plain_pulsar, f"{topic}-partition-2", range(10))
            chunks = await take(consumer, 10)
            assert [int(value) for chunk in chunks for value in values(chunk)] == list(range(10))
            assert {chunk.message_id(0).partition for chunk in chunks} == {2}

    run(plain_pulsar, work)
