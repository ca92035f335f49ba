"""The schemas of brokers for other threads: each is asked for once, and a broker that is away is said to be."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire_daemon.config import parse_connection
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.net.schemaregistry import RegistryAwayError, RegistrySchema, UnknownSchemaError
from fastwire_daemon.systems.pulsar.config import PulsarConnection
from fastwire_daemon.systems.pulsar.topicschemas import TopicSchemas, schemas_of

TOPIC = "persistent://public/default/t"
FIRST, SECOND = bytes(8), bytes(7) + b"\1"


@pytest.fixture
def broker() -> Iterator[PulsarDevBroker]:
    with running(PulsarDevBroker()) as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


def made(url: str) -> TopicSchemas:
    return TopicSchemas(PulsarConnection.of(parse_connection({"url": url})))


def register(broker: PulsarDevBroker, kind: Any, data: bytes, **properties: str) -> bytes:
    pairs = [pb.KeyValue(key=key.replace("_", "."), value=value) for key, value in properties.items()]
    return broker.register_schema(TOPIC, pb.Schema(name="S", type=kind, schema_data=data, properties=pairs))


def test_each_schema_is_asked_for_once_by_all(broker: PulsarDevBroker) -> None:
    assert register(broker, pb.Schema.Avro, b'"first"') == FIRST
    register(broker, pb.Schema.Avro, b'"second"')
    schemas = made(broker.url)
    found: list[RegistrySchema] = []
    asking = [
        threading.Thread(target=lambda i=i: found.append(schemas.schema(f"{TOPIC}-partition-{i % 2}", SECOND)))
        for i in range(4)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert found == [RegistrySchema("AVRO", '"second"')] * 4
    assert schemas.schema(TOPIC, FIRST) == RegistrySchema("AVRO", '"first"')
    assert schemas.requests == 2


def test_the_newest_version_of_a_topic(broker: PulsarDevBroker) -> None:
    schemas = made(broker.url)
    with pytest.raises(UnknownSchemaError, match="public/default/t has no schema"):
        schemas.newest(TOPIC)
    for text, version in ((b'"first"', FIRST), (b'"second"', SECOND)):
        register(broker, pb.Schema.Avro, text)
        assert schemas.newest(f"{TOPIC}-partition-1") == version


async def test_on_a_thread_whose_loop_runs(broker: PulsarDevBroker) -> None:
    """As in a notebook."""
    register(broker, pb.Schema.Avro, b'"first"')
    schemas = made(broker.url)
    assert schemas.newest(TOPIC) == FIRST and schemas.schema(TOPIC, FIRST).text == '"first"'
    with pytest.raises(RegistryAwayError, match=r"127\.0\.0\.1:1"):
        made("pulsar://127.0.0.1:1").newest(TOPIC)


def test_a_version_that_the_broker_does_not_know(broker: PulsarDevBroker) -> None:
    schemas = made(broker.url)
    with pytest.raises(UnknownSchemaError, match="the broker does not know it"):
        schemas.schema(TOPIC, FIRST)
    register(broker, pb.Schema.Json, b"{}")
    assert schemas.schema(TOPIC, FIRST).kind == "JSON"


def test_a_broker_that_is_away() -> None:
    with pytest.raises(RegistryAwayError, match=r"127\.0\.0\.1:1"):
        made("pulsar://127.0.0.1:1").schema(TOPIC, FIRST)


def test_values_of_pairs(broker: PulsarDevBroker) -> None:
    both = b"\0\0\0\3key\0\0\0\5value"
    register(broker, pb.Schema.KEY_VALUE, both, kv_encoding_type="SEPARATED", value_schema_type="AVRO")
    register(broker, pb.Schema.KEY_VALUE, both[:-6] + b"\6value ", kv_encoding_type="INLINE", value_schema_type="AVRO")
    register(broker, pb.Schema.KEY_VALUE, b"\0", kv_encoding_type="SEPARATED", value_schema_type="AVRO")
    schemas = made(broker.url)
    key = RegistrySchema("BYTES", "key")
    assert schemas.schema(TOPIC, FIRST) == RegistrySchema("AVRO", "value", key=key)
    assert schemas.schema(TOPIC, SECOND) == RegistrySchema("AVRO", "value ", paired=True, key=key)
    with pytest.raises(UnknownSchemaError, match="it cannot be read: "):
        schemas.schema(TOPIC, bytes(7) + b"\2")


def test_messages_of_protobuf(broker: PulsarDevBroker) -> None:
    native: dict[str, Any] = {"fileDescriptorSet": "AAAA", "rootMessageTypeName": "t.A", "rootFileDescriptorName": "a"}
    lacking = ({"fileDescriptorSet": None}, {"rootMessageTypeName": ""}, {"fileDescriptorSet": "*"})
    unusable = [b"", b"[]", b"{}", b"[" * 100_000, *(json.dumps({**native, **each}).encode() for each in lacking)]
    for data in (json.dumps(native).encode(), *unusable):
        register(broker, pb.Schema.ProtobufNative, data)
    broker.create_topic(f"{TOPIC}-older", 0)
    older = broker.register_schema(f"{TOPIC}-older", pb.Schema(name="S", type=pb.Schema.Protobuf, schema_data=b"{}"))
    schemas = made(broker.url)
    assert schemas.schema(TOPIC, FIRST) == RegistrySchema("PROTOBUF", "AAAA", message="t.A")
    for number in range(1, len(unusable) + 1):
        with pytest.raises(UnknownSchemaError, match="it cannot be read: "):
            schemas.schema(TOPIC, bytes(7) + bytes([number]))
    assert schemas.schema(f"{TOPIC}-older", older).kind == "PROTOBUF as Avro"


def test_equal_connections_share_the_schemas() -> None:
    one = parse_connection({"url": "pulsar://127.0.0.1:1", "auth": {"token": "a"}})
    same = parse_connection({"url": "pulsar://127.0.0.1:1", "auth": {"token": "a"}})
    other = parse_connection({"url": "pulsar://127.0.0.1:1", "auth": {"token": "b"}})
    assert schemas_of(one) is schemas_of(same)
    assert schemas_of(one) is not schemas_of(other)
