"""Our producer over sockets: the embedded broker with its faults, and librdkafka's mock; the official client reads."""

import asyncio
from collections.abc import Callable, Iterator

import confluent_kafka as ck
import pytest

from fastwire.kafka.format.error import Code
from fastwire.kafka.names import parse_bootstrap_url
from fastwire.kafka.producing.payload import Record
from fastwire.kafka.producing.producer import ProducerSettings
from fastwire.producer import BatchLimits
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions, running
from fastwire_daemon.systems.kafka.cluster import ClientCluster
from fastwire_daemon.systems.kafka.producer import TopicProducer
from fastwire_daemon.systems.kafka.settings import ClientSettings
from fastwire_daemon.systems.produced import ProduceError
from tests.support.hostile.kafka import MEANING, Lie, lying
from tests.support.source_pipe import until

PATIENCE_S = 30.0
SMALL = ProducerSettings(batching=BatchLimits(records=10))


@pytest.fixture
def broker() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions(nodes=2))) as broker:
        broker.create_topic("t", 2)
        yield broker
    assert broker.violations == []


def servers(broker: KafkaDevBroker) -> str:
    return ",".join(f"{broker.host}:{port}" for port in broker.ports)


async def write_numbers(servers: str, count: int, between: Callable[[int], None]) -> None:
    client = ClientSettings(url=parse_bootstrap_url(f"kafka://{servers}"))
    async with ClientCluster(client) as cluster, TopicProducer(cluster, "t", SMALL) as producer:
        for number in range(count):
            between(number)
            future = await producer.put(Record(value=b"%d" % number, timestamp=1), partition=number % 2)
            assert producer._pending_bytes == sum(part.machine.weight for part in producer._parts) > 0
            if number % 50 == 49:
                await future
        await producer.flush()
        assert producer.produced.records == count
        assert producer._pending_bytes == 0


def write(servers: str, count: int, *, between: Callable[[int], None] = lambda number: None) -> None:
    """Write numbers to topic t, round its two partitions; ``between`` is called before each."""
    asyncio.run(write_numbers(servers, count, between))


def read(servers: str) -> list[list[int]]:
    """The numbers in both partitions."""
    consumer = ck.Consumer({"bootstrap.servers": servers, "group.id": "x", "log_level": 0})
    found: list[list[int]] = []
    try:
        for number in range(2):
            end = consumer.get_watermark_offsets(ck.TopicPartition("t", number), timeout=PATIENCE_S)[1]
            consumer.assign([ck.TopicPartition("t", number, 0)])
            values: list[int] = []
            while len(values) < end:
                message = consumer.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                values.append(int(message.value() or b""))
            found.append(values)
    finally:
        consumer.close()
    return found


def each_once(count: int) -> list[list[int]]:
    return [list(range(0, count, 2)), list(range(1, count, 2))]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    "code", [Code.NOT_LEADER_OR_FOLLOWER, Code.REQUEST_TIMED_OUT, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
)
def test_refusals_that_pass(broker: KafkaDevBroker, code: Code, stored: bool) -> None:
    def refuse(number: int) -> None:
        if number % 100 == 20:
            broker.refuse_batches(code, stored=stored)

    write(servers(broker), 400, between=refuse)
    assert read(servers(broker)) == each_once(400)


@pytest.mark.parametrize("api", ["Metadata", "InitProducerId", "Produce"])
@pytest.mark.parametrize("lie", MEANING, ids=lambda lie: lie.__name__)
def test_answers_that_cannot_be_right(broker: KafkaDevBroker, api: str, lie: Lie) -> None:
    def deceive(number: int) -> None:
        if number == 100:
            lying(broker, api, lie)
            broker.move_leader("t")

    write(servers(broker), 400, between=deceive)
    assert read(servers(broker)) == each_once(400)


async def test_a_topic_comes_into_being_where_the_broker_lets_it(broker: KafkaDevBroker) -> None:
    topic = "new"
    client = ClientSettings(url=parse_bootstrap_url(broker.url))
    async with ClientCluster(client) as cluster, TopicProducer(cluster, topic, SMALL) as producer:
        await (await producer.put(Record(value=b"1", timestamp=1)))
    assert broker.ends("new") == [1]


async def test_a_topic_that_nobody_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for a little: whoever has just made it may be asking another node."""
    monkeypatch.setattr("fastwire_daemon.systems.kafka.producer.MISSING_S", 2.0)

    with running(KafkaDevBroker(KafkaOptions(auto_create=False))) as broker:
        async with ClientCluster(ClientSettings(url=parse_bootstrap_url(broker.url))) as cluster:
            late = TopicProducer(cluster, "late", SMALL)
            opening = asyncio.create_task(late.open())
            asked = broker.requests["Metadata"]
            await until(lambda: broker.requests["Metadata"] > asked + 2, "more than one question")
            assert not opening.done()
            broker.create_topic("late")
            await opening
            await late.close()
            monkeypatch.setattr("fastwire_daemon.systems.kafka.producer.MISSING_S", 0.1)
            with pytest.raises(ProduceError) as caught:
                await TopicProducer(cluster, "never", SMALL).open()
            said = "never: does not exist, and the broker does not make it: UNKNOWN_TOPIC_OR_PARTITION"
            assert str(caught.value) == said


def test_leaders_that_move(broker: KafkaDevBroker) -> None:
    def move(number: int) -> None:
        if number % 60 == 30:
            broker.move_leader("t", number // 60 % 2)

    write(servers(broker), 400, between=move)
    assert read(servers(broker)) == each_once(400)


def test_a_broker_that_throttles(broker: KafkaDevBroker) -> None:
    broker.throttle(50, times=3)
    write(servers(broker), 200)
    assert read(servers(broker)) == each_once(200)


def test_a_refusal_for_good(broker: KafkaDevBroker) -> None:
    broker.refuse_batches(Code.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ProduceError, match=r"t partition [01]: .*TOPIC_AUTHORIZATION_FAILED"):
        write(servers(broker), 2)


def test_a_broker_of_another_kind() -> None:
    """librdkafka's mock: it refuses our first question with bytes that follow no version, and knows less."""
    mock = ck.Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "none", "log_level": 0})
    brokers = mock.list_topics(timeout=PATIENCE_S).brokers.values()
    mock.produce("t", b"-1", partition=3)  # this makes the topic
    assert mock.flush(PATIENCE_S) == 0
    places = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    write(places, 300)
    assert read(places) == each_once(300)
