"""Typed columns from a broker's values to a dataset, as a user runs it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fastwire.kafka.producing.payload import Record, encode_block_batch, encode_records, encode_values
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import encode_block_entry
from fastwire.pulsar.format.payload import encode_values as encode_pulsar
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from tests.support.avro import encode
from tests.support.nursery import shared
from tests.support.schema_registry import SchemaRegistryServer, framed, serving

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "country", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
ORDERS = [{"id": i, "country": "DE" if i % 2 else None, "tags": ["a"] * (i % 3)} for i in range(30)]
CONFIG = """\
daemon.http = ""
[pipelines.orders.source]
url = "{url}"
topics = ["orders"]
group = "landing"
start = "earliest"
[pipelines.orders.decode]
format = "{form}"
schema = "{schema}"
columns = ["*", "_offset"]
[pipelines.orders.sink]
type = "parquet"
path = "{path}"
"""


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return shared().run(*arguments)


def values(form: str) -> list[bytes]:
    """The orders, the tenth of them damaged."""
    encoded = [encode(SCHEMA, order) if form == "avro" else json.dumps(order).encode() for order in ORDERS]
    encoded[10] = encoded[10][:-1]
    return encoded


def add(broker: KafkaDevBroker | PulsarDevBroker, values: list[bytes]) -> None:
    """Make the topic with these values."""
    broker.create_topic("orders", 1)
    if isinstance(broker, PulsarDevBroker):
        block = encode_pulsar(values, 0, [b"k"] * len(values))
        entry = encode_block_entry(block, len(values), producer_name="p", sequence_id=0, publish_time=1_700_000_000_000)
        broker.append("persistent://public/default/orders-partition-0", [entry])
    else:
        batch = encode_block_batch(encode_values(values), len(values), base_timestamp=1_700_000_000_000)
        broker.append("orders", [batch])


@pytest.mark.parametrize(("system", "form"), [("kafka", "avro"), ("pulsar", "avro"), ("kafka", "json")])
def test_values_of_a_broker_land_as_columns(system: str, form: str, tmp_path: Path) -> None:
    schema, config, data = tmp_path / "order.avsc", tmp_path / "c.toml", tmp_path / "data"
    schema.write_text(json.dumps(SCHEMA))
    with running(KafkaDevBroker() if system == "kafka" else PulsarDevBroker()) as broker:
        add(broker, values(form))
        config.write_text(CONFIG.format(url=broker.url, form=form, schema=schema, path=data))
        checked = command("check", config)
        ran = command("run", config, "--until-end")
        assert broker.violations == []
    assert "columns id int64 not null, country string, tags list<item: string not null> not null, _offset" in (
        checked.stdout
    ), checked.stderr
    assert ran.returncode == 0, ran.stderr
    [warning] = [each for each in map(json.loads, ran.stderr.splitlines()) if each["level"] == "warning"]
    assert warning["event"] == "records have become dead letters"
    assert warning["topic"].endswith("orders") and warning["partition"] == "0" and warning["position"]
    assert (warning["pipeline"], warning["dead_letters"], warning["records"]) == ("orders", 1, 1)
    assert warning["why"].startswith(warning["reason"])
    [ended] = [each for each in map(json.loads, ran.stderr.splitlines()) if each["event"] == "ended"]
    assert (ended["rows"], ended["dead_letters"]) == (29, 1)
    landed = [row for file in data.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    sound = [order for order in ORDERS if order["id"] != 10]
    assert sorted(({key: row[key] for key in ORDERS[0]} for row in landed), key=lambda row: row["id"]) == sound
    if system == "kafka":
        assert all(row["_offset"] == row["id"] for row in landed)
    report = json.loads(command("verify", data, "--json").stdout)
    assert (report["ok"], report["rows"], report["filtered_rows"], report["dead_letters"]) == (True, 29, 1, 1)


def test_values_whose_schemas_a_registry_has(tmp_path: Path) -> None:
    schema, config, data = tmp_path / "order.avsc", tmp_path / "c.toml", tmp_path / "data"
    schema.write_text(json.dumps(SCHEMA))
    narrow = {**SCHEMA, "fields": [{"name": "id", "type": "int"}, SCHEMA["fields"][2]]}
    older = [framed(1, encode(narrow, {"id": order["id"], "tags": order["tags"]})) for order in ORDERS[:15]]
    newer = [framed(2, encode(SCHEMA, order)) for order in ORDERS[15:]]
    with running(KafkaDevBroker()) as broker, serving() as registry:
        registry.register(1, narrow)
        registry.register(2, SCHEMA)
        broker.create_topic("orders", 1)
        text = CONFIG.format(url=broker.url, form="avro", schema=schema, path=data)
        config.write_text(text.replace('format = "avro"', f'format = "avro"\nregistry = {{ url = "{registry.url}" }}'))
        block = encode_values([*older, *newer])
        broker.append("orders", [encode_block_batch(block, 30, base_timestamp=1_700_000_000_000)])
        ran = command("run", config, "--until-end")
    assert ran.returncode == 0, ran.stderr
    assert registry.paths == ["/schemas/ids/1", "/schemas/ids/2"]
    landed = [row for file in data.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    landed.sort(key=lambda row: row["id"])
    assert [{key: row[key] for key in ORDERS[0]} for row in landed] == [
        *({**order, "country": None} for order in ORDERS[:15]), *ORDERS[15:],
    ]  # fmt: skip
    assert json.loads(command("verify", data, "--json").stdout)["ok"]


@pytest.mark.parametrize("form", ["avro", "json"])
def test_values_whose_schemas_pulsar_has(tmp_path: Path, form: str) -> None:
    schema, config, data = tmp_path / "order.avsc", tmp_path / "c.toml", tmp_path / "data"
    schema.write_text(json.dumps({**SCHEMA, "fields": SCHEMA["fields"][:1]}))
    narrow = {**SCHEMA, "fields": [{"name": "id", "type": "int"}, SCHEMA["fields"][2]]}
    topic = "persistent://public/default/orders-partition-0"
    with running(PulsarDevBroker()) as broker:
        broker.create_topic("orders", 1)
        for written, orders in ((narrow, ORDERS[:15]), (SCHEMA, ORDERS[15:])):
            kind = pb.Schema.Avro if form == "avro" else pb.Schema.Json
            data_of = json.dumps(written).encode()
            version = broker.register_schema(topic, pb.Schema(name="Order", type=kind, schema_data=data_of))
            kept = [{field["name"]: order[field["name"]] for field in written["fields"]} for order in orders]
            values = [encode(written, each) if form == "avro" else json.dumps(each).encode() for each in kept]
            block = encode_pulsar(values, 0, [b"k"] * len(values))
            entry = encode_block_entry(
                block,
                len(values),
                producer_name="p",
                sequence_id=0,
                publish_time=1_700_000_000_000,
                metadata=pb.MessageMetadata(schema_version=version),
            )
            broker.append(topic, [entry])
        text = CONFIG.format(url=broker.url, form=form, schema=schema, path=data).replace("group =", "subscription =")
        config.write_text(text.replace(f'format = "{form}"', f'format = "{form}"\nregistry = "pulsar"'))
        checked = command("check", config, "--connect")
        ran = command("run", config, "--until-end")
        tail = ("tail", broker.url, "orders", "--from", "earliest", "--until-end", "--decode", form)
        said = command(*tail, "--schema-file", schema, "--registry", "pulsar")
        assert broker.violations == []
    assert f"{topic.removesuffix('-partition-0')}: 30 of its first 30 records can be decoded" in checked.stdout
    assert ran.returncode == 0, ran.stderr
    tables = [pq.read_table(file) for file in data.glob("*.parquet")]
    landed = [row for table in tables for row in table.to_pylist()]
    landed.sort(key=lambda row: row["id"])
    assert [{key: row.get(key) for key in ORDERS[0]} for row in landed] == [
        *({**order, "country": None} for order in ORDERS[:15]), *ORDERS[15:],
    ]  # fmt: skip
    assert json.loads(command("verify", data, "--json").stdout)["ok"]
    assert [json.loads(line)["value"]["id"] for line in said.stdout.splitlines()] == list(range(30)), said.stderr


@pytest.mark.parametrize("system", ["kafka", "pulsar"])
@pytest.mark.parametrize("form", ["avro", "json"])
def test_tail_shows_the_fields_of_values(tmp_path: Path, system: str, form: str) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(SCHEMA))
    with running(KafkaDevBroker() if system == "kafka" else PulsarDevBroker()) as broker:
        add(broker, values(form))
        tail = ("tail", broker.url, "orders", "--from", "earliest", "--until-end")
        said = command(*tail, "--decode", form, "--schema-file", schema)
        raw = command(*tail, "--decode", form, "--schema-file", schema, "--format", "raw", "-n", "2")
    assert (said.returncode, raw.returncode) == (0, 0), said.stderr
    sound = [order for order in ORDERS if order["id"] != 10]
    assert [json.loads(line)["value"] for line in said.stdout.splitlines()] == sound
    assert [json.loads(line) for line in raw.stdout.splitlines()] == sound[:2]
    assert re.fullmatch(r"\S*orders \S+: cannot be decoded: Truncated at byte \d+ of the value.*\n", said.stderr)


def test_check_decodes_the_first_records(tmp_path: Path) -> None:
    schema, config, other = tmp_path / "order.avsc", tmp_path / "c.toml", tmp_path / "other.avsc"
    schema.write_text(json.dumps(SCHEMA))
    other.write_text(json.dumps({**SCHEMA, "fields": [{"name": "id", "type": "boolean"}]}))
    with running(KafkaDevBroker()) as broker:
        add(broker, values("avro") * 4)
        broker.create_topic("empty", 1)
        said = []
        for topic, file in (("orders", schema), ("orders", other), ("empty", schema)):
            text = CONFIG.format(url=broker.url, form="avro", schema=file, path=tmp_path / "data")
            config.write_text(text.replace('"orders"]', f'"{topic}"]'))
            checked = command("check", config, "--connect")
            [line] = [line for line in checked.stdout.splitlines() if line.startswith("  decode ")]
            said.append((checked.returncode, line.removeprefix("  decode   ").partition("; ")))
    assert [(code, counts) for code, (counts, _, _) in said] == [
        (0, "orders: 97 of its first 100 records can be decoded"),
        (1, "FAILED: orders: 0 of its first 100 records can be decoded"),
        (0, "empty: it has no records yet"),
    ]
    assert said[0][1][2] == "the first of the others: Truncated at byte 5 of the value, in tags"


def registry_at(registry: SchemaRegistryServer) -> str:
    return f'registry = {{ url = "{registry.url}" }}'


def test_check_says_that_the_registry_is_away(tmp_path: Path) -> None:
    schema, config = tmp_path / "order.avsc", tmp_path / "c.toml"
    schema.write_text(json.dumps(SCHEMA))
    with running(KafkaDevBroker()) as broker, serving() as registry:
        add(broker, [framed(1, encode(SCHEMA, ORDERS[0]))])
        registry.away = True
        text = CONFIG.format(url=broker.url, form="avro", schema=schema, path=tmp_path / "data")
        config.write_text(text.replace('"avro"', f'"avro"\n{registry_at(registry)}'))
        checked = command("check", config, "--connect")
    assert checked.returncode == 1
    assert "  decode   FAILED: orders: the schema registry is away: http://" in checked.stdout, checked.stdout


def test_tombstones_land_as_rows_and_are_shown_as_null(tmp_path: Path) -> None:
    schema, config, data = tmp_path / "order.avsc", tmp_path / "c.toml", tmp_path / "data"
    schema.write_text(json.dumps(SCHEMA))
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        records = [Record(value=encode(SCHEMA, ORDERS[0]), key=b"a"), Record(value=None, key=b"b")]
        broker.append("orders", [encode_block_batch(encode_records(records, 0), 2, base_timestamp=0)])
        text = CONFIG.format(url=broker.url, form="avro", schema=schema, path=data)
        config.write_text(text.replace('"_offset"', '"_key", "_deleted"'))
        ran = command("run", config, "--until-end")
        tail = ("tail", broker.url, "orders", "--from", "earliest", "--until-end", "--decode", "avro")
        said = command(*tail, "--schema-file", schema)
    assert (ran.returncode, said.returncode) == (0, 0), ran.stderr + said.stderr
    landed = [row for file in data.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert landed == [
        {**ORDERS[0], "_key": b"a", "_deleted": False},
        {**dict.fromkeys(ORDERS[0]), "_key": b"b", "_deleted": True},
    ]
    assert [json.loads(line)["value"] for line in said.stdout.splitlines()] == [ORDERS[0], None]
    assert said.stderr == ""


def test_tail_reads_schemas_from_a_registry(tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(SCHEMA))
    with running(KafkaDevBroker()) as broker, serving() as registry:
        registry.register(1, SCHEMA)
        add(broker, [framed(1, encode(SCHEMA, order)) for order in ORDERS])
        tail = ("tail", broker.url, "orders", "--from", "earliest", "--until-end", "--decode", "avro")
        said = command(*tail, "--schema-file", schema, "--registry", registry.url)
    assert [json.loads(line)["value"] for line in said.stdout.splitlines()] == ORDERS, said.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--decode avro", "--decode: needs --schema-file"),
        ("--registry http://127.0.0.1", "--registry: is for --decode"),
        ("--schema-file a", "--schema-file: is for --decode"),
        ("--decode avro --schema-file no.avsc", "--schema-file: cannot read no.avsc"),
        ("--decode json --schema-file no.avsc --registry http://a", "--registry: is for --decode avro and protobuf"),
        ("--decode avro --schema-file no.avsc --message a.B", "--message: is for --decode protobuf"),
        ("--message a.B", "--message: is for --decode"),
        ("--decode avro --schema-file no.avsc --registry ftp://a", "--registry: must be a URL such as"),
    ],
)
def test_mistakes_of_tail(options: str, expected: str) -> None:
    said = command("tail", "kafka://127.0.0.1:1", "orders", *options.split())
    assert said.returncode == 2
    assert expected in " ".join(said.stderr.split())


def test_rows_of_a_transform_land_by_the_columns_that_check_shows(tmp_path: Path) -> None:
    data, config = tmp_path / "data", tmp_path / "config.toml"
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    text = "SELECT id, sha256(country) AS country, len(tags) AS tags, _offset FROM batch WHERE 20 // (id - 5) <> 1"
    with running(KafkaDevBroker()) as broker:
        add(broker, values("avro"))
        keys = CONFIG.format(url=broker.url, form="avro", schema=tmp_path / "order.avsc", path=data)
        config.write_text(keys.replace('columns = ["*", "_offset"]', f'transform = "{text}"'))
        checked = command("check", config, "--connect")
        ran = command("run", config, "--until-end")
    columns = "columns id int64, country string, tags int64, _offset of the transform"
    assert columns in checked.stdout, checked.stdout + checked.stderr
    tried = "orders: 28 of its first 30 records can be decoded, 10 of them are filtered out; the first of the others: "
    assert tried in checked.stdout
    assert ran.returncode == 0, ran.stderr
    (file,) = data.glob("*.parquet")
    landed = pq.read_table(file).to_pylist()
    # 10 is damaged, 5 divides by zero, and 16 to 25 are left out
    assert [row["_offset"] for row in landed] == [i for i in range(30) if i not in (5, 10) and not 16 <= i <= 25]
    assert [row["tags"] for row in landed] == [row["_offset"] % 3 for row in landed]
    assert {len(row["country"] or "") for row in landed} == {0, 64}
    report = json.loads(command("verify", data, "--json").stdout)
    assert (report["ok"], report["filtered_rows"], report["unselected_rows"]) == (True, 12, 10)
    said = command("verify", data).stdout
    assert "12 rows filtered on purpose, 10 of them by the transform" in said
    dead = json.loads(command("dead", data, "--json").stdout)
    assert "Division by zero" in json.dumps(dead)


def test_check_tries_a_transform_of_records_as_they_are(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    with running(KafkaDevBroker()) as broker:
        add(broker, [b"%d" % number for number in range(5)] + [b"five"])
        said = []
        for text in ("CAST(decode(value) AS INT) > 2", "CAST(decode(value) AS INT) // (partition - partition) > 0"):
            keys = CONFIG.format(url=broker.url, form="", schema="", path=tmp_path / "data")
            keys = re.sub(r"(?s)\[pipelines.orders.decode\].*(?=\[pipelines.orders.sink\])", "", keys)
            query = f"SELECT value FROM batch WHERE {text}"
            config.write_text(keys.replace("[pipelines", f"pipelines.orders.transform = '{query}'\n[pipelines", 1))
            checked = command("check", config, "--connect")
            [line] = [line for line in checked.stdout.splitlines() if line.startswith("  transform ")]
            said.append((checked.returncode, " ".join(line.split()[1:])))
    assert said[0][0] == 0
    assert said[0][1].startswith(
        "orders: 5 of its first 6 records can be transformed, 3 of them are filtered out; the first of the others: "
        "TransformFailed: "
    ), said
    assert said[1][0] == 1
    assert said[1][1].startswith("FAILED: orders: 0 of its first 6 records can be transformed; "), said
