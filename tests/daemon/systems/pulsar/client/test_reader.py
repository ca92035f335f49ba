"""Reading by hand without a subscription: where it begins, that it goes on where it was, and where the end is."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fastwire.errors import CorruptEntryError, FastwireError
from fastwire.pulsar.names.pattern import parse_pattern
from fastwire.reason import Reason
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.pulsar import EARLIEST, LATEST, MessageId, Reader, connect
from fastwire_daemon.systems.pulsar.client import reader as reading
from fastwire_daemon.systems.pulsar.source.watch import Watch
from tests.support.pulsar.client_scene import playing, values
from tests.support.source_pipe import entries, entry, until


async def collect(chunks: AsyncIterator[Any]) -> list[bytes]:
    return [value for chunk in [one async for one in chunks] for value in values(chunk)]


async def some(reader: Reader, rows: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < rows:
        chunk = await reader.receive()
        assert chunk is not None
        found += values(chunk)
    return found


def names(*numbers: int, first: int = 0) -> list[bytes]:
    """All records of entries, from element ``first`` of the first one on."""
    return [b"%d:%d" % (number, row) for at, number in enumerate(numbers) for row in range(0 if at else first, 10)]


@pytest.mark.parametrize("batched", [True, False])
async def test_from_a_message_on(batched: bool) -> None:
    async with playing(ledger_entries=4) as (broker, client):
        broker.append("t", entries(0, 10))
        ledger, place, _ = broker.positions("t")[5]
        at = MessageId(ledger, place, 3 if batched else -1)
        first = 4 if batched else 10
        assert await collect(client.read("t", at).up_to_now()) == names(5, 6, 7, 8, 9, first=first)
        sized = MessageId(ledger, place, 9, batch_size=10)
        assert await collect(client.read("t", sized).up_to_now()) == names(6, 7, 8, 9)
        inclusive = client.read("t", at, inclusive=True)
        assert await collect(inclusive.up_to_now()) == names(5, 6, 7, 8, 9, first=first - 1 if batched else 0)


async def test_the_message_at_which_it_begins_is_none_that_has_landed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers send it once more; the warning of a pipeline about entries that come again would be wrong here."""
    told: list[Any] = []
    monkeypatch.setattr(Watch, "came", lambda self, partition, landed: told.append([*landed]))
    async with playing() as (broker, client):
        broker.append("t", entries(0, 3))
        ledger, place, _ = broker.positions("t")[1]
        async with client.read("t", MessageId(ledger, place)) as reader:
            assert await some(reader, 10) == names(2)
            await until(lambda: bool(told), "a look at what has come")
            assert not any(told)


async def test_a_topic_that_is_deleted_is_not_waited_for() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 30))
        async with client.read(parse_pattern("t|other"), "earliest", window=1) as reader:
            ahead = reader.up_to_now()
            assert values(await anext(ahead))[:1] == names(0)[:1]
            broker.delete_topic("t")
            async with asyncio.timeout(60):
                assert len(await collect(ahead)) < 290


@pytest.mark.parametrize("topics", [parse_pattern("t|other"), ["t", "other"]], ids=["pattern", "names"])
async def test_a_topic_that_is_made_again_after_its_end_is_read(topics: Any) -> None:
    async with playing() as (broker, client):
        broker.create_topic("other")
        broker.append("t", entries(0, 3))
        broker.terminate("t")
        async with client.read(topics, "latest") as reader:
            (ended,) = [one for one in reader.members if one.topic.local == "t"]
            await until(lambda: ended.terminated, "the end of the topic")
            assert len(await reader.ends()) == 2
            broker.delete_topic("t")
            broker.create_topic("t")
            broker.append("t", entries(3, 2))
            await until(lambda: not ended.terminated, "the new topic")
            assert await collect(reader.up_to_now()) == names(3, 4)
            broker.terminate("other")
            await until(lambda: all(one.terminated for one in reader.members if one is not ended), "the other's end")
            broker.append("t", entries(5, 1))
            assert await some(reader, 10) == names(5)


async def test_a_first_host_that_accepts_and_is_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire.pulsar.protocol.connection.CONNECT_TIMEOUT_S", 0.3)

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with silent, playing(ledger_entries=4) as (broker, _):
        broker.append("t", entries(0, 1))
        url = f"pulsar://127.0.0.1:{silent.sockets[0].getsockname()[1]},127.0.0.1:{broker.port}"
        async with asyncio.timeout(60), connect(url) as client:
            assert await collect(client.read("t", EARLIEST).up_to_now()) == names(0)


async def test_times_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with playing(2) as (broker, client):
        now = datetime.now(UTC)
        then = int(now.timestamp() * 1000) - 600_000
        for partition in range(2):
            old = [entry(number) for number in range(3)]
            broker.append(f"t-partition-{partition}", old)
            broker.append(f"t-partition-{partition}", [at_time(entry(7), then), at_time(entry(8), then + 300_000)])
        for start in (now - timedelta(seconds=700), timedelta(seconds=700)):
            assert sorted(await collect(client.read("t", start).up_to_now())) == sorted(names(7, 8) * 2)
        assert sorted(await collect(client.read("t", timedelta(seconds=450)).up_to_now())) == sorted(names(8) * 2)
        assert len(await collect(client.read("t", "earliest").up_to_now())) == 100
        assert await collect(client.read("t", "latest").up_to_now()) == []
        assert sorted(await collect(client.read("t", "latest", inclusive=True).up_to_now())) == [b"8:9", b"8:9"]
        fresh = client.read("t", LATEST)
        assert not await fresh.has_more()
        broker.append("t-partition-1", [entry(20)])
        assert await fresh.has_more()
        assert await some(fresh, 10) == names(20)
        assert not await fresh.has_more()
    assert "cannot subscribe" not in caplog.text


async def test_a_time_before_which_the_broker_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts back from when it handles the subscribe: one that comes late would begin behind the time."""
    late_s = iter([7.0, 3.0])
    async with playing() as (broker, client):
        start = datetime.now(UTC) - timedelta(seconds=60)
        broker.append("t", [at_time(entry(number), int(start.timestamp() * 1000) + 1) for number in range(3)])
        monkeypatch.setattr(reading, "_now", lambda: datetime.now(UTC) - timedelta(seconds=next(late_s, 0)))
        assert await collect(client.read("t", start).up_to_now()) == names(0, 1, 2)
        assert next(late_s, None) is None


def at_time(made: Any, publish_time: int) -> Any:
    from fastwire.pulsar.format.payload import Record, encode_batch_entry

    number = made.sequence_id // 10
    records = [Record(value=b"%d:%d" % (number, row)) for row in range(10)]
    return encode_batch_entry(records, producer_name="p", sequence_id=made.sequence_id, publish_time=publish_time)


@pytest.mark.parametrize("start", ["latest", "earliest", "message", "time"])
@pytest.mark.parametrize("told", [True, False])
async def test_it_goes_on_where_it_was(start: Any, told: bool) -> None:
    """Connections are cut before anything came, and in the middle; nothing is missed and nothing comes twice."""
    async with playing(tell_mark_delete=told) as (broker, client):
        broker.append("t", entries(0, 3))
        ledger, place, _ = broker.positions("t")[1]
        places: Any = {"message": MessageId(ledger, place, 4), "time": datetime(2020, 1, 1, tzinfo=UTC)}
        begin = places.get(start, start)
        async with client.read("t", begin) as reader:
            await until(lambda: bool(broker.subscriptions("t")), "a reader")
            await away(broker, reader)
            broker.append("t", entries(3, 3))
            due = {"latest": names(3, 4, 5), "message": names(1, 2, 3, 4, 5, first=5)}.get(
                start, names(0, 1, 2, 3, 4, 5)
            )
            found = await some(reader, len(due))
            await away(broker, reader)
            broker.append("t", entries(6, 2))
            assert found + await some(reader, 20) == due + names(6, 7)


async def away(broker: PulsarDevBroker, reader: Reader) -> None:
    broker.drop_connections()
    await until(lambda: not reader.cluster.ready, "the loss")


async def test_seeks() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 5))
        reader = client.read("t", "earliest")
        assert await some(reader, 50) == names(0, 1, 2, 3, 4)
        ledger, place, _ = broker.positions("t")[3]
        await reader.seek(MessageId(ledger, place, 5))
        assert await some(reader, 15) == names(3, 4, first=5)
        await reader.seek("earliest")
        await reader.seek(MessageId(ledger, place), inclusive=False)
        assert await some(reader, 10) == names(4)
        await reader.seek(datetime.fromtimestamp(1_700_000_002, UTC))
        assert (await some(reader, 20))[-1] == b"4:9"
        await reader.seek("latest")
        broker.append("t", [entry(9)])
        assert await some(reader, 10) == names(9)


async def test_places_that_are_not_clear() -> None:
    async with playing(2) as (broker, client):
        with pytest.raises(FastwireError, match="such as persistent://public/default/t-partition-1"):
            await client.read("t", MessageId(3, 4)).open()
        with pytest.raises(FastwireError, match="TopicNotFound"):
            await client.read("t-partition-7", "earliest").open()
        with pytest.raises(ValueError, match="has no time zone"):
            client.read("t", datetime(2024, 1, 1))  # noqa: DTZ001
        with pytest.raises(ValueError, match="is not a place in a topic"):
            client.read("t", "soon")  # type: ignore[arg-type]
        broker.append("t-partition-0", entries(0, 2))
        ledger, place, _ = broker.positions("t-partition-0")[0]
        start = {"persistent://public/default/t-partition-0": MessageId(ledger, place)}
        assert await collect(client.read("t-partition-0", start).up_to_now()) == names(1)


@pytest.mark.parametrize("waits", ["open", "receive"])
@pytest.mark.parametrize("kind", ["reader", "consumer"])
async def test_closed_at_each_turn_of_its_opening(kind: str, waits: str) -> None:
    """At any point of the handshake, lookup and subscribe, the caller learns that it was closed."""
    async with playing(2) as (broker, _):
        turns, opened = 0, False
        while not opened:
            client = connect(broker.url)
            one = client.read("t") if kind == "reader" else client.subscribe("t", "s")
            waiting = asyncio.ensure_future(one.receive() if waits == "receive" else one.open())
            for _ in range(turns):
                await asyncio.sleep(0)
            opened = bool(one.members) and all(member.informed.done() for member in one.members)
            await client.close()
            async with asyncio.timeout(60):
                (ended,) = await asyncio.gather(waiting, return_exceptions=True)
            if waits == "receive":
                assert ended is None, turns
            elif not opened:
                assert isinstance(ended, FastwireError), (turns, ended)
                assert "closed" in str(ended)
            assert not one.cluster.ready
            turns += 1
        assert turns > 3, "nothing was closed while it opened"
        parts = ["t-partition-0", "t-partition-1"]
        await until(
            lambda: not any(broker.consumers(part, name) for part in parts for name in broker.subscriptions(part)),
            "that no consumer is left",
        )


async def test_an_entry_above_a_quarter_of_the_memory_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.systems.pulsar.client.client.MEMORY", 32 << 20)
    async with playing(max_message_size=20 << 20) as (broker, client):
        broker.append("t", [entry(0), entry(1, rows=1, size=9 << 20)])
        reader = client.read("t", "earliest")
        assert await some(reader, 10) == names(0)
        with pytest.raises(CorruptEntryError, match=r"cannot be received .*a quarter of the memory budget") as caught:
            await reader.receive()
        assert caught.value.reason is Reason.FRAME and "on_corrupt" not in str(caught.value)
