"""Chunked messages in the client: all parts are acknowledged, rejected, sought and buried together, and no others."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from fastwire.pulsar.columns import redeliveries
from fastwire.pulsar.format.payload import Entry, Record, encode_chunks
from fastwire_daemon.pulsar import DeadLetterPolicy, Delivery, MessageId, RedeliveryBackoff
from tests.support.pulsar.client_scene import playing, take, values
from tests.support.source_pipe import entry, until

TYPES = ["exclusive", "failover", "shared", "key_shared"]
QUICK = RedeliveryBackoff(0.0, 1.0, 0.0)
DEAD = "persistent://public/default/t-s-DLQ"


def chunked(number: int = 7, *, letter: bytes = b"x", **more: Any) -> list[Entry]:
    """A message of 1,000 letters in four parts."""
    record = Record(value=letter * 1000, **more)
    return encode_chunks(record, chunk_bytes=300, producer_name="p", sequence_id=number, publish_time=1)


def long_rows(chunks: Sequence[Delivery]) -> list[bytes]:
    return [value[:1] for chunk in chunks for value in values(chunk) if len(value) == 1000]


def row_of(chunk: Delivery, letter: bytes = b"x") -> int:
    return [value[:1] if len(value) == 1000 else b"" for value in values(chunk)].index(letter)


@pytest.mark.parametrize("kind", TYPES)
async def test_a_rejected_message_comes_again_whole(kind: Any) -> None:
    async with playing() as (broker, client):
        broker.append("t", [entry(0), *chunked(), entry(1)])
        async with client.subscribe("t", "s", type=kind, start="earliest") as consumer:
            (chunk,) = await take(consumer, 21)
            row = row_of(chunk)
            await chunk.ack([at for at in range(21) if at != row], receipt=True)
            assert broker.backlog("t", "s") == 4
            await chunk.nack(row, delay_s=0.0)
            (again,) = await take(consumer, 1)
            assert long_rows([again]) == [b"x"]
            await again.ack(0, receipt=True)
            assert broker.backlog("t", "s") == 0


async def test_acknowledging_one_message_leaves_others_that_lie_across_it() -> None:
    """Parts x1 y1 x2 y2 … : when y is done, x is not, although most of its parts stand before y's last one."""
    async with playing() as (broker, client):
        x, y = chunked(), chunked(8, letter=b"y")
        mixed = [part for pair in zip(x, y, strict=True) for part in pair]
        mixed[-2:] = mixed[-1], mixed[-2]  # y is whole before x
        broker.append("t", [*mixed, entry(0)])
        async with client.subscribe("t", "s", start="earliest") as consumer:
            (chunk,) = await take(consumer, 12)
            assert [value[:1] for value in values(chunk)][:2] == [b"y", b"x"]
            await chunk.ack_to(0, receipt=True)
            assert broker.backlog("t", "s") == 4 + 10
        async with client.subscribe("t", "s") as consumer:
            (chunk,) = await take(consumer, 11)
            assert long_rows([chunk]) == [b"x"]
            await chunk.ack_to(row_of(chunk), receipt=True)
            assert broker.backlog("t", "s") == 10
            await chunk.ack_to(receipt=True)
            assert broker.backlog("t", "s") == 0


@pytest.mark.parametrize("first", [[], [entry(0)]])
async def test_acknowledging_a_chunk_leaves_what_is_incomplete(first: list[Entry]) -> None:
    """Also where the first part is the first entry of its ledger."""
    async with playing() as (broker, client):
        parts = chunked()
        broker.append("t", [*first, *parts[:2], entry(1), entry(2)])
        rows = 10 * len(first) + 20
        async with client.subscribe("t", "s", start="earliest") as consumer:
            for chunk in await take(consumer, rows):
                await chunk.ack_to(receipt=True)
            assert broker.backlog("t", "s") == 2
            broker.append("t", [parts[2], entry(3)])
            for chunk in await take(consumer, 10):
                await chunk.ack_to(receipt=True)
            assert broker.backlog("t", "s") == 3
        async with client.subscribe("t", "s") as consumer:
            broker.append("t", parts[3:])
            (chunk,) = await take(consumer, 1)
            assert long_rows([chunk]) == [b"x"]
            await chunk.ack_to(receipt=True)
            assert broker.backlog("t", "s") == 0


@pytest.mark.parametrize("kind", TYPES)
async def test_asking_for_everything_again_begins_messages_anew(kind: Any) -> None:
    """Parts from before are not mixed with those that come again, and nothing incomplete is confirmed."""
    async with playing() as (broker, client):
        parts = chunked()
        broker.append("t", [entry(0), *parts[:2], entry(1)])
        async with client.subscribe("t", "s", type=kind, start="earliest") as consumer:
            await take(consumer, 20)
            await consumer.redeliver()
            for chunk in await take(consumer, 20):
                await chunk.ack(receipt=True)
            assert broker.backlog("t", "s") == 2
            await consumer.seek("earliest")
            for chunk in await take(consumer, 20):
                assert not chunk.dead_letters
                await chunk.ack(receipt=True)
            assert broker.backlog("t", "s") == 2
            broker.append("t", parts[2:])
            (chunk,) = await take(consumer, 1)
            assert long_rows([chunk]) == [b"x"]
            await chunk.ack(0, receipt=True)
            assert broker.backlog("t", "s") == 0


async def test_a_message_that_is_acknowledged_while_it_comes_again() -> None:
    async with playing() as (broker, client):
        broker.append("t", [*chunked(), entry(0)])
        async with client.subscribe("t", "s", type="shared", start="earliest") as consumer:
            chunks = await take(consumer, 11)
            first = broker.positions("t")[0][:2]
            consumer._redeliver(0, [(*first, first[1] + 1)])
            assembly = consumer.cluster.completion.assembly
            await until(lambda: len(assembly) == 1, "its first parts")
            for one in chunks:
                await one.ack(receipt=True)
            assert broker.backlog("t", "s") == 0
            assert len(assembly) == 0
            broker.append("t", [entry(1)])
            (last,) = await take(consumer, 10)
            assert values(last)[0] == b"1:0" and not last.dead_letters


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
async def test_seeking_a_message_of_several_parts(kind: Any) -> None:
    async with playing() as (broker, client):
        broker.append("t", [entry(0), *chunked(), entry(1)])
        async with client.subscribe("t", "s", type=kind, start="earliest") as consumer:
            (chunk,) = await take(consumer, 21)
            at = chunk.message_id(row_of(chunk))
            places = broker.positions("t")
            assert (at.begin, (at.ledger, at.entry)) == (places[1][:2], places[4][:2])
            assert MessageId.from_bytes(bytes(at)).begin == at.begin
            await consumer.seek(at)
            again = await take(consumer, 11)
            assert long_rows(again) == [b"x"]
            assert sum(len(values(one)) for one in again) == 11
        reader = client.read("t", at, inclusive=True)
        found = [value async for one in reader.up_to_now() for value in values(one)]
        assert sorted(map(len, found)) == [*[3] * 10, 1000]
        reader = client.read("t", at)
        assert [value async for one in reader.up_to_now() for value in values(one)] == values(chunk)[11:]


async def test_readers_do_not_wait_for_parts_that_never_come() -> None:
    async with playing() as (broker, client):
        parts = chunked()
        broker.append("t", [entry(0), *chunked(6, letter=b"w"), *parts[:3]])
        reader = client.read("t", "earliest")
        assert [len(value) async for chunk in reader.up_to_now() for value in values(chunk)] == [*[3] * 10, 1000]
        assert [chunk async for chunk in reader.up_to_now()] == []
        broker.append("t", parts[3:])
        assert [len(value) async for chunk in reader.up_to_now() for value in values(chunk)] == [1000]
        assert not await reader.has_more()


async def test_parts_that_never_become_a_message_are_dead_letters() -> None:
    async with playing() as (broker, client):
        broker.append("t", chunked()[:2])
        async with client.subscribe("t", "s", start="earliest") as consumer:
            consumer.cluster.completion.assembly._expiry_s = 1.0
            chunk = await consumer.receive()
            assert chunk is not None and chunk.rows == 0
            assert [letter.position for letter in chunk.dead_letters] == [place[:2] for place in broker.positions("t")]
            await chunk.ack(receipt=True)
            assert broker.backlog("t", "s") == 0


@pytest.mark.parametrize("stored", ["at once", "later"])
async def test_a_message_that_came_too_often_is_one_dead_letter(stored: str) -> None:
    async with playing(auto_create=stored == "at once") as (broker, client):
        broker.append("t", chunked(key="k", properties=[("a", "b")], event_time=5))
        policy = DeadLetterPolicy(most_redeliveries=2)
        async with client.subscribe(
            "t", "s", type="shared", start="earliest", nack_backoff=QUICK, dead_letters=policy
        ) as consumer:
            for count in range(3):
                (chunk,) = await take(consumer, 1)
                assert redeliveries(chunk.chunk, 0) == count
                at = chunk.message_id(0)
                await chunk.nack()
            if stored == "later":
                await until(lambda: bool(consumer._nacked), "a second try")
                assert broker.backlog("t", "s") == 4
                broker.create_topic(DEAD)
            await until(lambda: broker.backlog("t", "s") == 0, "the dead letter")
        rows = [
            row async for one in client.read(DEAD, "earliest").up_to_now() for row in pa.record_batch(one).to_pylist()
        ]
        (row,) = rows
        assert (row["value"], row["key"]) == (b"x" * 1000, b"k")
        headers = {one["key"]: one["value"] for one in row["headers"]}
        assert (headers["a"], headers["ORIGIN_MESSAGE_ID"]) == (b"b", str(at).encode())
