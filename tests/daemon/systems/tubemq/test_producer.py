"""Our producer over sockets: the embedded Master and Broker with their faults."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fastwire.tubemq.format.error import Code
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.names import parse_master_url
from fastwire.tubemq.producing.outbox import OutgoingMessage
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.systems.produced import ProduceError
from fastwire_daemon.systems.tubemq.cluster import ClientCluster
from fastwire_daemon.systems.tubemq.producer import TopicProducer
from fastwire_daemon.systems.tubemq.settings import ClientSettings


@asynccontextmanager
async def producing(
    broker: TubeMQDevBroker, topic: str = "t", *, url: str = "", **options: Any
) -> AsyncIterator[TopicProducer]:
    client = ClientSettings(url=parse_master_url(url or broker.url), request_timeout_s=1.0)
    options = {"heartbeat_s": 0.05, **options}
    async with ClientCluster(client) as cluster, TopicProducer(cluster, topic, client, **options) as producer:
        yield producer


async def write(broker: TubeMQDevBroker, count: int, between: Callable[[int], None] = lambda number: None) -> None:
    """Write numbers to topic t; ``between`` is called before each."""
    async with producing(broker) as producer:
        for number in range(count):
            between(number)
            future = await producer.put(OutgoingMessage(b"%d" % number))
            if number % 50 == 49:
                await future
        await producer.flush()
        assert producer.produced.records == count
        assert producer._pending_bytes == 0


def numbers(broker: TubeMQDevBroker, topic: str = "t") -> list[list[int]]:
    """The messages of each partition of the only store."""
    (store,) = broker.topics[topic].stores
    found: list[list[int]] = [[] for _ in range(broker.topics[topic].partitions)]
    for message in store.messages:
        found[message.partition].append(int(message.payload))
    return found


def each(broker: TubeMQDevBroker) -> list[int]:
    return sorted({number for partition in numbers(broker) for number in partition})


async def test_messages_are_stored_in_the_partitions_in_turn(broker: TubeMQDevBroker) -> None:
    await write(broker, 200)
    assert numbers(broker) == [list(range(0, 200, 2)), list(range(1, 200, 2))]
    assert not broker.producers  # it has left


async def test_the_outcome_of_a_message_is_its_place(broker: TubeMQDevBroker) -> None:
    broker.produce("t", [b"7"] * 3, 1)
    async with producing(broker) as producer:
        future = await producer.put(OutgoingMessage(b"8", number=1))
        await producer.flush()
        stored = future.result()
        assert stored.partition is not None
        assert (stored.partition.name, stored.offset) == ("1:1", 84)


@pytest.mark.parametrize("cut", [0, 3, 300])
async def test_a_connection_that_is_cut_costs_no_message(broker: TubeMQDevBroker, cut: int) -> None:
    def between(number: int) -> None:
        if number % 37 == 20:
            broker.cut_after(cut)

    await write(broker, 200, between)
    assert each(broker) == list(range(200))
    assert broker.accepted > 4


async def test_a_broker_that_crashes_again_and_again_costs_no_message(broker: TubeMQDevBroker) -> None:
    def between(number: int) -> None:
        if number % 60 == 30:
            broker.drop_connections()

    await write(broker, 300, between)
    assert each(broker) == list(range(300))


async def test_a_response_that_is_lost_means_the_message_is_sent_again(broker: TubeMQDevBroker) -> None:
    broker.lose_answers(Method.SEND)
    await write(broker, 10)
    assert each(broker) == list(range(10))
    assert sum(map(len, numbers(broker))) > 10  # at least once


@pytest.mark.parametrize("code", [Code.SERVER_RECEIVE_OVERFLOW, Code.SERVICE_UNAVAILABLE, Code.FORBIDDEN])
async def test_what_passes_is_tried_again(broker: TubeMQDevBroker, code: Code) -> None:
    broker.fail(Method.SEND, code, 3)
    await write(broker, 20)
    assert sorted(number for partition in numbers(broker) for number in partition) == list(range(20))


@pytest.mark.parametrize("forgotten", [False, True])
async def test_partitions_that_are_added_are_written_to(broker: TubeMQDevBroker, forgotten: bool) -> None:
    """Also if the Master has forgotten the producer, which registers again."""
    async with producing(broker) as producer:
        await producer.put(OutgoingMessage(b"0"))
        with pytest.raises(ProduceError, match="t has no partition 2: there are 0, 1"):
            await producer.put(OutgoingMessage(b"1", number=2))
        if forgotten:
            broker.forget_clients()
        broker.grow_topic("t", 3)
        while len(producer.client.partitions("t")) < 3:
            await asyncio.sleep(0.01)
        await producer.put(OutgoingMessage(b"2", number=2))
    assert numbers(broker)[2] == [2]


async def test_a_topic_that_is_closed_waits_until_it_is_open(broker: TubeMQDevBroker) -> None:
    async with producing(broker) as producer:
        await producer.put(OutgoingMessage(b"0", number=1))
        await producer.flush()
        broker.open_topic("t", False)
        future = await producer.put(OutgoingMessage(b"1", number=1))
        while producer.client.partitions("t"):
            await asyncio.sleep(0.01)
        assert not future.done()
        broker.open_topic("t", True)
        await future
    assert numbers(broker) == [[], [0, 1]]


async def test_a_message_that_is_not_stored_in_time_is_reported(broker: TubeMQDevBroker) -> None:
    broker.fail(Method.SEND, Code.SERVICE_UNAVAILABLE, 1000)
    async with producing(broker, send_timeout_s=0.2) as producer:
        future = await producer.put(OutgoingMessage(b"0"))
        with pytest.raises(ProduceError, match=r"t: not stored within 0.2 s: 1:.*#t:\d: SERVICE_UNAVAILABLE \(503\)"):
            await producer.flush()
        with pytest.raises(ProduceError):
            await future


async def test_a_message_that_the_broker_refuses_is_reported_and_later_ones_are_stored(broker: TubeMQDevBroker) -> None:
    broker.fail(Method.SEND, Code.BAD_REQUEST)
    async with producing(broker) as producer:
        await producer.put(OutgoingMessage(b"0"))
        with pytest.raises(ProduceError, match=r"t: BAD_REQUEST \(400\)"):
            await producer.flush()
        await producer.put(OutgoingMessage(b"1"))
    assert each(broker) == [1]


async def test_refused_credentials_end_the_producer(broker: TubeMQDevBroker) -> None:
    broker.fail(Method.SEND, Code.CERTIFICATE_FAILURE)
    async with producing(broker) as producer:
        await producer.put(OutgoingMessage(b"0"))
        with pytest.raises(ProduceError, match=r"CERTIFICATE_FAILURE \(415\)"):
            await producer.flush()
        with pytest.raises(ProduceError, match=r"CERTIFICATE_FAILURE \(415\)"):
            await producer.put(OutgoingMessage(b"1"))


async def test_a_master_that_refuses_a_producer_for_good_ends_it(broker: TubeMQDevBroker) -> None:
    async def produce() -> None:
        async with producing(broker) as producer:
            broker.fail(Method.PRODUCER_HEARTBEAT, Code.CERTIFICATE_FAILURE)
            while True:
                await producer.put(OutgoingMessage(b"0"))
                await asyncio.sleep(0.01)

    with pytest.raises(ProduceError, match=r"CERTIFICATE_FAILURE \(415\)"):
        await produce()


@pytest.mark.parametrize("code", [Code.CERTIFICATE_FAILURE, Code.TOPIC_NOT_DEPLOYED])
async def test_a_registration_that_is_refused_for_good(broker: TubeMQDevBroker, code: Code) -> None:
    broker.fail(Method.PRODUCER_REGISTER, code)
    with pytest.raises(ProduceError, match=rf"t: {code.name}"):
        async with producing(broker):
            pass


async def test_a_topic_that_no_broker_has(broker: TubeMQDevBroker) -> None:
    with pytest.raises(ProduceError, match="unknown: no Broker takes messages of the topic"):
        async with producing(broker, "unknown"):
            pass
    assert not broker.producers


async def test_the_master_that_answers_is_used(broker: TubeMQDevBroker) -> None:
    """The first Master of the URL is away, and the second one refuses as a stand-by."""
    with running(TubeMQDevBroker()) as standby:
        standby.standby = True
        closed = broker.url.rpartition(":")[0].removeprefix("tubemq://")
        url = f"tubemq://{closed}:1,{standby.url.removeprefix('tubemq://')},{broker.url.removeprefix('tubemq://')}"
        async with producing(broker, url=url) as producer:
            await producer.put(OutgoingMessage(b"0"))
    assert each(broker) == [0]


async def test_a_master_that_is_silent_is_left_for_the_next_one(broker: TubeMQDevBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tubemq://127.0.0.1:{silent.getsockname()[1]},{broker.url.removeprefix('tubemq://')}"
        async with producing(broker, url=url) as producer:
            await producer.put(OutgoingMessage(b"0"))
    assert each(broker) == [0]


async def test_the_port_of_a_broker_is_not_that_of_a_master(broker: TubeMQDevBroker) -> None:
    with pytest.raises(ProduceError, match="the server is no Master"):
        async with producing(broker, url=f"tubemq://{broker.host}:{broker.ports[1]}"):
            pass


async def test_no_master_answers(broker: TubeMQDevBroker) -> None:
    broker.standby = True
    with pytest.raises(ProduceError, match="is not master now"):
        async with producing(broker):
            pass


async def test_the_limit_of_the_master_is_that_of_a_message() -> None:
    with running(TubeMQDevBroker(TubeMQOptions(message_bytes=100))) as broker:
        broker.create_topic("t")
        async with producing(broker) as producer:
            producer.check(OutgoingMessage(bytes(100)))
            with pytest.raises(ValueError, match="a message of 101 bytes: t stores 100 at most"):
                producer.check(OutgoingMessage(bytes(101)))


async def test_unconfirmed_bytes_are_limited(broker: TubeMQDevBroker) -> None:
    async with producing(broker, most_pending_bytes=10_000) as producer:
        for number in range(500):
            await producer.put(OutgoingMessage(b"%d" % number))
            assert producer._pending_bytes <= 10_000
    assert each(broker) == list(range(500))
