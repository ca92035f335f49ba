"""Places in topics as programs give them: what is refused, and that nothing waits for a reading that has ended."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar.format.payload import Record
from fastwire_daemon.client import connect as connect_any
from fastwire_daemon.pulsar import EARLIEST, Client, MessageId
from fastwire_daemon.systems.pulsar.client.member import Member
from fastwire_daemon.systems.pulsar.client.places import place_of, places_of
from fastwire_daemon.systems.pulsar.producer import Sent
from tests.support.pulsar.client_scene import playing, values
from tests.support.source_pipe import entries

T0 = "persistent://public/default/t-partition-0"
WRONG: list[tuple[Any, str]] = [
    (None, "None is not a place in a topic"),
    (bytes(MessageId(3, 4)), "MessageId.from_bytes reads"),
    ("3:4", "MessageId.parse reads"),
    ("erliest", "'erliest' is not a place in a topic"),
    (1_700_000_000_000, "makes a time of a number"),
    (date(2026, 1, 1), "is not a place in a topic"),
    (datetime(2026, 1, 1), "has no time zone"),  # noqa: DTZ001
    ((3, 4), "is not a place in a topic"),
    ([MessageId(3, 4)], "is not a place in a topic"),
    (Sent(0, Position(-1, -1), -1, 7), "recognised the record as stored before"),
]
WRONG_MAPPINGS: list[tuple[Any, str]] = [
    ({}, "without partitions"),
    ({"t": "earliest"}, "'earliest' is not a partition's name and a MessageId"),
    ({7: MessageId(3, 4)}, "7: MessageId"),
    ({"a/b": MessageId(3, 4)}, "a/b"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
async def test_what_is_no_place_is_refused_at_once(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        place_of(given)
    async with playing() as (_, client):
        reader, consumer = client.read("t", "earliest"), client.subscribe("t", "s", type="exclusive")
        for call in (reader.seek, consumer.seek):
            with pytest.raises(ValueError, match=message):
                await call(given)
        with pytest.raises(ValueError, match=message):
            client.read("t", given)


@pytest.mark.parametrize(("given", "message"), WRONG_MAPPINGS)
def test_mappings_that_name_no_messages(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        places_of(given)


def test_places() -> None:
    now = datetime.now(UTC)
    assert place_of(now) == now
    ago = place_of(timedelta(seconds=5))
    assert isinstance(ago, datetime)
    assert timedelta(seconds=4) < now - ago < timedelta(seconds=6)
    assert (place_of("earliest"), place_of(EARLIEST)) == ("earliest", EARLIEST)
    assert place_of(Position(3, 4)) == MessageId(3, 4)
    sent = Sent(2, Position(3, 9), 5, 7, first=Position(3, 1))
    chunked = place_of(sent)
    assert chunked == MessageId(3, 9, 5, 2)
    assert isinstance(chunked, MessageId)
    assert chunked.first == Position(3, 1)
    assert places_of({"t-partition-0": sent}) == {T0: MessageId(3, 9, 5, 2)}


async def written(client: Client, count: int) -> list[Sent]:
    async with await client.producer("t") as producer:
        return await asyncio.gather(*(producer.send(Record(value=b"%d" % number)) for number in range(count)))


async def test_what_send_has_returned_is_a_place() -> None:
    async with playing() as (_, client):
        sent = await written(client, 4)
        async with client.read("t", sent[1]) as reader:
            assert [value async for chunk in reader.up_to_now() for value in values(chunk)] == [b"2", b"3"]
            await reader.seek(sent[1])
            assert [value async for chunk in reader.up_to_now() for value in values(chunk)] == [b"1", b"2", b"3"]
            await reader.seek({"t": sent[3]})
            assert [value async for chunk in reader.up_to_now() for value in values(chunk)] == [b"3"]
        async with client.subscribe("t", "s", type="exclusive") as consumer:
            await consumer.seek(sent[2])
            chunk = await consumer.receive()
            assert chunk is not None
            assert values(chunk) == [b"2", b"3"]
            await consumer.seek(timedelta(days=1))
            chunk = await consumer.receive()
            assert chunk is not None
            assert values(chunk) == [b"0", b"1", b"2", b"3"]


async def test_a_seek_that_names_other_partitions_changes_nothing() -> None:
    async with playing(2) as (broker, client):
        broker.append("t-partition-0", entries(0, 1))
        async with client.read("t", "earliest") as reader:
            first = await reader.receive()
            assert first is not None
            for wrong in (MessageId(3, 4), {"other": MessageId(3, 4)}, {"t-partition-0": MessageId(3, 4)}):
                with pytest.raises(ValueError, match="a message id belongs to one partition"):
                    await reader.seek(wrong)
            broker.append("t-partition-1", entries(1, 1))
            second = await reader.receive()
            assert second is not None
            assert (first.rows, second.rows) == (10, 10)


@pytest.mark.parametrize("start", [5, None, date(2026, 1, 1), datetime(2026, 1, 1)])  # noqa: DTZ001
@pytest.mark.parametrize("url", ["pulsar://h", "kafka://h", "tank://h", "tubemq://h"])
def test_starts_of_the_client_of_all_systems(url: str, start: Any) -> None:
    with pytest.raises(ValueError, match=r"start|whole RFC 3339 time with its zone"):
        connect_any(url).read("t", start)


async def test_columns_that_records_do_not_have_are_refused_at_once() -> None:
    async with playing() as (_, client):
        for call in (partial(client.read, "t"), partial(client.subscribe, "t", "s")):
            with pytest.raises(ValueError, match="pulsar records have no column nonsense"):
                call(columns=["value", "nonsense"])


# --- tasks that die


async def test_an_unexpected_error_ends_the_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Member) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Member, "_attempt", broken)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with playing() as (_, client):
        for intake in (client.read("t"), client.subscribe("t", "s")):
            with pytest.raises(FastwireError, match="RuntimeError: a bug"):
                await asyncio.wait_for(intake.open(), 60)


async def test_an_unexpected_error_ends_what_waits_for_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = Member._attempt
    broken = False

    async def maybe(self: Member) -> None:
        if broken:
            raise RuntimeError("a bug")
        await attempt(self)

    monkeypatch.setattr(Member, "_attempt", maybe)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with playing() as (_, client), client.read("t", "earliest") as reader:
        waiting = [asyncio.ensure_future(reader.receive())]
        broken = True
        waiting.append(asyncio.ensure_future(reader.seek("latest")))
        for call in waiting:
            with pytest.raises(FastwireError, match="RuntimeError: a bug"):
                await asyncio.wait_for(call, 60)
        with pytest.raises(FastwireError, match="RuntimeError: a bug"):
            await asyncio.wait_for(reader.has_more(), 60)
