"""Values by the schemas that a real broker keeps, of the official client's producers and of ones with pairs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pyarrow.parquet as pq
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto
from pulsar.schema import AvroSchema, Integer, JsonSchema, ProtobufNativeSchema, Record, String

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.topic import parse_topic
from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import Daemon, Job, verify
from tests.real.matrix import quiet_client
from tests.real.raw import RawProducer
from tests.support.avro import encode
from tests.support.protobuf import FileProto, classes, described, field

pytestmark = pytest.mark.broker


class Order(Record):  # type: ignore[misc]
    id = Integer(required=True)


class OrderOfMore(Record):  # type: ignore[misc]
    _avro_name = "Order"  # a new version keeps the name
    id = Integer(required=True)
    note = String(required_default=True)


ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
MORE: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"]}]}


def landed(job: Job, folder: Path) -> list[dict[str, Any]]:
    """Run the pipeline to the end of its topic, prove the dataset, and return its rows by their ids."""
    with Daemon("run", str(job.write(folder)), "--until-end", log=folder / "run.log") as daemon:
        daemon.wait_done()
    report = json.loads(verify(job.path, "--json").stdout)
    assert report["ok"], report
    rows = [row for file in sorted(job.path.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    assert report["rows"] == len(rows)
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_records_of_the_official_client(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    topic = fresh_name(f"typed-{kind}")
    plain_pulsar.admin.create_topic(topic, 2)
    schema_of = AvroSchema if kind == "avro" else JsonSchema
    client: pulsar.Client = quiet_client(plain_pulsar.service_url)
    older = client.create_producer(topic, schema=schema_of(Order))
    for i in range(20):
        older.send(Order(id=i))
    newer = client.create_producer(topic, schema=schema_of(OrderOfMore))
    for i in range(20, 40):
        newer.send(OrderOfMore(id=i, note=f"n{i}"))
        older.send(Order(id=100 + i))
    client.create_producer(topic).send(b"without a schema")
    client.close()
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(ORDER))
    decode = {"format": kind, "schema": str(schema), "registry": "pulsar"}
    job = Job(plain_pulsar.service_url, topic, tmp_path / "data", decode=decode)
    rows = landed(job, tmp_path)
    assert [(row["id"], row.get("note")) for row in rows] == [
        *((i, None) for i in range(20)),
        *((i, f"n{i}") for i in range(20, 40)),
        *((100 + i, None) for i in range(20, 40)),
    ]
    assert json.loads(verify(job.path, "--json").stdout)["dead_letters"] == 1


def test_messages_of_the_official_client(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("typed-protobuf")
    plain_pulsar.admin.create_topic(topic)
    fields = [field("id", 1, "int32"), field("note", 2, "string")]
    files = [
        FileProto(
            name="order.proto",
            package="shop",
            syntax="proto3",
            message_type=[DescriptorProto(name="Order", field=each)],
        )
        for each in (fields[:1], fields)
    ]
    client: pulsar.Client = quiet_client(plain_pulsar.service_url)
    for number, file in enumerate(files):
        made = classes(file)("shop.Order")
        producer = client.create_producer(topic, schema=ProtobufNativeSchema(made))
        for i in range(1, 11):
            producer.send(made(**{"id": 10 * number + i, **({"note": "n"} if number else {})}))
    client.close()
    schema = tmp_path / "order.desc"
    schema.write_bytes(described(files[0]))
    decode = {"format": "protobuf", "schema": str(schema), "registry": "pulsar"}
    rows = landed(Job(plain_pulsar.service_url, topic, tmp_path / "data", decode=decode), tmp_path)
    assert [(row["id"], row.get("note")) for row in rows] == [
        *((i, None) for i in range(1, 11)),
        *((i, "n") for i in range(11, 21)),
    ]


def pair(*parts: bytes | None) -> bytes:
    sized = ((-1 if each is None else len(each)).to_bytes(4, "big", signed=True) + (each or b"") for each in parts)
    return b"".join(sized)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
@pytest.mark.parametrize("kind", ["Avro", "Json"])
def test_values_of_pairs(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, encoding: str, kind: str
) -> None:
    topic = fresh_name("typed-pairs")
    plain_pulsar.admin.create_topic(topic)
    properties = {
        "kv.encoding.type": encoding,
        "key.schema.name": "Key",
        "key.schema.type": "STRING",
        "key.schema.properties": "{}",
        "value.schema.name": "Order",
        "value.schema.type": kind.upper(),
        "value.schema.properties": "{}",
    }
    declared = pb.Schema(
        name="KeyValue",
        type=pb.Schema.KEY_VALUE,
        schema_data=pair(b"", json.dumps(MORE).encode()),
        properties=[pb.KeyValue(key=key, value=value) for key, value in properties.items()],
    )
    inline = encoding == "INLINE"
    keys = [b"k0", b"k\xff", b""] if inline else [b"k0", b"k1", b"k2"]
    with RawProducer(plain_pulsar.service_url, str(parse_topic(topic)), schema=declared) as producer:
        for i, key in enumerate(keys):
            order = {"id": i, "note": f"n{i}"}
            value = encode(MORE, order) if kind == "Avro" else json.dumps(order).encode()
            metadata = pb.MessageMetadata(publish_time=1, sequence_id=i, schema_version=producer.schema_version)
            if not inline:
                metadata.partition_key = key.decode()
            producer.send(metadata, pair(key, value) if inline else value)
        if inline:
            damaged = pb.MessageMetadata(publish_time=1, sequence_id=9, schema_version=producer.schema_version)
            producer.send(damaged, pair(b"key"))
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(ORDER))
    decode = {"format": kind.lower(), "schema": str(schema), "registry": "pulsar", "columns": ["*", "_key"]}
    job = Job(plain_pulsar.service_url, topic, tmp_path / "data", decode=decode)
    rows = landed(job, tmp_path)
    assert [(row["id"], row["note"], row["_key"]) for row in rows] == [(i, f"n{i}", key) for i, key in enumerate(keys)]
    assert json.loads(verify(job.path, "--json").stdout)["dead_letters"] == inline
