"""Datasets of records as they are, after a query: files, dead letters, what `verify` says, and wrong queries."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.runtime.errors import DatasetMismatchError, LogRefusedError
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.decodedstdout import DecodedStdoutSink
from fastwire_daemon.sinks.registry import build_sink
from fastwire_daemon.testing import Feed
from tests.support.decoded_dataset import dead_letters, files, rows

TOPIC = "persistent://public/default/feed"


def config_of(query: str | None, sink: str, source: str = "") -> Any:
    transform = "" if query is None else f"transform = {json.dumps(query)}"
    return parse_config(f"""
        [pipelines.p]
        {transform}
        [pipelines.p.source]
        url = "pulsar://127.0.0.1:6650"
        cluster = "feed"
        topics = ["{TOPIC}"]
        subscription = "s"
        start = "earliest"
        {source}
        [pipelines.p.sink]
        {sink}
    """).pipelines["p"]


def landed(
    query: str | None, path: Path, more: str = 'type = "parquet"', source: str = "", topic: str = TOPIC
) -> DatasetSink:
    """Land 8 entries of 12 records of two partitions, in one commit."""
    sink = build_sink(config_of(query, f'path = "{path}"\n{more}', source), memory=1 << 28)
    assert isinstance(sink, DatasetSink)
    try:
        sink.open()
        sink.write(Feed(partitions=2, rows=12, entry_ms=3_000_000, topic=topic).chunk(8))
        sink.commit()
    finally:
        sink.close()
    return sink


def test_rows_that_a_query_selects_land_as_they_are(tmp_path: Path) -> None:
    data = tmp_path / "data"
    sink = landed("SELECT * FROM batch WHERE value::VARCHAR NOT LIKE '%:3'", data)
    assert sink.decoded == (88, 0, 0, 8)
    landed(None, tmp_path / "plain")
    (file,), (other,) = files(data), files(tmp_path / "plain")
    assert pq.read_schema(file).names == pq.read_schema(other).names
    expected = [row for row in pq.read_table(other).to_pylist() if not row["value"].endswith(b":3")]
    assert pq.read_table(file).to_pylist() == expected
    report = verify(data, deep=True)
    assert (report.problems, report.rows, report.filtered, report.unselected) == ([], 88, 8, 8)
    assert report.placed_files == 1  # by offset


def test_computed_columns_stand_beside_those_of_the_records(tmp_path: Path) -> None:
    data = tmp_path / "data"
    row = "split_part(value::VARCHAR, ':', 3)::INT"
    query = f'SELECT "offset", ledger, sha256(key) AS hash, {row} AS row FROM batch'
    more = 'type = "parquet"\ncolumns = ["value"]\npartition_by = "hour"\nsplit = "partition"'
    landed(query, data, more)
    assert {tuple(pq.read_schema(file).names) for file in files(data)} == {("offset", "ledger", "hash", "row")}
    assert sorted({row["row"] for row in rows(data)}) == list(range(12))
    assert {len(row["hash"]) for row in rows(data)} == {64}
    report = verify(data, deep=True)
    assert (report.problems, report.rows, report.unselected) == ([], 96, 0)
    assert report.placed_files == len(files(data)) > 2


def test_a_row_on_which_the_query_fails_is_treated_by_on_corrupt(tmp_path: Path) -> None:
    number = "split_part(value::VARCHAR, ':', 3)"
    query = f"SELECT value, CAST(replace({number}, '10', 'ten') AS INT) AS i FROM batch WHERE len({number}) = 2"
    data = tmp_path / "data"
    landed(query, data)
    assert {row["i"] for row in rows(data)} == {11}
    dead = dead_letters(data)
    assert len(dead) == 8
    assert all(each["payload"].endswith(b":10") and "TransformFailed" in each["reason"] for each in dead)
    report = verify(data, deep=True)
    assert (report.problems, report.rows, report.filtered, report.unselected) == ([], 8, 88, 80)
    with pytest.raises(LogRefusedError, match="cannot be transformed"):
        landed("SELECT value, value::VARCHAR::INT AS i FROM batch", tmp_path / "other", source='on_corrupt = "stop"')


def test_folders_of_computed_columns_and_lines_of_json(tmp_path: Path) -> None:
    data = tmp_path / "data"
    more = 'type = "jsonl"\npartition_by = { column = "part" }'
    query = "SELECT value, split_part(value::VARCHAR, ':', 1) AS part, value[1:2] AS head FROM batch"
    landed(query, data, more)
    lines = [json.loads(line) for file in data.rglob("part=*/*.jsonl") for line in file.read_text().splitlines()]
    assert len(lines) == 96
    # Values are as in files of records, bytes that the query made as those of decoded values.
    assert {line["head"] for line in lines} == {"MDo=", "MTo="}
    assert all(line["value"].count(":") == 2 and "part" not in line for line in lines)


def test_a_table_has_the_columns_of_the_query(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    data = tmp_path / "data"
    landed("SELECT value, timestamp, upper(topic) AS loud FROM batch WHERE partition = 1", data, 'type = "delta"')
    table = deltalake.DeltaTable(str(data)).to_pyarrow_table()
    assert (table.num_rows, table.schema.names) == (48, ["value", "timestamp", "loud"])
    assert table.schema.field("value").type == pa.binary()
    report = verify(data, deep=True)
    assert (report.problems, report.unselected) == ([], 48)


def test_a_dataset_of_decoded_values_takes_no_records_as_they_are(tmp_path: Path) -> None:
    data = tmp_path / "data"
    query = 'SELECT value, "offset", 1 AS one FROM batch'
    landed(query, data)
    landed(query.replace("1 AS one", "1 AS one, 2 AS two"), data, topic=f"{TOPIC}-2")
    description = data / "_fastwire" / "dataset.json"
    decoded = json.loads(description.read_text()) | {"columns": ["one", "_offset"]}
    description.write_text(json.dumps(decoded))
    with pytest.raises(DatasetMismatchError, match='with "_" before the columns of the records; configured: with ""'):
        landed(query, data)


def test_rows_of_a_query_are_printed() -> None:
    config = config_of("SELECT value FROM batch", 'type = "stdout"')
    assert isinstance(build_sink(config, memory=1 << 28), DecodedStdoutSink)


@pytest.mark.parametrize(
    ("query", "sink", "expected"),
    [
        ("SELECT count(*) FROM batch", 'type = "stdout"', 'p.transform: "count_star" aggregates'),
        ("SELECT a.* FROM batch a, batch b", 'type = "stdout"', "p.transform: joins tables"),
        ("SELECT unnest(headers) FROM batch", 'type = "stdout"', '"unnest" makes rows up'),
        ("SELECT valu FROM batch", 'type = "stdout"', 'there is no column "valu", did you mean "value"'),
        ("SELECT sha256(value) AS value FROM batch", 'type = "stdout"', '"value" is a column of the records'),
        ("SELECT value FROM batch", 'type = "discard"', "is for the sinks parquet, .*, not for discard"),
        ("", 'type = "stdout"', "p.transform: is empty"),
        ("SELECT value FROM batch", 'type = "parquet"\npath = "d"\npartition_by = { column = "kind" }',
         'p.sink.partition_by: there is no column "kind" in the transform'),
        ("SELECT value FROM batch",
         'type = "stdout"\n[pipelines.p.decode]\nformat = "json"\nschema = "docs/orders.avsc"',
         "p.transform: is a key of the table decode, where there is one"),
    ],
)  # fmt: skip
def test_mistakes_have_their_key(query: str, sink: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        config_of(query, sink)
