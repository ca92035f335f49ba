"""Pipelines with ``schema = "infer"``: columns come from the values, and stay those of the dataset."""

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import fastwire_daemon
from fastwire.kafka.producing.payload import encode_block_batch, encode_values
from fastwire_daemon.config import ConfigError
from fastwire_daemon.config.decode import check_decode, parse_decode
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import running
from fastwire_daemon.sinks.registry import decoder_of
from tests.daemon.cli.test_decode import CONFIG, command
from tests.support.nursery import Forked, shared
from tests.support.waiting import eventually

TEXT = CONFIG.replace('{form}"', 'json"').replace('"{schema}"', '"infer"')
START = 'start = "earliest"'


def produce(broker: KafkaDevBroker, values: Iterable[Any], topic: str = "orders") -> None:
    encoded = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    broker.append(topic, [encode_block_batch(encode_values(encoded), len(encoded), base_timestamp=1_700_000_000_000)])


def rows(data: Path) -> list[dict[str, Any]]:
    """Return the rows by offset, without nulls."""
    tables = [pq.ParquetFile(file).read() for file in data.rglob("*.parquet")]
    if not tables:
        return []
    landed = pa.concat_tables(tables, promote_options="permissive").to_pylist()
    landed.sort(key=lambda row: row["_offset"])
    return [{key: value for key, value in row.items() if value is not None} for row in landed]


def run(config: Path) -> list[dict[str, Any]]:
    """Run until the end, and return the lines of the log."""
    ran = command("run", config, "--until-end")
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stderr.splitlines()]


def letters(data: Path) -> list[str]:
    listed = command("dead", data, "--list", "--json").stdout
    return [json.loads(line)["reason"] for line in listed.splitlines()]


def test_columns_come_from_the_first_records_and_grow(tmp_path: Path) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        config.write_text(TEXT.format(url=broker.url, path=data))
        produce(
            broker, [{"id": 1, "price": 5, "who": {"name": "Ada"}}, {"id": 2, "price": 9.5, "none": None, "tags": []}]
        )
        run(config)
        first = json.loads((data / "_fastwire/dataset.json").read_text())["types"]
        produce(broker, [{"id": 3, "who": {"name": "Bob", "age": 7}, "tags": ["x"], "first-name": "B"}])
        run(config)
        produce(broker, [{"id": "four"}, {"id": 5}])
        run(config)
        assert broker.violations == []
    assert [each[:2] for each in first] == [["id", "l"], ["price", "g"], ["who", "+s"]]
    assert rows(data) == [
        {"id": 1, "price": 5.0, "who": {"name": "Ada", "age": None}, "_offset": 0},
        {"id": 2, "price": 9.5, "_offset": 1},
        {"id": 3, "who": {"name": "Bob", "age": 7}, "tags": ["x"], "first-name": "B", "_offset": 2},
        {"id": 5, "_offset": 4},
    ]
    assert letters(data) == ["WrongType at byte 7 of the value, in id"]
    report = json.loads(command("verify", data, "--json").stdout)
    assert (report["ok"], report["rows"], report["dead_letters"]) == (True, 4, 1)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_whole_numbers_that_have_landed_become_doubles_where_they_may(tmp_path: Path, kind: str) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = TEXT.format(url=broker.url, path=data).replace('type = "parquet"', f'type = "{kind}"')
        config.write_text(text.replace('"infer"', '"infer"\nevolve = "widen"'))
        produce(broker, [{"id": 1, "n": 1, "who": {"m": [1, 2]}}])
        run(config)
        produce(broker, [{"id": 2, "n": 2}, {"id": 3, "n": 0.5, "who": {"m": [0.5]}}, {"id": 4.0, "n": 3, "new": 1}])
        produce(broker, [{"id": 5, "n": (1 << 60) + 1}, {"id": 6, "who": "six"}])
        run(config)
        produce(broker, [{"id": 7, "n": 7}])
        config.write_text(text)  # what is wider stays so
        run(config)
        report = json.loads(command("verify", data, "--deep", "--json").stdout)
    assert (report["ok"], report["rows"], report["dead_letters"]) == (True, 5, 2), report
    assert letters(data) == ["Inexact at byte 15 of the value, in n", "WrongType at byte 17 of the value, in who"]
    log = sorted((data / "_fastwire/log").rglob("*.json"))
    types = [each for entry in log if (each := json.loads(entry.read_bytes()).get("types"))][-1]
    assert [each[:2] for each in types] == [["id", "l"], ["n", "g"], ["who", "+s"], ["new", "l"]]
    if kind == "parquet":
        files = f"read_parquet('{data}/*.parquet', union_by_name = true)"
        with duckdb.connect() as engine:
            found = engine.sql(f"SELECT id, n, who.m FROM {files} ORDER BY _offset").fetchall()
        assert found == [(1, 1.0, [1.0, 2.0]), (2, 2.0, None), (3, 0.5, [0.5]), (4, 3.0, None), (7, 7.0, None)]
        schemas = [pq.read_schema(file) for file in data.glob("*.parquet")]
        assert {str(each.field("n").type) for each in schemas} == {"int64", "double"}


@pytest.mark.parametrize(("kind", "step"), [("parquet", "entry-linked"), ("jsonl", "files-finished")])
def test_numbers_that_have_landed_become_text_where_they_may(tmp_path: Path, kind: str, step: str) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = TEXT.format(url=broker.url, path=data).replace('type = "parquet"', f'type = "{kind}"')
        text = text.replace(START, f'{START}\ngroup_protocol = "none"')
        config.write_text(text.replace('"infer"', '"infer"\nevolve = "widen"'))
        produce(broker, [{"id": 1, "n": 1, "ok": True, "who": {"m": [1, 2.5]}}])
        run(config)
        produce(broker, [{"id": 2, "n": 2}, {"id": 3, "n": "three", "ok": "yes", "who": {"m": ["x"]}}])
        produce(broker, [{"id": 4, "n": {"deep": [4]}, "ok": 0, "new": [0]}])
        killed = start(config, tmp_path / "log", {"at": step, "do": "kill"}, "--until-end")
        assert killed.wait(60) == -9, (tmp_path / "log").read_text()
        run(config)
        report = json.loads(command("verify", data, "--deep", "--json").stdout)
    assert (report["ok"], report["rows"], report["dead_letters"]) == (True, 4, 0), report
    log = sorted((data / "_fastwire/log").rglob("*.json"))
    types = [each for entry in log if (each := json.loads(entry.read_bytes()).get("types"))][-1]
    assert [each[:2] for each in types] == [["id", "l"], ["n", "u"], ["ok", "u"], ["who", "+s"], ["new", "+l"]]
    if kind == "parquet":
        files = f"read_parquet('{data}/*.parquet', union_by_name = true)"
        with duckdb.connect() as engine:
            found = engine.sql(f"SELECT n, ok, who.m FROM {files} ORDER BY id").fetchall()
        assert found == [
            ("1", "true", ["1.0", "2.5"]), ("2", None, None), ("three", "yes", ["x"]), ('{"deep": [4]}', "0", None),
        ]  # fmt: skip


def test_a_field_that_may_not_become_a_column_makes_a_dead_letter(tmp_path: Path) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = TEXT.format(url=broker.url, path=data)
        config.write_text(text.replace('"infer"', '"infer"\nevolve = "dead_letter"'))
        produce(broker, [{"id": 1, "_offset": "taken"}, {"id": 2, "who": {"n": 1}}, {"id": 3, "ID": 4}])
        run(config)
        produce(broker, [{"id": 5, "who": {"n": 1, "new": True}}, {"id": 6, "none": {"deep": [None, {}]}}])
        lines = run(config)
    assert [row["id"] for row in rows(data)] == [2, 6]
    assert letters(data) == [
        "NewColumns at byte 10 of the value, in _offset",
        "NewColumns at byte 10 of the value, in ID",
        "NewColumns at byte 26 of the value, in who.new",
    ]
    assert any(line["event"] == "records have become dead letters" for line in lines)


def start(config: Path, log: Path, script: dict[str, Any] | None = None, *options: str) -> Forked:
    with log.open("wb") as error, Path(os.devnull).open("r+b") as none:
        return shared().fork(["run", str(config), *options], {}, (none, none, error), script)


def test_a_topic_without_records_is_waited_for_in_words(tmp_path: Path) -> None:
    config, data, log = tmp_path / "c.toml", tmp_path / "data", tmp_path / "log"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        config.write_text(TEXT.format(url=broker.url, path=data) + 'roll = { idle = "100ms" }\n')
        waits = "there is no record in orders yet: the dataset begins with the first"
        assert [line["why"] for line in run(config) if "why" in line] == [waits]  # an end of its own, with 0
        daemon = start(config, log)
        try:
            eventually(lambda: waits in log.read_text(), waits, log.read_text)
            assert not data.exists()
            assert '"level":"error"' not in log.read_text()
            produce(broker, [{"id": 1}])
            eventually(lambda: data.exists() and rows(data) == [{"id": 1, "_offset": 0}], "a row", log.read_text)
        finally:
            daemon.terminate()
            assert daemon.wait(60) == 0


def test_the_first_record_behind_the_latest_one_of_an_empty_topic_lands(tmp_path: Path) -> None:
    config, data, log = tmp_path / "c.toml", tmp_path / "data", tmp_path / "log"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = TEXT.format(url=broker.url, path=data).replace(START, 'start = "latest"')
        config.write_text(text + 'roll = { idle = "100ms" }\n')
        daemon = start(config, log)
        try:
            eventually(lambda: "first positions" in log.read_text(), "a first position", log.read_text)
            produce(broker, [{"id": 1}])
            eventually(lambda: rows(data) == [{"id": 1, "_offset": 0}], "a row", log.read_text)
        finally:
            daemon.terminate()
            assert daemon.wait(60) == 0
        produce(broker, [{"id": 2, "new": True}])
        run(config)
    assert rows(data)[1:] == [{"id": 2, "new": True, "_offset": 1}]
    assert json.loads(command("verify", data, "--json").stdout)["ok"]


@pytest.mark.parametrize(
    ("step", "price"),
    [("staging-made", "g"), ("dataset-created", "l"), ("files-finished", "l"), ("entry-linked", "l")],
)
def test_killed_between_the_inference_and_the_end_of_the_first_commit(tmp_path: Path, step: str, price: str) -> None:
    config, data, log = tmp_path / "c.toml", tmp_path / "data", tmp_path / "log"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        config.write_text(TEXT.format(url=broker.url, path=data).replace(START, f'{START}\ngroup_protocol = "none"'))
        produce(broker, [{"id": i, "price": i} for i in range(5)])
        assert start(config, log, {"at": step, "do": "kill"}, "--until-end").wait(60) == -9, log.read_text()
        produce(broker, [{"id": 5, "price": 0.5}, {"id": 6, "price": 6, "more": {"a": 1}}])
        start(config, log, {"at": step, "do": "kill"}, "--until-end").wait(60)  # with a new column
        run(config)
        report = json.loads(command("verify", data, "--json").stdout)
    dead = price == "l"
    assert (report["ok"], report["rows"], report["dead_letters"]) == (True, 7 - dead, int(dead))
    found = rows(data)
    assert [row["id"] for row in found] == [0, 1, 2, 3, 4, *([] if dead else [5]), 6]
    assert found[-1]["more"] == {"a": 1}
    assert json.loads((data / "_fastwire/dataset.json").read_text())["types"][1][1] == price


@pytest.mark.parametrize(("evolve", "lost"), [("add", 9), ("widen", 0)])
def test_two_daemons_that_saw_other_records_land_in_the_same_columns(tmp_path: Path, evolve: str, lost: int) -> None:
    data = tmp_path / "data"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 2)
        ones: list[Any] = [{"a": i, "x": 1} for i in range(9)]
        others: list[Any] = [{"a": f"t{i}", "y": 1} for i in range(9)]
        for number, values in enumerate((ones, others)):
            encoded = [json.dumps(value).encode() for value in values]
            batch = encode_block_batch(encode_values(encoded), len(encoded), base_timestamp=1_700_000_000_000)
            broker.append("orders", [batch], number)
        daemons = []
        for name in ("one", "two"):
            config = tmp_path / f"{name}.toml"
            text = TEXT.format(url=broker.url, path=data).replace('"infer"', f'"infer"\nevolve = "{evolve}"')
            config.write_text(text + 'roll = { idle = "100ms" }\n')
            daemons.append(start(config, tmp_path / f"{name}.log"))
        try:
            dead = [] if lost else ["none"]
            eventually(
                lambda: data.exists() and len(rows(data)) == 18 - lost and (dead or [*data.rglob("*.dead")]), "all"
            )
        finally:
            for daemon in daemons:
                daemon.terminate()
                assert daemon.wait(60) == 0
    report = json.loads(command("verify", data, "--json").stdout)
    assert (report["ok"], report["rows"], report["dead_letters"]) == (True, 18 - lost, lost), report


@pytest.mark.parametrize("kind", ["delta", "jsonl"])
def test_each_topic_has_its_own_columns(tmp_path: Path, kind: str) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    with running(KafkaDevBroker()) as broker:
        text = TEXT.format(url=broker.url, path=f"{data}/{{topic}}").replace('["orders"]', '["orders", "users"]')
        config.write_text(text.replace('type = "parquet"', f'type = "{kind}"'))
        for topic, name in (("orders", "id"), ("users", "user")):
            broker.create_topic(topic, 1)
            produce(broker, [{name: i} for i in range(3)], topic)
        run(config)
        produce(broker, [{"id": 3, "new": {"deep": [1]}}])
        run(config)
    columns = {
        topic: [each[0] for each in json.loads((data / topic / "_fastwire/dataset.json").read_text())["types"]]
        for topic in ("orders", "users")
    }
    assert columns == {"orders": ["id"], "users": ["user"]}
    if kind == "delta":
        found = {topic: DeltaTable(data / topic).to_pyarrow_table().to_pylist() for topic in ("orders", "users")}
    else:
        files = {topic: sorted((data / topic).rglob("*.jsonl")) for topic in ("orders", "users")}
        found = {
            topic: [json.loads(line) for file in some for line in file.read_text().splitlines()]
            for topic, some in files.items()
        }
    assert sorted(row["user"] for row in found["users"]) == [0, 1, 2]
    orders = sorted(found["orders"], key=lambda row: int(row["id"]))
    assert [row["id"] for row in orders] == [0, 1, 2, 3] and orders[3]["new"] == {"deep": [1]}


def test_a_record_with_too_many_fields_is_a_dead_letter_that_names_the_object_with_the_most(tmp_path: Path) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    crowd = {"id": 0, "new": 1, "by_id": {f"k{i}": i for i in range(600)}}
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        config.write_text(TEXT.format(url=broker.url, path=data))
        produce(broker, [crowd, crowd, {"id": 1}])
        lines = run(config)
        produce(broker, [crowd, {"id": 2}])
        run(config)
    assert [row["id"] for row in rows(data)] == [1, 2]
    reasons = letters(data)
    assert len(reasons) == 3 and all(reason.endswith(", in by_id") for reason in reasons), reasons
    warned = [line["field"] for line in lines if line["event"].startswith("a field cannot have a column")]
    assert len(warned) == 1 and "more than 512 columns, 509 of them in by_id" in warned[0], warned


def test_ids_as_keys_end_the_pipeline_with_the_name_of_their_object_until_it_is_a_map(tmp_path: Path) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = TEXT.format(url=broker.url, path=data)
        config.write_text(text)
        produce(broker, [{"id": i, "by_id": {f"k{i}": {"n": i}}} for i in range(600)])
        ran = command("run", config, "--until-end")
        assert ran.returncode and "of them in by_id" in ran.stderr and "decode.maps" in ran.stderr, ran.stderr
        config.write_text(text.replace('"infer"', '"infer"\nmaps = ["by_id"]'))
        run(config)
        produce(broker, [{"id": 600, "by_id": {"x": {"n": 1, "new": [1]}}, "more": {"k": 1}}])
        config.write_text(text)  # what is a map stays one
        run(config)
    landed = rows(data)
    assert [key for key, _ in landed[5]["by_id"]] == ["k5"] and len(landed) == 601
    assert landed[600] == {"id": 600, "by_id": [("x", {"n": 1, "new": [1]})], "more": {"k": 1}, "_offset": 600}


def test_a_dataset_with_other_columns_of_the_records_is_refused_in_words(tmp_path: Path) -> None:
    config, data, schema = tmp_path / "c.toml", tmp_path / "data", tmp_path / "key.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}))
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = TEXT.format(url=broker.url, path=data).replace('"_offset"', '"_offset", "_key"')
        keys = f'keys = {{ format = "json", schema = "{schema}" }}'
        config.write_text(text.replace('"infer"', f'"infer"\n{keys}'))
        produce(broker, [{"id": 1}])
        command("run", config, "--until-end")
        config.write_text(text)
        ran = command("run", config, "--until-end")
    assert ran.returncode and "the dataset has _key struct" in ran.stderr, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"format": "avro"}, 'is for format = "json"'),
        ({"registry": "pulsar"}, "has the schemas of the values"),
        ({"columns": ["_offset"]}, 'must have "*" beside'),
        ({"columns": ["*", "id"]}, "is not known before there are records"),
        ({"transform": "SELECT 1 AS a FROM batch"}, "needs columns that are known"),
    ],
)
def test_what_needs_columns_before_the_first_record_is_refused(tmp_path: Path, keys: dict[str, Any], why: str) -> None:
    given = {"format": "json", "schema": "infer"} | keys
    with pytest.raises(ConfigError, match=re.escape(why)):
        decoder_of(parse_decode(given), "kafka")
    assert any(why in text for text in told(given)), told(given)


def told(decode: dict[str, Any], start: object = None, kind: str = "parquet") -> list[str]:
    texts: list[str] = []
    check_decode(("decode",), decode, {"type": kind}, "kafka", lambda path, text: texts.append(text), start)
    return texts


def test_a_start_behind_the_first_record_needs_a_column_that_does_not_wait_for_it() -> None:
    decode: dict[str, Any] = {"format": "json", "schema": "infer"}
    assert ["begin behind it, and not land it" in text for text in told(decode, "latest")] == [True]
    assert told(decode | {"columns": ["*", "_offset"]}, "latest") == told(decode, "earliest") == []
    (why,) = told({"format": "json", "schema": __file__, "maps": ["a"]}, "earliest")[:1]
    assert "a schema says itself which fields are maps" in why


@pytest.mark.parametrize(
    ("kind", "schema", "why"),
    [
        ("delta", "infer", "a table keeps the types"),
        ("iceberg", "infer", "a table keeps the types"),
        ("postgresql", "infer", "a table keeps the types"),
        ("parquet", __file__, "a schema says the types itself"),
        ("parquet", "/schemas/{topic}.avsc", "a schema says the types itself"),
        ("jsonl", "infer", ""),
    ],
)
def test_numbers_become_wider_in_files_without_a_schema_only(kind: str, schema: str, why: str) -> None:
    texts = told({"format": "json", "schema": schema, "evolve": "widen"}, kind=kind)
    assert (why in texts[0]) if why else (texts == []), texts


def test_commands_and_scripts_infer_the_columns_as_well(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    options = ["--decode", "json"]
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        produce(broker, [{"id": 1, "x": {"y": [1]}}, {"id": 2.5, "new": True}])
        config.write_text(TEXT.format(url=broker.url, path=tmp_path / "data"))
        decode = {"format": "json", "schema": "infer"}
        read = fastwire_daemon.read(broker.url, "orders", decode=decode, progress=False).to_table().to_pylist()
        with duckdb.connect() as engine:
            fastwire_daemon.read(broker.url, "orders", decode=decode, progress=False).to_duckdb(engine, "shop")
            stored = engine.sql("SELECT id, x.y, new FROM shop ORDER BY 1").fetchall()
        checked = command("check", config, "--connect")
        printed = command(
            "tail", broker.url, "orders", *options, "--from", "earliest", "--until-end", "--format", "jsonl"
        )
        asked = command("query", broker.url, "orders", "SELECT sum(id) AS s FROM orders", *options, "--format", "csv")
    assert read == [{"id": 1.0, "x": {"y": [1]}, "new": None}, {"id": 2.5, "x": None, "new": True}]
    assert stored == [(1.0, [1], None), (2.5, None, True)]
    assert "columns the fields of the values, which are inferred, _offset" in checked.stdout, checked.stderr
    assert "decode   orders: 2 of its first 2 records can be decoded" in checked.stdout
    assert '"new":true' in printed.stdout.replace(" ", ""), printed.stderr
    assert "3.5" in asked.stdout, asked.stderr
