"""A dataset of decoded values: columns, dead letters in the same commit, and what `verify` says."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.expiry import expire
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.encoders.arrow import ArrowEncoder
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.runtime.errors import DatasetMismatchError, LogRefusedError
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.testing import Feed
from tests.support.avro import encode
from tests.support.decoded_dataset import (
    COLUMNS,
    FIVE,
    REGISTERED,
    Changes,
    GivenFeed,
    Opened,
    as_one,
    dead_letters,
    decoder,
    files,
    rows,
    tables,
)


def test_fields_land_as_columns_and_bad_values_as_letters_of_the_same_commit(opened: Opened, tmp_path: Path) -> None:
    sink = opened()
    assert sink.needed_columns == {"value", "offset", "ledger", "timestamp"}
    feed = Feed(partitions=2, rows=12)  # the last two rows of each entry have six bytes
    sink.write(feed.chunk(4))
    assert sink.decoded == (0, 0, 0, 0)  # nothing is committed yet
    coverage = sink.commit()
    assert sink.decoded == (40, 8, 0, 0)
    landed = rows(tmp_path / "data")
    values = [b"".join((row["partition_digit"], row["offset"], *row["rest"].values())) for row in landed]
    expected = feed.values_of(coverage)
    assert sorted(values) == sorted(value for value in expected if len(value) == 5)
    assert all(b":%d" % row["_offset"] == row["offset"] for row in landed)
    dead = dead_letters(tmp_path / "data")
    assert sorted(letter["payload"] for letter in dead) == sorted(value for value in expected if len(value) == 6)
    assert {letter["reason"] for letter in dead} == {"TrailingBytes at byte 5 of the value"}
    for letter in dead:
        partition, entry, _ = letter["payload"].decode().split(":")
        assert (letter["partition"], letter["position"].split(":")[1]) == (partition, entry)


def test_verify_knows_the_rows_of_dead_letters(opened: Opened, tmp_path: Path) -> None:
    sink, feed = opened(), Feed(partitions=2, rows=12)
    for _ in range(3):
        sink.write(feed.chunk(4))
        sink.commit()
    report = verify(tmp_path / "data", deep=True)
    assert report.problems == []
    assert (report.rows, report.filtered, report.dead_letters) == (120, 24, 24)
    assert report.placed_files == 2  # by _offset: a field named offset is not a position


def test_a_roll_of_bad_values_alone_is_a_commit(opened: Opened, tmp_path: Path) -> None:
    sink = opened(decoder(schema={**FIVE, "fields": [{"name": "f", "type": "boolean"}]}))
    sink.write(Feed(partitions=1, rows=3).chunk(1))
    coverage = sink.commit()
    assert rows(tmp_path / "data") == []
    assert {letter["reason"] for letter in dead_letters(tmp_path / "data")} == {
        "InvalidBoolean at byte 0 of the value, in f"
    }
    assert coverage.logs()
    assert verify(tmp_path / "data").problems == []


def test_bad_values_of_a_dropped_roll_are_not_counted_again(opened: Opened, tmp_path: Path) -> None:
    sink = opened()
    sink.write(Feed(partitions=1, rows=12).chunk(2))
    sink.open()
    sink.write(Feed(partitions=1, rows=12).chunk(1))
    sink.commit()
    report = verify(tmp_path / "data")
    assert (report.problems, report.rows, report.dead_letters) == ([], 10, 2)
    assert sink.decoded == (10, 2, 0, 0)


@pytest.mark.parametrize("partition_by", ["none", "hour"])
def test_folders_hold_the_rows_that_belong_there(opened: Opened, tmp_path: Path, partition_by: str) -> None:
    extra = () if partition_by == "none" else ("_timestamp",)
    sink = opened(decoder(extra=extra), split="partition", partition_by=partition_by)
    feed = Feed(partitions=3, rows=12, entry_ms=3_000_000)
    sink.write(feed.chunk(12))
    sink.commit()
    for file in files(tmp_path / "data"):
        partition = next(part for part in file.parts if part.startswith("p=")).removeprefix("p=")
        table = pq.read_table(file, partitioning=None)
        assert set(table["partition_digit"].to_pylist()) == {partition.encode()}
        assert table.schema.names == ["partition_digit", "offset", "rest", "_offset"]
    assert len(rows(tmp_path / "data")) == 12 * 10


def test_a_bad_value_can_stop_its_log(opened: Opened, tmp_path: Path) -> None:
    sink, feed = opened(decoder(on_error="stop")), Feed(partitions=2, rows=12)
    with pytest.raises(LogRefusedError, match=r"at \d+:0 does not match the schema: TrailingBytes") as caught:
        sink.write(feed.chunk(2))
    assert [log for log in feed.logs if caught.value.concerns(log)] == feed.logs[:1]
    sink.open()
    assert dead_letters(tmp_path / "data") == []


def test_other_types_are_another_dataset(opened: Opened) -> None:
    sink = opened()
    sink.write(Feed(rows=1).chunk(1))
    sink.commit()
    other = {**FIVE, "fields": [*FIVE["fields"][:2], {"name": "rest", "type": "bytes"}]}
    with pytest.raises(DatasetMismatchError, match=r"decoded columns do not fit .*: rest: the column has struct, and"):
        opened(decoder(schema=other))


def test_files_of_decoded_values_expire(opened: Opened, tmp_path: Path) -> None:
    sink = opened()
    sink.write(Feed(partitions=1, rows=12).chunk(2))
    sink.commit()
    sink.close()
    assert expire(tmp_path / "data", older_s=0.0).rows == 20
    assert files(tmp_path / "data") == []


def test_values_as_they_are_do_not_land_beside_decoded_ones(opened: Opened, tmp_path: Path) -> None:
    opened().create_dataset()
    options = DatasetOptions(system="pulsar", cluster="feed", columns=("value",))
    with pytest.raises(DatasetMismatchError, match="the columns of the dataset: partition_digit"):
        DatasetSink(tmp_path / "data", options, ParquetEncoder).open()


def test_arrow_files_have_the_same_columns(opened: Opened, tmp_path: Path) -> None:
    sink = opened(encoder=ArrowEncoder, extension="arrow")
    sink.write(Feed(partitions=1, rows=12).chunk(2))
    sink.commit()
    report = verify(tmp_path / "data", deep=True)
    assert (report.problems, report.rows, report.filtered) == ([], 20, 4)


def test_lines_of_json_have_the_fields_of_the_values(opened: Opened, tmp_path: Path) -> None:
    schema = {**REGISTERED, "fields": [
        {"name": "id", "type": "long"},
        {"name": "blob", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "double"]}},
    ]}  # fmt: skip
    one = {"id": 1, "blob": b"abc", "price": Decimal("-0.50"), "at": 1, "tags": {"a": 1.5, "b": None}}
    sink = opened(decoder(("*", "_key"), schema), JsonlEncoder, extension="jsonl.gz", compression="gzip")
    sink.write(GivenFeed().chunk_of([encode(schema, one), b"", encode(schema, one)]))
    sink.commit()
    (file,) = files(tmp_path / "data")
    line = {
        "id": 1, "blob": "YWJj", "price": "-0.50", "at": "1970-01-01T00:00:00.001000Z", "tags": {"a": 1.5, "b": None},
        "_key": "0",
    }  # fmt: skip
    assert [json.loads(each) for each in gzip.decompress(file.read_bytes()).splitlines()] == [line, line]
    report = verify(tmp_path / "data", deep=True)
    assert (report.problems, report.rows, report.filtered) == ([], 2, 1)


def test_decoded_columns_count_as_memory_until_they_are_written(opened: Opened) -> None:
    sink = opened()
    sink.write(Feed(partitions=1, rows=10).chunk(1))
    sink.commit()
    assert sink.unpooled_bytes == 0


# --- tombstones


def test_null_values_become_rows_that_say_so(opened: Opened, tmp_path: Path) -> None:
    sink, feed = opened(decoder(("*", "_key", "_deleted"), REGISTERED)), Changes()
    one = encode(REGISTERED, {"id": 1, "country": "DE"})
    for _ in range(2):  # the second roll has the columns of the dataset
        sink.write(feed.chunk_of([one, None, one[:-1], None, one]))
        sink.commit()
    told = {"id": 1, "country": "DE", "_deleted": False}
    gone = {"id": None, "country": None, "_deleted": True}
    landed = [{"_key": b"%d" % i, **row} for i, row in ((0, told), (1, gone), (3, gone), (4, told))]
    assert rows(tmp_path / "data") == [*landed, *landed]
    assert tables(tmp_path / "data")[0].schema.field("_deleted") == pa.field("_deleted", pa.bool_(), nullable=False)
    assert [letter["reason"].partition(" ")[0] for letter in dead_letters(tmp_path / "data")] == ["Truncated"] * 2
    assert sink.decoded == (8, 2, 0, 0)
    assert verify(tmp_path / "data", deep=True).problems == []


def test_values_need_their_fields_also_where_null_values_are_rows(opened: Opened, tmp_path: Path) -> None:
    sink, feed = opened(decoder(("*", "_deleted"), REGISTERED, form="json")), Changes()
    for _ in range(2):  # the second roll has the columns of the dataset
        sink.write(feed.chunk_of([b'{"id": 1, "country": "DE"}', None, b'{"id": 1}']))
        sink.commit()
    assert [row["_deleted"] for row in rows(tmp_path / "data")] == [False, True] * 2
    assert [letter["reason"].partition(" ")[0] for letter in dead_letters(tmp_path / "data")] == ["MissingField"] * 2


def test_null_values_are_dead_letters_unless_the_column_is_asked_for(opened: Opened, tmp_path: Path) -> None:
    sink = opened(decoder(("*", "_key"), COLUMNS))
    sink.write(Changes().chunk_of([None, encode(COLUMNS, {"country": None, "id": 1, "tag": "x"})]))
    sink.commit()
    assert [row["_key"] for row in rows(tmp_path / "data")] == [b"1"]
    (letter,) = dead_letters(tmp_path / "data")
    assert (letter["reason"], letter["payload"]) == ("NoValue at byte 0 of the value", b"")


def test_a_field_may_have_the_name_of_the_column(opened: Opened, tmp_path: Path) -> None:
    schema = {**REGISTERED, "fields": [{"name": "_deleted", "type": "int"}]}
    sink = opened(decoder(("*",), schema))
    sink.write(Changes().chunk_of([b"\2", None]))
    sink.commit()
    assert rows(tmp_path / "data") == [{"_deleted": 1}]


def test_a_dataset_may_take_tombstones_later(opened: Opened, tmp_path: Path) -> None:
    one = encode(REGISTERED, {"id": 1, "country": "DE"})
    sink = opened(decoder(("*",), REGISTERED))
    sink.write(GivenFeed().chunk_of([one]))
    coverage = sink.commit()
    later = opened(decoder(("*", "_deleted"), REGISTERED))
    later.write(GivenFeed(start=coverage).chunk_of([one]))
    later.commit()
    assert [row["_deleted"] for row in as_one(tmp_path / "data")] == [None, False]
    assert [str(column) for column in later.types] == ["id int32", "country string"]
