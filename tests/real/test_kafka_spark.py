"""The readers that Spark calls, over a real Kafka broker: what the official client has sent, each record once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from fastwire_daemon.spark.source import systems
from fastwire_daemon.spark.source.datasource import BatchReader
from fastwire_daemon.spark.source.ranges import DataLossError
from tests.brokers.kafka import PASSWORD, USER, GuardedKafka, KafkaBroker
from tests.brokers.kafka_tools import kafka_tool
from tests.real.spark_query import Stream, kept, options, values  # noqa: F401 - a fixture

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("kept")]

PARTITIONS = 2
BEGAN_MS = 1_700_000_000_000


def send(broker: KafkaBroker, topic: str, numbers: range, size: int = 0, /, **settings: Any) -> None:
    """One record a number, of ``size`` bytes at least, a millisecond apart, in batches of some."""
    basic = {"bootstrap.servers": broker.servers, "log_level": 0, "batch.num.messages": 50}
    # What a slow broker is sent once more is stored once all the same.
    producer = Producer({**basic, "enable.idempotence": True, **settings})
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    for number in numbers:
        producer.produce(
            topic, (b"%d" % number).rjust(size), partition=number % PARTITIONS, timestamp=BEGAN_MS + number
        )
    assert producer.flush(60) == 0
    if transactional:
        producer.abort_transaction()


def test_batches_and_streams(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str]) -> None:
    topic, group = fresh_name("spark"), fresh_name("group")
    plain_kafka.create_topic(topic, PARTITIONS)
    send(plain_kafka, topic, range(5000), **{"compression.type": "lz4"})
    send(plain_kafka, topic, range(90_000, 90_100), **{"transactional.id": topic})  # and aborted
    reader = BatchReader(options(plain_kafka.url, topic, minPartitions="6"))
    partitions = reader.partitions()
    assert len(partitions) == 6
    assert sorted(values(reader, partitions)) == list(range(5000))
    timed = BatchReader(options(plain_kafka.url, topic, startingTimestamp=str(BEGAN_MS + 4000)))
    assert sorted(values(timed, timed.partitions())) == list(range(4000, 5000))

    wanted = options(plain_kafka.url, topic, startingOffsets="earliest", groupId=group, maxRecordsPerTrigger="700")
    stream = Stream(**wanted)
    assert sorted(stream.go()) == list(range(5000))
    assert plain_kafka.committed(group) == ends(plain_kafka, topic)
    send(plain_kafka, topic, range(5000, 6000))
    stream.restart()
    assert sorted(stream.go()) == list(range(5000, 6000))

    admin = plain_kafka.admin  # it must live until the answer has come
    [done] = admin.delete_records([TopicPartition(topic, 0, 2700)]).values()
    done.result(30)
    late = BatchReader(options(plain_kafka.url, topic, startingOffsets='{"%s":{"0":2600,"1":-2}}' % topic))  # noqa: UP031
    with pytest.raises(DataLossError, match="nothing from 2600 up to 2700 can be read: the log begins here"):
        values(late, late.partitions())

    stream.reader.stop()
    plain_kafka.delete_topic(topic)
    plain_kafka.create_topic(topic, PARTITIONS)
    stream.restart()
    with pytest.raises(DataLossError, match=f"{topic}: was deleted and made again|does not exist any more"):
        stream.go()
    stream.reader.stop()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_reader_above_its_quota(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], fail: str) -> None:
    """The broker answers without records then, for many seconds."""
    topic, prefix = fresh_name("quota"), fresh_name("prefix")
    plain_kafka.create_topic(topic, PARTITIONS)
    send(plain_kafka, topic, range(300), 1000)
    entity = ["--entity-type", "clients", "--entity-name", prefix]
    quota = ["--alter", "--add-config", "consumer_byte_rate=12000"]
    kafka_tool("kafka.admin.ConfigCommand", "--bootstrap-server", plain_kafka.servers, *quota, *entity)
    given = options(plain_kafka.url, topic, groupIdPrefix=prefix, fetchMaxBytes="60000", failOnDataLoss=fail)
    reader = BatchReader(given)
    assert sorted(values(reader, reader.partitions())) == list(range(300))
    [connections] = systems._kept.values()
    assert connections.cluster.source.throttled_until


def ends(broker: KafkaBroker, topic: str) -> dict[tuple[str, int], int]:
    """Return the ends of partitions, by the official client."""
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "looking", "log_level": 0})
    try:
        return {
            (topic, number): consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in range(PARTITIONS)
        }
    finally:
        consumer.close()


def test_tls_and_a_password_by_file(
    guarded_kafka: GuardedKafka, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("spark")
    guarded_kafka.create_topic(topic, PARTITIONS)
    send(guarded_kafka, topic, range(500))
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    secure = {
        "servers": guarded_kafka.url_of("BOTH"),
        "tls.ca": str(guarded_kafka.certificates.ca),
        "auth.user": USER,
        "auth.password_file": str(password),
        "auth.mechanism": "SCRAM-SHA-512",
    }
    reader = BatchReader(options(guarded_kafka.url, topic, **secure))
    assert sorted(values(reader, reader.partitions())) == list(range(500))
    password.write_text("nonsense\n")
    with pytest.raises(Exception, match="SCRAM-SHA-512: the broker refuses the login"):
        BatchReader(options(guarded_kafka.url, topic, **secure)).partitions()
