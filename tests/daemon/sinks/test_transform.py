"""A dataset of decoded values after a query: rows, dead letters, counts, folders, growing columns, and `verify`."""

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.evolution import columns_of
from fastwire.decode.program import SchemaError
from fastwire_daemon.config.decode import RegistryConfig
from fastwire_daemon.config.sql.rowwise import Query, read_query, read_transform
from fastwire_daemon.dataset.commitlog.entry import LogEntry, entry_name
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.net.schemaregistry import SchemaRegistry
from fastwire_daemon.runtime.errors import DatasetMismatchError, LogRefusedError, SinkFailedError
from fastwire_daemon.sinks.recordschemas import RegisteredSchemas
from fastwire_daemon.sinks.transform import TransformedValues
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from fastwire_daemon.testing import Feed
from tests.support.avro import encode
from tests.support.decoded_dataset import GivenFeed, Opened, dead_letters, files, rows
from tests.support.schema_registry import SchemaRegistryServer, framed, serving

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"}, {"name": "text", "type": "string"},
    {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]}  # fmt: skip
OWN = tuple(f"_{name}" for name in ("topic", "partition", "offset", "ledger", "timestamp"))


def transformed(
    text: str, schema: Any = ORDER, *, levels: tuple[str, ...] = (), carries_time: bool = False, **more: Any
) -> TransformedValues:
    program = compile_avro(json.dumps(schema))
    fields = tuple(field["name"] for field in schema["fields"])
    query, result = read_transform(text, columns_of(program), fields, "pulsar", carries_time=carries_time)
    inner = ValueDecoder(program, (*fields, *query.own), "pulsar", open_ended=True, **more)
    return TransformedValues(inner, query, result, own=OWN, levels=levels, evolve=more.get("evolve", "add"))


def orders(texts: list[str], first: int = 0) -> list[bytes]:
    return [encode(ORDER, {"id": first + i, "text": text, "made": i * 3_600_000}) for i, text in enumerate(texts)]


def entry(path: Path, number: int) -> LogEntry:
    return LogEntry.decode((path / entry_name(number)).read_bytes(), "entry")


def test_rows_of_a_query_land_and_the_commit_counts_the_others(opened: Opened, tmp_path: Path) -> None:
    sink = opened(
        transformed("SELECT id * 2 AS twice, upper(text) AS t, _ledger, _offset FROM batch WHERE id % 3 <> 0")
    )
    sink.write(GivenFeed().chunk_of(orders(["a"] * 10)))
    assert sink.decoded == (0, 0, 0, 0)
    sink.commit()
    assert sink.decoded == (6, 0, 0, 4)
    assert rows(tmp_path / "data") == [
        {"twice": 2 * i, "t": "A", "_ledger": 7, "_offset": 0} for i in range(10) if i % 3
    ]
    written = entry(tmp_path / "data", 1)
    assert (sum(span.rows for span in written.spans), written.rows, written.filtered, written.unselected) == (
        10,
        6,
        4,
        4,
    )
    report = verify(tmp_path / "data", deep=True)
    assert (report.problems, report.rows, report.filtered, report.unselected) == ([], 6, 4, 4)
    assert report.placed_files == 1


def test_rows_stay_in_the_folders_and_the_order_of_their_logs(opened: Opened, tmp_path: Path) -> None:
    digits: dict[str, Any] = {"type": "record", "name": "Digits", "fields": [
        {"name": "partition", "type": {"type": "fixed", "name": "One", "size": 1}},
        {"name": "rest", "type": {"type": "fixed", "name": "Rest", "size": 4}},
    ]}  # fmt: skip
    text = "SELECT partition, rest, _partition, _offset FROM batch WHERE rest[-1:]::VARCHAR <> '3'"
    sink = opened(transformed(text, digits, carries_time=True), split="partition", partition_by="hour")
    feed = Feed(partitions=3, rows=12, entry_ms=3_000_000)  # two values of each entry have a byte too much
    sink.write(feed.chunk(12))
    sink.commit()
    data = tmp_path / "data"
    assert len(rows(data)) == 12 * 9
    for file in files(data):
        table = pq.read_table(file, partitioning=None)
        assert table.schema.names == ["partition", "rest", "_partition", "_offset"]
        partition = next(part for part in file.parts if part.startswith("p=")).removeprefix("p=")
        assert set(table["partition"].to_pylist()) == {partition.encode()}
        assert set(table["_partition"].to_pylist()) == {int(partition)}
        places = [row["rest"][1:] for row in table.to_pylist()]
        assert places == sorted(places)
        assert all(row["rest"].startswith(b":%d:" % row["_offset"]) for row in table.to_pylist())
    report = verify(data, deep=True)
    assert (report.problems, report.filtered, report.unselected, report.dead_letters) == ([], 36, 12, 24)


def test_a_row_on_which_the_query_fails_is_a_dead_letter(opened: Opened, tmp_path: Path) -> None:
    sink = opened(transformed("SELECT id, text::INTEGER AS n FROM batch WHERE 100 // id < 50"))
    texts = ["0", "1", "2", "x", "4", "5", "y", "7"]  # id 0 divides by zero, ids 1 and 2 are left out
    values = orders(texts)
    values[5] = b"\x02"  # is not a record
    sink.write(GivenFeed().chunk_of(values))
    sink.commit()
    assert rows(tmp_path / "data") == [{"id": 4, "n": 4}, {"id": 7, "n": 7}]
    dead = dead_letters(tmp_path / "data")
    assert [letter["payload"] for letter in dead] == [values[i] for i in (5, 0, 3, 6)]
    assert all(letter["position"] == dead[0]["position"] for letter in dead)
    assert dead[1]["reason"].startswith("TransformFailed: Invalid Input Error: Division by zero")
    assert dead[2]["reason"].startswith("TransformFailed: Conversion Error: Could not convert string 'x' to INT32")
    written = entry(tmp_path / "data", 1)
    assert (written.rows, written.filtered, written.unselected) == (2, 6, 2)
    assert sink.decoded == (2, 4, 0, 2)
    assert verify(tmp_path / "data", deep=True).problems == []


def test_many_failing_rows_need_few_queries(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    select = TransformedValues._select

    def counting(self: TransformedValues, sql: str, source: pa.RecordBatch) -> pa.Table:
        nonlocal asked
        asked += 1
        return select(self, sql, source)

    monkeypatch.setattr(TransformedValues, "_select", counting)
    sink = opened(transformed("SELECT text::INTEGER AS n FROM batch"))
    sink.write(GivenFeed().chunk_of(orders(["x" if i % 2 else "1" for i in range(3_000)])))
    sink.commit()
    assert (len(rows(tmp_path / "data")), len(dead_letters(tmp_path / "data"))) == (1_500, 1_500)
    assert asked < 30


def test_rows_are_divided_where_duckdb_cannot_tell_which_fail(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransformedValues, "_failing", lambda self, source: [])
    sink = opened(transformed("SELECT id, text::INTEGER AS n FROM batch"))
    texts = ["x" if i in (3, 40, 41) else str(i) for i in range(64)]
    sink.write(GivenFeed().chunk_of(orders(texts)))
    sink.commit()
    assert [row["n"] for row in rows(tmp_path / "data")] == [i for i in range(64) if i not in (3, 40, 41)]
    assert [letter["payload"] for letter in dead_letters(tmp_path / "data")] == [orders(texts)[i] for i in (3, 40, 41)]


def test_a_value_that_takes_too_much_memory_is_a_dead_letter(opened: Opened, tmp_path: Path) -> None:
    sink = opened(transformed("SELECT id, repeat(text, id * 1000) AS n FROM batch"))
    sink.write(GivenFeed().chunk_of(orders(["abcdefghij"] * 3 + ["a"], first=0) + orders(["abcdefghij"], first=9_000)))
    sink.commit()
    assert [row["id"] for row in rows(tmp_path / "data")] == [0, 1, 2, 3]
    (dead,) = dead_letters(tmp_path / "data")
    assert dead["reason"].startswith("TransformFailed: Out of Memory Error")


def test_a_list_that_takes_too_much_memory_is_a_dead_letter(opened: Opened, tmp_path: Path) -> None:
    sink = opened(transformed("SELECT id, list_sum(range(id::BIGINT * 1000000)) AS n FROM batch"))
    sink.write(GivenFeed().chunk_of(orders(["a"] * 3, first=0) + orders(["a"], first=900) + orders(["a"], first=3)))
    sink.commit()
    assert [row["id"] for row in rows(tmp_path / "data")] == [0, 1, 2, 3]
    (dead,) = dead_letters(tmp_path / "data")
    assert dead["reason"].startswith("TransformFailed: Out of Memory Error")


def test_a_row_that_ends_the_process_is_a_dead_letter(opened: Opened, tmp_path: Path) -> None:
    sink = opened(decoder := transformed("SELECT id, text::INTEGER AS n FROM batch"))
    select, ended = decoder._process._asked, []

    def asked(message: Any, wait: Any) -> Any:
        if "worse" in pa.ipc.open_stream(message[2]).read_all()["text"].to_pylist():
            ended.append(1)
            return None
        return select(message, wait)

    decoder._process._asked = asked  # type: ignore[method-assign]
    sink.write(GivenFeed().chunk_of(orders(["1", "worse", "2"])))
    sink.commit()
    assert [row["n"] for row in rows(tmp_path / "data")] == [1, 2]
    (dead,) = dead_letters(tmp_path / "data")
    assert dead["reason"].startswith("TransformFailed: the process of the query has ended: more than 128 MiB") and ended


def test_a_process_that_was_killed_starts_again(opened: Opened, tmp_path: Path) -> None:
    sink, feed = opened(decoder := transformed("SELECT id FROM batch")), GivenFeed()
    sink.write(feed.chunk_of(orders(["a"])))
    process = decoder._process._process
    assert process is not None
    process.kill()
    process.wait()
    sink.write(feed.chunk_of(orders(["a"], first=1)))
    sink.commit()
    assert [row["id"] for row in rows(tmp_path / "data")] == [0, 1]
    (again,) = [decoder._process._process]
    assert again is not None and again is not process
    decoder._process.end()
    assert again.returncode is not None


# Minutes for an id of 9, and no time for one of 0.
LONG = "SELECT id, levenshtein(repeat(text, 40000 * id::BIGINT), repeat('b', 40000 * id::BIGINT)) AS n FROM batch"


def test_a_row_whose_query_has_no_end_is_a_dead_letter(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_TIME_S", 0.5), ("_WALL", 1000), ("_QUIET_S", 0.0)):
        monkeypatch.setattr(f"fastwire_daemon.config.sql.process.{name}", value)
    sink = opened(transformed(LONG))
    reasons: list[str | None] = []
    monkeypatch.setattr(sink, "_on_full", reasons.append)
    short, long = orders(["a"])[0], orders(["a"], first=9)[0]
    sink.write(GivenFeed().chunk_of([*[short] * 30, long, short]))
    sink.commit()
    assert [row["id"] for row in rows(tmp_path / "data")] == [0] * 31
    (dead,) = dead_letters(tmp_path / "data")
    assert dead["payload"] == long
    assert dead["reason"] == "TransformFailed: the query takes more than 0.5 s of processor time"
    assert any(why and why.startswith("the query of the transform has run for") for why in reasons)
    assert reasons[-1] is None


def test_a_query_without_end_ends_with_the_sink(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.config.sql.process._QUIET_S", 0.0)
    sink = opened(decoder := transformed(LONG))
    monkeypatch.setattr(sink, "_on_full", lambda why: sink.interrupt() if why else None)
    with pytest.raises(SinkFailedError, match="stopped while it waited: the query of the transform has run for"):
        sink.write(GivenFeed().chunk_of(orders(["a"], first=9)))
    assert decoder._process._process is None


def test_a_process_that_does_not_run_is_no_fault_of_its_rows(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("_QUIET_S", 0.0), ("_LOOK_S", 0.0), ("_TIME_S", 0.0), ("_TIME_ROW_S", 0.01)):
        monkeypatch.setattr(f"fastwire_daemon.config.sql.process.{name}", seconds)
    sink, feed = opened(decoder := transformed("SELECT id FROM batch")), GivenFeed()
    sink.write(feed.chunk_of(orders(["a"])))
    process = decoder._process._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(SinkFailedError, match="the process of the transform: it has not answered for"):
        sink.write(feed.chunk_of(orders(["a"], first=1)))
    assert process.returncode is not None


def test_a_row_that_raises_an_error_of_its_own_is_a_dead_letter(opened: Opened, tmp_path: Path) -> None:
    sink = opened(transformed("SELECT CASE WHEN text = 'no' THEN error('no ' || id) ELSE id END AS id FROM batch"))
    sink.write(GivenFeed().chunk_of(orders(["a", "no", "b", "no"])))
    sink.commit()
    assert [int(row["id"]) for row in rows(tmp_path / "data")] == [0, 2]
    reasons = [letter["reason"] for letter in dead_letters(tmp_path / "data")]
    assert reasons == ["TransformFailed: Invalid Input Error: no 1", "TransformFailed: Invalid Input Error: no 3"]


def test_results_that_files_do_not_hold_are_dead_letters(opened: Opened, tmp_path: Path) -> None:
    sink = opened(transformed("SELECT text::HUGEINT AS n, [text::HUGEINT] AS l FROM batch WHERE id < 3"))
    texts = ["9" * 38, "1" + "0" * 38, "-" + "9" * 38]
    sink.write(GivenFeed().chunk_of(orders(texts)))
    sink.commit()
    assert [int(row["n"]) for row in rows(tmp_path / "data")] == [int(texts[0]), int(texts[2])]
    (dead,) = dead_letters(tmp_path / "data")
    assert dead["reason"].startswith("TransformFailed: Conversion Error")


@pytest.mark.parametrize("shown", ["{}", "[{}]", "{{'a': {}}}", "MAP {{'a': {}}}"])
@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMPTZ"])
def test_infinite_times_are_dead_letters(opened: Opened, tmp_path: Path, kind: str, shown: str) -> None:
    sink = opened(transformed(f"SELECT id, {shown.format(f'text::{kind}')} AS d FROM batch WHERE id <> 1"))
    sink.write(GivenFeed().chunk_of(orders(["infinity", "x", "-infinity", "2026-01-01", "290000-01-01"])))
    sink.commit()
    assert [row.as_py() for file in files(tmp_path / "data") for row in pq.read_table(file)["id"]] == [3, 4]
    assert [letter["reason"] for letter in dead_letters(tmp_path / "data")] == [
        "TransformFailed: the column d is infinite"
    ] * 2


def test_a_number_that_a_record_has_is_no_infinite_time(opened: Opened, tmp_path: Path) -> None:
    schema = {**ORDER, "fields": [
        ORDER["fields"][0], {"name": "made", "type": {"type": "long", "logicalType": "timestamp-micros"}}
    ]}  # fmt: skip
    sink = opened(transformed("SELECT *, made + INTERVAL 1 DAY AS later FROM batch WHERE id < 2", schema))
    values = [encode(schema, {"id": i, "made": made}) for i, made in enumerate([5, (1 << 63) - 1])]
    sink.write(GivenFeed().chunk_of(values))
    sink.commit()
    assert not dead_letters(tmp_path / "data")
    found = [row.value for file in files(tmp_path / "data") for row in pq.read_table(file)["made"]]
    assert found == [5, (1 << 63) - 1]


def test_a_row_on_which_the_query_fails_can_stop_its_log(opened: Opened) -> None:
    sink = opened(transformed("SELECT text::INTEGER AS n FROM batch", on_error="stop"))
    with pytest.raises(LogRefusedError, match=r"at 7:0 cannot be transformed: TransformFailed: Conversion Error"):
        sink.write(GivenFeed().chunk_of(orders(["1", "x"])))


def test_a_roll_without_a_row_left_is_a_commit(opened: Opened, tmp_path: Path) -> None:
    sink = opened(transformed("SELECT id FROM batch WHERE id < 0"))
    sink.write(GivenFeed().chunk_of(orders(["a", "b"])))
    assert sink.commit().logs()
    assert rows(tmp_path / "data") == []
    report = verify(tmp_path / "data")
    assert (report.problems, report.unselected) == ([], 2)


def test_columns_of_the_result_name_folders(opened: Opened, tmp_path: Path) -> None:
    text = "SELECT id, lower(text) AS kind, made FROM batch WHERE id <> 1"
    sink = opened(transformed(text, levels=("kind",)), levels=("kind",), partition_by="hour(made)")
    sink.write(GivenFeed().chunk_of(orders(["A", "b", "B" * 300, "A"])))
    sink.commit()
    assert sorted(str(file.parent.relative_to(tmp_path / "data")) for file in files(tmp_path / "data")) == [
        "dt=1970-01-01/hh=00/kind=a", "dt=1970-01-01/hh=03/kind=a",
    ]  # fmt: skip
    assert [row["id"] for row in rows(tmp_path / "data")] == [0, 3]
    (dead,) = dead_letters(tmp_path / "data")
    assert dead["reason"] == "TooLongForAFolder at byte 0 of the value, in kind"
    report = verify(tmp_path / "data")
    assert (report.problems, report.filtered, report.unselected) == ([], 2, 1)


GROWN: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
WIDER: dict[str, Any] = {**ORDER, "fields": [{"name": "id", "type": "long"}, *ORDER["fields"][1:]]}


def of_registry(server: SchemaRegistryServer, text: str, **more: Any) -> TransformedValues:
    return transformed(
        text, schemas=RegisteredSchemas(SchemaRegistry(RegistryConfig.model_validate({"url": server.url}))), **more
    )


def test_a_star_grows_with_the_schema_and_named_columns_do_not(opened: Opened, tmp_path: Path) -> None:
    record = {"id": 1, "text": "t", "made": 0, "note": "n"}
    with serving() as server:
        server.register(1, ORDER)
        server.register(2, GROWN)
        values = [framed(1, encode(ORDER, record)), framed(2, encode(GROWN, record))]
        feed = GivenFeed()
        sink = opened(of_registry(server, "SELECT * EXCLUDE (made), 1 AS one FROM batch"))
        sink.write(feed.chunk_of(values))
        sink.commit()
        tables = [pq.read_table(file, partitioning=None).to_pylist() for file in files(tmp_path / "data")]
        assert tables == [[{"id": 1, "text": "t", "one": 1}], [{"id": 1, "text": "t", "note": "n", "one": 1}]]
        assert [column.name for column in sink.types] == ["id", "text", "one", "note"]
        assert sink.decoded == (2, 0, 1, 0)
        sink.close()
        fixed = opened(of_registry(server, "SELECT id, text, 1 AS one FROM batch"))
        fixed.write(feed.chunk_of(values[1:]))
        fixed.commit()
        assert len(fixed.types) == 4
    assert verify(tmp_path / "data", deep=True).problems == []


def test_columns_take_the_wider_types_of_the_dataset(opened: Opened, tmp_path: Path) -> None:
    wide = opened(transformed("SELECT id, text FROM batch", WIDER))
    feed = GivenFeed()
    wide.write(feed.chunk_of([encode(WIDER, {"id": 1 << 40, "text": "a", "made": 0})]))
    wide.commit()
    wide.close()
    narrow = opened(transformed("SELECT id, text FROM batch"))
    narrow.write(feed.chunk_of(orders(["b"])))
    narrow.commit()
    types = {pq.read_schema(file).field("id").type for file in files(tmp_path / "data")}
    assert types == {pa.int64()}


def test_a_new_field_with_the_name_of_a_result_ends_the_pipeline(opened: Opened) -> None:
    record = {"id": 1, "text": "t", "made": 0, "note": "n"}
    with serving() as server:
        server.register(2, GROWN)
        sink = opened(of_registry(server, "SELECT *, 1 AS note FROM batch"))
        with pytest.raises(DatasetMismatchError, match='has the column "note" more than once'):
            sink.write(GivenFeed().chunk_of([framed(2, encode(GROWN, record))]))


def test_strict_columns_are_those_of_the_dataset(opened: Opened) -> None:
    opened(transformed("SELECT id FROM batch")).create_dataset()
    other = transformed("SELECT id, text FROM batch", evolve="strict")
    with pytest.raises(DatasetMismatchError, match="the dataset and the transform differ in these columns: text"):
        opened(other, columns=("id",))
    with pytest.raises(SchemaError, match="id: the column has string, and the schema has int32"):
        transformed("SELECT text AS id FROM batch").adopt(transformed("SELECT id FROM batch").types)


def test_memory_of_results_counts_until_they_are_written(opened: Opened) -> None:
    sink = opened(transformed("SELECT id, text FROM batch"))
    feed = GivenFeed()
    sink.write(feed.chunk_of(orders(["a" * 1_000] * 2_000)))
    assert feed.held_bytes == 0
    assert sink.unpooled_bytes > 2_000_000 or sink.staged_bytes > 0
    sink.commit()
    assert sink.unpooled_bytes == 0


def test_rows_in_another_order_void_the_roll(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = transformed("SELECT id FROM batch")
    query = read_query("SELECT id FROM batch", ("id",), ())
    monkeypatch.setattr(decoder, "_query", Query(f"{query.sql} ORDER BY id", query.failing, ()))
    sink = opened(decoder)
    with pytest.raises(SinkFailedError, match="not those of the batch, in its order"):
        sink.write(GivenFeed().chunk_of([*orders(["a"], first=5), *orders(["b"], first=1)]))


def test_a_process_that_does_not_start_voids_the_roll(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = opened(transformed("SELECT id FROM batch"))
    monkeypatch.setattr("fastwire_daemon.config.sql.process._MAIN", "raise SystemExit(3)")
    with pytest.raises(SinkFailedError, match="the process of the transform: it does not start"):
        sink.write(GivenFeed().chunk_of(orders(["a"])))
