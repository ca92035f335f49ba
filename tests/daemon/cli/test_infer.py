"""``infer``: the format of topics, a schema and a table that decodes their values, and what is odd."""

import json
import resource
import tomllib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

import fastwire_daemon as fw
from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Record, encode_single_entry
from fastwire.systems import SYSTEMS
from fastwire_daemon.cli.infer.command import Format
from fastwire_daemon.cli.infer.configuration import write_new
from fastwire_daemon.config.values.fields import DATASET_TYPES
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.devbroker.server import running
from tests.daemon.cli.program import Run
from tests.support.schema_registry import framed, serving


@pytest.fixture
def kafka() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions())) as made:
        yield made


def filled(kafka: KafkaDevBroker, values: list[Any], partitions: int = 1) -> str:
    """Return the name of a new topic with these values: bytes, or objects as JSON."""
    kafka.create_topic("shop.orders", partitions)
    for number, value in enumerate(values):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        kafka.produce("shop.orders", [data], number % partitions)
    return "shop.orders"


def table_of(out: str) -> dict[str, Any]:
    """Return the table that the command has printed, which must be TOML."""
    (made,) = tomllib.loads(out.partition("in the configuration\n")[2])["pipelines"].values()
    return dict(made["decode"])


def test_the_table_decodes_the_values_as_it_is(run: Run, kafka: KafkaDevBroker, tmp_path: Path) -> None:
    rows = [{"id": n, "price": n / 4 if n % 2 else n, "who": {"name": f"n{n}", "tags": ["a", None]}} for n in range(30)]
    topic, file = filled(kafka, [*rows, {"id": 30, "new": True}], 2), tmp_path / "orders.avsc"
    code, out, err = run("infer", kafka.url, topic, "--output", file)
    assert (code, err) == (0, "")
    found = fw.read(kafka.url, topic, decode=table_of(out))
    got = sorted(found.to_table().to_pylist(), key=lambda row: row["id"])
    assert found.dead_letters == []
    assert got == [*({**row, "new": None} for row in rows), {"id": 30, "price": None, "who": None, "new": True}]
    assert "the newest 31 records of 2 partitions" in out and "31 JSON objects" in out
    assert kafka.violations == []


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_topic_of_each_system(run: Run, tmp_path: Path, system: str) -> None:
    file = tmp_path / "orders.avsc"
    with running(dev_broker(system)) as broker:
        broker.create_topic("orders", 2)
        for partition in range(2):
            broker.produce("orders", [b'{"number": %d}' % (20 * partition + n) for n in range(20)], partition)
        code, out, err = run("infer", broker.url, "orders", "--output", file, "--records", "30")
        assert (code, err) == (0, "")
        assert "the newest 30 records of 2 partitions" in out
        found = fw.read(broker.url, "orders", decode=table_of(out))
        assert sorted(found.to_table()["number"].to_pylist()) == list(range(40))
        assert getattr(broker, "violations", []) == []


def test_what_is_odd_is_said_with_shares_types_and_examples(run: Run, kafka: KafkaDevBroker) -> None:
    values = [{"id": 1, "gone": None, "first-name": "x"}, {"id": "no"}, {"id": 3, "e": {}}, b"plain text", b"\xff\xfe"]
    code, out, _ = run("infer", kafka.url, filled(kafka, values))
    assert code == 0
    assert "id has values of several types (2 int, 1 text): those that cannot be read as int" in out
    assert "gone has only nulls" in out and "e has only empty objects" in out and "first-name is left out" in out
    assert "2 values are no JSON objects: a dead letter for each" in out
    assert "1 text that is no JSON" in out and "1 binary value\n" in out
    (line,) = [line for line in out.splitlines() if line.startswith("gone")]
    assert line.split()[:3] == ["gone", "-", "100.0%"]


def test_ids_as_keys_are_refused_by_name_and_are_a_map_where_asked(
    run: Run, kafka: KafkaDevBroker, tmp_path: Path
) -> None:
    topic = filled(kafka, [{"stock": {f"item-{n}": n}} for n in range(600)])
    code, _, err = run("infer", kafka.url, topic)
    assert code == 1
    assert "more than 512 columns" in err and "of them in stock" in err and "--map" in err
    code, out, _ = run("infer", kafka.url, topic, "--map", "stock", "--output", tmp_path / "schema")
    assert code == 0
    rows = fw.read(kafka.url, topic, decode=table_of(out)).to_table()["stock"].to_pylist()
    assert rows == [[(f"item-{n}", n)] for n in range(600)]


def test_values_without_fields_have_no_schema(run: Run, kafka: KafkaDevBroker, tmp_path: Path) -> None:
    code, _, err = run("infer", kafka.url, filled(kafka, [b"one", b"two"]), "--output", tmp_path / "schema")
    assert code == 1
    assert err.startswith("no schema: most values are texts that are no JSON, which have no fields: they land without")
    assert not (tmp_path / "schema").exists()
    kafka.create_topic("empty", 1)
    assert "no records with a value" in run("infer", kafka.url, "empty")[2]
    kafka.create_topic("framed", 1)
    kafka.produce("framed", [b"\0\0\0\0\x07rest"], 0)
    assert "ids of schemas (7): name their registry" in run("infer", kafka.url, "framed")[2]


def test_several_topics_have_a_share_each(run: Run, kafka: KafkaDevBroker) -> None:
    for topic, count in (("few", 5), ("many", 500)):
        kafka.create_topic(topic, 1)
        kafka.produce(topic, [b'{"%s": %d}' % (topic.encode(), n) for n in range(count)], 0)
    code, out, _ = run("infer", kafka.url, "few", "many", "--records", "10")
    assert code == 0 and "the newest 10 records of 2 partitions" in out
    examples = {line.split()[0]: line.split()[-1] for line in out.splitlines() if "50.0%" in line}
    assert examples == {"few": "0", "many": "495"}


def test_a_file_that_exists_is_kept(run: Run, kafka: KafkaDevBroker, tmp_path: Path) -> None:
    (tmp_path / "schema").write_text("mine")
    code, _, err = run("infer", kafka.url, filled(kafka, [{"a": 1}]), "--output", tmp_path / "schema")
    assert code == 2 and "exists already" in err
    assert (tmp_path / "schema").read_text() == "mine"


def test_change_events_are_recognised_without_the_schema_beside_them(
    run: Run, kafka: KafkaDevBroker, tmp_path: Path
) -> None:
    event = {"op": "c", "before": None, "after": {"id": 1}, "source": {"lsn": 5}}
    topic = filled(kafka, [{"schema": {"type": "struct"}, "payload": event}])
    code, out, _ = run("infer", kafka.url, topic, "--output", tmp_path / "schema")
    assert code == 0 and "1 change event of Debezium among them" in out
    assert fw.read(kafka.url, topic, decode=table_of(out)).to_table().column_names == ["payload"]


def test_a_schema_of_avro_comes_from_the_registry(run: Run, kafka: KafkaDevBroker, tmp_path: Path) -> None:
    narrow = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    wide = {**narrow, "fields": [*narrow["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
    topic = filled(kafka, [framed(3, b"\x02"), framed(4, b"\x04\x02\x06abc")])
    with serving() as registry:
        registry.register(3, narrow)
        registry.register(4, wide)
        code, out, err = run("infer", kafka.url, topic, "--registry", registry.url, "--output", tmp_path / "schema")
        assert (code, err) == (0, "")
        rows = fw.read(kafka.url, topic, decode=table_of(out)).to_table().to_pylist()
    assert rows == [{"id": 1, "note": None}, {"id": 2, "note": "abc"}]


def test_a_descriptor_set_of_protobuf_comes_from_the_registry(run: Run, kafka: KafkaDevBroker, tmp_path: Path) -> None:
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    file.message_type.add(name="Other").field.add(name="x", number=1, type=3, label=1)
    topic = filled(kafka, [framed(1, b"\0\x08\x07")])
    text = b64encode(file.SerializeToString()).decode()
    with serving() as registry:
        answer = {"schemaType": "PROTOBUF", "schema": text}
        for path in ("/schemas/ids/1", "/schemas/ids/1?format=serialized"):
            registry.answers[path] = (200, json.dumps(answer).encode())
        code, out, err = run("infer", kafka.url, topic, "--registry", registry.url, "--output", tmp_path / "schema")
        assert (code, err) == (0, "")
        assert "shop.Order, shop.Other" in out and table_of(out)["message"] == "shop.Order"
        assert fw.read(kafka.url, topic, decode=table_of(out)).to_table().to_pylist() == [{"id": 7}]


@pytest.mark.parametrize("kind", ["Avro", "ProtobufNative"])
def test_a_schema_that_the_brokers_keep_needs_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}).encode()
    value = b"\xfe\x03"
    if kind == "ProtobufNative":
        file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
        file.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
        told = b64encode(FileDescriptorSet(file=[file]).SerializeToString()).decode()
        schema = json.dumps({"fileDescriptorSet": told, "rootMessageTypeName": "shop.Order"}).encode()
        value = b"\x08\xff\x01"
    with running(PulsarDevBroker()) as broker:
        for topic in ("orders", "other"):
            broker.create_topic(topic)
        version = broker.register_schema("orders", pb.Schema(name="", type=kind, schema_data=schema))
        broker.register_schema("other", pb.Schema(name="", type=pb.Schema.Json, schema_data=b"{}"))
        for topic in ("orders", "other"):
            metadata = pb.MessageMetadata(schema_version=version)
            entry = encode_single_entry(
                Record(value=value), producer_name="p", sequence_id=0, publish_time=1, metadata=metadata
            )
            broker.append(topic, [entry])
        code, out, err = run("infer", broker.url, "orders")
        assert (code, err) == (0, "") and f"keep the schema of orders: {kind[:4].upper()}" in out
        assert "schema" not in table_of(out)
        assert fw.read(broker.url, "orders", decode=table_of(out)).to_table().to_pylist() == [{"id": 255}]
        chosen: dict[str, Any] = {"decode": table_of(out), "columns": ["_offset", "id"]}
        assert fw.read(broker.url, "orders", **chosen).to_table().to_pylist() == [{"_offset": 0, "id": 255}]
        followed = fw.follow(broker.url, "orders", **chosen)
        assert next(followed).records.to_pylist() == [{"_offset": 0, "id": 255}]
        followed.close()
        with pytest.raises(FastwireError, match='the newest schema has no field "ids", did you mean "id"'):
            fw.read(broker.url, "orders", decode=table_of(out), columns=["ids"]).to_table()
        assert run("infer", broker.url, "orders", "--config", "orders.toml")[0] == 0
        assert run("run", "orders.toml", "--until-end")[0] == 0
        assert [pq.read_table(file)["id"].to_pylist() for file in Path("orders").glob("*.parquet")] == [[255]]
        code, _, err = run("infer", broker.url, "orders", "other")
        assert code == 1 and "the topics have several" in err


def test_a_file_that_cannot_be_written_whole_is_not_left(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
    try:
        with pytest.raises(OSError, match=r"too large.*orders\.toml"):
            write_new(file, b"more than that")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not file.exists()
    write_new(file, b"whole")
    with pytest.raises(FileExistsError):
        write_new(file, b"another")
    assert file.read_bytes() == b"whole"


def test_the_formats_of_a_configuration_are_those_of_datasets() -> None:
    assert get_args(Format) == DATASET_TYPES
