"""Our producer over sockets: the embedded broker with its faults."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fastwire.producer import BatchLimits
from fastwire.tank.format.error import ProduceCode
from fastwire.tank.names import parse_tank_url
from fastwire.tank.producing.bundle import Message, encode_bundle, read_messages
from fastwire.tank.producing.producer import ProducerSettings
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.producing.leaderwriter import Sent
from fastwire_daemon.systems.tank.cluster import ClientCluster
from fastwire_daemon.systems.tank.producer import TopicProducer
from fastwire_daemon.systems.tank.settings import ClientSettings
from tests.support.waiting import until

SMALL = ProducerSettings(batching=BatchLimits(records=10))


@pytest.fixture
def broker() -> Iterator[TankDevBroker]:
    with running(TankDevBroker(TankOptions(nodes=2))) as broker:
        broker.create_topic("t", 2)
        yield broker
    assert broker.violations == []


@asynccontextmanager
async def producing(
    broker: TankDevBroker, topic: str = "t", settings: ProducerSettings = SMALL, **options: Any
) -> AsyncIterator[TopicProducer]:
    client = ClientSettings(url=parse_tank_url(broker.url), request_timeout_s=2.0)
    async with ClientCluster(client) as cluster, TopicProducer(cluster, topic, settings, **options) as producer:
        yield producer


async def write(broker: TankDevBroker, count: int, between: Callable[[int], None] = lambda number: None) -> None:
    """Write numbers to topic t, round its two partitions; ``between`` is called before each."""
    async with producing(broker) as producer:
        for number in range(count):
            between(number)
            future = await producer.put(Message(value=b"%d" % number), partition=number % 2)
            if number % 50 == 49:
                await future
        await producer.flush()
        assert producer.produced.records == count
        assert producer._pending_bytes == 0


def stored(broker: TankDevBroker, topic: str = "t") -> list[list[Message]]:
    """The messages of each partition."""
    logs = broker.topics[topic]
    return [[one for bundle in log.bundles for one in read_messages(bundle.data, bundle.head)] for log in logs]


def numbers(broker: TankDevBroker) -> list[list[int]]:
    return [[int(one.value) for one in messages] for messages in stored(broker)]


def each_once(count: int) -> list[list[int]]:
    return [list(range(0, count, 2)), list(range(1, count, 2))]


async def test_everything_is_stored_once_and_in_order(broker: TankDevBroker) -> None:
    await write(broker, 200)
    assert numbers(broker) == each_once(200)
    assert [[one.sequence for one in messages] for messages in stored(broker)] == [list(range(1, 101))] * 2


async def test_the_outcome_of_a_message_is_its_sequence(broker: TankDevBroker) -> None:
    broker.produce("t", [b"x"] * 7, 1)
    async with producing(broker) as producer:
        first = await producer.put(Message(value=b"a"), partition=1)
        second = await producer.put(Message(value=b"b"), partition=1)
        await producer.flush()
        assert (first.result(), second.result()) == (Sent(1, 8), Sent(1, 9))


@pytest.mark.parametrize("cut", [0, 3, 8])
async def test_a_connection_that_is_cut_doubles_nothing(broker: TankDevBroker, cut: int) -> None:
    def between(number: int) -> None:
        if number % 37 == 20:
            broker.cut_after(cut)

    await write(broker, 400, between)
    assert numbers(broker) == each_once(400)
    assert broker.accepted > 4


async def test_brokers_that_crash_again_and_again(broker: TankDevBroker) -> None:
    def between(number: int) -> None:
        if number % 60 == 30:
            broker.drop_connections()

    await write(broker, 600, between)
    assert numbers(broker) == each_once(600)


async def test_a_broker_that_stores_and_says_nothing(broker: TankDevBroker) -> None:
    """Acknowledgements that come too late: the bundle is sent again and recognised."""
    broker.refuse_bundles(ProduceCode.TIMED_OUT, 3, stored=True)
    await write(broker, 100)
    assert numbers(broker) == each_once(100)


@pytest.mark.parametrize("code", [ProduceCode.TIMED_OUT, ProduceCode.NOT_ENOUGH_REPLICAS, ProduceCode.NO_LEADER])
async def test_what_passes_is_tried_again(broker: TankDevBroker, code: ProduceCode) -> None:
    broker.refuse_bundles(code, 2)
    await write(broker, 100)
    assert numbers(broker) == each_once(100)


async def test_a_leader_that_moves_is_followed(broker: TankDevBroker) -> None:
    def between(number: int) -> None:
        if number % 50 == 0:
            broker.move_leader("t", number // 50 % 2)

    await write(broker, 300, between)
    assert numbers(broker) == each_once(300)


async def test_a_partition_without_a_leader_waits_for_one(broker: TankDevBroker) -> None:
    broker.move_leader("t", 1, node=-1)
    writing = asyncio.create_task(write(broker, 40))
    await until(lambda: len(stored(broker)[0]) >= 20, "the messages of the other partition")
    assert stored(broker)[1] == []
    broker.move_leader("t", 1, node=0)
    await writing
    assert numbers(broker) == each_once(40)


async def test_another_producer_in_the_same_partition(broker: TankDevBroker) -> None:
    """Both are stored in full; the sequences of the other one end the numbering."""
    async with producing(broker) as producer:
        for number in range(0, 100, 2):
            await (await producer.put(Message(value=b"%d" % number), partition=0))
            broker.produce("t", [b"%d" % (number + 1)], 0)
    assert numbers(broker)[0] == list(range(100))


async def test_another_producer_while_the_connection_is_lost(broker: TankDevBroker) -> None:
    """The bundle in flight is not stored, and the sequences that it asked for are taken when it is sent again."""
    async with producing(broker) as producer:
        await (await producer.put(Message(value=b"0"), partition=0))
        broker.refuse_bundles(ProduceCode.TIMED_OUT, 1)
        future = await producer.put(Message(value=b"3"), partition=0)
        await until(lambda: not broker.bundle_refusals._waiting, "the refusal")
        broker.append("t", [encode_bundle([Message(value=b"1"), Message(value=b"2")])], 0)
        await future
    assert numbers(broker)[0] == [0, 1, 2, 3]


async def test_a_refused_bundle_is_reported_and_later_ones_are_stored(broker: TankDevBroker) -> None:
    broker.refuse_bundles(ProduceCode.IO_FAULT)
    async with producing(broker) as producer:
        future = await producer.put(Message(value=b"a"), partition=0)
        with pytest.raises(
            ProduceError, match=r"t partition 0: the broker has not stored the messages: io fault; .*disk"
        ):
            await producer.flush()
        with pytest.raises(ProduceError):
            await future
        await producer.put(Message(value=b"1"), partition=0)
        await producer.flush()
    assert numbers(broker)[0] == [1]


async def test_a_topic_is_created_only_when_asked(broker: TankDevBroker) -> None:
    with pytest.raises(ProduceError, match=r"new: does not exist: unknown topic; .* --create N makes it"):
        async with producing(broker, "new"):
            pass
    assert "new" not in broker.topics
    async with producing(broker, "new", create=3) as producer:
        assert producer.partitions == 3
        await producer.put(Message(value=b"1", key=b"k"))
    assert sum(map(len, stored(broker, "new"))) == 1
    async with producing(broker, "new", create=9) as producer:
        assert producer.partitions == 3


async def test_keys_choose_the_partition(broker: TankDevBroker) -> None:
    async with producing(broker) as producer:
        for number in range(40):
            await producer.put(Message(value=b"%d" % number, key=b"%d" % (number % 4)))
    assert all(messages for messages in stored(broker))
    assert not {one.key for one in stored(broker)[0]} & {one.key for one in stored(broker)[1]}


async def test_a_read_only_broker() -> None:
    with running(TankDevBroker(TankOptions(read_only=True))) as broker:
        broker.create_topic("t")
        async with producing(broker) as producer:
            await producer.put(Message(value=b"a"), partition=0)
            with pytest.raises(ProduceError, match="read only"):
                await producer.flush()
            with pytest.raises(ProduceError, match="read only"):  # nothing is sent any more
                await producer.put(Message(value=b"b"), partition=0)
            assert broker.requests["PRODUCE_SEQUENCE"] == 1
