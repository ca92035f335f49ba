"""Encrypted entries in the client: opened with keys, and what becomes of those that no key opens."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastwire.errors import CorruptEntryError
from fastwire.pulsar.format.payload import Entry, Record, encode_batch_entry, encode_chunks, split_payload
from fastwire.reason import Reason
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.pulsar import Client, DeadLetterPolicy, RedeliveryBackoff
from fastwire_daemon.systems.pulsar.entryencryptor import EntryEncryptor
from tests.support.pulsar.client_scene import playing, take, values
from tests.support.rsa_keys import key_pair
from tests.support.source_pipe import entry, until

QUICK = RedeliveryBackoff(0.0, 1.0, 0.0)
DEAD = "persistent://public/default/t-s-DLQ"
ORDERS = key_pair("orders")
PRIVATE = {"orders": ORDERS.private}


def locked(number: int = 1) -> Entry:
    """An encrypted batch of three records."""
    records = [Record(value=b"%d:secret%d" % (number, row), key="k") for row in range(3)]
    sealer = EntryEncryptor({"orders": ORDERS.public})
    return encode_batch_entry(records, producer_name="p", sequence_id=number, publish_time=1, encrypt=sealer)


def locked_parts() -> list[Entry]:
    """A message in four encrypted parts."""
    sealer = EntryEncryptor({"orders": ORDERS.public})
    return encode_chunks(
        Record(value=b"x" * 1000), chunk_bytes=300, producer_name="p", sequence_id=7, publish_time=1, encrypt=sealer
    )


async def rows_of(client: Client, topic: str, **more: Any) -> list[dict[str, Any]]:
    chunks = client.read(topic, "earliest", **more).up_to_now()
    return [row async for chunk in chunks for row in pa.record_batch(chunk).to_pylist()]


async def test_what_a_key_opens_comes_out(tmp_path: Path) -> None:
    key = tmp_path / "orders.pem"
    key.write_bytes(ORDERS.private)

    async with playing() as (broker, client):
        broker.append("t", [entry(0), locked(), *locked_parts(), entry(2)])
        async with client.subscribe("t", "s", start="earliest", private_keys={"orders": key}) as consumer:
            chunks = await take(consumer, 24)
            found = [value for chunk in chunks for value in values(chunk)]
            assert consumer.slots.debits(0) == 7  # entries, each once: the window of permits is by these
            assert found[10:14] == [b"1:secret0", b"1:secret1", b"1:secret2", b"x" * 1000]
            for chunk in chunks:
                await chunk.ack_to(receipt=True)
            assert broker.backlog("t", "s") == 0
        assert len(await rows_of(client, "t", private_keys=PRIVATE)) == 24


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("keys", [None, {"orders": key_pair("other").private}])
async def test_what_no_key_opens_ends_the_loop_and_is_not_acknowledged(kind: Any, keys: Any) -> None:
    """Earlier records come out first, and can still be acknowledged."""
    async with playing() as (broker, client):
        broker.append("t", [entry(0), locked(), entry(2)])
        async with client.subscribe("t", "s", type=kind, start="earliest", private_keys=keys) as consumer:
            chunks = []

            async def read_on() -> None:
                async for chunk in consumer:
                    chunks.append(chunk)

            with pytest.raises(CorruptEntryError, match=r"entry 3:1 of .*/t cannot be decrypted") as caught:
                await read_on()
            assert caught.value.reason is Reason.DECRYPTION
            assert [values(chunk)[0] for chunk in chunks] == [b"0:0"]
            if kind == "exclusive":
                await chunks[0].ack_to(receipt=True)
            else:
                await chunks[0].ack(receipt=True)
            assert broker.backlog("t", "s") == 13
        reader = client.read("t", "earliest", private_keys=keys)
        with pytest.raises(CorruptEntryError, match="cannot be decrypted"):
            [chunk async for chunk in reader.up_to_now()]


@pytest.mark.parametrize("rowwise", [False, True])
async def test_discard_acknowledges_and_drops(rowwise: bool) -> None:
    async with playing() as (broker, client):
        broker.append("t", [entry(0), locked(), entry(2), locked(3)])
        options: Any = {"type": "shared", "start": "earliest", "on_undecryptable": "discard"}
        async with client.subscribe("t", "s", **options) as consumer:
            for chunk in await take(consumer, 20):
                await chunk.ack(range(chunk.rows) if rowwise else None)
            await until(lambda: consumer.discarded == 2, "both")
            await until(lambda: not consumer._queue, "the chunk")
            waiting = consumer.run(consumer.receive(), "the next")  # a chunk without rows is acknowledged there
            await until(lambda: broker.backlog("t", "s") == 0, "acks")
            waiting.cancel()
        reader = client.read("t", "earliest", on_undecryptable="discard")
        assert [value[:1] async for chunk in reader.up_to_now() for value in values(chunk)] == [b"0"] * 10 + [b"2"] * 10
        assert not await reader.has_more()


async def test_consume_keeps_the_ciphertext() -> None:
    async with playing() as (broker, client):
        sent = locked()
        broker.append("t", [sent])
        rows = await rows_of(client, "t", on_undecryptable="consume")
        (row,) = rows
        assert row["value"] == bytes(split_payload(sent.body)[1])
        assert {one["key"] for one in row["headers"]} >= {"pulsar.encryption.key.orders", "pulsar.batch.size"}


async def test_writing_for_keys() -> None:
    async with playing() as (broker, client):
        async with await client.producer("t", public_keys={"orders": ORDERS.public}) as producer:
            await producer.send(Record(value=b"secret", key="k"))
        body = broker.topic("persistent://public/default/t").log[0].body
        assert b"secret" not in body
        (row,) = await rows_of(client, "t", private_keys=PRIVATE)
        assert (row["value"], row["key"]) == (b"secret", b"k")


async def test_mistakes_are_refused(tmp_path: Path) -> None:
    async with playing() as (_, client):
        with pytest.raises(ValueError, match="not in PEM"):
            client.subscribe("t", "s", private_keys={"k": b"?"})
        with pytest.raises(ValueError, match="the key 'k' cannot be read"):
            client.read("t", private_keys={"k": tmp_path / "missing"})
        with pytest.raises(ValueError, match="on_undecryptable is 'drop'; there are fail, discard, consume"):
            client.read("t", on_undecryptable="drop")  # type: ignore[arg-type]
        policy = DeadLetterPolicy(retry=True)
        with pytest.raises(ValueError, match="needs public_keys"):
            client.subscribe("t", "s", type="shared", dead_letters=policy, private_keys=PRIVATE)


async def test_another_try_is_encrypted() -> None:
    async with playing() as (broker, client):
        broker.append("t", [locked()])
        policy = DeadLetterPolicy(most_redeliveries=1, retry=True)
        options: Any = {"type": "shared", "start": "earliest", "dead_letters": policy, "private_keys": PRIVATE}
        async with client.subscribe("t", "s", public_keys={"orders": ORDERS.public}, **options) as consumer:
            for _ in range(2):
                (chunk,) = await take(consumer, 1)
                await chunk.retry(0)
                await chunk.ack()
            await until(lambda: broker.messages(DEAD) == 1, "the dead letter")
        assert not in_the_clear(broker, DEAD) and not in_the_clear(broker, DEAD.replace("DLQ", "RETRY"))
        (row,) = await rows_of(client, DEAD, private_keys=PRIVATE)
        assert row["value"].startswith(b"1:secret")


def in_the_clear(broker: PulsarDevBroker, topic: str) -> bool:
    log = broker.topic(topic).log
    bodies = [log[at].body for at in range(log.start, log.end)]
    assert bodies
    return any(b"secret" in body or b"xxx" in body for body in bodies)


@pytest.mark.parametrize("chunked", [False, True])
async def test_dead_letters_are_encrypted_for_the_same_readers(chunked: bool) -> None:
    """There are no public keys: the private key that unwrapped the entry's data key encrypts its dead letter, too."""
    async with playing() as (broker, client):
        broker.append("t", locked_parts() if chunked else [locked()])
        policy = DeadLetterPolicy(most_redeliveries=1)
        options: Any = {"type": "shared", "start": "earliest", "nack_backoff": QUICK, "private_keys": PRIVATE}
        async with client.subscribe("t", "s", dead_letters=policy, **options) as consumer:
            for _ in range(2):
                (chunk,) = await take(consumer, 1)
                if not chunked and chunk.rows == 3:
                    await chunk.ack(1)  # one of the batch is done, and is no dead letter
                    await chunk.nack([0, 2])
                else:
                    await chunk.nack()
            await until(lambda: broker.backlog("t", "s") == 0, "the dead letters")
        assert not in_the_clear(broker, DEAD)
        rows = await rows_of(client, DEAD, private_keys=PRIVATE)
        wanted = [b"x" * 1000] if chunked else [b"1:secret0", b"1:secret2"]
        assert [row["value"] for row in rows] == wanted
        assert all("ORIGIN_MESSAGE_ID" in {one["key"] for one in row["headers"]} for row in rows)


async def test_ciphertext_that_came_too_often_is_a_dead_letter_as_it_was_consumed() -> None:
    async with playing() as (broker, client):
        broker.append("t", [locked()])
        policy = DeadLetterPolicy(most_redeliveries=1)
        options: Any = {"type": "shared", "start": "earliest", "nack_backoff": QUICK}
        more: Any = {"on_undecryptable": "consume", "dead_letters": policy}
        async with client.subscribe("t", "s", **options, **more) as consumer:
            for _ in range(2):
                (chunk,) = await take(consumer, 1)
                await chunk.nack()
            await until(lambda: broker.backlog("t", "s") == 0, "the dead letter")
        (source,) = await rows_of(client, "t", on_undecryptable="consume")
        (row,) = await rows_of(client, DEAD)
        assert row["value"] == source["value"]
        assert {one["key"] for one in row["headers"]} > {one["key"] for one in source["headers"]}
