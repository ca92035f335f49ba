"""The embedded Kafka broker as the official client sees it: what it writes and reads, alone and in groups."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from fastwire.kafka.producing.payload import Record, encode_batch
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions, running
from tests.support.kafka.markers import encode_marker

PATIENCE_S = 30.0


@contextmanager
def serving(**options: Any) -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions(**options))) as broker:
        yield broker
    assert broker.violations == []


def servers(broker: KafkaDevBroker) -> str:
    return ",".join(f"{broker.host}:{port}" for port in broker.ports)


def produce(
    broker: KafkaDevBroker, topic: str, first: int, count: int, partition: int = 0, settings: Any = None
) -> None:
    producer = ck.Producer({"bootstrap.servers": servers(broker), "linger.ms": 5} | (settings or {}))
    errors: list[object] = []
    for number in range(first, first + count):
        producer.produce(
            topic,
            b"value %d" % number * 20,
            key=b"k%d" % number,
            headers=[("h", b"%d" % number)],
            partition=partition,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == []


def consumer(broker: KafkaDevBroker, group: str = "g", **more: Any) -> ck.Consumer:
    settings = {
        "bootstrap.servers": servers(broker),
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "check.crcs": True,
        "topic.metadata.refresh.interval.ms": 200,
    }
    return ck.Consumer(settings | more)


def read(reader: ck.Consumer, count: int) -> list[ck.Message]:
    found: list[ck.Message] = []
    while len(found) < count:
        message = reader.poll(PATIENCE_S)
        assert message is not None, f"{len(found)} of {count}"
        assert message.error() is None, message.error()
        found.append(message)
    return found


def await_empty(broker: KafkaDevBroker) -> None:
    """The group has no members any more; who leaves does not always wait for the answer."""

    def members() -> int:
        return len(broker.groups["g"].members) + len(broker.groups["g"].consumers.members)

    pause = threading.Event()
    while broker.call(members):
        pause.wait(0.01)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_a_client_writes_it_reads(codec: str) -> None:
    with serving() as broker:
        produce(broker, "t", 0, 500, settings={"compression.type": codec, "acks": "all", "enable.idempotence": True})
        reader = consumer(broker)
        reader.subscribe(["t"])
        found = read(reader, 500)
        assert [one.offset() for one in found] == list(range(500))
        assert [one.value() for one in found] == [b"value %d" % number * 20 for number in range(500)]
        assert found[7].key() == b"k7"
        assert found[7].headers() == [("h", b"7")]
        reader.commit(asynchronous=False)
        assert broker.offsets("g") == {("t", 0): 500}
        reader.close()
        again = consumer(broker)
        again.subscribe(["t"])
        produce(broker, "t", 500, 1)
        assert read(again, 1)[0].offset() == 500
        again.close()


@pytest.mark.parametrize(
    "protocol",
    [
        {"partition.assignment.strategy": "range"},
        {"partition.assignment.strategy": "cooperative-sticky"},
        {"group.protocol": "consumer"},
    ],
)
def test_two_members_share_a_topic(protocol: dict[str, str]) -> None:
    with serving(nodes=2) as broker:
        broker.create_topic("t", 4)
        one, two = (consumer(broker, **protocol) for _ in range(2))
        for each in (one, two):
            each.subscribe(["t"])
        seen: set[bytes] = set()
        while len(one.assignment()) != 2 or len(two.assignment()) != 2:
            one.poll(0.05)
            two.poll(0.05)
        for partition in range(4):
            produce(broker, "t", partition * 10, 10, partition)
        while len(seen) < 40:
            for each in (one, two):
                message = each.poll(0.1)
                if message is not None and message.error() is None:
                    seen.add(message.key() or b"")
        places = {part.partition for each in (one, two) for part in each.assignment()}
        assert places == {0, 1, 2, 3}
        one.commit(asynchronous=False)
        one.close()
        while len(two.assignment()) != 4:
            two.poll(0.05)
        two.close()
        await_empty(broker)


def test_leaders_that_move_lose_and_double_nothing() -> None:
    with serving(nodes=2) as broker:
        reader = consumer(broker)
        reader.assign([ck.TopicPartition("t", 0, 0)])
        broker.create_topic("t")
        for turn in range(4):
            produce(broker, "t", turn * 50, 50, settings={"enable.idempotence": True})
            assert [one.offset() for one in read(reader, 50)] == list(range(turn * 50, turn * 50 + 50))
            broker.move_leader("t")
        reader.close()


def test_topics_are_made_and_dropped() -> None:
    with serving() as broker:
        admin = AdminClient({"bootstrap.servers": servers(broker)})
        admin.create_topics([NewTopic("made", 3, 1)])["made"].result(PATIENCE_S)
        first = broker.topics["made"].topic_id
        assert len(admin.list_topics("made", timeout=PATIENCE_S).topics["made"].partitions) == 3
        with pytest.raises(ck.KafkaException, match="already exists"):
            admin.create_topics([NewTopic("made", 3, 1)])["made"].result(PATIENCE_S)
        admin.delete_topics(["made"])["made"].result(PATIENCE_S)
        assert broker.topics == {}
        broker.create_topic("made")
        assert broker.topics["made"].topic_id != first


def test_aborted_transactions_are_hidden() -> None:
    with serving() as broker:
        broker.create_topic("t")

        def batch(value: bytes, producer: int) -> bytes:
            return encode_batch([Record(value=value)], producer_id=producer, producer_epoch=0, transactional=True)

        abort = encode_marker(commit=False, producer_id=7, producer_epoch=0, timestamp=0)
        commit = encode_marker(commit=True, producer_id=8, producer_epoch=0, timestamp=0)
        broker.append("t", [batch(b"no", 7), batch(b"yes", 8), batch(b"no", 7), abort, commit, batch(b"open", 9)])
        reader = consumer(broker)
        reader.assign([ck.TopicPartition("t", 0, 0)])
        assert [one.value() for one in read(reader, 1)] == [b"yes"]
        assert reader.get_watermark_offsets(ck.TopicPartition("t", 0), timeout=PATIENCE_S) == (0, 5)
        reader.close()


@pytest.mark.parametrize("release", ["0.11", "1.1", "2.1", "2.4", "2.8", "3.3", "3.9", "4.0"])
def test_releases(release: str) -> None:
    with serving(release=release) as broker:
        produce(broker, "t", 0, 20)
        reader = consumer(broker)
        reader.subscribe(["t"])
        assert len(read(reader, 20)) == 20
        reader.commit(asynchronous=False)
        reader.close()
        assert broker.offsets("g") == {("t", 0): 20}


def test_refused_batches_are_sent_again_and_stored_once() -> None:
    with serving() as broker:
        broker.create_topic("t")
        broker.refuse_batches(19, 2)
        broker.refuse_batches(7, stored=True)
        produce(broker, "t", 0, 10, settings={"enable.idempotence": True, "retry.backoff.ms": 10})
        assert broker.ends("t") == [10]
