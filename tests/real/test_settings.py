"""Properties and options of a subscription, as a real broker takes them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pyarrow.parquet as pq
import pytest

from fastwire.pulsar.format.payload import Record
from fastwire.pulsar.names.pattern import parse_pattern
from fastwire.pulsar.producing.settings import ProducerSettings
from fastwire.pulsar.protocol.request import BrokerError, available_permits
from fastwire.pulsar.protocol.schema import wire_schema
from fastwire_daemon.devbroker.pulsar.dispatch import key_slot
from fastwire_daemon.pulsar import Client, DeadLetterPolicy, RedeliveryBackoff
from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import Daemon, Job, verify
from tests.real.matrix import quiet_client
from tests.real.test_client import backlog_is, produce, run
from tests.support.pulsar.client_scene import take, values
from tests.support.rsa_keys import key_pair
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker

AVRO = b'{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'


@pytest.fixture
def topic(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> str:
    """A topic without partitions that nobody else knows."""
    name = fresh_name("settings")
    plain_pulsar.admin.create_topic(name)
    return name


def send_keyed(broker: PulsarBroker, topic: str, keys: list[bytes], **more: Any) -> None:
    client = quiet_client(broker.service_url)
    producer = client.create_producer(topic, batching_enabled=False, **more)
    for number, key in enumerate(keys):
        producer.send(b"%d" % number, partition_key=key.decode())
    client.close()


def shown(broker: PulsarBroker, topic: str, subscription: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the broker's statistics of a subscription, and of its only consumer."""
    found = broker.admin.stats(topic)["subscriptions"][subscription]
    (consumer,) = found["consumers"]
    return found, consumer


def assert_shown(broker: PulsarBroker, topic: str, subscription: str) -> None:
    found, consumer = shown(broker, topic, subscription)
    assert consumer["consumerName"] == "landing-1"
    assert consumer["metadata"] == {"team": "data"}
    assert found["subscriptionProperties"] == {"owner": "me"}
    assert found["replicated"] is True


def test_the_broker_shows_what_the_client_says(plain_pulsar: PulsarBroker, topic: str) -> None:
    async def work(client: Client) -> None:
        options: Any = {"type": "failover", "name": "landing-1", "priority": 3, "replicate_state": True}
        more: Any = {"properties": (("team", "data"),), "subscription_properties": (("owner", "me"),)}
        schema = wire_schema("AVRO", "Order", AVRO)
        async with client.subscribe(topic, "s", schema=schema, **options, **more):
            await asyncio.to_thread(assert_shown, plain_pulsar, topic, "s")
            path = f"/admin/v2/schemas/public/default/{topic}/schema"
            assert (await asyncio.to_thread(plain_pulsar.admin.call, "GET", path))["type"] == "AVRO"
        with pytest.raises(BrokerError, match="IncompatibleSchema"):
            await client.subscribe(topic, "s", type="failover", schema=wire_schema("INT32", "number")).open()

    run(plain_pulsar, work)


async def test_the_broker_shows_what_a_pipeline_says(plain_pulsar: PulsarBroker, topic: str, tmp_path: Path) -> None:
    source = {
        "consumer_name": "landing-1",
        "priority_level": 3,
        "consumer_properties": {"team": "data"},
        "subscription_properties": {"owner": "me"},
        "replicate_subscription_state": True,
    }
    job = Job(plain_pulsar.service_url, topic, tmp_path / "data", source=source)
    with Daemon("run", str(job.write(tmp_path)), log=tmp_path / "run.log") as daemon:
        admin = plain_pulsar.admin
        await asyncio.to_thread(eventually, lambda: admin.consumers(topic, job.subscription), "a consumer")
        assert_shown(plain_pulsar, topic, job.subscription)
        daemon.end()


def test_only_the_newest_record_of_each_key(plain_pulsar: PulsarBroker, topic: str, tmp_path: Path) -> None:
    """Compaction is really read, by readers, consumers and the daemon; what came after it is read as it is."""
    send_keyed(plain_pulsar, topic, [b"k%d" % (number % 3) for number in range(30)])
    plain_pulsar.admin.compact(topic)
    send_keyed(plain_pulsar, topic, [b"k0", b"k0"])
    newest = [b"27", b"28", b"29", b"0", b"1"]

    async def work(client: Client) -> None:
        reader = client.read(topic, "earliest", read_compacted=True)
        assert [value async for chunk in reader.up_to_now() for value in values(chunk)] == newest
        async with client.subscribe(topic, "s", start="earliest", read_compacted=True) as consumer:
            assert [value for chunk in await take(consumer, 5) for value in values(chunk)] == newest

    run(plain_pulsar, work)
    source = {"read_compacted": True}
    job = Job(plain_pulsar.service_url, topic, tmp_path / "data", source=source)
    with Daemon("run", str(job.write(tmp_path)), "--until-end", log=tmp_path / "run.log") as daemon:
        daemon.wait_done()
    said = verify(job.path)
    assert said.returncode == 0, said.stdout + said.stderr
    assert pq.read_table(job.path, partitioning=None).column("value").to_pylist() == newest


def test_entries_that_compaction_has_thinned_out(plain_pulsar: PulsarBroker, topic: str, tmp_path: Path) -> None:
    """The broker keeps the entry of a batch and marks what is gone: that costs a permit and is no row."""
    client = quiet_client(plain_pulsar.service_url)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=60_000
    )
    for number in range(30):
        # Of the first batch one record remains, of the second none, of the third nine.
        key = "first" if number == 4 else f"k{max(number, 20)}"
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=key)
    producer.flush()
    client.close()
    plain_pulsar.admin.compact(topic)
    newest = [b"4", *(b"%d" % number for number in range(20, 30))]

    async def work(client: Client) -> None:
        async with client.subscribe(topic, "s", start="earliest", read_compacted=True, window=100) as consumer:
            chunks = await take(consumer, len(newest))
            assert [value for chunk in chunks for value in values(chunk)] == newest
            assert chunks[0].message_id(0).batch_index == 4
            for chunk in chunks:
                await chunk.ack(receipt=True)

    run(plain_pulsar, work)


def test_consumers_of_a_lower_priority_wait(plain_pulsar: PulsarBroker, topic: str) -> None:
    async def work(client: Client) -> None:
        async with (
            client.subscribe(topic, "s", type="shared", priority=1) as last,
            client.subscribe(topic, "s", type="shared", priority=0) as first,
        ):
            await asyncio.to_thread(produce, plain_pulsar, topic, range(200))
            chunks = await take(first, 200)
            assert sum(chunk.rows for chunk in chunks) == 200
            assert not last._queue

    run(plain_pulsar, work)


@pytest.mark.parametrize("any_order", [False, True])
def test_keys_go_where_their_hash_belongs(plain_pulsar: PulsarBroker, topic: str, any_order: bool) -> None:
    keys = [b"key-%d" % number for number in range(40)]

    async def work(client: Client) -> None:
        options: Any = {"type": "key_shared", "any_order": any_order}
        async with (
            client.subscribe(topic, "s", hash_ranges=((0, 32767),), **options) as low,
            client.subscribe(topic, "s", hash_ranges=((32768, 65535),), **options) as high,
        ):
            found = await asyncio.to_thread(lambda: plain_pulsar.admin.stats(topic)["subscriptions"]["s"])
            assert found["keySharedMode"] == "STICKY"
            assert found["allowOutOfOrderDelivery"] is any_order
            await asyncio.to_thread(send_keyed, plain_pulsar, topic, keys)
            below = {b"%d" % number for number, key in enumerate(keys) if key_slot(key) < 32768}
            got = await asyncio.gather(take(low, len(below)), take(high, len(keys) - len(below)))
            rows = [{value for chunk in chunks for value in values(chunk)} for chunks in got]
            assert rows[0] == below and not rows[1] & below

    run(plain_pulsar, work)


def test_unsubscribing_deletes_the_subscription(plain_pulsar: PulsarBroker, topic: str) -> None:
    async def work(client: Client) -> None:
        consumer = client.subscribe(topic, "s")
        await consumer.open()
        await consumer.unsubscribe()
        assert "s" not in (await asyncio.to_thread(plain_pulsar.admin.stats, topic))["subscriptions"]

    run(plain_pulsar, work)


def test_a_pattern_is_watched(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    name = fresh_name("watched")

    async def work(client: Client) -> None:
        async with client.subscribe(parse_pattern(f"{name}-.*"), "s", partition_poll_s=3600.0) as consumer:
            await asyncio.to_thread(plain_pulsar.admin.create_topic, f"{name}-a")
            await asyncio.to_thread(produce, plain_pulsar, f"{name}-a", range(10))
            (chunk,) = await take(consumer, 10)
            assert [int(value) for value in values(chunk)] == list(range(10))

    run(plain_pulsar, work)


def test_permits_are_counted_as_the_broker_does(plain_pulsar: PulsarBroker, topic: str) -> None:
    """The broker's count replaces ours after damage: so both have to mean the same."""

    async def work(client: Client) -> None:
        async with client.subscribe(topic, "s", type="shared", window=100) as consumer:
            await asyncio.to_thread(produce, plain_pulsar, topic, range(30))
            await take(consumer, 30)
            (member,) = consumer.members

            def same() -> bool:
                (stats,) = plain_pulsar.admin.consumers(topic, "s")
                return bool(stats["availablePermits"] == member.consumer.outstanding)

            await asyncio.to_thread(eventually, same, "the broker has the permits that were granted last")
            assert 0 < member.consumer.outstanding <= 100
            member.consumer.permits.granted += 40  # as if a damaged batch had cost more than we know

            async def anew() -> None:
                member.rejoin()

            said = await member.ask_stats(anew)
            assert said is not None and member.link is not None
            member.consumer.reconcile(available_permits(said))
            member.link.flush()
            assert member.consumer.outstanding == 100
            await asyncio.to_thread(eventually, same, "the broker has the permits that were missing")

    run(plain_pulsar, work)


def test_encrypted_and_chunked_messages_in_the_client(plain_pulsar: PulsarBroker, topic: str) -> None:
    """The parts of a large encrypted message are acknowledged and rejected together."""
    orders = key_pair("orders")
    large = bytes(range(256)) * 48_000  # three parts

    async def work(client: Client) -> None:
        settings = ProducerSettings(batching=None, chunking=True)
        async with await client.producer(topic, settings, public_keys={"orders": orders.public}) as producer:
            await producer.send(Record(value=large))
            await producer.send(Record(value=b"small"))
        options: Any = {"type": "shared", "start": "earliest", "private_keys": {"orders": orders.private}}
        async with client.subscribe(topic, "s", **options) as consumer:
            chunks = await take(consumer, 2)
            found = {value: (chunk, row) for chunk in chunks for row, value in enumerate(values(chunk))}
            assert found.keys() == {large, b"small"}
            chunk, row = found[b"small"]
            await chunk.ack(row, receipt=True)
            chunk, row = found[large]
            await chunk.nack(row, delay_s=0.0)
            (again,) = await take(consumer, 1)
            assert values(again) == [large]
            await again.ack(0, receipt=True)
            assert await asyncio.to_thread(plain_pulsar.admin.backlog, topic, "s") == 0

    run(plain_pulsar, work)


def test_a_large_encrypted_message_becomes_one_dead_letter(
    plain_pulsar: PulsarBroker, topic: str, tmp_path: Path
) -> None:
    """The official client reads it with the same key, whole, and says where it came from."""
    orders = key_pair("orders")
    (tmp_path / "public.pem").write_bytes(orders.public)
    (tmp_path / "private.pem").write_bytes(orders.private)
    large = bytes(range(256)) * 48_000  # three parts

    async def work(client: Client) -> None:
        settings = ProducerSettings(batching=None, chunking=True)
        async with await client.producer(topic, settings, public_keys={"orders": orders.public}) as producer:
            await producer.send(Record(value=large, properties=[("a", "b")]))
        policy = DeadLetterPolicy(most_redeliveries=1, initial_subscription="look")
        options: Any = {"type": "shared", "start": "earliest", "private_keys": {"orders": orders.private}}
        backoff = RedeliveryBackoff(0.1, 1.0, 0.1)
        async with client.subscribe(topic, "s", nack_backoff=backoff, dead_letters=policy, **options) as consumer:
            for _ in range(2):
                (chunk,) = await take(consumer, 1)
                await chunk.nack()
            await backlog_is(plain_pulsar, topic, "s", 0)

    run(plain_pulsar, work)
    witness = quiet_client(plain_pulsar.service_url)
    reader = pulsar.CryptoKeyReader(str(tmp_path / "public.pem"), str(tmp_path / "private.pem"))
    dead = witness.subscribe(f"{topic}-s-DLQ", "look", crypto_key_reader=reader)
    found = dead.receive(20_000)
    assert found.data() == large
    assert found.properties()["a"] == "b"
    assert found.properties()["REAL_TOPIC"] == f"persistent://public/default/{topic}"
    witness.close()


def test_the_name_of_each_consumer(plain_pulsar: PulsarBroker, topic: str) -> None:
    """Also one that nobody has named: the official client stands beside it."""

    async def work(client: Client) -> None:
        official = quiet_client(plain_pulsar.service_url)
        official.subscribe(topic, "s", pulsar.ConsumerType.Shared, consumer_name="official")
        async with client.subscribe(topic, "s", type="shared") as consumer:
            found = await asyncio.to_thread(plain_pulsar.admin.consumers, topic, "s")
            assert {one["consumerName"] for one in found} == {"official", consumer.name}
            assert len(consumer.name) == 10
        official.close()

    run(plain_pulsar, work)
