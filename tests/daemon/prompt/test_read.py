"""Reading at a prompt, on the embedded brokers of all systems."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fastwire_daemon as fw
from fastwire.columns.chunk import DeadLetter
from fastwire.errors import FastwireError
from fastwire.position import Log
from fastwire_daemon.client import connect
from fastwire_daemon.config import ConfigError
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.prompt.query import opened, tables_of, with_topics
from tests.daemon.prompt import ROWS

_MAP_OF_NUMBERS, _MAP_OF_TEXTS = pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string())


@pytest.fixture
def kafka() -> Iterator[KafkaDevBroker]:
    with running(KafkaDevBroker(KafkaOptions())) as made:
        made.create_topic("orders", 2)
        yield made


def test_all_that_a_topic_holds(broker: Any) -> None:
    table = fw.read(broker.url, "orders").to_table()
    assert sorted(table["value"].to_pylist()) == sorted(b"%d-%d" % (p, n) for p in range(2) for n in range(ROWS))
    for partition in range(2):
        own = table.filter(pc.equal(table["partition"], partition))["value"].to_pylist()
        assert own == [b"%d-%d" % (partition, n) for n in range(ROWS)]
    if hasattr(broker, "violations"):
        assert broker.violations == []


def test_names_and_numbers_in_an_array(broker: Any) -> None:
    """Those of a frame are an index of Pandas, which has no truth value."""
    chosen: dict[str, Any] = {"columns": np.array(["value", "partition"]), "partitions": np.array([1])}
    table = fw.read(broker.url, "orders", **chosen).to_table()
    assert table.column_names == ["value", "partition"] and set(table["partition"].to_pylist()) == {1}


def test_partitions_columns_and_a_limit(broker: Any) -> None:
    chosen = fw.read(broker.url, "orders", partitions=[1], columns=["value", "partition"]).to_table()
    assert chosen.column_names == ["value", "partition"]
    assert chosen["value"].to_pylist() == [b"1-%d" % n for n in range(ROWS)]
    assert fw.read(broker.url, "orders", limit=7).to_table().num_rows == 7
    assert fw.read(broker.url, "orders", limit=0).to_table().num_rows == 0


def test_only_columns_that_are_wanted_are_built(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the scanner, which fills no others; also those by which rows are chosen."""
    built: list[set[str]] = []
    record_batch = pa.record_batch

    def noted(chunk: Any) -> pa.RecordBatch:
        batch = record_batch(chunk)
        built.append(set(batch.schema.names))
        return batch

    monkeypatch.setattr(pa, "record_batch", noted)
    table = fw.read(broker.url, "orders", columns=["value"]).to_table()
    assert (table.num_rows, table.column_names) == (2 * ROWS, ["value"])
    assert {name for names in built for name in names} == {"value"}
    built.clear()
    table = fw.read(broker.url, "orders", columns=["value"], partitions=[1]).to_table()
    assert (table.num_rows, table.column_names) == (ROWS, ["value"])
    assert {name for names in built for name in names} == {"value", "partition", "timestamp"}
    built.clear()
    next(fw.follow(broker.url, "orders", columns=["value"]))
    assert {name for names in built for name in names} == {"value"}


def test_a_topic_without_records_has_its_columns(broker: Any) -> None:
    broker.create_topic("empty", 1)
    empty = fw.read(broker.url, "empty").to_table()
    full = fw.read(broker.url, "orders").to_table()
    assert empty.num_rows == 0 and empty.column_names == full.column_names
    kinds = {True: pa.string()}
    assert empty.schema.types == [kinds.get(pa.types.is_dictionary(each), each) for each in full.schema.types]


def test_an_end_is_before_the_first_record_of_that_time(kafka: KafkaDevBroker) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    for partition in range(2):
        kafka.produce("orders", [b"%d" % n for n in range(10)], partition)
    times = fw.read(kafka.url, "orders", columns=["timestamp"]).to_table()["timestamp"].to_pylist()
    assert fw.read(kafka.url, "orders", end=began).to_table().num_rows == 0
    assert fw.read(kafka.url, "orders", end=max(times) + timedelta(seconds=1)).to_table().num_rows == 20
    assert fw.read(kafka.url, "orders", end=min(times)).to_table().num_rows == 0


def test_frames(broker: Any) -> None:
    records = fw.read(broker.url, "orders", columns=["value", "partition"])
    assert records.to_polars().shape == (2 * ROWS, 2)
    assert records.to_pandas()["partition"].sum() == ROWS
    assert pl.DataFrame(records).height == 2 * ROWS
    with duckdb.connect() as connection:
        relation = records.to_duckdb(connection, 'my "orders"')
        assert relation.count("*").fetchall() == [(2 * ROWS,)]
    assert sum(batch.num_rows for batch in records.to_reader()) == 2 * ROWS


def test_in_a_running_loop_and_on_any_thread(broker: Any) -> None:
    async def notebook() -> int:
        return int(fw.read(broker.url, "orders").to_table().num_rows)

    assert asyncio.run(notebook()) == 2 * ROWS
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(fw.read(broker.url, "orders").to_table().num_rows))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2 * ROWS] * 3


def test_no_thread_is_left(broker: Any) -> None:
    def ours() -> list[str]:
        return [each.name for each in threading.enumerate() if each.name == "fastwire read"]

    batches = fw.read(broker.url, "orders").batches()
    next(batches)
    assert len(ours()) == 1
    batches.close()  # type: ignore[attr-defined]
    assert ours() == []
    with pytest.raises(FastwireError):
        fw.read(f"{broker.url.partition('://')[0]}://127.0.0.1:1", "orders").to_table()
    assert ours() == []


SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(SCHEMA))
    return file


def test_decoded_values(broker: Any, schema: Path) -> None:
    broker.create_topic("typed", 1)
    broker.produce("typed", [b'{"id": %d}' % n for n in range(10)], 0)
    decode = {"format": "json", "schema": str(schema)}
    table = fw.read(broker.url, "typed", decode=decode).to_table()
    assert table.to_pydict() == {"id": list(range(10))}
    table = fw.read(broker.url, "typed", decode=decode, columns=["id", "_partition"]).to_table()
    assert table.column_names == ["id", "_partition"]
    broker.create_topic("empty", 1)
    assert fw.read(broker.url, "empty", decode=decode).to_table().schema == pa.schema([("id", pa.int64())]).set(
        0, pa.field("id", pa.int64(), nullable=False)
    )


def test_what_cannot_be_decoded_is_told_and_kept(kafka: KafkaDevBroker, schema: Path) -> None:
    kafka.produce("orders", [b'{"id": 1}', b"no json", b'{"id": 3}'], 0)
    records = fw.read(kafka.url, "orders", decode={"format": "json", "schema": str(schema)})
    with pytest.warns(
        UserWarning, match="^1 records cannot be decoded and are left out; the first one, of orders partition 0"
    ):
        assert records.to_table().to_pydict() == {"id": [1, 3]}
    [letter] = records.dead_letters
    assert isinstance(letter, DeadLetter) and letter.payload == b"no json" and records.dead_letter_count == 1
    stop = {"format": "json", "schema": str(schema), "on_error": "stop"}
    with pytest.raises(FastwireError, match="does not match the schema"):
        fw.read(kafka.url, "orders", decode=stop).to_table()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no topic": ({"topic": ()}, "either topics or a pattern"),
    "a column": ({"columns": ["price"]}, '"price" is not a column: known are key, value'),
    "a start": ({"start": "yesterday"}, "yesterday"),
    "a start of another type": ({"start": 5}, "a start is a text or a datetime, not 5"),
    "an end": ({"end": "soon"}, 'end is "now" or a time with its zone'),
    "an end without zone": ({"end": datetime(2026, 1, 1)}, "needs a zone"),  # noqa: DTZ001
    "a limit": ({"limit": -1}, "limit is a number of rows"),
    "no columns": ({"columns": []}, r"columns is a list of names, None for all columns, and not \[\]"),
    "a column twice": ({"columns": ["value", "key", "value"]}, 'columns has "value" twice'),
    "a topic that is no text": ({"topic": 3}, "a topic is a text, not 3"),
    "a part of a row": ({"limit": 1.5}, "limit is a number of rows, not 1.5"),
    "one column": ({"columns": "value"}, "columns is a list of names"),
    "columns that are gone once they are read": ({"columns": iter(["value"])}, "columns is a list of names"),
    "no inferred columns": ({"columns": [], "decode": "json"}, "columns is a list of names"),
    "one partition": ({"partitions": 1}, r"partitions are several numbers, such as \[1\], not 1"),
    "partitions as a text": ({"partitions": "1"}, "partitions are several numbers, such as .*, not '1'"),
    "a partition as a text": ({"partitions": ["1"]}, "partitions are several numbers"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_refused_at_once(what: str) -> None:
    keys, said = WRONG[what]
    with pytest.raises(ValueError, match=said):
        fw.read("kafka://127.0.0.1:1", **({"topic": "orders"} | keys))


def test_keys_of_connections_and_decoders_are_those_of_a_configuration() -> None:
    with pytest.raises(ConfigError, match="tls"):
        fw.read("kafka://127.0.0.1:1", "orders", tls={"cafile": "x"})
    with pytest.raises(ConfigError, match="schema"):
        fw.read("kafka://127.0.0.1:1", "orders", decode="avro")
    with pytest.raises(ConfigError, match="registry: brokers of Kafka keep no schemas"):
        fw.read("kafka://127.0.0.1:1", "orders", decode={"format": "avro", "registry": "pulsar"})


def test_columns_of_json_are_inferred_without_a_table(broker: Any) -> None:
    """By the word alone, from the records themselves."""
    broker.create_topic("values", 1)
    broker.produce("values", [b'{"id": %d, "city": {"name": "Bern"}}' % number for number in range(10)], 0)
    for each in (fw.read(broker.url, "values", decode="json"), fw.follow(broker.url, "values", decode="json")):
        batch = next(iter(each))
        assert batch["id"].to_pylist() == list(range(10))
        assert batch["city"][0].as_py() == {"name": "Bern"}


def test_columns_that_are_inferred_can_be_named(broker: Any) -> None:
    """A reader has these columns and no others, also where later records have further fields."""
    broker.create_topic("values", 1)
    broker.produce("values", [b'{"id": 1}'] * 9_999 + [b'{"id": 2, "city": "Bern"}', b'{"id": 3, "more": 1}'], 0)
    wanted: dict[str, Any] = {"decode": "json", "columns": ["city", "_partition"], "progress": False}
    records = fw.read(broker.url, "values", **wanted)
    for table in (records.to_table(), records.to_reader().read_all()):
        assert table.column_names == ["city", "_partition"] and table.num_rows == 10_001
        assert table["city"].drop_null().to_pylist() == ["Bern"]
    with pytest.raises(FastwireError, match=r'first 10,000 records have no field "ctiy", did you mean "city"\? The'):
        fw.read(broker.url, "values", **wanted | {"columns": ["ctiy"]}).to_table()
    assert fw.read(broker.url, "values", **wanted | {"limit": 0}).to_table().column_names == ["city", "_partition"]
    first = next(iter(fw.follow(broker.url, "values", decode="json", columns=["city", "absent"])))
    assert first.records.schema.names == ["city", "absent"] and first["absent"].null_count == first.num_rows


def test_no_columns_are_no_table_of_an_engine(kafka: KafkaDevBroker) -> None:
    with (
        duckdb.connect() as engine,
        pytest.raises(FastwireError, match="orders has no columns yet"),
    ):
        fw.read(kafka.url, "orders", decode="json", progress=False).to_duckdb(engine, "t")


def test_a_line_of_progress(kafka: KafkaDevBroker, capsys: pytest.CaptureFixture[str]) -> None:
    kafka.produce("orders", [b"x"] * 10, 0)
    assert fw.read(kafka.url, "orders", progress=True).to_table().num_rows == 10
    assert fw.read(kafka.url, "orders", progress=False).to_table().num_rows == 10
    capsys.readouterr()


def test_the_share_of_what_a_topic_holds(broker: Any) -> None:
    """From the start of the reading to the ends of then; Pulsar's positions do not tell."""

    async def shares() -> list[float | None]:
        async with connect(broker.url).read("orders", start="earliest") as reader:
            found: list[float | None] = [reader.share]
            async for _ in reader.up_to_now():
                found.append(reader.share)
            return [*found, reader.share]

    first, *others = asyncio.run(shares())
    assert first is None
    if broker.url.startswith("pulsar"):
        assert {*others} == {None}
    else:
        known = [share for share in others if share is not None]
        assert known == sorted(known) and known[-1] == 1


def test_a_line_of_progress_in_a_notebook(kafka: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One output of the cell, which is replaced, without a package for widgets."""
    monkeypatch.setattr("fastwire_daemon.prompt.progress.EVERY_S", 0.0)
    lines: list[str] = []

    def shown(line: dict[str, str], **_: object) -> SimpleNamespace:
        lines.append(line["text/plain"])
        return SimpleNamespace(update=shown)

    python: Any = ModuleType("IPython")
    python.get_ipython = lambda: SimpleNamespace(kernel=object())
    display: Any = ModuleType("IPython.display")
    display.display = shown
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    kafka.produce("orders", [b"x"] * 10, 0)
    fw.read(kafka.url, "orders", progress=False).to_table()
    assert lines == []
    fw.read(kafka.url, "orders").to_table()
    assert {line.partition("  ")[0] for line in lines} == {"10 rows"}
    assert "  100%  " in lines[-1]
    lines.clear()
    python.get_ipython = lambda: None  # imported by another package
    fw.read(kafka.url, "orders").to_table()
    assert lines == []


def test_what_a_notebook_shows(kafka: KafkaDevBroker) -> None:
    assert repr(fw.read(kafka.url, "t")) == f"<Records of t at {kafka.url}: to_polars() and others read them>"


def test_names_at_the_prompt() -> None:
    assert fw.__all__ == ["follow", "read", "write"]
    with pytest.raises(AttributeError, match="no attribute 'red'"):
        fw.red  # noqa: B018


def test_a_table_has_the_widest_types_of_its_records_and_a_reader_says_that_it_cannot(
    kafka: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = {"format": "json", "schema": "infer", "evolve": "widen"}
    run = (Log("kafka", "c", "orders", "0"), 0, 1)
    first, filler, last = [b'{"a": 1, "s": {"b": 2}}'], [b"{}"] * 9_999, [b'{"a": "x", "s": {"b": 0.5, "c": true}}']

    def reading(columns: list[str] | None = None) -> Any:
        made = fw.read(kafka.url, "orders", decode=decode, columns=columns, progress=False)
        pieces = [(pa.record_batch({"value": some}), [(*run[:2], len(some))]) for some in (first, filler, last)]
        monkeypatch.setattr(made, "_pieces", lambda stream: iter(pieces))
        return made

    rows = reading().to_table().to_pylist()
    assert rows[0] == {"a": "1", "s": {"b": 2.0, "c": None}} and rows[-1] == {"a": "x", "s": {"b": 0.5, "c": True}}
    with pytest.raises(FastwireError, match=r"later record makes the column a string, and the first .* int64"):
        reading(["a"]).to_reader().read_all()
    first[0] = b'{"s": {"b": 1}, "a": %d}' % (2**53 + 1)
    last[0] = b'{"a": 0.5}'
    with pytest.raises(FastwireError, match="the column a has whole numbers that the double of other records would"):
        reading().to_table()


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (pa.array([1]), pa.array(["007"])),
        (pa.array([True]), pa.array(["1"])),
        (pa.array([1.5], pa.float32()), pa.array([0.1])),
        (pa.array([[1]]), pa.array([["007"]])),
        (pa.array([{"x": 1, "y": 2}]), pa.array([{"x": "007"}])),
        (pa.array([[("k", 1)]], _MAP_OF_NUMBERS), pa.array([[("k", "07")]], _MAP_OF_TEXTS)),
    ],
)
def test_a_reader_does_not_make_other_values_of_those_of_a_wider_column(
    kafka: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch, first: pa.Array, later: pa.Array
) -> None:
    records = fw.read(kafka.url, "orders", progress=False)
    batches = [pa.record_batch([each], ["a"]) for each in (first, later)]
    monkeypatch.setattr(records, "batches", lambda only: iter(batches))
    with pytest.raises(FastwireError, match="a later record makes the column a "):
        records.to_reader().read_all()


@pytest.mark.parametrize("more", [{"s": {"x": 2, "y": 3}}, {"l": [{"x": [{"y": 1}]}]}, {"n": 1}])
def test_a_reader_does_not_drop_what_later_records_have_within_a_column(
    kafka: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    records = fw.read(kafka.url, "orders", progress=False)
    first = {"s": {"x": 1}, "l": [{"x": [{"z": 1}]}]}
    batches = [pa.RecordBatch.from_pylist([each]) for each in (first, {"l": None, "s": {"x": 2}}, more)]
    monkeypatch.setattr(records, "batches", lambda only: iter(batches[:2]))
    assert records.to_reader().read_all()["s"].to_pylist() == [{"x": 1}, {"x": 2}]
    monkeypatch.setattr(records, "batches", lambda only: iter(batches))
    with pytest.raises(FastwireError, match=r"has the column (s\.y|l\.item\.x\.item\.y|n), which the first"):
        records.to_reader().read_all()


def test_inferred_columns_of_a_reader_are_those_of_all_first_records(
    kafka: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = fw.read(kafka.url, "orders", decode={"format": "json", "schema": "infer"}, progress=False)

    def given(*values: list[bytes]) -> None:
        runs = [(Log("kafka", "c", "orders", "0"), 0, len(some)) for some in values]
        pieces = [(pa.record_batch({"value": some}), [run]) for some, run in zip(values, runs, strict=True)]
        monkeypatch.setattr(records, "_pieces", lambda stream: iter(pieces))

    given([b'{"id": 1}'], [b'{"id": 2.5, "new": {"deep": [1]}}'], [b'{"id": 3}'])
    reader = records.to_reader()
    assert reader.schema.names == ["id", "new"] and str(reader.schema.field("id").type) == "double"
    assert [row["id"] for row in reader.read_all().to_pylist()] == [1.0, 2.5, 3.0]
    given([b'{"id": 1}'], [b"{}"] * 9_999, [b'{"id": 3, "new": 1}'])
    with pytest.raises(FastwireError, match="a later record has the column new, which the first records lack"):
        records.to_reader().read_all()


def test_of_inferred_columns_a_query_decodes_those_that_it_names(kafka: KafkaDevBroker) -> None:
    kafka.create_topic("wide", 1)
    first = [b'{"id": 1, "x": 1, "s": {"a": 1}, "Deep": [1]}', *[b"{}"] * 9_999]
    kafka.produce("wide", [*first, b'{"id": 2, "x": "wrong", "new": 1}', b'{"id": "no"}', b'{"x": ', b'{"id": 4}'], 0)
    records = fw.read(kafka.url, "wide", decode="json", progress=False)
    with pytest.warns(UserWarning, match="2 records cannot be decoded"):
        table = records.to_reader(["ID", "nothing"]).read_all()
    assert table.column_names == ["id"] and table["id"].drop_null().to_pylist() == [1, 2, 4]
    assert [each.reason for each in records.dead_letters] == [
        "WrongType at byte 7 of the value, in id", "Truncated at byte 6 of the value",
    ]  # fmt: skip
    assert records.names == ("id", "x", "s", "Deep")
    kafka.produce("wide", [b'{"s": {"a": 1, "b": 2}}'], 0)
    with pytest.warns(UserWarning, match="1 records cannot be decoded"):  # what is named grows, too
        assert records.to_reader(["s"]).read_all()["s"].to_pylist()[-1] == {"a": 1, "b": 2}


def test_a_query_that_names_its_columns_goes_on_where_later_records_have_others(
    kafka: KafkaDevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = fw.read(kafka.url, "orders", progress=False)
    batches = [pa.RecordBatch.from_pylist([each]) for each in ({"ID": 1, "x": 1}, {"ID": 2, "new": 1})]
    monkeypatch.setattr(records, "batches", lambda only: iter(batches))
    with opened(64 << 20) as engine:
        for sql, found in (("SELECT sum(id) FROM orders", 3), ("SELECT count(*) FROM orders", 2)):
            (table,) = tables_of(engine, sql, {"orders": "orders"})
            with_topics(engine, [(table, records)])
            assert engine.execute(sql).fetchall() == [(found,)]
