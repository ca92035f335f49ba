"""Dead letters and retries: where they go, what is written on them, and that nothing is acknowledged before."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from fastwire.pulsar.format.payload import Compression, Record, encode_batch_entry, encode_single_entry
from fastwire_daemon.pulsar import Client, DeadLetterPolicy, RedeliveryBackoff
from tests.support.pulsar.client_scene import playing, take, values
from tests.support.source_pipe import entries, until

MOMENT = 1_700_000_000_000
QUICK = RedeliveryBackoff(0.0, 1.0, 0.0)
DEAD = "persistent://public/default/t-s-DLQ"
AGAIN = "persistent://public/default/t-s-RETRY"


async def read(client: Client, topic: str) -> list[dict[str, Any]]:
    rows = []
    async for chunk in client.read(topic, "earliest").up_to_now():
        rows += pa.record_batch(chunk).to_pylist()
    return rows


async def test_what_came_too_often_is_published_and_then_acknowledged() -> None:
    async with playing(2) as (broker, client):
        bad = encode_batch_entry(
            [Record(value=b"%d" % row, key="k", properties=[("a", "b")], event_time=5) for row in range(3)],
            producer_name="p",
            sequence_id=0,
            publish_time=1,
            compression=Compression.ZSTD,
        )
        alone = encode_single_entry(Record(value=None, key="x"), producer_name="p", sequence_id=9, publish_time=2)
        broker.append("t-partition-0", [bad])
        broker.append("t-partition-1", [alone, *entries(0, 1)])
        policy = DeadLetterPolicy(most_redeliveries=2)
        async with client.subscribe(
            "t", "s", type="shared", start="earliest", nack_backoff=QUICK, dead_letters=policy
        ) as consumer:
            seen = 0
            while seen < 3 * 4:
                for chunk in await take(consumer, 1):
                    table = pa.record_batch(chunk)
                    good = [at for at, value in enumerate(values(chunk)) if value and b":" in value]
                    rest = sorted(set(range(chunk.rows)) - set(good))
                    seen += len(rest)
                    assert max(table.column("redeliveryCount").to_pylist()) <= 2
                    await chunk.ack(good)
                    if seen <= 4:
                        await chunk.ack([at for at in rest if values(chunk)[at] == b"1"])
                        seen += sum(values(chunk)[at] == b"1" for at in rest) * 2
                    await chunk.nack(rest)
            await until(lambda: broker.backlog("t", "s") == 0, "the dead letters")
        rows = await read(client, DEAD)
        assert sorted((row["value"], row["key"]) for row in rows if row["value"]) == [(b"0", b"k"), (b"2", b"k")]
        assert [row["key"] for row in rows if row["value"] is None] == [b"x"]
        place = broker.positions("t-partition-0")[0]
        (row,) = [row for row in rows if row["value"] == b"2"]
        assert {one["key"]: one["value"] for one in row["headers"]} == {
            "a": b"b",
            "REAL_TOPIC": b"persistent://public/default/t",
            "ORIGIN_MESSAGE_ID": b"%d:%d:0:2" % place[:2],
            "ORIGIN_MESSAGE_IDY_TIME": b"%d:%d:0:2" % place[:2],
        }


async def test_nothing_is_acknowledged_before_it_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    async with playing(auto_create=False) as (broker, client):
        broker.append("t", entries(0, 1))
        policy = DeadLetterPolicy(most_redeliveries=0, topic="dead")
        async with client.subscribe(
            "t", "s", type="shared", start="earliest", nack_backoff=QUICK, dead_letters=policy
        ) as consumer:
            (chunk,) = await take(consumer, 10)
            await chunk.nack()
            waiting = asyncio.ensure_future(consumer.receive())
            await until(lambda: "a dead letter could not be stored, retrying" in caplog.text, "a first try")
            assert broker.backlog("t", "s") == 10
            broker.create_topic("dead")
            await until(lambda: broker.backlog("t", "s") == 0, "a second try")
            assert len(await read(client, "dead")) == 10
            waiting.cancel()


async def test_another_try_by_the_retry_topic() -> None:
    async with playing() as (broker, client):
        records = [Record(value=b"0:%d" % row, event_time=MOMENT + row) for row in range(10)]
        broker.append("t", [encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=MOMENT)])
        policy = DeadLetterPolicy(most_redeliveries=2, retry=True)
        async with client.subscribe("t", "s", type="shared", start="earliest", dead_letters=policy) as consumer:
            for times in range(3):
                (chunk,) = await take(consumer, 1)
                rows = pa.record_batch(chunk).to_pylist()
                at = [row["value"] for row in rows].index(b"0:3")
                headers = {one["key"]: one["value"] for one in rows[at]["headers"] or ()}
                if times:
                    assert headers["RECONSUMETIMES"] == b"%d" % times
                    assert headers["RETRY_TOPIC"] == AGAIN.encode()
                    assert headers["REAL_TOPIC"] == b"persistent://public/default/t"
                await chunk.retry(at)
                await chunk.ack()
            await until(lambda: broker.backlog("t-s-RETRY", "s") == 0, "acks")
            assert broker.backlog("t", "s") == 0
        (row,) = await read(client, DEAD)
        assert row["value"] == b"0:3"
        assert row["eventTime"] == datetime.fromtimestamp(MOMENT // 1000, UTC) + timedelta(milliseconds=3)
        with pytest.raises(ValueError, match="need a shared"):
            client.subscribe("t", "s", dead_letters=policy)


async def test_writing_by_the_same_client() -> None:
    async with playing(3) as (broker, client):
        assert await client.partitions("t") == 3
        async with await client.producer("t") as producer:
            for number in range(30):
                await producer.put(Record(value=b"%d" % number, key=str(number)))
        assert broker.messages("t") == 30
        rows = await read(client, "t")
        assert sorted(int(row["value"]) for row in rows) == list(range(30))
