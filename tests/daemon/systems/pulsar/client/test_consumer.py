"""Consuming by hand against the embedded broker: acks of every kind, redelivery, seeks, reconnects, endings."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Record, encode_chunks
from fastwire.pulsar.names.pattern import parse_pattern
from fastwire.pulsar.protocol.request import BrokerError
from fastwire_daemon.config import ConfigError
from fastwire_daemon.devbroker.pulsar import PulsarConnection
from fastwire_daemon.devbroker.pulsar.broker import HANDLERS
from fastwire_daemon.pulsar import AckRefused, MessageId, RedeliveryBackoff, connect
from tests.support.loops import BOTH
from tests.support.pulsar.client_scene import playing, take, values
from tests.support.source_pipe import entries, entry, until

TYPES = ["exclusive", "failover", "shared", "key_shared"]
FULL = "persistent://public/default/t"
QUICK = RedeliveryBackoff(0.0, 1.0, 0.0)


@pytest.mark.parametrize("kind", TYPES)
@BOTH
async def test_everything_once_and_acknowledged(kind: Any) -> None:
    async with playing(3) as (broker, client):
        for partition in range(3):
            broker.append(f"t-partition-{partition}", entries(0, 40))
        seen: Counter[bytes] = Counter()
        async with client.subscribe("t", "s", type=kind, start="earliest") as consumer:
            async for chunk in consumer:
                table = pa.record_batch(chunk)
                assert table.num_rows == len(chunk)
                seen.update(table.column("value").to_pylist())
                await chunk.ack(receipt=True)
                if seen.total() >= 1200:
                    break
            assert set(seen.values()) == {3}
            assert len(seen) == 400
            assert broker.backlog("t", "s") == 0
        assert broker.consumers("t", "s") == []


async def test_acks_go_out_in_groups_and_before_leaving() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 5))
        consumer = client.subscribe("t", "s", start="earliest", ack_group_s=3600.0)
        for chunk in await take(consumer, 50):
            await chunk.ack()
        async with client.subscribe("t", "quick", start="earliest") as quick:
            for one in await take(quick, 50):
                await one.ack()
            await until(lambda: broker.backlog("t", "quick") == 0, "the acks of a later group")
        assert broker.backlog("t", "s") == 50
        await consumer.close()
        assert broker.backlog("t", "s") == 0
        await consumer.close()
        assert await consumer.receive() is None
        with pytest.raises(FastwireError, match="closed"):
            await chunk.ack()
        assert values(chunk)  # the memory is still there
        chunk.release()
        with pytest.raises(ValueError, match="released"):
            values(chunk)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("kind", ["shared", "exclusive"])
async def test_single_records(told: bool, kind: Any) -> None:
    """The broker hears of records one by one if it wants to, else of the entry when all of it is done."""
    async with playing(batch_index_acks=told) as (broker, client):
        broker.append("t", entries(0, 2))
        options: Any = {"type": kind, "start": "earliest", "batch_index_acks": told}
        async with client.subscribe("t", "s", **options) as consumer:
            chunks = await take(consumer, 20)
            (chunk,) = chunks
            for row in (0, 3, -11):  # -11 is row 9
                await chunk.ack(row, receipt=True)
            assert broker.backlog("t", "s") == (17 if told else 20)
            await chunk.ack(slice(0, 10, 2), receipt=True)
            await chunk.ack([1, 5, 7], receipt=True)
            assert broker.backlog("t", "s") == 10
            with pytest.raises(IndexError):
                await chunk.ack(20)
            await chunk.ack(range(10, 20), receipt=True)
            assert broker.backlog("t", "s") == 0


async def test_everything_up_to_a_record() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 5))
        async with client.subscribe("t", "s", start="earliest", batch_index_acks=True) as consumer:
            (chunk,) = await take(consumer, 50)
            await chunk.ack_to(0, receipt=True)
            assert broker.backlog("t", "s") == 49
            await chunk.ack_to(24, receipt=True)
            assert broker.backlog("t", "s") == 25
            await chunk.ack_to(29, receipt=True)
            assert broker.backlog("t", "s") == 20
            await chunk.ack_to(receipt=True)
            assert broker.backlog("t", "s") == 0
        async with client.subscribe("t", "shared", type="shared", start="earliest") as consumer:
            (chunk,) = await take(consumer, 50)
            with pytest.raises(ValueError, match="shared subscription has no order"):
                await chunk.ack_to()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("told", [True, False])
async def test_what_is_nacked_comes_again_without_what_was_acked(kind: Any, told: bool) -> None:
    async with playing(batch_index_acks=told) as (broker, client):
        broker.append("t", entries(0, 4))
        options: Any = {"type": kind, "start": "earliest", "nack_backoff": QUICK, "batch_index_acks": told}
        async with client.subscribe("t", "s", **options) as consumer:
            (chunk,) = await take(consumer, 40)
            await chunk.ack([*range(10, 15), *range(20, 30)])
            await chunk.nack([12, 35])  # of entries 1 and 3
            again = await take(consumer, 15)
            assert sorted(value for one in again for value in values(one)) == [
                *(b"1:%d" % row for row in range(5, 10)),
                *(b"3:%d" % row for row in range(10)),
            ]
            for one in again:
                await one.ack(receipt=True)
            await chunk.ack(receipt=True)
            assert broker.backlog("t", "s") == 0
            broker.append("t", [entry(9)])
            (last,) = await take(consumer, 10)
            assert values(last)[0] == b"9:0"  # and nothing else had come


async def test_an_ack_after_a_nack_takes_it_back() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 2))
        async with client.subscribe("t", "s", type="shared", start="earliest") as consumer:
            (chunk,) = await take(consumer, 20)
            await chunk.nack(delay_s=0.2)
            await chunk.ack(range(10))
            again = await take(consumer, 10)
            assert [value for one in again for value in values(one)] == [b"1:%d" % row for row in range(10)]
            assert {row for one in again for row in pa.record_batch(one).column("redeliveryCount").to_pylist()} == {1}


async def test_backoff_grows_with_redeliveries() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 1))
        backoff = RedeliveryBackoff(0.001, 300.0, 3600.0)
        async with client.subscribe("t", "s", type="shared", start="earliest", nack_backoff=backoff) as consumer:
            for count in range(3):
                (chunk,) = await take(consumer, 10)
                assert set(pa.record_batch(chunk).column("redeliveryCount").to_pylist()) == {count}
                await chunk.nack()
            now = asyncio.get_running_loop().time()
            assert consumer._nacked.take(now + 80.0) == {}
            assert consumer._nacked.take(now + 100.0) != {}


async def test_what_is_not_acknowledged_in_time_comes_again() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 3))
        async with client.subscribe("t", "s", type="shared", start="earliest", ack_timeout_s=1.0) as consumer:
            (chunk,) = await take(consumer, 30)
            await chunk.ack(range(10))
            await chunk.nack(range(10, 20), delay_s=3600.0)
            again = await take(consumer, 10)
            assert [value for one in again for value in values(one)] == [b"2:%d" % row for row in range(10)]


@pytest.mark.parametrize("kind", TYPES)
async def test_everything_again_on_demand(kind: Any) -> None:
    async with playing(2) as (broker, client):
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(0, 10))
        async with client.subscribe("t", "s", type=kind, start="earliest") as consumer:
            first = await take(consumer, 200)
            done = first[0]
            await done.ack(receipt=True)
            broker.append("t-partition-0", entries(10, 1))
            await consumer.redeliver()
            left = 210 - done.rows
            again = await take(consumer, left) if left else []
            assert sum(one.rows for one in again) == left
            for one in again:
                await one.ack(receipt=True)
            assert broker.backlog("t", "s") == 0


@pytest.mark.parametrize("kind", TYPES)
async def test_a_broker_that_restarts_is_survived(kind: Any) -> None:
    """Records taken do not come twice, and acks that a lost connection held up are sent after all."""
    async with playing(2) as (broker, client):
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(0, 20))
        async with client.subscribe("t", "s", type=kind, start="earliest", ack_group_s=3600.0) as consumer:
            taken = await take(consumer, 400)
            await taken[0].ack()
            for chunk in taken[1:]:
                await chunk.ack()
            waiting = asyncio.ensure_future(consumer.receive())
            await broker.stop()
            await broker.start(port=broker.port)
            broker.append("t-partition-1", [entry(77)])
            late = await waiting
            assert late is not None
            assert {value.partition(b":")[0] for value in values(late)} == {b"77"}
            await late.ack(receipt=True)
            await until(lambda: broker.backlog("t", "s") == 0, "acks on the new connection")


async def test_a_consumer_that_stands_by_takes_over_and_makes_way() -> None:
    """The next active consumer gets what the former one has not acknowledged; the one that comes back only the rest."""
    async with playing() as (broker, client):
        broker.append("t", entries(0, 2))
        options: Any = {"type": "failover", "start": "earliest"}
        async with client.subscribe("t", "s", name="b", **options) as second:
            (chunk,) = await take(second, 20)
            await chunk.ack(range(10), receipt=True)
            first = client.subscribe("t", "s", name="a", **options)
            await first.open()
            (again,) = await take(first, 10)
            assert values(again) == [b"1:%d" % row for row in range(10)]
            await again.ack(receipt=True)
            broker.append("t", entries(2, 1))
            (new,) = await take(first, 10)
            await first.close()
            (last,) = await take(second, 10)
            assert values(last) == values(new) == [b"2:%d" % row for row in range(10)]
            await last.ack(receipt=True)
            assert broker.backlog("t", "s") == 0


async def test_receipts_outlive_a_connection() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 3))
        async with client.subscribe("t", "s", type="shared", start="earliest", batch_index_acks=True) as consumer:
            (chunk,) = await take(consumer, 30)
            broker.muted = True
            (member,) = consumer.members
            assert member.link is not None
            acks = member.link.connection
            waits = [asyncio.ensure_future(chunk.ack(rows, receipt=True)) for rows in (range(10), 15)]
            await until(lambda: acks.acks_sent >= 1, "the acks")
            broker.muted = False
            broker.drop_connections()
            await asyncio.gather(*waits)
            assert broker.backlog("t", "s") == 19


async def test_receipts_are_not_waited_for_once_none_can_come() -> None:
    """The broker is away as the consumer is closed, or the topic is deleted."""
    async with playing() as (broker, client):
        broker.append("t", entries(0, 2))
        consumer = client.subscribe("t", "s", start="earliest")
        first, *_ = await take(consumer, 20)
        await broker.stop()
        await until(lambda: consumer.members[0].link is None, "a lost connection")
        waiting = asyncio.create_task(first.ack(receipt=True))
        await until(lambda: consumer.members[0].consumer.acks.waiting, "an ack")
        await consumer.close()
        with pytest.raises(AckRefused):
            await asyncio.wait_for(waiting, 60)
    async with playing() as (broker, client):
        broker.append("t", entries(0, 2))
        async with client.subscribe(parse_pattern("t"), "s", start="earliest") as consumer:
            first, *_ = await take(consumer, 20)
            broker.delete_topic("t")
            await until(lambda: consumer.members[0].over, "a topic that is gone")
            with pytest.raises(AckRefused):
                await asyncio.wait_for(first.ack(receipt=True), 60)


async def test_all_partitions_of_a_broker_may_wait_for_their_last_receipts(caplog: pytest.LogCaptureFixture) -> None:
    """At the end each partition sends the acks that it has held back, and waits for their receipts."""
    async with playing(4) as (broker, client):
        for partition in range(4):
            broker.append(f"t-partition-{partition}", entries(0, 2))
        async with client.subscribe("t", "s", start="earliest", ack_group_s=3600.0) as consumer:
            for chunk in await take(consumer, 80):
                await chunk.ack()
            assert broker.backlog("t", "s") == 80
        assert broker.backlog("t", "s") == 0
        assert "did not confirm" not in caplog.text


async def test_an_old_broker_gives_no_receipts_and_is_not_waited_for() -> None:
    async with playing(protocol_version=16) as (broker, client):
        broker.append("t", entries(0, 3))
        async with client.subscribe("t", "s", start="earliest") as consumer:
            (chunk,) = await take(consumer, 30)
            await chunk.ack(receipt=True)
            await until(lambda: broker.backlog("t", "s") == 0, "the ack")


@pytest.mark.parametrize("kind", TYPES)
async def test_seeks(kind: Any) -> None:
    async with playing(2) as (broker, client):
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(0, 20))
        async with client.subscribe("t", "s", type=kind, start="earliest") as consumer:
            old = await take(consumer, 400)
            for chunk in old[1:]:
                await chunk.ack()
            await consumer.seek("earliest")
            assert sum(one.rows for one in await take(consumer, 400)) == 400
            for chunk in old:
                await chunk.ack(receipt=True)  # of before: nobody's business
            assert broker.backlog("t", "s") == 400
            await consumer.seek(datetime.fromtimestamp(1_700_000_000 + 15, UTC))
            assert {value.partition(b":")[0] for one in await take(consumer, 100) for value in values(one)} == {
                b"%d" % number for number in range(15, 20)
            }
            await consumer.seek("latest")
            broker.append("t-partition-1", [entry(50)])
            (chunk,) = await take(consumer, 10)
            assert values(chunk)[0] == b"50:0"
            ledger, place, _ = broker.positions("t-partition-0")[17]
            await consumer.seek(MessageId(ledger, place, 4, partition=0))
            got = [value for one in await take(consumer, 26) for value in values(one)]
            assert got == [b"17:%d" % row for row in range(4, 10)] + [
                b"%d:%d" % (number, row) for number in (18, 19) for row in range(10)
            ]
            await consumer.seek(MessageId(ledger, place, 4, partition=0, batch_size=10))
            assert sum(one.rows for one in await take(consumer, 26)) == 26
            with pytest.raises(ValueError, match="matches 0 of the partitions"):
                await consumer.seek(MessageId(ledger, place))
            with pytest.raises(ValueError, match="has no time zone"):
                await consumer.seek(datetime(2024, 1, 1))  # noqa: DTZ001


async def test_ids_of_records() -> None:
    async with playing(2) as (broker, client):
        broker.append("t-partition-1", entries(0, 2))
        async with client.subscribe("t", "s", start="earliest") as consumer:
            (chunk,) = await take(consumer, 20)
            ledger = broker.positions("t-partition-1")[0][0]
            assert chunk.message_id(-1) == MessageId(ledger, 1, 9, 1)
            last = await consumer.last_message_ids()
            assert last == {"persistent://public/default/t-partition-1": MessageId(ledger, 1, 9, 1)}
            assert MessageId.from_bytes(bytes(chunk.message_id(3))) == MessageId(ledger, 0, 3, 1)
            assert MessageId.parse(str(chunk.message_id(3))) == MessageId(ledger, 0, 3, 1)


async def test_the_end_of_a_topic_ends_the_loop() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 3))
        broker.terminate("t")
        rows = 0
        async for chunk in client.subscribe("t", "s", start="earliest"):
            rows += chunk.rows
            await chunk.ack()
        assert rows == 30


async def test_new_partitions_are_read_from_their_beginning() -> None:
    async with playing(1) as (broker, client):
        async with client.subscribe("t", "s", partition_poll_s=0.05) as consumer:
            broker.partitioned[FULL] = 3
            for partition in (1, 2):
                broker.create_topic(f"t-partition-{partition}")
            broker.append("t-partition-2", entries(0, 2))
            chunks = await take(consumer, 20)
            assert {chunk.message_id(0).partition for chunk in chunks} == {2}


async def test_a_full_queue_stops_the_reading_and_acks_still_work() -> None:
    async with playing() as (broker, client):
        broker.append("t", entries(0, 60, rows=10, size=100_000))
        async with client.subscribe("t", "s", start="earliest", window=100_000) as consumer:
            first = await consumer.receive()
            assert first is not None
            await until(lambda: consumer._source._full, "a full queue")
            await first.ack(receipt=True)
            assert broker.backlog("t", "s") == 600 - first.rows
            rows = first.rows
            while rows < 600:
                chunk = await consumer.receive()
                assert chunk is not None
                rows += chunk.rows
                await chunk.ack(receipt=True)
            assert broker.backlog("t", "s") == 0


async def test_refusals_are_told_at_once() -> None:
    async with playing(auto_create=False) as (_, client):
        with pytest.raises(BrokerError, match="TopicNotFound"):
            await client.subscribe("missing", "s").open()
        async with client.subscribe("t", "s"):
            with pytest.raises(BrokerError, match="ConsumerBusy"):
                await client.subscribe("t", "s").receive()
        with pytest.raises(ValueError, match="type is 'fast'"):
            client.subscribe("t", "s", type="fast")
        with pytest.raises(ValueError, match="ack_timeout_s"):
            client.subscribe("t", "s", ack_timeout_s=0.5)
        with pytest.raises(ValueError, match="subscription must not be empty"):
            client.subscribe("t", "")
        with pytest.raises(ValueError, match="topics is empty"):
            client.subscribe([], "s")
    with pytest.raises(ValueError, match="client is closed"):
        client.subscribe("t", "s")
    with pytest.raises(ValueError, match="use pulsar://"):
        connect("kafka://h")
    with pytest.raises(ConfigError, match="tokn"):
        connect("pulsar://h", auth={"tokn": "t"})


async def test_cancelled_anywhere_it_closes_in_order() -> None:
    """Whatever await is cancelled, records stay whole and the consumer closes."""
    async with playing(2) as (broker, client):
        for partition in range(2):
            broker.append(f"t-partition-{partition}", entries(0, 50))
        for turns in range(40):
            consumer = client.subscribe("t", "s", start="earliest")

            async def work(consumer: Any = consumer) -> None:
                await consumer.seek("earliest")
                async for chunk in consumer:
                    await chunk.ack(range(0, chunk.rows, 3), receipt=True)
                    await consumer.last_message_ids()

            task = asyncio.ensure_future(work())
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns % 4 == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await consumer.close()
            assert broker.consumers("t", "s") == [] if broker.subscriptions("t-partition-0") else True


async def test_parts_of_a_message_are_done_with_it() -> None:
    async with playing() as (broker, client):
        whole = Record(value=b"x" * 1000)
        parts = encode_chunks(whole, chunk_bytes=300, producer_name="p", sequence_id=7, publish_time=1)
        broker.append("t", [entry(0), *parts, entry(1)])
        async with client.subscribe("t", "s", start="earliest") as consumer:
            (chunk,) = await take(consumer, 21)
            assert sorted(map(len, values(chunk)))[-1] == 1000
            await chunk.ack(range(20), receipt=True)
            assert broker.backlog("t", "s") > 0
            await chunk.ack(20, receipt=True)
            assert broker.backlog("t", "s") == 0


# --- refusals that pass


def refusing(
    monkeypatch: pytest.MonkeyPatch, command: "pb.BaseCommand.Type", error: "pb.ServerError", text: str, times: int
) -> list[int]:
    """Let embedded brokers refuse a command; the list has an item for each time."""
    name, handle = HANDLERS[command]
    refused: list[int] = []

    def answer(connection: PulsarConnection, request: Any, body: bytes) -> None:
        if len(refused) < times:
            refused.append(request.request_id)
            connection.send_error(request.request_id, error, text)
        else:
            handle(connection, request, body)

    monkeypatch.setitem(HANDLERS, command, (name, answer))
    return refused


async def test_a_seek_beside_an_unload_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has closed the consumer, and not told the client yet, refuses its requests."""
    seeks = refusing(monkeypatch, pb.BaseCommand.SEEK, pb.MetadataError, "Consumer not found", 3)
    lasts = refusing(monkeypatch, pb.BaseCommand.GET_LAST_MESSAGE_ID, pb.MetadataError, "Consumer not found", 2)
    async with playing() as (broker, client):
        broker.append("t", entries(0, 2))
        async with client.subscribe("t", "s", type="exclusive", start="latest") as consumer:
            await consumer.seek("earliest")
            assert (await take(consumer, 20))[0].rows
            await consumer.last_message_ids()
    assert (len(seeks), len(lasts)) == (3, 2)


async def test_a_seek_of_a_topic_that_is_deleted_meanwhile_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error: with CancelledError the task would end without a word, although it was not cancelled."""
    asked = asyncio.Event()
    name, _ = HANDLERS[pb.BaseCommand.SEEK]
    monkeypatch.setitem(HANDLERS, pb.BaseCommand.SEEK, (name, lambda *_: asked.set()))
    async with playing() as (broker, client):
        broker.append("t", entries(0, 2))
        async with client.subscribe(parse_pattern("t"), "s", start="earliest") as consumer:
            await take(consumer, 20)
            seek = asyncio.create_task(consumer.seek("earliest"))
            await asyncio.wait_for(asked.wait(), 60)
            broker.delete_topic("t")
            await asyncio.wait([seek], timeout=60)
            with pytest.raises(FastwireError, match="persistent://public/default/t is not read any more"):
                seek.result()


def refusing_partition_1(monkeypatch: pytest.MonkeyPatch, command: "pb.BaseCommand.Type") -> list[bool]:
    """Let embedded brokers refuse a command for partition 1 while the list has an item."""
    name, handle = HANDLERS[command]
    refuses = [True]

    def answer(connection: PulsarConnection, request: Any, body: bytes) -> None:
        if refuses and connection.consumers[request.consumer_id].subscription.log.partition == 1:
            connection.send_error(request.request_id, pb.NotAllowedError, "not here")
        else:
            handle(connection, request, body)

    monkeypatch.setitem(HANDLERS, command, (name, answer))
    return refuses


async def test_a_seek_that_one_partition_refuses_moves_the_others_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = refusing_partition_1(monkeypatch, pb.BaseCommand.SEEK)
    async with playing(3) as (broker, client):
        for partition in range(3):
            broker.append(f"t-partition-{partition}", entries(partition * 2, 2))
        async with client.subscribe("t", "s", start="earliest") as consumer:
            for chunk in await take(consumer, 60):
                await chunk.ack(receipt=True)
            with pytest.raises(FastwireError) as caught:
                await consumer.seek("earliest")
            assert str(caught.value) == (
                "2 of 3 partitions were moved, the others failed: "
                "NotAllowedError: persistent://public/default/t-partition-1: not here"
            )
            again = [value for chunk in await take(consumer, 40) for value in values(chunk)]
            assert sorted({value.split(b":")[0] for value in again}) == [b"0", b"1", b"4", b"5"]
            refuses.clear()
            await consumer.seek("earliest")
            assert len({value for chunk in await take(consumer, 60) for value in values(chunk)}) == 60


async def test_an_unsubscribe_that_one_partition_refuses_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = refusing_partition_1(monkeypatch, pb.BaseCommand.UNSUBSCRIBE)
    async with playing(3) as (broker, client):
        consumer = client.subscribe("t", "s")
        with pytest.raises(FastwireError, match=r"^2 of 3 partitions have lost .*t-partition-1: not here$"):
            await consumer.unsubscribe()
        broker.append("t-partition-1", entries(0, 1))
        await take(consumer, 10)
        refuses.clear()
        await consumer.unsubscribe()
        assert consumer.closed
        assert [broker.subscriptions(f"t-partition-{partition}") for partition in range(3)] == [[], [], []]


@pytest.mark.parametrize(
    ("error", "name"), [(pb.NotAllowedError, "NotAllowedError"), (pb.MetadataError, "MetadataError")]
)
async def test_errors_name_their_topic(error: "pb.ServerError", name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (pb.BaseCommand.SEEK, pb.BaseCommand.GET_LAST_MESSAGE_ID, pb.BaseCommand.UNSUBSCRIBE):
        refusing(monkeypatch, command, error, "not now", 1_000)
    expected = f"{name}: persistent://public/default/t: not now"
    async with playing() as (_, client):
        client.settings = replace(client.settings, operation_timeout_s=0.3)
        async with client.subscribe("t", "s", type="exclusive") as consumer:
            for call in (consumer.seek("earliest"), consumer.last_message_ids(), consumer.unsubscribe()):
                with pytest.raises(BrokerError) as caught:
                    await call
                assert str(caught.value) == expected
        monkeypatch.setitem(HANDLERS, pb.BaseCommand.SUBSCRIBE, HANDLERS[pb.BaseCommand.SUBSCRIBE])
        refusing(monkeypatch, pb.BaseCommand.SUBSCRIBE, error, "not now", 1_000)
        with pytest.raises(BrokerError) as caught:
            await client.read("t").open()
        assert str(caught.value) == expected
