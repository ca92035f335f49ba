"""Writing rows to the embedded brokers as a task of Spark does it, without a Spark."""

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from fastwire.errors import FastwireError
from fastwire_daemon.client import connect
from fastwire_daemon.config import ConfigError
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.spark.sink.datawriter import Written, batch_writer, stream_writer

BROKERS: dict[str, Any] = {
    "pulsar": lambda: PulsarDevBroker(PulsarOptions()),
    "kafka": lambda: KafkaDevBroker(KafkaOptions()),
    "tank": lambda: TankDevBroker(TankOptions()),
    "tubemq": lambda: TubeMQDevBroker(TubeMQOptions()),
}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
VALUES = StructType([StructField("value", StringType())])


@contextmanager
def broker(system: str, *topics: str, partitions: int = 3) -> Iterator[Any]:
    with running(BROKERS[system]()) as served:
        for topic in topics:
            served.create_topic(topic, partitions)
        yield served
        assert served.violations == []


def write(served: Any, *batches: pa.RecordBatch, **options: str) -> Written:
    """Write batches in a task, which gets a pickled copy of the writer."""
    writer = batch_writer({"servers": served.url, "topic": "t"} | options, VALUES, overwrite=False)
    copy = pickle.loads(pickle.dumps(writer))
    written: Written = copy.write(iter(batches))
    writer.commit([written, None])
    return written


def rows(served: Any, topic: str = "t") -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with connect(served.url).read(topic, "earliest") as reader:
            async for chunk in reader.up_to_now():
                found += pa.record_batch(chunk).to_pylist()
        return found

    return asyncio.run(read())


@pytest.mark.parametrize("system", BROKERS)
def test_rows_become_records_of_each_system(system: str) -> None:
    with broker(system, "t") as served:
        values = [str(number).encode() for number in range(5000)]
        batches = [
            pa.record_batch({"value": pa.array(values[:4000], pa.binary())}),
            pa.record_batch({"value": pa.array([], pa.binary())}),
            pa.record_batch({"value": pa.array([value.decode() for value in values[4000:]])}),
        ]
        assert write(served, *batches) == Written(5000)
        assert sorted(int(row["value"]) for row in rows(served)) == list(range(5000))


def test_all_columns_of_kafka() -> None:
    with broker("kafka", "t", "u") as served:
        batch = pa.record_batch(
            {
                "value": pa.array([b"\xff", None, b"c"]),
                "key": pa.array([b"k", None, b"\x00"]),
                "topic": pa.array(["t", "u", "t"]),
                "partition": pa.array([2, 1, None], pa.int32()),
                "headers": pa.array([[{"key": "h", "value": b"\xfe"}, {"key": "h", "value": None}], None, []], HEADERS),
            }
        )
        columns = StructType([*VALUES, StructField("topic", StringType())])
        written = batch_writer({"servers": served.url}, columns, overwrite=False).write(iter([batch]))
        assert written.records == 3
        first, last = sorted(rows(served), key=lambda row: row["key"], reverse=True)
        (tombstone,) = rows(served, "u")
        assert (first["partition"], first["key"], first["value"]) == (2, b"k", b"\xff")
        assert [(each["key"], each["value"]) for each in first["headers"]] == [("h", b"\xfe"), ("h", None)]
        assert (last["key"], last["value"]) == (b"\x00", b"c")
        assert (tombstone["partition"], tombstone["value"]) == (1, None)


# Of the hashes of the Java clients: murmur2 of bytes for Kafka (as in its own tests), String.hashCode for Pulsar.
PARTITIONS = {
    "kafka": {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536},
    "pulsar": {"a": 97, "hello": 99_162_322, "": 0},
}


JAVA_HASH = 2_731_192  # of "YQ=="


@pytest.mark.parametrize("system", PARTITIONS)
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_keys_go_to_the_partitions_of_java(system: str, kind: pa.DataType) -> None:
    hashes = PARTITIONS[system]
    if system == "pulsar" and kind == pa.binary():
        hashes = {"a": JAVA_HASH}  # a key of bytes is base64 for Java, too
    with broker(system, "t", partitions=7) as served:
        keys = pa.array([*hashes], pa.string()).cast(kind)
        write(served, pa.record_batch({"value": keys.cast(pa.binary()), "key": keys}))
        found = {row["value"].decode(): row["partition"] for row in rows(served)}
        assert found == {key: (number & 0x7FFFFFFF) % 7 for key, number in hashes.items()}


def test_properties_of_pulsar_are_text() -> None:
    def batch(value: bytes | None) -> pa.RecordBatch:
        headers = pa.array([[{"key": "h", "value": value}]], HEADERS)
        return pa.record_batch({"value": pa.array([b"v"]), "headers": headers})

    with broker("pulsar", "t") as served:
        write(served, batch("é".encode()))
        (row,) = rows(served)
        assert [(each["key"], each["value"]) for each in row["headers"]] == [("h", "é".encode())]
        for value in (b"\xff", None):
            with pytest.raises(FastwireError, match="a row cannot be written to t: properties of Pulsar are text"):
                write(served, batch(value))
        assert len(rows(served)) == 1


@pytest.mark.parametrize(
    ("system", "columns", "message"),
    [
        ("kafka", {"partition": pa.array([9], pa.int32())}, "t has no partition 9: there are 3"),
        ("tank", {"headers": pa.array([[{"key": "h", "value": b"x"}]], HEADERS)}, 'TANK has no "properties"'),
        ("tank", {"value": pa.array([None], pa.binary())}, "TANK has no null values"),
        ("tank", {"key": pa.array(["k" * 256])}, "a key of 256 bytes: TANK has room for 255"),
        ("tubemq", {"key": pa.array(["k"])}, 'TubeMQ has no "key"'),
    ],
)
def test_records_that_a_system_cannot_store(system: str, columns: dict[str, Any], message: str) -> None:
    with broker(system, "t") as served, pytest.raises(FastwireError, match=message):
        write(served, pa.record_batch({"value": pa.array([b"v"]), **columns}))


def test_a_row_without_a_topic() -> None:
    columns = StructType([*VALUES, StructField("topic", StringType())])
    with broker("kafka", "t") as served:
        for topic, message in ((None, "a row has no topic"), ("a b", "a row cannot be written: ")):
            batch = pa.record_batch({"value": pa.array([b"v"]), "topic": pa.array([topic], pa.string())})
            with pytest.raises(FastwireError, match=message):
                batch_writer({"servers": served.url}, columns, overwrite=False).write(iter([batch]))


def test_a_task_fails_with_what_fails_in_it() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": pa.array([b"v"])})
        raise ZeroDivisionError

    with broker("kafka", "t") as served, pytest.raises(ZeroDivisionError):
        batch_writer({"servers": served.url, "topic": "t"}, VALUES, overwrite=False).write(broken())


def test_a_broker_that_is_not_there() -> None:
    with broker("kafka", "t") as served:
        url = served.url
    writer = batch_writer({"servers": url, "topic": "t"}, VALUES, overwrite=False)
    with pytest.raises(FastwireError, match=r"127\.0\.0\.1"):
        writer.write(iter([pa.record_batch({"value": pa.array([b"v"])})]))


@pytest.mark.parametrize("make", [batch_writer, stream_writer])
def test_topics_are_not_overwritten(make: Any) -> None:
    with pytest.raises(ConfigError, match="topics are not overwritten"):
        make({"servers": "kafka://h", "topic": "t"}, VALUES, overwrite=True)
