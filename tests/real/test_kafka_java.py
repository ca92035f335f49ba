"""Records of Kafka's own tools and Java client land with every field: idempotent, and in transactions."""

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.brokers.kafka import KafkaBroker
from tests.brokers.kafka_tools import kafka_tool, tool_jars
from tests.brokers.maven import BrokerUnavailableError
from tests.real.test_kafka import job, land

pytestmark = pytest.mark.broker

COUNT = 600
PARTITIONS = 2
NULL = "(null)"  # how the tool is told of what is not there
SNAPPY, LZ4, CODEC = 2, 3, 0b111
TRANSACTIONAL, CONTROL = 1 << 4, 1 << 5

Headers = tuple[tuple[str, bytes | None], ...]
Content = tuple[bytes | None, bytes | None, Headers]
Row = dict[str, Any]


def contents() -> list[Content]:
    """Keys, values and headers, as far as lines of text can say them."""
    keys = [None, b"", "schlüssel".encode(), *(b"key %d" % n for n in range(6))]
    headers: list[Headers] = [(), (("a", b"text"),), (("a", b"1"), ("b", None), ("a", b""))]
    both = list(product(keys, headers))
    made = []
    for number in range(COUNT):
        value = (None, b"", b"%d" % number, b"%d " % number + "wört ".encode() * 300)[number % 4]
        key, some = both[number % len(both)]
        made.append((key, value, some))
    return made


def line(content: Content) -> str:
    key, value, headers = content
    said = ",".join(f"{name}:{_text(data)}" for name, data in headers) if headers else NULL
    return f"{said}\t{_text(key)}\t{_text(value)}\n"


def _text(data: bytes | None) -> str:
    return NULL if data is None else data.decode()


def read(broker: KafkaBroker, topic: str, count: int) -> list[Row]:
    """The topic as another official client sees it, in the columns of a landed row."""
    settings = {"group.id": "witness", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.servers, "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Row] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} of {count}"
        assert message.error() is None, message.error()
        kind, milli = message.timestamp()
        found.append(
            {
                "key": message.key(),
                "value": message.value(),
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
                "timestamp": milli,
                "timestampType": kind - 1,
                "headers": tuple(message.headers() or ()),
            }
        )
    consumer.close()
    return sorted(found, key=place)


def place(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def plain(row: Row) -> Row:
    """A landed row with milliseconds, and headers as clients give them."""
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return {**row, "timestamp": round(row["timestamp"].timestamp() * 1000), "headers": headers}


def content(row: Row) -> Content:
    return row["key"], row["value"], row["headers"]


def attributes(broker: KafkaBroker, topic: str) -> list[int]:
    """Those of all batches of data, as the broker keeps them; each has been sent by a producer with an id."""
    batches = [batch for number in range(PARTITIONS) for batch in broker.stored(topic, number)]
    assert all(int.from_bytes(batch[43:51], signed=True) >= 0 for batch in batches)
    found = [int.from_bytes(batch[21:23]) for batch in batches]
    return [one for one in found if not one & CONTROL]


@pytest.fixture(scope="module")
def tool() -> Callable[..., None]:
    """Return a function that runs a tool of Kafka's; it needs one jar more than the broker, which may be missing."""
    try:
        tool_jars()
    except BrokerUnavailableError as reason:
        pytest.skip(str(reason))
    return kafka_tool


def test_tools_as_producers(
    plain_kafka: KafkaBroker, tool: Callable[..., None], fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic, copy = fresh_name("java"), fresh_name("java-copy")
    plain_kafka.create_topic(topic, PARTITIONS)
    # The copier has no codecs to choose from, so the broker compresses, which is Java too.
    plain_kafka.create_topic(copy, PARTITIONS, compression_type="lz4")
    sent = contents()
    tool(
        "ConsoleProducer",
        *("--bootstrap-server", plain_kafka.servers, "--topic", topic, "--compression-codec", "snappy"),
        *("--producer-property", "enable.idempotence=true", "--request-timeout-ms", "60000"),
        *("--property", "parse.key=true", "--property", "parse.headers=true", "--property", f"null.marker={NULL}"),
        lines="".join(map(line, sent)),
    )
    seen = read(plain_kafka, topic, COUNT)
    assert Counter(map(content, seen)) == Counter(sent)
    assert {one & (CODEC | TRANSACTIONAL) for one in attributes(plain_kafka, topic)} == {SNAPPY}

    # Keys and values of one partition, a few in a transaction; what it aborts it sends again.
    original = [row for row in seen if row["partition"] == 0]
    tool(
        "TransactionalMessageCopier",
        *("--broker-list", plain_kafka.servers, "--input-topic", topic, "--input-partition", "0"),
        *("--output-topic", copy, "--transactional-id", copy, "--consumer-group", copy),
        *("--transaction-size", "20", "--enable-random-aborts"),
    )
    copied = read(plain_kafka, copy, len(original))
    assert [content(row)[:2] for row in copied] == [content(row)[:2] for row in original]
    assert {one & (CODEC | TRANSACTIONAL) for one in attributes(plain_kafka, copy)} == {LZ4 | TRANSACTIONAL}

    task = job(plain_kafka, topic, tmp_path / "data", source={"topics": [topic, copy]})
    landed = sorted(map(plain, land(task, tmp_path)), key=place)
    assert landed == sorted(seen + copied, key=place)
