"""Pipelines with ``schema = "infer"`` into tables of PostgreSQL."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.cli.check.checks import database_checks
from fastwire_daemon.config import load_config
from fastwire_daemon.config.decode import check_decode
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import running
from tests.daemon.cli.test_decode import command
from tests.daemon.cli.test_infer_pipeline import produce, run, start
from tests.daemon.sinks.test_inferred import infer
from tests.databases.shop import Given, Shop

CONFIG = """\
daemon.http = ""
[pipelines.orders.source]
url = "{url}"
topics = ["orders"]
group = "landing"
start = "earliest"
group_protocol = "none"
[pipelines.orders.decode]
format = "json"
schema = "infer"
columns = ["*", "_offset"]
[pipelines.orders.sink]
type = "postgresql"
url = "{database}"
table = "orders"
"""


@pytest.mark.database
def test_a_table_has_the_columns_of_the_first_records_and_gets_others(shop: Shop, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        config.write_text(CONFIG.format(url=broker.url, database=shop.url))
        produce(broker, [{"id": 1, "price": 5, "who": {"name": "Ada"}}, {"id": 2, "price": 9.5, "tags": ["x", None]}])
        run(config)
        assert shop.types() == {
            "_offset": "bigint", "id": "bigint", "price": "double precision", "who": "jsonb", "tags": "text[]",
        }  # fmt: skip
        produce(broker, [{"id": 3, "new": 1}, {"id": "four"}, {"id": 5.5}, {"id": 6, "who": {"age": 7}}])
        run(config)
        produce(broker, [{"id": 7, "new": 1.5}, {"id": 8, "new": 2}])  # "new" stays a whole number
        run(config)
        assert broker.violations == []
    found = shop.query("SELECT _offset, id, price, who::text, tags, new FROM orders ORDER BY 1")
    assert found == [
        (0, 1, 5.0, '{"name": "Ada"}', None, None),
        (1, 2, 9.5, None, ["x", None], None),
        (2, 3, None, None, None, 1),
        (5, 6, None, '{"age": 7, "name": null}', None, None),
        (7, 8, None, None, None, 2),
    ]
    reasons = [reason for _, reason, _ in shop.letters()]
    assert reasons == [
        "WrongType at byte 7 of the value, in id",
        "Inexact at byte 7 of the value, in id",
        "Inexact at byte 17 of the value, in new",
    ]
    report = json.loads(command("verify", shop.url, "--json").stdout)
    assert report["ok"], report


@pytest.mark.database
def test_the_key_of_a_table_is_a_field_of_the_first_records(shop: Shop, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        text = CONFIG.format(url=broker.url, database=shop.url).replace(', "_offset"', "")
        config.write_text(text + 'mode = "upsert"\nkey = ["number"]\n')
        produce(broker, [{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 1, "n": 3}])
        ran = command("run", config, "--until-end")
        assert ran.returncode and 'sink.key: \\"number\\" is not a column of the rows' in ran.stderr, ran.stderr
        config.write_text(text + 'mode = "upsert"\nkey = ["id"]\n')
        run(config)
        produce(broker, [{"id": 2, "n": 4, "more": "x"}])
        run(config)
    assert shop.query("SELECT id, n, more FROM orders ORDER BY 1") == [(1, 3, None), (2, 4, "x")]


@pytest.mark.database
@pytest.mark.parametrize("step", ["loaded", "committed"])
def test_killed_between_the_inference_and_the_end_of_the_first_commit(shop: Shop, tmp_path: Path, step: str) -> None:
    config, log = tmp_path / "c.toml", tmp_path / "log"
    with running(KafkaDevBroker()) as broker:
        broker.create_topic("orders", 1)
        config.write_text(CONFIG.format(url=broker.url, database=shop.url))
        produce(broker, [{"id": i, "price": i} for i in range(5)])
        assert start(config, log, {"at": step, "do": "kill"}, "--until-end").wait(60) == -9, log.read_text()
        produce(broker, [{"id": 5, "price": 0.5}, {"id": 6, "price": 6, "more": {"a": 1}}])
        run(config)
    assert shop.query("SELECT id, price FROM orders ORDER BY 1") == [*((i, i) for i in range(5)), (6, 6)]
    assert [reason for _, reason, _ in shop.letters()] == ["Inexact at byte 19 of the value, in price"]


@pytest.mark.database
def test_a_check_does_not_say_that_a_table_can_have_rows_of_unknown_columns(shop: Shop, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(CONFIG.format(url="kafka://broker:9092", database=shop.url))
    shop.query("CREATE TABLE orders (id integer, must integer NOT NULL)")
    (table,) = (each for each in database_checks(load_config(config)) if each.what == "table")
    assert table.ok and "is there; the columns of the rows are inferred by the first start" in table.detail


@pytest.mark.database
def test_writers_whose_first_records_differ_agree_on_the_columns_of_the_one_that_makes_the_table(shop: Shop) -> None:
    one, other = (shop.sink(first=partial(infer, value)) for value in (b'{"id": 1}', b'{"id": "x", "b": 0.5}'))
    assert not one.exists and not other.exists
    one.create_dataset()
    other.create_dataset()  # both have looked, and found nothing
    feed = Given()
    other.write(feed.records([b'{"id": 2, "b": 0.5}', b'{"id": "x"}']))
    other.commit()
    assert shop.types() == {"id": "bigint", "b": "double precision"}
    assert shop.query("SELECT id, b FROM orders") == [(2, 0.5)]
    assert [reason for _, reason, _ in shop.letters()] == ["WrongType at byte 7 of the value, in id"]


@pytest.mark.parametrize(
    ("sink", "begin", "why"),
    [
        ({"mode": "upsert", "key": ["id"], "envelope": "debezium"}, "earliest", "is a file for an envelope"),
        ({"mode": "upsert", "key": ["id"]}, "latest", 'mode = "upsert" and start = "latest"'),
    ],
)
def test_what_needs_columns_before_the_first_record_is_refused(sink: dict[str, Any], begin: str, why: str) -> None:
    texts: list[str] = []
    tell: Callable[[Any, str], None] = lambda path, text: texts.append(text)  # noqa: E731
    decode = {"format": "json", "schema": "infer", "columns": ["*", "_key"]}
    check_decode(("decode",), decode, {"type": "postgresql"} | sink, "kafka", tell, begin)
    assert len(texts) == 1 and why in texts[0], texts
