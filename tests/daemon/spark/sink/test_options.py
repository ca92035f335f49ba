"""Options and columns of queries that write: what is accepted, and every mistake with its name."""

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fastwire_daemon.config import ConfigError
from fastwire_daemon.spark.sink.options import parse_sink_options
from fastwire_daemon.spark.sink.records import check_columns

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def test_values() -> None:
    given = {"SERVERS": "kafka+ssl://h", "topic": "t", "compression": "ZSTD", "clientid": "me", "batchRecords": "5"}
    found = parse_sink_options(given | {"auth.user": "u", "auth.password_file": "/run/p"})
    assert (found.connection.system, found.topic) == ("kafka", "t")
    assert (found.writing.compression, found.writing.batch, found.writing.batching) == ("ZSTD", 5, "key")
    assert parse_sink_options({"servers": "pulsar://h", "batching": "grouped"}).writing.batching == "grouped"
    connection: Any = found.connection
    assert (connection.client_id, connection.auth.user) == ("me", "u")
    plain = parse_sink_options({"servers": "tubemq://h", "system": "tubemq", "checkpointLocation": "/c", "path": "/p"})
    assert (plain.topic, plain.writing.compression, plain.writing.batch) == (None, None, 1000)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "servers: is missing: the brokers"),
        ({"servers": "kafka://h", "topik": "t"}, 'topik: is not an option for writing, did you mean "topic"?'),
        ({"servers": "kafka://h", "subscribe": "t"}, "subscribe: is not an option for writing"),
        ({"servers": "kafka://h", "listener": "x"}, "listener: is not an option for writing"),
        ({"servers": "kafka://h", "topic": "a b"}, "topic: "),
        ({"servers": "kafka://h", "compression": "zlib"}, "compression: Kafka has no zlib"),
        ({"servers": "kafka://h", "keyHash": "crc"}, "keyHash: must be java or murmur3"),
        ({"servers": "pulsar://h", "batching": "none"}, "batching: must be key or grouped or mixed"),
        ({"servers": "kafka://h", "batchRecords": "0"}, "batchRecords: must be a whole number from 1"),
        ({"servers": "kafka://h", "system": "pulsar"}, 'system: is "pulsar", and servers says kafka'),
        ({"servers": "http://h"}, "servers: "),
        ({"servers": "kafka://h", "auth.token": "t", "auth.usr": "u"}, "auth.usr: "),
    ],
)
def test_mistakes(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_sink_options(given)
    assert [str(problem) for problem in caught.value.problems if str(problem).startswith(said)], caught.value.problems


def frame(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_columns() -> None:
    check_columns(frame(value=BinaryType()), topic=True)
    check_columns(
        frame(key=StringType(), value=StringType(), topic=StringType(), partition=IntegerType(), headers=HEADERS),
        topic=False,
    )


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": StringType()}, ['column "value": is missing']),
        ({"value": LongType()}, ['column "value": is bigint, and must be string or binary']),
        (
            {"value": StringType(), "partition": LongType(), "headers": ArrayType(StringType())},
            [
                'column "partition": is bigint, and must be int',
                'column "headers": is array<string>, and must be array<struct<key:string,value:binary>>',
            ],
        ),
        (
            {"value": StringType(), "timestamp": TimestampType(), "kee": StringType()},
            [
                'column "timestamp": is not written to topics: select key, value, topic, partition, headers',
                'column "kee": is not written to topics, did you mean "key"?',
            ],
        ),
    ],
)
def test_columns_that_are_refused(columns: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(frame(**columns), topic=True)
    assert [str(problem) for problem in caught.value.problems] == said


def test_a_topic_is_named_somewhere() -> None:
    with pytest.raises(ConfigError, match="topic: is missing: an option names the topic, or a column"):
        check_columns(frame(value=StringType()), topic=False)
