"""Tables of pipelines with ``schema = "infer"``, whose catalogs take not each name."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fastwire.grammar import KeyOption
from fastwire_daemon.cli.infer.configuration import configuration, sink_table
from fastwire_daemon.cli.options import BrokerOptions
from fastwire_daemon.config import parse_config
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import running
from tests.daemon.cli.test_decode import command
from tests.daemon.cli.test_infer_pipeline import TEXT, letters, produce, rows, run
from tests.support import icebergs
from tests.support.three_commands import iceberg_table, printed_commands


def test_an_iceberg_table_gets_the_columns_and_grows(tmp_path: Path) -> None:
    config, data = tmp_path / "c.toml", tmp_path / "data"
    data.mkdir()
    settings = {name: value for name, value in icebergs.catalog(data).items() if name != "table"}
    catalog = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = TEXT.format(url=broker.url, path=data).replace('type = "parquet"', 'type = "iceberg"')
        config.write_text(f'{text}table = "{icebergs.NAME}"\n[pipelines.orders.sink.catalog]\n{catalog}')
        produce(broker, [{"id": 1, "big": 1 << 70, "who": {"name": "Ada"}}, {"id": 2, "list": [{"a": 1}]}])
        run(config)
        produce(broker, [{"id": 3, "who": {"name": "Bob", "age": 7}, "list": [{"b": True}], "first-name": "B"}])
        produce(broker, [{"id": 4, "who.name": "x"}, {"id": 5, "a.b": 1}, {"id": 6, "a b": 1}, {"id": 7, "ID": 1}])
        run(config)
        report = json.loads(command("verify", data, "--json").stdout)
    found = icebergs.loaded(data).scan().to_arrow().to_pylist()
    # The library shows a null list of structs as an empty one.
    table = {row["id"]: {name: cell for name, cell in row.items() if cell not in (None, [])} for row in found}
    assert table == {
        1: {"id": 1, "_offset": 0, "big": 1 << 70, "who": {"name": "Ada", "age": None}},
        2: {"id": 2, "_offset": 1, "list": [{"a": 1, "b": None}]},
        3: {
            "id": 3, "_offset": 2, "who": {"name": "Bob", "age": 7}, "list": [{"a": None, "b": True}], "first-name": "B"
        },
        5: {"id": 5, "_offset": 4, "a.b": 1},
    }  # fmt: skip
    assert ["list" in row for row in rows(data)] == [False, True, True, False]
    assert [each.rpartition(", in ")[2] for each in letters(data)] == ["who.name", "a b", "ID"]
    assert (report["ok"], report["rows"], report["dead_letters"]) == (True, 4, 3)


def test_three_commands_make_a_typed_table_of_a_topic_of_json(tmp_path: Path) -> None:
    sent = [{"order": i, "price": i / 4, "who": {"name": f"c{i % 7}"}} for i in range(100)]
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("shop-orders", 2)
        produce(broker, sent, "shop-orders")
        table = iceberg_table(broker.url, "shop-orders", tmp_path)
    assert len(printed_commands()) == 3
    assert table.scan().to_arrow().drop(["_timestamp"]).sort_by("order").to_pylist() == sent
    types = {field.name: str(field.field_type) for field in table.schema().fields}
    assert (types["_timestamp"], types["order"], types["price"]) == ("timestamptz", "long", "double")


def test_a_configuration_keeps_secrets_in_the_environment_and_other_texts_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FASTWIRE_PASSWORD", "very secret")
    options, sink = (
        BrokerOptions({KeyOption("--user", "auth.user", ""): 'a"b'}, insecure=False),
        sink_table("delta", "p"),
    )
    decode = {"format": "json", "schema": "infer", "maps": ["a.b"], "columns": ["*", "_timestamp"]}
    text = configuration("p", "pulsar+ssl://h:1", "pulsar", ["o", "${x}"], options, decode, sink)
    source: Any = parse_config(text).pipelines["p"].source
    assert "very secret" not in text and [each.rpartition("/")[2] for each in source.topics] == ["o", "${x}"]
    assert source.auth.user == 'a"b' and source.auth.password is not None
    assert source.auth.password.get_secret_value() == "very secret"
    of_tank = configuration("p", "tank://h:1", "tank", ["o"], BrokerOptions({}, insecure=False), decode, sink)
    assert parse_config(of_tank, {}).pipelines["p"].source.system == "tank"


@pytest.mark.parametrize("options", [[], ["--output", "orders.avsc"]])
def test_the_configuration_that_is_written_lands_all_records(tmp_path: Path, options: list[str]) -> None:
    """Also beside a file with the schema, and where a field has the name of a column of the records."""
    config = tmp_path / "c.toml"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        produce(broker, [{"id": 1, "_timestamp": 3}])
        given = [str(tmp_path / each) if each.endswith(".avsc") else each for each in options]
        made = command("infer", broker.url, "orders", *given, "--config", config)
        assert made.returncode == 0, made.stderr
        config.write_text(config.read_text().replace('path = "', f'path = "{tmp_path}/'))
        run(config)
    (landed,) = (tmp_path / "orders").rglob("*.parquet")
    assert pq.ParquetFile(landed).read().to_pylist() == [{"id": 1, "_timestamp": 3}]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--config", "here"], "here exists already"),
        (["--catalog", "sqlite:///c.db"], "is for --config with --sink iceberg"),
        (["--config", "new", "--times"], "is needed for --times"),
    ],
)
def test_what_infer_cannot_write_is_refused(tmp_path: Path, options: list[str], why: str) -> None:
    (tmp_path / "here").write_text("mine")
    given = [str(tmp_path / each) if each in ("here", "new") else each for each in options]
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        produce(broker, [{"a": 1}])
        ran = command("infer", broker.url, "orders", *given)
    assert ran.returncode == 2 and why in " ".join(ran.stderr.replace("│", " ").split()), ran.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["here"] and (tmp_path / "here").read_text() == "mine"
