"""Typed columns from a broker's values to a dataset, as a user runs it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fastwire.kafka.payload import encode_block_batch, encode_values
from fastwire.pulsar.payload import encode_block_entry
from fastwire.pulsar.payload import encode_values as encode_pulsar
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from tests.daemon.cli.program import PROGRAM
from tests.support.avro import encode
from tests.support.schema_registry import framed, serving

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
    return subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)


def values(form: str) -> list[bytes]:
    """The orders, the tenth of them damaged."""
    encoded = [encode(SCHEMA, order) if form == "avro" else json.dumps(order).encode() for order in ORDERS]
    encoded[10] = encoded[10][:-1]
    return encoded


@pytest.mark.parametrize(("system", "form"), [("kafka", "avro"), ("pulsar", "avro"), ("kafka", "json")])
def test_values_of_a_broker_land_as_columns(system: str, form: str, tmp_path: Path) -> None:
    schema, config, data = tmp_path / "order.avsc", tmp_path / "c.toml", tmp_path / "data"
    schema.write_text(json.dumps(SCHEMA))
    with running(KafkaDevBroker() if system == "kafka" else PulsarDevBroker()) as broker:
        broker.create_topic("orders", 1)
        config.write_text(CONFIG.format(url=broker.url, form=form, schema=schema, path=data))
        if isinstance(broker, PulsarDevBroker):
            block = encode_pulsar(values(form), 0, [b"k"] * 30)
            entry = encode_block_entry(block, 30, producer_name="p", sequence_id=0, publish_time=1_700_000_000_000)
            broker.append("persistent://public/default/orders-partition-0", [entry])
        else:
            block = encode_values(values(form))
            broker.append("orders", [encode_block_batch(block, 30, base_timestamp=1_700_000_000_000)])
        checked = command("check", config)
        ran = command("run", config, "--until-end")
        assert broker.violations == []
    assert "columns id int64 not null, country string, tags list<item: string not null> not null, _offset" in (
        checked.stdout
    ), checked.stderr
    assert ran.returncode == 0, ran.stderr
    [warning] = [each for each in map(json.loads, ran.stderr.splitlines()) if each["level"] == "warning"]
    assert (warning["values"], "dead letters" in warning["event"]) == (1, True)
    landed = [row for file in data.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    sound = [order for order in ORDERS if order["id"] != 10]
    assert sorted(({key: row[key] for key in ORDERS[0]} for row in landed), key=lambda row: row["id"]) == sound
    if system == "kafka":
        assert all(row["_offset"] == row["id"] for row in landed)
    report = json.loads(command("verify", data, "--json").stdout)
    assert (report["ok"], report["rows"], report["filtered_rows"], report["diverted_entries"]) == (True, 29, 1, 1)


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
