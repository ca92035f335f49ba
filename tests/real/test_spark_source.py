"""The readers that Spark calls, over a real broker: what the official client has sent, each message once."""

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

from fastwire_daemon.spark import systems
from fastwire_daemon.spark.datasource import BatchReader, StreamReader
from fastwire_daemon.spark.ranges import DataLossError
from tests.brokers.pulsar import PulsarBroker
from tests.real.matrix import quiet_client
from tests.spark_source import eventually

pytestmark = pytest.mark.broker

PARTITIONS = 2


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    yield
    for client in systems._kept.values():
        client.close()
    systems._kept.clear()


def send(client: pulsar.Client, topic: str, numbers: range, **settings: Any) -> None:
    """One message a number, in batches of some."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=50, block_if_queue_full=True, **settings
    )
    for number in numbers:
        producer.send_async(b"%d" % number, lambda result, message_id: None, partition_key=str(number))
    producer.flush()
    producer.close()


def values(reader: Any, partitions: list[Any]) -> list[int]:
    copy = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in partitions for batch in copy.read(each)]
    for batch in batches:
        batch.validate(full=True)
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


class Stream:
    """A query without Spark, from its start to where it is."""

    def __init__(self, **given: str) -> None:
        self.given = given
        self.reader = StreamReader(given)
        self.at = self._text(self.reader.initialOffset())

    def go(self) -> list[int]:
        """Batches until there is nothing new."""
        found: list[int] = []
        while True:
            end = self._text(self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit()))
            if end == self.at:
                return found
            found += values(self.reader, self.reader.partitions(self.at, end))
            self.at = end

    def restart(self) -> None:
        """Nothing is left but the checkpoint."""
        self.reader.stop()
        self.reader = StreamReader(self.given)

    @staticmethod
    def _text(offset: Any) -> Any:
        return json.loads(json.dumps(offset))


def given(broker: PulsarBroker, topic: str, **more: str) -> dict[str, str]:
    basic = {"servers": broker.service_url, "subscribe": topic, "offsetPollIntervalMs": "0", "pollTimeoutMs": "60000"}
    return basic | more


def test_batches_and_streams_through_unloads(plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("spark")
    plain_pulsar.admin.create_topic(topic, PARTITIONS)
    client = quiet_client(plain_pulsar.service_url)
    send(client, topic, range(5000), compression_type=pulsar.CompressionType.LZ4)
    reader = BatchReader(given(plain_pulsar, topic, minPartitions="6"))
    partitions = reader.partitions()
    assert len(partitions) >= 4
    assert sorted(values(reader, partitions)) == list(range(5000))

    stream = Stream(**given(plain_pulsar, topic, startingOffsets="earliest", subscription="spark"))
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
    wanted = given(guarded_pulsar, topic, startingOffsets="earliest", maxRecordsPerTrigger="40", **secure)
    stream = Stream(**wanted | {"subscription": "spark"})
    assert stream.go() == list(range(350))
    assert guarded_pulsar.admin.backlog(topic, "spark") == 0
    stream.reader.stop()
    batch = BatchReader(given(guarded_pulsar, topic, startingTimestamp=str(times[140]), **secure))
    first = times.index(times[140])
    assert values(batch, batch.partitions()) == list(range(first, 350))
    with pytest.raises(Exception, match="AuthenticationError"):
        BatchReader(given(guarded_pulsar, topic, **secure | {"auth.token": "nonsense"})).partitions()
