"""Writing to a topic by the binary protocol, against a dev broker in good and bad moods."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from fastwire.columns.rows import Rows
from fastwire.pulsar.format.payload import Entry
from fastwire_daemon.client import Put, WriteOptions, connect
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from fastwire_daemon.net.auth import TokenCredentials
from fastwire_daemon.systems.load import Load
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.pulsar.load import entries as entries_of
from fastwire_daemon.systems.pulsar.writer import open_topic
from tests.support.hostile.pulsar import WrongRequestIds
from tests.support.pulsar.produce import client_settings, produce

LOAD = Load(records=100, partitions=2, batch=10)


def entries() -> Iterator[tuple[int, Entry]]:
    return entries_of(LOAD, lambda: 5)


def failure(url: str, **parts: Any) -> str:
    with pytest.raises(ProduceError) as caught:
        asyncio.run(produce(client_settings(url, **parts), "t", entries()))
    return str(caught.value)


def test_the_load_is_the_same_each_time() -> None:
    once = list(entries())
    assert once == list(entries())
    assert [partition for partition, _ in once] == [0, 1] * 5
    assert [entry.sequence_id for _, entry in once[::2]] == [0, 10, 20, 30, 40]
    assert sum(entry.messages for _, entry in once) == 100


@pytest.mark.parametrize("size", [1, 60, 100, 1024, 20_000])
def test_records_have_about_the_size_that_was_asked_for(size: int) -> None:
    lengths = {len(Load(record_bytes=size).record(number)) for number in range(0, 1_000_000, 9973)}
    assert all(size - 1 <= length <= max(size, 90) for length in lengths)


def test_refusals_have_their_reason() -> None:
    with running(PulsarDevBroker(PulsarOptions(auto_create=False, token="secret"))) as broker:
        wrong = TokenCredentials(lambda: "guess")
        right = TokenCredentials(lambda: "secret")
        start = "persistent://public/default/t: "
        assert failure(broker.url) == start + "AuthenticationError: Failed to authenticate"
        assert failure(broker.url, credentials=wrong) == start + "AuthenticationError: Failed to authenticate"
        assert failure(broker.url, credentials=right).startswith(start + "TopicNotFound")
        broker.create_topic("t", 2)
        asyncio.run(produce(client_settings(broker.url, credentials=right), "t", entries()))
        broker.terminate("t")
        assert failure(broker.url, credentials=right).endswith(
            "-0: TopicTerminatedError: Topic " + start[:-2] + "-partition-0 is terminated"
        )
        url = broker.url
        assert broker.violations == []
    assert "cannot connect to 127.0.0.1" in failure(url)


def test_a_damaged_entry_is_not_sent_for_ever() -> None:
    def damaged() -> Iterator[tuple[int, Entry]]:
        for number, (partition, entry) in enumerate(entries()):
            yield partition, replace(entry, body=entry.body[:-1]) if number == 4 else entry

    with running(PulsarDevBroker()) as broker:
        broker.create_topic("t", 2)
        with pytest.raises(ProduceError, match="ChecksumError"):
            asyncio.run(produce(client_settings(broker.url), "t", damaged()))


async def test_another_host_redirects_and_a_challenge() -> None:
    with running(PulsarDevBroker(PulsarOptions(token="secret"))) as broker:
        broker.create_topic("t", 2)
        broker.redirect(times=3)

        url = broker.url.replace("://", "://127.0.0.1:1,")
        client = client_settings(url, credentials=TokenCredentials(lambda: "secret"))
        async with open_topic(client, "t") as writer:
            assert writer.partitions == 2
            for partition, entry in entries():
                await writer.put_entry(entry, partition=partition)
            await writer.flush()
            broker.challenge()
            await writer.put_entry(next(entries())[1], partition=1)
        assert broker.messages("t") == 110
        assert broker.violations == []


def test_strange_answers_are_passed_over() -> None:
    with running(WrongRequestIds()) as broker:
        broker.create_topic("t", 2)
        assert asyncio.run(produce(client_settings(broker.url), "t", entries())).records == 100
        assert broker.violations == []


async def test_a_restart_is_survived_in_order() -> None:
    with running(PulsarDevBroker()) as broker:
        broker.create_topic("t", 2)

        async with open_topic(client_settings(broker.url), "t") as writer:
            for number, (index, entry) in enumerate(entries()):
                if number == 5:
                    await writer.flush()
                    await asyncio.to_thread(broker.restart)
                await writer.put_entry(entry, partition=index)
        assert broker.messages("t") == 100  # everything was confirmed before, so nothing came twice
        for partition in range(2):
            assert len(broker.positions(f"t-partition-{partition}")) == 5


KEYS = [f"k{number % 7}" if number % 11 else None for number in range(400)]


async def batches(url: str) -> list[list[tuple[int, str | None]]]:
    """Return the number and the key of each record, by entry."""
    found: dict[tuple[int, int], list[tuple[int, str | None]]] = {}
    async with connect(url).read("t", "earliest") as reader:
        async for chunk in reader.up_to_now():
            for row in pa.record_batch(chunk).to_pylist():
                key = row["orderingKey"] or row["key"]
                entry = found.setdefault((row["ledger"], row["offset"]), [])
                entry.append((int(row["value"]), None if key is None else key.decode()))
    return list(found.values())


@pytest.mark.parametrize("way", ["records", "rows"])
@pytest.mark.parametrize("batching", ["key", "grouped", "mixed"])
async def test_the_keys_in_a_batch(batching: Any, way: str) -> None:
    """A broker hands a batch to one reader of a Key_Shared subscription."""
    values = [b"%d" % number for number in range(len(KEYS))]
    # An ordering key takes the place of the key.
    ordering = [key.encode() if key in ("k1", "k2") else None for key in KEYS]
    plain = [f"x{number % 3}" if key else KEYS[number] for number, key in enumerate(ordering)]
    columns = {"value": pa.array(values), "key": pa.array(plain), "orderingKey": pa.array(ordering)}
    with running(PulsarDevBroker()) as broker:
        async with connect(broker.url).produce("t", WriteOptions(batch=1000, batching=batching)) as writer:
            if way == "rows":
                batch = pa.record_batch(columns)
                for at in range(0, len(KEYS), 100):
                    await writer.write_rows(Rows(batch.slice(at, 100)))
            else:
                for number, value in enumerate(values):
                    await writer.write(Put(value, key=plain[number], ordering_key=ordering[number]))
        found = await batches(broker.url)
    assert sorted(record for entry in found for record in entry) == list(enumerate(KEYS))
    if batching == "mixed":
        assert any(len({key for _, key in entry}) > 1 for entry in found)
    else:
        assert all(len({key for _, key in entry}) == 1 for entry in found)
    numbers = [number for entry in found for number, _ in entry]
    if batching == "grouped":
        assert len(found) < len(KEYS) / 2
        for one in set(KEYS):
            assert [n for n in numbers if KEYS[n] == one] == [n for n, key in enumerate(KEYS) if key == one]
    else:
        assert numbers == sorted(numbers)
    assert broker.violations == []
