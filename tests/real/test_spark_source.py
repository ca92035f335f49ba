"""The readers that Spark calls, over a real broker: what the official client has sent, each message once."""

from collections.abc import Callable
from typing import Any

import pulsar
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from fastwire_daemon.spark.source.datasource import BatchReader
from fastwire_daemon.spark.source.ranges import DataLossError
from tests.brokers.pulsar import PulsarBroker
from tests.real.matrix import quiet_client
from tests.real.spark_query import Stream, kept, options, values  # noqa: F401 - a fixture
from tests.support.spark_source import eventually

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("kept")]

PARTITIONS = 2


def send(client: pulsar.Client, topic: str, numbers: range, **settings: Any) -> None:
    """One message a number, in batches of some."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=50, block_if_queue_full=True, **settings
    )
    for number in numbers:
        producer.send_async(b"%d" % number, lambda result, message_id: None, partition_key=str(number))
    producer.flush()
    producer.close()


def test_batches_and_streams_through_unloads(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("spark")
    plain_pulsar.admin.create_topic(topic, PARTITIONS)
    client = quiet_client(plain_pulsar.service_url)
    send(client, topic, range(5000), compression_type=pulsar.CompressionType.LZ4)
    reader = BatchReader(options(plain_pulsar.service_url, topic, minPartitions="6"))
    partitions = reader.partitions()
    assert len(partitions) >= 4
    assert sorted(values(reader, partitions)) == list(range(5000))

    stream = Stream(**options(plain_pulsar.service_url, topic, startingOffsets="earliest", subscription="spark"))
    assert sorted(stream.go()) == list(range(5000))
    assert plain_pulsar.admin.backlog(topic, "spark", PARTITIONS) == 0
    plain_pulsar.admin.unload(topic)  # a ledger ends
    send(client, topic, range(5000, 6000))
    assert sorted(stream.go()) == list(range(5000, 6000))
    stream.restart()
    plain_pulsar.admin.unload(topic)
    send(client, topic, range(6000, 7000))
    assert sorted(stream.go()) == list(range(6000, 7000))
    eventually(lambda: plain_pulsar.admin.backlog(topic, "spark", PARTITIONS) == 0)

    plain_pulsar.admin.grow(topic, PARTITIONS + 1)
    stream.given["topicRefreshIntervalMs"] = "0"
    stream.restart()
    assert stream.go() == []
    send(client, f"{topic}-partition-{PARTITIONS}", range(7000, 7100))
    assert sorted(stream.go()) == list(range(7000, 7100))
    client.close()

    stream.reader.stop()
    plain_pulsar.admin.delete_topic(topic, PARTITIONS + 1)
    stream.restart()
    with pytest.raises(DataLossError, match="does not exist any more"):
        stream.go()
    stream.reader.stop()


def test_limits_and_times_over_many_ledgers(guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    """With TLS and a token; a ledger has a hundred entries."""
    topic = fresh_name("spark-ledgers")
    assert guarded_pulsar.certificates is not None
    guarded_pulsar.admin.create_topic(topic)
    token = guarded_pulsar.token("admin")
    client = quiet_client(guarded_pulsar.service_url, authentication=pulsar.AuthenticationToken(token))
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    places = [producer.send(b"%d" % number, event_timestamp=1) for number in range(350)]
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    times = [reader.read_next(10_000).publish_timestamp() for _ in range(350)]
    client.close()
    assert len({place.ledger_id() for place in places}) >= 3
    secure = {
        "servers": guarded_pulsar.tls_url,
        "auth.token": token,
        "tls.ca": str(guarded_pulsar.certificates.ca),
    }
    wanted = options(guarded_pulsar.service_url, topic, startingOffsets="earliest", maxRecordsPerTrigger="40", **secure)
    stream = Stream(**wanted | {"subscription": "spark"})
    assert stream.go() == list(range(350))
    assert guarded_pulsar.admin.backlog(topic, "spark") == 0
    stream.reader.stop()
    batch = BatchReader(options(guarded_pulsar.service_url, topic, startingTimestamp=str(times[140]), **secure))
    first = times.index(times[140])
    assert values(batch, batch.partitions()) == list(range(first, 350))
    with pytest.raises(Exception, match="AuthenticationError"):
        BatchReader(options(guarded_pulsar.service_url, topic, **secure | {"auth.token": "nonsense"})).partitions()
