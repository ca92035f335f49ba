"""Consumers for programs, on the embedded brokers of all systems that keep progress."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Log, Position, Span
from fastwire_daemon.client import Consumer, Delivery, connect
from fastwire_daemon.config import ConfigError
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.systems.source import Assignment, First, LogStopped, added_firsts
from tests.brokers.ports import free_ports
from tests.support.pulsar.client_scene import playing
from tests.support.source_pipe import entries, until

FIRST = {b"%d-%d" % (partition, number) for partition in range(2) for number in range(100)}


def produce(broker: Any, first: int, end: int) -> set[bytes]:
    found = set[bytes]()
    for partition in range(2):
        values = [b"%d-%d" % (partition, number) for number in range(first, end)]
        broker.produce("orders", values, partition)
        found.update(values)
    return found


@pytest.fixture(params=["pulsar", "kafka", "tubemq"])
def broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A broker of each system with 100 records in each of two partitions of a topic."""
    with running(dev_broker(request.param)) as made:
        made.create_topic("orders", 2)
        produce(made, 0, 100)
        yield made
        assert getattr(made, "violations", []) == []


@pytest.fixture
def kafka() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions())) as made:
        made.create_topic("orders", 2)
        produce(made, 0, 100)
        yield made
        assert made.violations == []


async def taken(consumer: Consumer, rows: int) -> list[Delivery]:
    """Receive at least ``rows`` records."""
    found: list[Delivery] = []
    async with asyncio.timeout(60):
        while sum(each.rows for each in found) < rows:
            found.append(await anext(aiter(consumer)))
    return found


async def assigned(consumer: Consumer) -> list[Delivery]:
    """Wait until it is known where both partitions are read on; return what was received meanwhile."""
    found: list[Delivery] = []
    async with asyncio.timeout(60):
        while len(consumer.assigned) != 2:
            found += filter(None, [await consumer.receive(timeout_s=0.1)])
    return found


def values(deliveries: list[Delivery]) -> list[bytes]:
    return [value for each in deliveries for value in pa.record_batch(each)["value"].to_pylist()]


async def test_what_is_acknowledged_does_not_come_again(broker: Any) -> None:
    client = connect(broker.url)
    async with client.subscribe("orders", "billing") as consumer:
        first = await taken(consumer, 200)
        assert sorted(values(first)) == sorted(FIRST)
        await first[-1].ack_to()
    later = produce(broker, 100, 150)
    async with client.subscribe("orders", "billing") as consumer:
        again = await taken(consumer, 100)
        assert sorted(values(again)) == sorted(later)
        # Nothing of it is acknowledged.
    async with client.subscribe("orders", "billing") as consumer:
        assert sorted(values(await taken(consumer, 100))) == sorted(later)
    async with client.subscribe("orders", "others") as consumer:
        assert sorted(values(await taken(consumer, 300))) == sorted(FIRST | later)


async def test_chunks_after_an_acknowledged_one_come_again(broker: Any) -> None:
    client = connect(broker.url)
    async with client.subscribe("orders", "billing") as consumer:
        first = await taken(consumer, 200)
        later = produce(broker, 100, 150)
        await taken(consumer, 100)
        await first[-1].ack_to()
        await first[0].ack_to()  # it is acknowledged already
    # TubeMQ confirms everything that was fetched, or goes back to where a fetch began.
    again = later if client.system != "tubemq" else FIRST | later
    async with client.subscribe("orders", "billing") as consumer:
        assert sorted(values(await taken(consumer, len(again)))) == sorted(again)


async def test_columns_and_a_start_at_the_end(broker: Any) -> None:
    client = connect(broker.url)
    async with client.subscribe("orders", "billing", start="latest", columns=["value"]) as consumer:
        assert not await assigned(consumer)
        later = produce(broker, 100, 110)
        found = await taken(consumer, 20)
        assert pa.record_batch(found[0]).schema.names == ["value"]
        assert sorted(values(found)) == sorted(later)


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
async def test_mistakes(broker: Any) -> None:
    client = connect(broker.url)
    with pytest.raises(ConfigError, match="start"):
        client.subscribe("orders", "billing", start="yesterday")
    with pytest.raises(ConfigError, match="group"):
        client.subscribe("orders", "")
    with pytest.raises(ConfigError, match="topics"):
        client.subscribe(group="billing")
    with pytest.raises(ConfigError, match="group_instance"):
        client.subscribe("orders", "billing", group_instance="a")
    with pytest.raises(ValueError, match="colour"):
        client.subscribe("orders", "billing", columns=["colour"])
    with running(TankDevBroker(TankOptions())) as tank, pytest.raises(ConfigError, match="group"):
        connect(tank.url).subscribe("orders", "billing")


async def test_two_members_share_the_partitions_and_lose_nothing(broker: Any) -> None:
    """The second member gets a partition; what was acknowledged before does not come there, and nothing is left out."""
    client = connect(broker.url)
    options: dict[str, Any] = {"kafka": {"assignor": "range"}, "tubemq": {"heartbeat": "200ms"}}.get(client.system, {})
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(client.subscribe("orders", "billing", **options))
        first = await taken(one, 200)
        await first[-1].ack_to()
        two = await stack.enter_async_context(client.subscribe("orders", "billing", **options))
        seen: list[bytes] = []
        async with asyncio.timeout(60):
            for consumer in (one, two):
                while len(consumer.assigned) != 1:
                    await acknowledged(consumer, seen)
        later = produce(broker, 100, 150)
        async with asyncio.timeout(60):
            while len(seen) < len(later):
                await acknowledged(one, seen)
                await acknowledged(two, seen)
        assert sorted(seen) == sorted(later)


async def acknowledged(consumer: Consumer, seen: list[bytes]) -> None:
    """Receive a chunk if there is one, and acknowledge it."""
    if (chunk := await consumer.receive(timeout_s=0.05)) is not None:
        seen += pa.record_batch(chunk)["value"].to_pylist()
        await chunk.ack_to()


async def test_a_partition_that_comes_back_goes_on_where_the_group_is(broker: Any) -> None:
    """While another member had it the group went on: that does not come again."""
    client = connect(broker.url)
    options: dict[str, Any] = {"kafka": {"assignor": "range"}, "tubemq": {"heartbeat": "200ms"}}.get(client.system, {})
    seen: list[bytes] = []
    async with client.subscribe("orders", "billing", **options) as one:
        await (await taken(one, 200))[-1].ack_to()
        async with client.subscribe("orders", "billing", **options) as two:
            async with asyncio.timeout(60):
                while len(two.assigned) != 1 or len(one.assigned) != 1:
                    await acknowledged(one, seen)
                    await acknowledged(two, seen)
            later = produce(broker, 100, 150)
            async with asyncio.timeout(60):
                while len(seen) < len(later):
                    await acknowledged(one, seen)
                    await acknowledged(two, seen)
        async with asyncio.timeout(60):
            while len(one.assigned) != 2:
                await acknowledged(one, seen)
        newest = produce(broker, 150, 160)
        async with asyncio.timeout(60):
            while len(seen) < len(later) + len(newest):
                await acknowledged(one, seen)
    assert sorted(seen) == sorted(later | newest)


@pytest.mark.parametrize("kind", ["failover", "shared"])
async def test_what_was_not_acknowledged_comes_again_after_a_lost_connection(kind: str) -> None:
    """Also what was received and not taken; an acknowledgement from before counts no more."""
    async with playing() as (broker, _):
        broker.append("t", entries(0, 3))
        async with connect(broker.url).subscribe("t", "s", subscription_type=kind) as consumer:
            first = await taken(consumer, 30)
            broker.append("t", entries(3, 1))
            await until(lambda: bool(consumer._queue), "a chunk that is not taken")
            broker.drop_connections()
            again = await taken(consumer, 40)
            assert sorted(values(again)[-40:]) == sorted(values(first) + [b"3:%d" % row for row in range(10)])
            await first[-1].ack_to()
            await again[-1].ack_to()
            await until(lambda: broker.backlog("t", "s") == 0, "the acks")


async def fill(consumer: Consumer, held: list[Delivery]) -> None:
    """Keep all chunks."""
    async for each in consumer:
        held.append(each)


async def test_a_consumer_that_holds_what_it_received_is_told_so(
    kafka: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by its budget; a program that waits although it fills it itself would wait for ever."""
    monkeypatch.setattr("fastwire_daemon.systems.consuming.consumer.FULL_S", 0.2)
    for _ in range(40):
        kafka.produce("orders", [b"x" * 100_000] * 10, 0)
    async with connect(kafka.url).subscribe("orders", "billing", memory="32MiB") as consumer:
        held: list[Delivery] = []
        with pytest.raises(FastwireError, match="release them, or give it more by memory="):
            await fill(consumer, held)
        for each in held:
            each.release()
        held.clear()
        assert await consumer.receive(timeout_s=30) is not None


async def test_seek_begins_at_a_position(broker: Any) -> None:
    client = connect(broker.url)
    async with client.subscribe("orders", "billing") as consumer:
        first = await taken(consumer, 200)
        await first[-1].ack_to()
        beginnings = {span.log: span.start for each in reversed(first) for span in each.spans}
        if client.system == "pulsar":
            with pytest.raises(ValueError, match="its own client has seek"):
                await consumer.seek(beginnings)
            return
        await consumer.seek(beginnings)
        again = await taken(consumer, 200)
        assert sorted(values(again)) == sorted(FIRST)
        await again[-1].ack_to()
        strange = replace(next(iter(beginnings)), topic="others")
        with pytest.raises(ValueError, match="others"):
            await consumer.seek({strange: beginnings.popitem()[1]})


@pytest.mark.parametrize("broker", ["kafka", "tubemq"], indirect=True)
async def test_seek_while_as_much_waits_as_there_is_room_for(broker: Any) -> None:
    """The chunks that wait are dropped, so there is room: reading goes on."""
    async with connect(broker.url).subscribe("orders", "billing") as consumer:
        first = await taken(consumer, 200)
        beginnings = {span.log: span.start for each in reversed(first) for span in each.spans}
        written, more = set(FIRST), True
        on_chunk = consumer.on_chunk

        def watched(chunk: Any) -> bool:
            nonlocal more
            more = on_chunk(chunk)
            return more

        consumer.on_chunk = watched  # type: ignore[method-assign]
        async with asyncio.timeout(60):
            while more:
                written |= produce(broker, len(written) // 2, len(written) // 2 + 10)
                await asyncio.sleep(0.2)
        await consumer.seek(beginnings)
        assert sorted(values(await taken(consumer, len(written)))) == sorted(written)


@pytest.mark.parametrize("broker", ["kafka", "tubemq"], indirect=True)
async def test_seek_in_one_partition_leaves_the_position_of_the_other(broker: Any) -> None:
    """It was set back, too, and the group was once ahead of it."""
    client = connect(broker.url)
    async with client.subscribe("orders", "billing") as consumer:
        first = await taken(consumer, 200)
        await first[-1].ack_to()
    beginnings = {span.log: span.start for each in reversed(first) for span in each.spans}
    async with client.subscribe("orders", "billing") as consumer:
        await assigned(consumer)
        await consumer.seek(beginnings)
        await taken(consumer, 200)
        await consumer.seek(dict([beginnings.popitem()]))
        assert sorted(values(await taken(consumer, 200))) == sorted(FIRST)


@pytest.mark.parametrize("broker", ["kafka", "tubemq"], indirect=True)
async def test_a_paused_partition_is_not_asked_until_it_resumes(broker: Any) -> None:
    """Records that a request has asked for before may come; what is written behind the answer to it does not."""
    async with connect(broker.url).subscribe("orders", "billing") as consumer:
        first = await taken(consumer, 200)
        await first[-1].ack_to()
        log = min(consumer.assigned, key=lambda one: one.partition)
        consumer.pause([log])
        seen, written = list[bytes](), set[bytes]()
        async with asyncio.timeout(60):
            for first_number in (100, 110):
                new = produce(broker, first_number, first_number + 10)
                written |= new
                while not {each for each in new if each.startswith(b"1")} <= set(seen):
                    await acknowledged(consumer, seen)
            assert not {b"0-%d" % number for number in range(110, 120)} & set(seen)
            consumer.resume([log])
            while set(seen) != written:
                await acknowledged(consumer, seen)
        assert sorted(seen) == sorted(written)


async def test_a_static_member_comes_back_to_its_partition(kafka: KafkaDevBroker) -> None:
    """The other member hears nothing of it: no partition moves."""
    client = connect(kafka.url)

    def member(name: str) -> Any:
        return client.subscribe("orders", "billing", group_protocol="classic", group_instance_id=name)

    seen: list[bytes] = []
    moves: list[object] = []
    async with member("one") as one:
        async with member("two") as two:
            async with asyncio.timeout(60):
                while len(one.assigned) != 1 or len(two.assigned) != 1 or set(seen) != FIRST:
                    await acknowledged(one, seen)
                    await acknowledged(two, seen)
            mine, theirs = set(one.assigned), set(two.assigned)
            one.on_revoked = lambda indexes, _: moves.append(indexes)
            one.on_assigned = moves.append
        later = produce(kafka, 100, 150)
        async with member("two") as two:
            async with asyncio.timeout(60):
                while not later <= set(seen):
                    await acknowledged(one, seen)
                    await acknowledged(two, seen)
            assert (set(one.assigned), set(two.assigned), moves) == (mine, theirs, [])
    assert set(seen) == FIRST | later


async def test_what_cannot_pause_is_told(broker: Any) -> None:
    async with connect(broker.url).subscribe("orders", "billing") as consumer:
        log = (await taken(consumer, 200))[0].spans[0].log
        with pytest.raises(ValueError, match="others"):
            consumer.pause([replace(log, topic="others")])
        if broker.scheme == "pulsar":
            with pytest.raises(ValueError, match="which pauses all"):
                consumer.pause([log])


async def test_of_two_grants_of_a_log_the_first_answer_counts() -> None:
    """Both ask for the end of a log that grows, so they get two beginnings."""
    log = Log("kafka", "cluster", "orders", "0")
    assignment = Assignment(0, log)
    coverage = Coverage()
    answers = [asyncio.Event(), asyncio.Event()]

    class Growing:
        asked = 0

        async def resolve(self, _: object, known: Coverage) -> list[First]:
            number = self.asked = self.asked + 1
            await answers[number - 1].wait()
            at = Position(number, 0)
            return [First(0, Span(log, at, at, 0))]

    source: Any = Growing()
    async with asyncio.TaskGroup() as tasks:
        early = tasks.create_task(added_firsts(source, [assignment], coverage))
        late = tasks.create_task(added_firsts(source, [assignment], coverage))
        while source.asked < 2:
            await asyncio.sleep(0)
        answers[1].set()
        await late
        answers[0].set()
    assert early.result() == []
    assert coverage.start(log) == Position(2, 0)


async def test_what_is_acknowledged_again_after_seek_does_not_come_again(kafka: KafkaDevBroker) -> None:
    """Up to where the group was before: acknowledging it follows at once upon less."""
    for _ in range(20):
        kafka.produce("orders", [b"x" * 100_000] * 10, 0)
    client = connect(kafka.url)
    async with client.subscribe("orders", "billing") as consumer:
        first = await taken(consumer, 400)
        await first[-1].ack_to()
    async with client.subscribe("orders", "billing") as consumer:
        await assigned(consumer)
        await consumer.seek({span.log: span.start for each in reversed(first) for span in each.spans})
        for each in await taken(consumer, 400):
            await each.ack_to()
    async with client.subscribe("orders", "billing") as consumer:
        assert await consumer.receive(timeout_s=1) is None


async def test_one_group_with_the_official_client(kafka: KafkaDevBroker) -> None:
    """Each has a partition; when the official client leaves, what it has committed does not come here."""
    settings = {
        "bootstrap.servers": f"{kafka.host}:{kafka.ports[0]}",
        "group.id": "billing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
    }
    theirs = set[bytes]()
    over = threading.Event()

    def official() -> None:
        client = ck.Consumer(settings)
        client.subscribe(["orders"])
        while not over.is_set():
            message = client.poll(0.1)
            if message is not None and not message.error():
                value = message.value()
                assert value is not None
                theirs.add(value)
                client.commit(message=message, asynchronous=False)
        client.close()

    seen: list[bytes] = []
    other = threading.Thread(target=official)
    keys = {"assignor": "range", "group_protocol": "classic"}
    async with connect(kafka.url).subscribe("orders", "billing", **keys) as consumer:
        await (await taken(consumer, 200))[-1].ack_to()
        other.start()
        try:
            async with asyncio.timeout(60):
                while len(consumer.assigned) != 1:
                    await acknowledged(consumer, seen)
                later = produce(kafka, 100, 150)
                while len(theirs) + len(seen) < len(later):
                    await acknowledged(consumer, seen)
                assert len(theirs) == len(seen) == 50
                over.set()
                while len(consumer.assigned) != 2:
                    await acknowledged(consumer, seen)
                newest = produce(kafka, 150, 160)
                while len(theirs) + len(seen) < len(later | newest):
                    await acknowledged(consumer, seen)
        finally:
            over.set()
            other.join()
    assert sorted([*seen, *theirs]) == sorted(later | newest)


async def test_no_broker_and_no_topic_are_told(kafka: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.systems.consuming.consumer.OPEN_S", 0.5)
    with pytest.raises(FastwireError, match=r"could not begin in 0.5 s: .*127\.0\.0\.1"):
        async with connect(f"kafka://127.0.0.1:{free_ports(1)[0]}").subscribe("orders", "billing"):
            pass
    with pytest.raises(FastwireError, match=r"could not begin in 0\.5 s|nowhere"):
        async with connect(kafka.url).subscribe("nowhere", "billing"):
            pass


async def test_a_partition_that_cannot_be_read_is_told_once_and_the_others_go_on(kafka: KafkaDevBroker) -> None:
    async with connect(kafka.url).subscribe("orders", "billing") as consumer:
        await (await taken(consumer, 200))[-1].ack_to()
        consumer.on_stopped(0, LogStopped("orders/0: its leader refuses it"))
        with pytest.raises(LogStopped, match="its leader refuses it"):
            await consumer.receive()
        kafka.produce("orders", [b"later"], 1)
        assert values(await taken(consumer, 1)) == [b"later"]


async def test_a_stopped_partition_is_told_although_chunks_wait(kafka: KafkaDevBroker) -> None:
    """A program that is slower than the topic always finds one."""
    async with connect(kafka.url).subscribe("orders", "billing") as consumer:
        [first, *_] = await taken(consumer, 200)
        consumer.on_chunk(first.chunk)
        consumer.on_stopped(0, LogStopped("orders/0: its leader refuses it"))
        with pytest.raises(LogStopped, match="its leader refuses it"):
            await consumer.receive()
        assert await consumer.receive() is not None
