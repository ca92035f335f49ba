"""Properties and options of a subscription, as the embedded broker sees them."""

import asyncio
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Record, encode_batch_entry
from fastwire.pulsar.protocol.request import BrokerError
from fastwire.pulsar.protocol.schema import wire_schema
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.devbroker.pulsar.dispatch import key_slot
from fastwire_daemon.systems.pulsar.config import PulsarSourceConfig
from fastwire_daemon.systems.pulsar.source import settings_from
from tests.support.pulsar.client_scene import playing, take, values
from tests.support.source_pipe import Pipe, entries, until

AVRO = b'{"type": "record", "name": "Order", "fields": []}'


def asked(broker: PulsarDevBroker) -> pb.CommandSubscribe:
    (state,) = broker.consumers("t", "s")
    return state.asked


def said(request: pb.CommandSubscribe) -> dict[str, Any]:
    return {
        "name": request.consumer_name,
        "priority": request.priority_level,
        "properties": {one.key: one.value for one in request.metadata},
        "subscription": {one.key: one.value for one in request.subscription_properties},
        "replicated": request.replicate_subscription_state,
        "compacted": request.read_compacted,
        "schema": (request.schema.type, request.schema.name, request.schema.schema_data),
    }


WANTED = {
    "name": "landing-1",
    "priority": 3,
    "properties": {"team": "data"},
    "subscription": {"owner": "me"},
    "replicated": True,
    "compacted": True,
    "schema": (pb.Schema.Avro, "Order", AVRO),
}


async def test_what_the_client_says() -> None:
    async with playing() as (broker, client):
        options: Any = {"type": "failover", "name": "landing-1", "priority": 3, "read_compacted": True}
        more: Any = {"properties": (("team", "data"),), "subscription_properties": (("owner", "me"),)}
        schema = wire_schema("AVRO", "Order", AVRO)
        async with client.subscribe("t", "s", replicate_state=True, schema=schema, **options, **more):
            assert said(asked(broker)) == WANTED
        with pytest.raises(BrokerError, match="IncompatibleSchema"):
            await client.subscribe("t", "s", schema=wire_schema("STRING", "text")).open()


async def test_what_a_pipeline_says() -> None:
    keys = {
        "topics": ["t"],
        "subscription": "s",
        "start": "earliest",
        "consumer_name": "landing-1",
        "priority_level": 3,
        "consumer_properties": {"team": "data"},
        "subscription_properties": {"owner": "me"},
        "replicate_subscription_state": True,
        "read_compacted": True,
    }

    async with playing() as (broker, _):
        broker.append("t", entries(0, 1))
        settings = settings_from(PulsarSourceConfig.model_validate(keys | {"url": broker.url}))
        ours = ("consumer_name", "priority", "properties", "subscription_properties", "replicate_state")
        fields = {name: getattr(settings, name) for name in (*ours, "read_compacted")}
        pipe = await Pipe(broker, "t", subscription_type="failover", **fields).start()
        await pipe.got(10)
        assert said(asked(broker)) == WANTED | {"schema": (0, "", b"")}
        await pipe.close()


async def test_combinations_that_mean_nothing() -> None:
    async with playing() as (_, client):
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"type": "shared", "read_compacted": True}, "read_compacted needs an exclusive or failover"),
            ({"type": "exclusive", "priority": 1}, "priority must be 0 or more, and is for failover and shared"),
            ({"type": "shared", "priority": -1}, "priority must be 0 or more"),
            ({"type": "shared", "any_order": True}, "any_order is for key_shared"),
            ({"type": "shared", "hash_ranges": ((0, 5),)}, "hash_ranges are for key_shared"),
            ({"type": "key_shared", "hash_ranges": ((5, 4),)}, "from 0 to 65535"),
            ({"type": "key_shared", "hash_ranges": ((0, 65536),)}, "from 0 to 65535"),
        ]
        for options, text in wrong:
            with pytest.raises(ValueError, match=text):
                client.subscribe("t", "s", **options)
        with pytest.raises(ValueError, match="'TEXT' is not a kind of schema"):
            wire_schema("TEXT", "t")


async def test_consumers_of_a_lower_priority_get_what_the_others_do_not_take() -> None:
    async with playing() as (broker, client):
        async with (
            client.subscribe("t", "s", type="shared", priority=1, window=1000) as last,
            client.subscribe("t", "s", type="shared", priority=0, window=50) as first,
        ):
            broker.append("t", entries(0, 5))
            taken = await take(first, 50)
            assert sum(chunk.rows for chunk in taken) == 50
            for member in first.members:
                member.consumer.hold(True)  # it stays, and takes nothing more
            broker.append("t", entries(5, 20))
            rest = await take(last, 100)
            assert min(int(value.partition(b":")[0]) for chunk in rest for value in values(chunk)) >= 5


def keyed(count: int) -> list[bytes]:
    return [b"key-%d" % number for number in range(count)]


@pytest.mark.parametrize("any_order", [False, True])
async def test_keys_go_where_their_hash_belongs(any_order: bool) -> None:
    async with playing() as (broker, client):
        options: Any = {"type": "key_shared", "any_order": any_order}
        async with (
            client.subscribe("t", "s", hash_ranges=((0, 32767),), **options) as low,
            client.subscribe("t", "s", hash_ranges=((32768, 65535),), **options) as high,
        ):
            for state in broker.consumers("t", "s"):
                meta = state.asked.keySharedMeta
                assert (meta.keySharedMode, meta.allowOutOfOrderDelivery) == (pb.STICKY, any_order)
            keys = keyed(40)
            broker.append(
                "t",
                [
                    encode_batch_entry(
                        [Record(value=key, key=key.decode())],
                        producer_name="p",
                        sequence_id=number,
                        publish_time=1,
                        metadata=pb.MessageMetadata(partition_key=key.decode()),
                    )
                    for number, key in enumerate(keys)
                ],
            )
            below = {key for key in keys if key_slot(key) < 32768}
            assert 0 < len(below) < len(keys)
            got = await asyncio.gather(take(low, len(below)), take(high, len(keys) - len(below)))
            found = [{value for chunk in chunks for value in values(chunk)} for chunks in got]
            assert found == [below, set(keys) - below]
            with pytest.raises(BrokerError, match="ConsumerAssignError"):
                await client.subscribe("t", "s", hash_ranges=((5, 6),), **options).open()


async def test_unsubscribing_deletes_the_subscription() -> None:
    async with playing(2) as (broker, client):
        consumer = client.subscribe("t", "s", type="shared")
        other = client.subscribe("t", "s", type="shared")
        await consumer.open()
        await other.open()
        with pytest.raises(FastwireError, match="attempting to unsubscribe"):
            await consumer.unsubscribe()
        await other.close()
        await consumer.unsubscribe()
        await until(lambda: broker.subscriptions("t-partition-0") == [], "the end of the subscription")
        assert broker.subscriptions("t-partition-1") == []
        assert consumer.closed
