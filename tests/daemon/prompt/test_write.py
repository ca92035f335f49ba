"""Writing at a prompt, on the embedded brokers of all systems."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import orjson
import polars as pl
import pyarrow as pa
import pytest

import fastwire_daemon as fw
from fastwire.errors import FastwireError
from fastwire.systems import SYSTEMS
from fastwire_daemon.config import ConfigError
from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.server import running

pd: Any = pytest.importorskip("pandas")

VALUES = [b"%d" % n for n in range(2500)]


@pytest.fixture(params=SYSTEMS)
def broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A broker of each system, with a topic of one partition."""
    with running(dev_broker(request.param)) as made:
        made.create_topic("copies", 1)
        yield made


@pytest.fixture
def kafka() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions())) as made:
        made.create_topic("copies", 3)
        yield made


def read(broker: Any) -> pa.Table:
    return fw.read(broker.url, "copies").to_table()


def test_rows_are_confirmed_when_it_returns(broker: Any) -> None:
    done = fw.write(broker.url, "copies", pa.table({"value": VALUES}))
    assert done.records == len(VALUES)
    assert read(broker)["value"].to_pylist() == VALUES
    assert broker.violations == []


def test_rows_are_objects_where_no_column_is_the_value(broker: Any) -> None:
    rows = [{"id": n, "city": "Zürich\n" if n % 2 else None} for n in range(100)]
    fw.write(broker.url, "copies", pl.DataFrame(rows))
    assert [orjson.loads(value) for value in read(broker)["value"].to_pylist()] == rows


SOURCES: dict[str, Any] = {
    "a table": lambda table: table,
    "a batch": lambda table: table.to_batches()[0],
    "a reader": lambda table: table.to_reader(),
    "polars": pl.from_arrow,
    "pandas": lambda table: pd.DataFrame({"value": table["value"].to_pylist(), "id": table["id"].to_pylist()}),
    "duckdb": lambda table: duckdb.from_arrow(table),
    "dictionaries": lambda table: table.set_column(0, "value", table["value"].dictionary_encode()),
    "views": lambda table: table.set_column(0, "value", table["value"].cast(pa.string_view())),
}


@pytest.mark.parametrize("source", SOURCES)
def test_whatever_gives_arrow_data(kafka: KafkaDevBroker, source: str) -> None:
    table = pa.table({"value": ["a", "b", "ü"], "id": [1, 2, 3]})
    fw.write(kafka.url, "copies", SOURCES[source](table), value="value", key="id")
    found = read(kafka)
    assert sorted(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == [
        (b"1", b"a"),
        (b"2", b"b"),
        (b"3", "ü".encode()),
    ]


def test_all_parts_of_a_record(kafka: KafkaDevBroker) -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    table = pa.table(
        {
            "body": [b"x", None, b"z"],
            "who": pa.array(["a", None, "c"]),
            "at": pa.array([time] * 3, pa.timestamp("ns", "UTC")),
            "to": pa.array([2, 0, 1], pa.int64()),
            "tags": pa.array([[("k", b"v")], [], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    fw.write(
        kafka.url, "copies", table, value="body", key="who", event_time="at", partition="to", headers="tags"
    )  # fmt: skip
    found = {row["partition"]: row for row in read(kafka).to_pylist()}
    assert [found[n]["value"] for n in (2, 0, 1)] == [b"x", None, b"z"]
    assert [found[n]["key"] for n in (2, 0, 1)] == [b"a", None, b"c"]
    assert {row["timestamp"] for row in found.values()} == {time}
    assert found[2]["headers"] == [{"key": "k", "value": b"v"}]


def test_what_was_read_is_written(kafka: KafkaDevBroker) -> None:
    kafka.create_topic("orders", 2)
    for partition in range(2):
        kafka.produce("orders", VALUES, partition)
    records = fw.read(kafka.url, "orders")
    done = fw.write(kafka.url, "copies", records, key="key", headers="headers", partition="partition")
    assert done.records == 2 * len(VALUES)
    assert sorted(read(kafka)["value"].to_pylist()) == sorted(VALUES * 2)


FORMS: dict[str, tuple[pa.Array, object]] = {
    "bytes of a fixed size": (pa.array([b"ab"], pa.binary(2)), "YWI="),
    "bytes in a list": (pa.array([[b"ab"]]), ["YWI="]),
    "views in a struct": (pa.array([{"s": "é"}], pa.struct([("s", pa.string_view())])), {"s": "é"}),
    "names by number": (pa.DictionaryArray.from_arrays([0], pa.array(["é"], pa.string_view())), "é"),
    "a list of a fixed size": (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), [1, 2]),
    "a half": (pa.array([1.5], pa.float16()), 1.5),
    "a date": (pa.array([0], pa.date64()), "1970-01-01"),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_columns_in_objects(kafka: KafkaDevBroker, form: str) -> None:
    column, found = FORMS[form]
    fw.write(kafka.url, "copies", pa.table({"x": column}))
    [value] = read(kafka)["value"].to_pylist()
    assert orjson.loads(value) == {"x": found}


@pytest.mark.parametrize(
    ("sql", "key", "said"),
    [
        ("SELECT INTERVAL 1 DAY AS x", None, "has no JSON form, cast it first"),
        ("SELECT 1 AS x", "id", 'there is no column "id"'),
    ],
)
def test_an_engine_is_free_after_a_failure(kafka: KafkaDevBroker, sql: str, key: str | None, said: str) -> None:
    """Also while the error is kept, as a prompt does it: its frames hold the stream."""
    with duckdb.connect() as engine:
        with pytest.raises(ValueError, match=said) as kept:
            fw.write(kafka.url, "copies", engine.sql(sql), key=key)
        assert fw.write(kafka.url, "copies", engine.sql("SELECT 1 AS x")).records == 1
        assert kept.tb is not None


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "one name twice": (pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]), {}, 'several columns "a"'),
    "no data": (5, {}, "int gives no Arrow data"),
    "a column": ({"value": [b"x"]}, {"key": "id"}, 'there is no column "id": there are value'),
    "a value": ({"id": [1]}, {"value": "id"}, 'the column "id" is int64, and must be text or bytes'),
    "a key": ({"value": [b"x"], "id": [[1]]}, {"key": "id"}, "which is no key"),
    "a partition": ({"value": [b"x"], "to": [1.5]}, {"partition": "to"}, "partitions are whole numbers"),
    "a far partition": ({"value": [b"x"], "to": [1 << 40]}, {"partition": "to"}, "has no partition in a row"),
    "headers": ({"value": [b"x"], "tags": [1]}, {"headers": "tags"}, "headers are a map"),
    "a time": ({"value": [b"x"], "at": [1]}, {"event_time": "at"}, "event times are timestamps"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_written(kafka: KafkaDevBroker, what: str) -> None:
    data, keys, said = WRONG[what]
    with pytest.raises(ValueError, match=said):
        fw.write(kafka.url, "copies", pa.table(data) if isinstance(data, dict) else data, **keys)
    assert read(kafka).num_rows == 0


def test_errors_of_connections(kafka: KafkaDevBroker) -> None:
    table = pa.table({"value": VALUES})
    with pytest.raises(ConfigError, match="pasword"):
        fw.write(kafka.url, "copies", table, auth={"pasword": "x"})
    with pytest.raises(FastwireError):
        fw.write("kafka://127.0.0.1:1", "copies", table)


def test_no_rows(kafka: KafkaDevBroker) -> None:
    assert fw.write(kafka.url, "copies", pa.table({"value": pa.array([], pa.binary())})).records == 0
