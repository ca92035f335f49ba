"""The official client is satisfied with the dev broker: it produces to it and consumes from it, and breaks no rule."""

import asyncio
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
import uvloop

from fastwire.pulsar.format.payload import Compression, Record, encode_batch_entry
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from fastwire_daemon.systems.load import Load
from fastwire_daemon.systems.pulsar.load import entries
from tests.brokers.certs import make_certificates
from tests.support.pulsar.load import fill
from tests.support.pulsar.produce import client_settings, produce
from tests.support.waiting import eventually

WAIT_MS = 10_000
EARLIEST = pulsar.InitialPosition.Earliest
CODECS = ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"]


@contextmanager
def serving(**options: Any) -> Iterator[PulsarDevBroker]:
    with running(PulsarDevBroker(replace(PulsarOptions(), **options)), loop_factory=uvloop.new_event_loop) as broker:
        yield broker
        assert broker.violations == []


@contextmanager
def client_of(broker: PulsarDevBroker, **parts: Any) -> Iterator[pulsar.Client]:
    parts = {"logger": pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), "operation_timeout_seconds": 10} | parts
    client = pulsar.Client(broker.url, **parts)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def broker() -> Iterator[PulsarDevBroker]:
    with serving() as broker:
        yield broker


@pytest.fixture
def client(broker: PulsarDevBroker) -> Iterator[pulsar.Client]:
    with client_of(broker) as client:
        yield client


def send_all(producer: pulsar.Producer, values: list[bytes], **parts: Any) -> list[pulsar.MessageId]:
    """Send without waiting in between, so that batches fill; returns the ids."""
    ids: dict[int, pulsar.MessageId] = {}
    failures = []

    def done(number: int) -> Callable[[Any, Any], None]:
        def note(result: Any, message_id: Any) -> None:
            if result == pulsar.Result.Ok:
                ids[number] = message_id
            else:
                failures.append(result)

        return note

    for number, value in enumerate(values):
        producer.send_async(value, done(number), **parts)
    producer.flush()
    # A flush may return while the last batch's callbacks still run: its entry left the queue before they were called.
    eventually(lambda: len(ids) + len(failures) == len(values))
    assert not failures
    return [ids[number] for number in range(len(values))]


def receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(WAIT_MS) for _ in range(count)]


# --- both ways


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_field_comes_back(broker: PulsarDevBroker, client: pulsar.Client, codec: str, batched: bool) -> None:
    producer = client.create_producer(
        "t",
        producer_name="mine",
        compression_type=getattr(pulsar.CompressionType, codec),
        batching_enabled=batched,
        batching_max_publish_delay_ms=50,
    )
    consumer = client.subscribe("t", "s", initial_position=EARLIEST)
    values = [b"value-%d" % number * (number + 1) for number in range(20)]
    for number, value in enumerate(values):
        producer.send_async(
            value,
            None,
            properties={"n": str(number), "ü": "ö"},
            partition_key=f"key-{number}",
            ordering_key=f"order-{number}",
            event_timestamp=1_600_000_000_000 + number,
        )
    producer.flush()
    for number, message in enumerate(receive(consumer, 20)):
        assert message.data() == values[number]
        assert message.properties() == {"n": str(number), "ü": "ö"}
        assert (message.partition_key(), message.ordering_key()) == (f"key-{number}", f"order-{number}")
        assert message.event_timestamp() == 1_600_000_000_000 + number
        assert message.producer_name() == "mine"
        assert message.topic_name() == "persistent://public/default/t"
        consumer.acknowledge(message)
    eventually(lambda: broker.backlog("t", "s") == 0)
    assert broker.messages("t") == 20
    assert len(broker.positions("t")) == (1 if batched else 20)
    producer.close()
    consumer.close()


def test_partitions(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    broker.create_topic("parts", 3)
    assert client.get_topic_partitions("parts") == [
        f"persistent://public/default/parts-partition-{at}" for at in range(3)
    ]
    producer = client.create_producer("parts", batching_enabled=True, block_if_queue_full=True)
    send_all(producer, [b"%d" % number for number in range(3000)])
    assert all(broker.messages(f"parts-partition-{at}") for at in range(3))
    consumer = client.subscribe("parts", "s", initial_position=EARLIEST)
    found = receive(consumer, 3000)
    assert sorted(int(message.data()) for message in found) == list(range(3000))
    for message in found:
        consumer.acknowledge(message)
    eventually(lambda: broker.backlog("parts", "s") == 0)
    granted = [(state.window, state.permits) for state in broker.consumers("parts", "s")]
    assert len(granted) == 3 and all(permits <= window for window, permits in granted)
    consumer.close()
    # One partition at a time: the client's unsubscribing of several at once was seen to crash the process.
    for at in range(3):
        client.subscribe(f"parts-partition-{at}", "s").unsubscribe()
        assert broker.subscriptions(f"parts-partition-{at}") == []


def test_large_messages_and_chunks(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    big = bytes(range(256)) * 4096 * 4  # 4 MiB in one entry, three times that in chunks
    producer = client.create_producer("t", chunking_enabled=True)
    producer.send(big)
    producer.send(big * 3)
    consumer = client.subscribe("t", "s", initial_position=EARLIEST)
    assert [message.data() == big * times for message, times in zip(receive(consumer, 2), (1, 3), strict=True)] == [
        True,
        True,
    ]
    assert len(broker.positions("t")) == 4


# --- subscription types


def test_exclusive(client: pulsar.Client) -> None:
    first = client.subscribe("t", "s", pulsar.ConsumerType.Exclusive)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe("t", "s", pulsar.ConsumerType.Exclusive)
    first.close()
    client.subscribe("t", "s", pulsar.ConsumerType.Exclusive)


def test_failover(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    producer = client.create_producer("t")
    parts: dict[str, Any] = {"consumer_type": pulsar.ConsumerType.Failover, "initial_position": EARLIEST}
    first = client.subscribe("t", "s", consumer_name="a", **parts)
    second = client.subscribe("t", "s", consumer_name="b", **parts)
    send_all(producer, [b"%d" % number for number in range(10)])
    found = receive(first, 10)
    with pytest.raises(pulsar.Timeout):
        second.receive(100)
    first.acknowledge_cumulative(found[3])
    eventually(lambda: broker.backlog("t", "s") == 6)
    first.close()
    assert [message.data() for message in receive(second, 6)] == [b"%d" % number for number in range(4, 10)]


def test_shared(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    parts: dict[str, Any] = {"consumer_type": pulsar.ConsumerType.Shared, "receiver_queue_size": 10}
    consumers = [client.subscribe("t", "s", consumer_name=f"c{at}", **parts) for at in range(3)]
    producer = client.create_producer("t")
    send_all(producer, [b"%d" % number for number in range(30)])
    found = []
    for consumer in consumers:
        for message in receive(consumer, 10):  # each gets what it has permits for
            found.append(int(message.data()))
            consumer.acknowledge(message)
    assert sorted(found) == list(range(30))
    eventually(lambda: broker.backlog("t", "s") == 0)
    assert [state.unacked for state in broker.consumers("t", "s")] == [0, 0, 0]


def test_key_shared(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    parts: dict[str, Any] = {"consumer_type": pulsar.ConsumerType.KeyShared, "initial_position": EARLIEST}
    consumers = [client.subscribe("t", "s", consumer_name=f"c{at}", **parts) for at in range(2)]
    producer = client.create_producer("t", batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased)
    for number in range(200):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number % 20}")
    producer.flush()
    seen: dict[str, set[int]] = {}
    last: dict[str, int] = {}
    count = 0
    for at, consumer in enumerate(consumers):
        for message in receive(consumer, broker.consumers("t", "s")[at].debited):
            key, number = message.partition_key(), int(message.data())
            seen.setdefault(key, set()).add(at)
            assert number > last.get(key, -1)
            last[key] = number
            consumer.acknowledge(message)
            count += 1
    assert count == 200
    assert all(len(owners) == 1 for owners in seen.values())
    assert {next(iter(owners)) for owners in seen.values()} == {0, 1}
    eventually(lambda: broker.backlog("t", "s") == 0)


# --- redelivery


def test_negative_acks_and_redelivery(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    producer = client.create_producer("t")
    consumer = client.subscribe("t", "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    send_all(producer, [b"%d" % number for number in range(5)])
    for message in receive(consumer, 5):
        if message.data() == b"2":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    (again,) = receive(consumer, 1)
    assert (again.data(), again.redelivery_count()) == (b"2", 1)
    consumer.redeliver_unacknowledged_messages()
    (again,) = receive(consumer, 1)
    assert (again.data(), again.redelivery_count()) == (b"2", 2)
    consumer.acknowledge(again)
    eventually(lambda: broker.backlog("t", "s") == 0)


def test_everything_again_on_exclusive(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    producer = client.create_producer("t", batching_enabled=True)
    consumer = client.subscribe("t", "s", receiver_queue_size=100)
    send_all(producer, [b"%d" % number for number in range(500)])
    found = receive(consumer, 300)
    consumer.acknowledge_cumulative(found[-1])
    receive(consumer, 100)
    consumer.redeliver_unacknowledged_messages()
    rest: set[int] = set()
    while not rest >= set(range(300, 500)):  # what the client had in its queue comes first
        rest.add(int(consumer.receive(WAIT_MS).data()))


def test_batch_index_acks(broker: PulsarDevBroker) -> None:
    """The client gives a permit back for elements that it never was charged for, so the window is not enforced."""
    with serving(enforce_window=False) as broker, client_of(broker) as client:
        producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=100)
        parts: dict[str, Any] = {"batch_index_ack_enabled": True, "consumer_type": pulsar.ConsumerType.Shared}
        consumer = client.subscribe("t", "s", **parts)
        send_all(producer, [b"%d" % number for number in range(10)])
        assert len(broker.positions("t")) == 1
        for message in receive(consumer, 10):
            if int(message.data()) % 2:
                consumer.acknowledge(message)
        eventually(lambda: broker.backlog("t", "s") == 5)
        consumer.close()
        consumer = client.subscribe("t", "s", **parts)
        found = receive(consumer, 5)
        assert [int(message.data()) for message in found] == [0, 2, 4, 6, 8]
        for message in found:
            consumer.acknowledge(message)
        eventually(lambda: broker.backlog("t", "s") == 0)


# --- reconnecting


def take_all(broker: PulsarDevBroker, consumer: pulsar.Consumer, topic: str) -> set[int]:
    """Acknowledge what comes until nothing is left; what was on the way at a reconnect comes twice."""
    found: set[int] = set()
    while broker.backlog(topic, "s"):
        try:
            message = consumer.receive(200)
        except pulsar.Timeout:
            continue
        found.add(int(message.data()))
        consumer.acknowledge(message)
    return found


def test_an_unload_loses_nothing(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    broker.create_topic("parts", 2)
    producer = client.create_producer("parts", batching_enabled=True)
    consumer = client.subscribe("parts", "s", initial_position=EARLIEST)
    for _ in range(3):
        send_all(producer, [b"%d" % number for number in range(100)])
        broker.unload("parts")
        assert take_all(broker, consumer, "parts") == set(range(100))
    places = broker.positions("parts-partition-0") + broker.positions("parts-partition-1")
    assert len({ledger for ledger, _, _ in places}) >= 3  # each unload begins a new one


def test_a_restart_and_a_cut_lose_nothing(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    producer = client.create_producer("t", batching_enabled=True, block_if_queue_full=True)
    consumer = client.subscribe("t", "s", initial_position=EARLIEST)
    send_all(producer, [b"%d" % number for number in range(1000)])
    broker.restart(down_s=0.1)
    broker.cut_after(5000)
    assert take_all(broker, consumer, "t") == set(range(1000))


# --- seeking and reading


def test_seeking(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    producer = client.create_producer("t")
    ids = [producer.send(b"%d" % number) for number in range(10)]
    consumer = client.subscribe("t", "s", initial_position=EARLIEST)
    found = receive(consumer, 10)
    consumer.acknowledge_cumulative(found[-1])
    consumer.seek(pulsar.MessageId.earliest)
    assert receive(consumer, 1)[0].data() == b"0"
    consumer.seek(ids[6])
    assert receive(consumer, 1)[0].data() == b"7"  # what was sought counts as read
    consumer.seek(found[4].publish_timestamp())
    first = int(receive(consumer, 1)[0].data())
    assert found[first].publish_timestamp() == found[4].publish_timestamp()
    consumer.seek(pulsar.MessageId.latest)
    producer.send(b"new")
    assert receive(consumer, 1)[0].data() == b"new"


def test_reading(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=20)
    ids = send_all(producer, [b"%d" % number for number in range(10)])
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    seen = []
    while reader.has_message_available():
        seen.append(reader.read_next(WAIT_MS).data())
    assert seen == [b"%d" % number for number in range(10)]
    reader.close()
    reader = client.create_reader("t", ids[3])
    assert reader.read_next(WAIT_MS).data() == b"4"
    reader.close()
    consumer = client.subscribe("t", "s")
    assert consumer.get_last_message_id() == ids[9]
    consumer.unsubscribe()
    eventually(lambda: broker.subscriptions("t") == [])


def test_patterns(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    broker.create_topic("ev-a", 2)
    broker.create_topic("ev-b")
    broker.create_topic("other")
    consumer = client.subscribe(re.compile("persistent://public/default/ev-.*"), "s", initial_position=EARLIEST)
    for name in ("ev-a", "ev-b", "other"):
        client.create_producer(name).send(name.encode())
    assert {message.data() for message in receive(consumer, 2)} == {b"ev-a", b"ev-b"}
    assert broker.subscriptions("other") == []


# --- the rest


def test_the_end_of_a_topic(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    producer = client.create_producer("t")
    producer.send(b"last")
    broker.terminate("t")
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer("t")
    with serving(auto_create=False) as strict, client_of(strict) as other:
        with pytest.raises(pulsar.TopicNotFound):
            other.subscribe("missing", "s")


def test_tls_and_a_token(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.cert, certificates.key)
    broker = PulsarDevBroker(PulsarOptions(token="secret"), tls=context)
    with running(broker):
        assert broker.url.startswith("pulsar+ssl://")
        trust: dict[str, Any] = {"tls_trust_certs_file_path": str(certificates.ca)}
        with client_of(broker, authentication=pulsar.AuthenticationToken("secret"), **trust) as client:
            consumer = client.subscribe("t", "s", initial_position=EARLIEST)
            client.create_producer("t").send(b"over TLS")
            assert receive(consumer, 1)[0].data() == b"over TLS"
        wrong = pulsar.AuthenticationToken("wrong")
        with client_of(broker, authentication=wrong, operation_timeout_seconds=1, **trust) as client:
            with pytest.raises(pulsar.Timeout):  # it tries again until it is out of time
                client.create_producer("t")
        assert broker.violations == []


def test_what_we_encode_the_client_reads(broker: PulsarDevBroker, client: pulsar.Client) -> None:
    broker.create_topic("t")
    for codec in Compression:
        records = [
            Record(value=b"a" * 1000, key="k", properties=[("p", "q")], event_time=7, ordering_key=b"o"),
            Record(value=None),
            Record(value=b""),
        ]
        broker.append(
            "t", [encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=5, compression=codec)]
        )
    consumer = client.subscribe("t", "s", initial_position=EARLIEST)
    for _ in Compression:
        first, null, empty = receive(consumer, 3)
        assert (first.data(), first.partition_key(), first.properties()) == (b"a" * 1000, "k", {"p": "q"})
        assert (first.event_timestamp(), first.ordering_key(), first.publish_timestamp()) == (7, "o", 5)
        assert null.has_null_value() and not empty.has_null_value() and empty.data() == b""


# --- load


@pytest.mark.parametrize("batch", [0, 1, 100])
def test_load_over_the_wire_and_past_it(broker: PulsarDevBroker, client: pulsar.Client, batch: int) -> None:
    load = Load(records=2050, partitions=3, batch=batch, first=10)
    broker.create_topic("wire", 3)
    broker.create_topic("memory", 3)
    progress: list[int] = []
    done = asyncio.run(produce(client_settings(broker.url), "wire", entries(load, lambda: 5), progress=progress.append))
    assert (done.records, progress[-1], broker.messages("wire")) == (2050, 2050, 2050)
    assert fill(broker.append, "memory", load, lambda: 5, progress.append) == done.bytes
    for topic in ("wire", "memory"):
        consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
        numbers = []
        for message in receive(consumer, 2050):
            value = message.data()
            number = int(value[len(b'{"number":') : value.index(b",")])
            assert value == load.record(number)
            assert message.partition_key() == f"dev-{number % 1024:04d}"
            assert message.topic_name().endswith(f"-partition-{number % 3}")
            numbers.append(number)
        assert sorted(numbers) == list(range(10, 2060))
        assert broker.positions(f"{topic}-partition-0")[0][2] == max(batch, 1)
        consumer.close()


async def test_load_goes_on_after_unloads_and_cuts(broker: PulsarDevBroker) -> None:
    """No record is lost; those in flight may be there twice."""
    broker.create_topic("t", 2)
    load = Load(records=4000, partitions=2, batch=10)

    def slowly() -> Iterator[Any]:
        for number, one in enumerate(entries(load, lambda: 5)):
            if number in (50, 200):
                broker.unload("t")
            if number == 120:
                broker.drop_connections()
            yield one

    writing = asyncio.create_task(produce(client_settings(broker.url), "t", slowly()))
    await writing
    assert broker.messages("t") >= 4000


def test_load_to_a_topic_without_partitions(broker: PulsarDevBroker) -> None:
    done = asyncio.run(
        produce(client_settings(broker.url), "t", entries(Load(records=25, partitions=0, batch=10), lambda: 5))
    )
    assert done.entries == 3
    assert [messages for _, _, messages in broker.positions("t")] == [10, 10, 5]
