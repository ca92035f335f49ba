"""A schema file for each topic of a pipeline with a dataset for each topic."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire_daemon.config import PipelineConfig, parse_config
from fastwire_daemon.pipeline import sinkfailures
from fastwire_daemon.pipeline.fanout import landing
from fastwire_daemon.runtime.health import Health
from tests.support.avro import encode
from tests.support.fanout_scene import FanOutScene, serving, until
from tests.support.schema_registry import SchemaRegistryServer, framed
from tests.support.schema_registry import serving as registry_serving

FIELDS = {"shop.orders": {"id": "long", "country": "string"}, "shop.users": {"id": "long", "name": "string"}}
VALUES: dict[str, dict[str, Any]] = {"shop.orders": {"id": 1, "country": "at"}, "shop.users": {"id": 2, "name": "Ada"}}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[FanOutScene]:
    (tmp_path / "schemas").mkdir()
    with serving("kafka", tmp_path / "lake") as scene:
        for topic, value in VALUES.items():
            scene.create(topic)
            scene.broker.produce(topic, [json.dumps(value).encode()] * 3)
        yield scene


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with registry_serving() as registry:
        yield registry


def fields_of(topic: str) -> list[dict[str, str]]:
    return [{"name": name, "type": of} for name, of in FIELDS[topic].items()]


def write_schema(scene: FanOutScene, topic: str, kind: str = "record") -> None:
    text = json.dumps({"type": kind, "name": "r", "fields": fields_of(topic)})
    (scene.root.parent / "schemas" / f"{topic}.avsc").write_text(text)


def config(
    scene: FanOutScene, more: str = "", *topics: str, form: str = "json", schema: str = "{topic}", **sink: Any
) -> PipelineConfig:
    decode = f'[pipelines.p.decode]\nformat = "{form}"\nschema = "{scene.root.parent}/schemas/{schema}.avsc"\n{more}\n'
    return parse_config(decode + scene.text(*topics, sink=sink)).pipelines["p"]


def registered(scene: FanOutScene, registry: SchemaRegistryServer) -> None:
    """Make a topic of Avro values for each of the others, whose schema is registered under its name."""
    for number, (topic, value) in enumerate(VALUES.items()):
        schema = {"type": "record", "name": "r", "fields": fields_of(topic)}
        registry.newest(f"avro.{topic}-value", number, schema)
        scene.create(f"avro.{topic}")
        scene.broker.produce(f"avro.{topic}", [framed(number, encode(schema, value))] * 3)


def registry_config(scene: FanOutScene, registry: SchemaRegistryServer, more: str = "") -> str:
    decode = f'[pipelines.p.decode]\nformat = "avro"\nregistry = {{ url = "{registry.url}" }}\n{more}\n'
    return decode + scene.text(topics_pattern="avro.*")


def rows(scene: FanOutScene, topic: str) -> list[pa.Table]:
    return [pq.read_table(file, partitioning=None) for file in (scene.root / topic).rglob("*.parquet")]


async def test_each_topic_has_its_own_columns(scene: FanOutScene) -> None:
    for topic in FIELDS:
        write_schema(scene, topic)
    await scene.land(config(scene, 'columns = ["*", "_offset"]'))
    for topic, value in VALUES.items():
        (table,) = rows(scene, topic)
        assert table.column_names == [*value, "_offset"]
        assert table.drop_columns("_offset").to_pylist() == [value] * 3


async def test_the_schemas_of_a_registry_give_each_topic_its_own_columns(scene: FanOutScene) -> None:
    """One schema file has the columns of all topics; those of a topic are added by the schemas of its values."""
    common = scene.root.parent / "schemas" / "common.avsc"
    common.write_text(json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}))
    with registry_serving() as registry:
        for number, (topic, value) in enumerate(VALUES.items()):
            schema = {"type": "record", "name": "r", "fields": fields_of(topic)}
            registry.register(number, schema)
            scene.create(f"avro.{topic}")
            scene.broker.produce(f"avro.{topic}", [framed(number, encode(schema, value))] * 3)
        more = f'registry = {{ url = "{registry.url}" }}'
        wanted = config(scene, more, *(f"avro.{topic}" for topic in VALUES), form="avro", schema="common")
        await scene.land(wanted)
    for topic, value in VALUES.items():
        landed = pa.concat_tables(rows(scene, f"avro.{topic}"))
        assert landed.to_pylist() == [value] * 3


async def test_a_registry_alone_has_the_columns_of_each_topic(
    scene: FanOutScene, registry: SchemaRegistryServer
) -> None:
    """Of a new dataset they are those of the newest schema; newer ones add theirs, and the registry is not needed."""
    registered(scene, registry)
    wanted = parse_config(registry_config(scene, registry)).pipelines["p"]
    await scene.land(wanted)
    for topic, value in VALUES.items():
        (table,) = rows(scene, f"avro.{topic}")
        assert table.to_pylist() == [value] * 3
        assert [str(field.type) for field in table.schema] == ["int64", "string"]
    wider = {"type": "record", "name": "r", "fields": [*fields_of("shop.users"), {"name": "age", "type": "int"}]}
    registry.newest("avro.shop.users-value", 7, wider)
    value = {"id": 9, "name": "Bob", "age": 7}
    scene.broker.produce("avro.shop.users", [framed(7, encode(wider, value))])
    del registry.answers["/subjects/avro.shop.orders-value/versions/latest"]
    await scene.land(wanted)
    landed = pa.concat_tables(rows(scene, "avro.shop.users"), promote_options="default").to_pylist()
    assert sorted(landed, key=str) == [*[{"id": 2, "name": "Ada", "age": None}] * 3, value]


async def test_a_schema_under_another_name_is_that_of_the_first_record(
    scene: FanOutScene, registry: SchemaRegistryServer
) -> None:
    registered(scene, registry)
    registry.answers = {path: answer for path, answer in registry.answers.items() if "subjects" not in path}
    await scene.land(parse_config(registry_config(scene, registry, 'evolve = "strict"')).pipelines["p"])
    for topic, value in VALUES.items():
        assert pa.concat_tables(rows(scene, f"avro.{topic}")).to_pylist() == [value] * 3


async def test_a_first_record_that_stops_its_partition_holds_back_no_other(
    scene: FanOutScene, registry: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinkfailures, "FIRST_S", 0.01)
    monkeypatch.setattr(sinkfailures, "MOST_S", 0.05)
    schema = {"type": "record", "name": "r", "fields": fields_of("shop.users")}
    registry.register(8, schema)
    for topic in ("avro.both", "avro.bad"):
        scene.create(topic)
        scene.broker.produce(topic, [b"no id"], 0)
    scene.broker.produce("avro.both", [framed(8, encode(schema, VALUES["shop.users"]))], 1)
    wanted = parse_config(registry_config(scene, registry, 'on_error = "stop"')).pipelines["p"]
    async with scene.running(wanted) as fanout:
        await until(lambda: rows(scene, "avro.both"), fanout.status)
        await until(lambda: "NoSchemaId" in str(fanout.status()["datasets"]["avro.bad"].get("degraded")), fanout.status)
    (table,) = rows(scene, "avro.both")
    assert table.to_pylist() == [VALUES["shop.users"]]


async def test_a_topic_without_a_registered_schema_waits_for_it_alone(
    scene: FanOutScene, registry: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinkfailures, "FIRST_S", 0.01)
    monkeypatch.setattr(sinkfailures, "MOST_S", 0.05)
    monkeypatch.setattr(sinkfailures, "MOST_LOOK_S", 0.05)
    registered(scene, registry)
    scene.create("avro.late")
    async with scene.running(parse_config(registry_config(scene, registry)).pipelines["p"]) as fanout:
        await until(lambda: rows(scene, "avro.shop.users") and rows(scene, "avro.shop.orders"), fanout.status)
        await until(lambda: fanout.status()["dataset_states"].get("empty") == 1, fanout.status)
        assert fanout.health is Health.HEALTHY, "a topic without a record lacks nothing"
        schema = {"type": "record", "name": "r", "fields": fields_of("shop.users")}
        scene.broker.produce("avro.late", [framed(8, encode(schema, VALUES["shop.users"]))])
        await until(lambda: "no columns are known yet" in str(fanout.impairments), fanout.status)
        told = fanout.status()["datasets"]["avro.late"]
        assert (told["state"], "avro.late-value" in str(told["degraded"])) == ("degraded", True), told
        assert not (scene.root / "avro.late").exists()
        registry.newest("avro.late-value", 8, schema)
        await until(lambda: rows(scene, "avro.late"), fanout.status)
        await until(lambda: fanout.impairments == [], fanout.status)
    (table,) = rows(scene, "avro.late")
    assert table.to_pylist() == [VALUES["shop.users"]]


async def test_a_transform_over_the_columns_of_a_topic(scene: FanOutScene) -> None:
    write_schema(scene, "shop.users")
    transform = 'transform = "SELECT name, _offset + id AS place FROM batch"'
    await scene.land(config(scene, transform, "shop.users"))
    (table,) = rows(scene, "shop.users")
    assert table.to_pylist() == [{"name": "Ada", "place": 2 + number} for number in range(3)]


async def test_a_topic_without_a_schema_waits_for_it_alone(scene: FanOutScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "FIRST_S", 0.01)
    monkeypatch.setattr(landing, "MOST_S", 0.05)
    write_schema(scene, "shop.users")
    write_schema(scene, "shop.orders", "fixed")
    wanted = config(scene, partition_by={"column": "id"})
    async with scene.running(wanted) as fanout:
        await until(lambda: rows(scene, "shop.users"), fanout.status)
        told = fanout.status()["datasets"]["shop.orders"]
        assert (told["state"], "shop.orders.avsc" in told["error"]) == ("stopped", True)
        (scene.root.parent / "schemas" / "shop.orders.avsc").unlink()
        await until(lambda: "cannot read" in fanout.status()["stopped_datasets"]["shop.orders"], fanout.status)
        assert not (scene.root / "shop.orders").exists()
        write_schema(scene, "shop.orders")
        await until(lambda: rows(scene, "shop.orders"), fanout.status)
        assert fanout.impairments == []
    (table,) = rows(scene, "shop.orders")
    assert table.to_pylist() == [{"country": "at"}] * 3


async def test_a_schema_that_lacks_the_column_of_a_folder_stops_its_topic(scene: FanOutScene) -> None:
    for topic in FIELDS:
        write_schema(scene, topic)
    async with scene.running(config(scene, partition_by={"column": "country"})) as fanout:
        await until(lambda: rows(scene, "shop.orders"), fanout.status)
        why = fanout.status()["stopped_datasets"]["shop.users"]
        assert why == 'sink.partition_by: there is no field "country" in the schema'
