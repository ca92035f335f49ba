"""Typed columns of Protobuf from a broker's values to a dataset, as a user runs it."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fastwire_daemon.config.decode import check_decode
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from tests.daemon.cli.test_decode import CONFIG, ORDERS, add, command
from tests.support.protobuf import FieldProto, FileProto, classes, described, field
from tests.support.schema_registry import framed, serving


def file() -> Any:
    """The file of orders, with one message."""
    made = FileProto(name="orders.proto", package="shop", syntax="proto3")
    order = made.message_type.add(name="Order")
    order.field.append(field("id", 1, "int64"))
    order.field.append(field("country", 2, "string", proto3_optional=True, oneof_index=0))
    order.field.append(field("tags", 3, "string", label=FieldProto.LABEL_REPEATED))
    order.oneof_decl.add(name="_country")
    return made


def values() -> list[bytes]:
    """The orders, the tenth of them damaged."""
    order = classes(file())("shop.Order")
    encoded = [order(**{key: value for key, value in each.items() if value}).SerializeToString() for each in ORDERS]
    encoded[10] = encoded[10][:-1]
    return encoded


@pytest.mark.parametrize("system", ["kafka", "pulsar"])
def test_values_of_a_broker_land_as_columns(system: str, tmp_path: Path) -> None:
    schema, config, data = tmp_path / "orders.desc", tmp_path / "c.toml", tmp_path / "data"
    schema.write_bytes(described(file()))
    with running(KafkaDevBroker() if system == "kafka" else PulsarDevBroker()) as broker:
        add(broker, values())
        text = CONFIG.format(url=broker.url, form="protobuf", schema=schema, path=data)
        config.write_text(text.replace("columns =", 'message = "shop.Order"\ncolumns ='))
        checked = command("check", config)
        ran = command("run", config, "--until-end")
        assert broker.violations == []
    assert "columns id int64 not null, country string, tags list<item: string not null> not null, _offset" in (
        checked.stdout
    ), checked.stderr
    assert ran.returncode == 0, ran.stderr
    [ended] = [each for each in map(json.loads, ran.stderr.splitlines()) if each["event"] == "ended"]
    assert (ended["rows"], ended["dead_letters"]) == (29, 1)
    landed = [row for each in data.glob("*.parquet") for row in pq.read_table(each).to_pylist()]
    sound = [order for order in ORDERS if order["id"] != 10]
    assert sorted(({key: row[key] for key in ORDERS[0]} for row in landed), key=lambda row: row["id"]) == sound
    report = json.loads(command("verify", data, "--json").stdout)
    assert (report["ok"], report["rows"], report["filtered_rows"], report["dead_letters"]) == (True, 29, 1, 1)
    letter = json.loads(command("dead", data, "--json", "--list").stdout)
    assert letter["reason"] == "Truncated at byte 3 of the value, in tags[]"


def in_base64(made: Any) -> str:
    return b64encode(made.SerializeToString()).decode()


def test_values_whose_schemas_a_registry_has(tmp_path: Path) -> None:
    """A newer schema has one more column, in a message of another file, and another message before it."""
    schema, config, data = tmp_path / "orders.desc", tmp_path / "c.toml", tmp_path / "data"
    schema.write_bytes(described(file()))
    newer, place = file(), FileProto(name="default", package="shop", syntax="proto3")
    place.message_type.add(name="Place").field.append(field("city", 1, "string"))
    newer.dependency.append("shop/place.proto")
    newer.message_type[0].field.append(field("place", 9, "shop.Place"))
    newer.message_type.insert(0, newer.message_type.add(name="Other"))
    newer.message_type.pop()
    both = FileProto()
    both.CopyFrom(newer)
    both.dependency.pop()
    both.message_type.append(place.message_type[0])
    order = classes(both)("shop.Order")
    encoded = [framed(1, b"\0" + value) for value in values()[:10]]
    encoded += [framed(2, b"\2\2" + order(id=each, place={"city": "Kyiv"}).SerializeToString()) for each in (10, 11)]
    encoded += [framed(2, b"\0"), framed(2, b""), framed(3, b"\0")]
    with running(KafkaDevBroker()) as broker, serving() as registry:
        held = {"references": [{"name": "shop/place.proto", "subject": "place", "version": 4}]}
        for path, made, more in (
            ("/schemas/ids/1", file(), {}), ("/schemas/ids/2", newer, held), ("/subjects/place/versions/4", place, {}),
        ):  # fmt: skip
            answer = {"schemaType": "PROTOBUF", **more}
            registry.answers[path] = (200, json.dumps({**answer, "schema": 'syntax = "proto3";'}).encode())
            serialized = (200, json.dumps({**answer, "schema": in_base64(made)}).encode())
            registry.answers[f"{path}?format=serialized"] = serialized
        registry.register(3, {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]})
        add(broker, encoded)
        text = CONFIG.format(url=broker.url, form="protobuf", schema=schema, path=data)
        config.write_text(text.replace("columns =", f'registry = {{ url = "{registry.url}" }}\ncolumns ='))
        ran = command("run", config, "--until-end")
    assert ran.returncode == 0, ran.stderr
    assert registry.paths == [
        "/schemas/ids/1", "/schemas/ids/1?format=serialized", "/schemas/ids/2", "/schemas/ids/2?format=serialized",
        "/subjects/place/versions/4?format=serialized", "/schemas/ids/3",
    ]  # fmt: skip
    landed = [row for each in data.glob("*.parquet") for row in pq.read_table(each).to_pylist()]
    landed.sort(key=lambda row: row["id"])
    assert [{key: row[key] for key in ORDERS[0]} for row in landed[:10]] == ORDERS[:10]
    assert [row.get("place") for row in landed] == [None] * 10 + [{"city": "Kyiv"}] * 2
    dead_letters = [json.loads(line) for line in command("dead", data, "--json", "--list").stdout.splitlines()]
    assert [letter["reason"].split(" (")[0] for letter in dead_letters] == [
        "OtherMessage at byte 5 of the value", "Truncated at byte 5 of the value", "IncompatibleSchema 3",
    ]  # fmt: skip
    assert json.loads(command("verify", data, "--json").stdout)["ok"]


def test_tail_shows_the_fields_of_values(tmp_path: Path) -> None:
    schema = tmp_path / "orders.desc"
    schema.write_bytes(described(file()))
    with running(KafkaDevBroker()) as broker:
        add(broker, values())
        tail = ("tail", broker.url, "orders", "--from", "earliest", "--until-end", "--decode", "protobuf")
        said = command(*tail, "--schema-file", schema, "--message", "shop.Order")
        lost = command(*tail, "--schema-file", schema, "--message", "shop.Lost")
    assert [json.loads(line)["value"] for line in said.stdout.splitlines()] == [
        order for order in ORDERS if order["id"] != 10
    ], said.stderr
    assert lost.returncode == 2
    assert "--schema-file: " in " ".join(lost.stderr.split())


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"schema": "orders.proto"}, "orders.proto is source: make a descriptor set of it with protoc"),
        ({"message": "shop.Lost"}, 'there is no message "shop.Lost"'),
        ({"format": "json", "message": "shop.Order"}, 'is for format = "protobuf"'),
        ({"columns": ["idd"]}, '"idd" is neither a field of the schema nor a column of the records'),
    ],
)
def test_mistakes_of_the_configuration(keys: dict[str, Any], problem: str, tmp_path: Path) -> None:
    schema = tmp_path / "orders.desc"
    schema.write_bytes(described(file()))
    decode = {"format": "protobuf", "schema": str(schema), **keys}
    told: list[str] = []
    check_decode(("decode",), decode, {"type": "parquet"}, "kafka", lambda path, text: told.append(text))
    assert any(problem in text for text in told), told
