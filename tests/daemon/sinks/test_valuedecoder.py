"""A dataset of decoded values: columns, dead letters in the same commit, folders, and what `verify` says."""

import gzip
import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.decode.avro.schema import compile_avro
from fastwire.pulsar.format.payload import Record, encode_batch
from fastwire_daemon.config.decode import RegistryConfig, chosen_columns
from fastwire_daemon.dataset.commitlog.deadletterfile import read_dead_letters
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.expiry import expire
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.encoders.arrow import ArrowEncoder
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.net.schemaregistry import SchemaRegistry
from fastwire_daemon.runtime.errors import DatasetMismatchError, LogRefusedError, SinkFailedError, Superseded
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.sinks.recordschemas import RegisteredSchemas
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from fastwire_daemon.testing import Feed
from tests.daemon.sinks.test_sinks import files
from tests.support.avro import encode
from tests.support.schema_registry import SchemaRegistryServer, framed, serving
from tests.support.waiting import eventually

# The values of a feed are texts such as 0:7:12, and those of five bytes match this schema.
FIVE = {
    "type": "record",
    "name": "Five",
    "fields": [
        {"name": "partition_digit", "type": {"type": "fixed", "name": "Digit", "size": 1}},
        {"name": "offset", "type": {"type": "fixed", "name": "Colon", "size": 2}},
        {"name": "rest", "type": {"type": "record", "name": "Rest", "fields": [
            {"name": "colon", "type": {"type": "fixed", "name": "One", "size": 1}},
            {"name": "row", "type": "Digit"},
        ]}},
    ],
}  # fmt: skip
Opened = Callable[..., DatasetSink]


def decoder(wanted: tuple[str, ...] = ("*", "_offset"), schema: Any = FIVE, **more: Any) -> ValueDecoder:
    program = compile_avro(json.dumps(schema))
    levels = more.get("levels", ())
    columns = tuple(name for name in chosen_columns(wanted, program, "pulsar") if name not in levels)
    return ValueDecoder(program, columns, "pulsar", open_ended="*" in wanted, **more)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Makes opened sinks with a decoder, all for one folder, and closes them."""
    made: list[DatasetSink] = []

    def make(
        made_by: ValueDecoder | None = None, encoder: Any = ParquetEncoder, *, compression: Any = None, **fixed: Any
    ) -> DatasetSink:
        decoder_ = decoder() if made_by is None else made_by
        options = DatasetOptions(
            **{"system": "pulsar", "cluster": "feed", "columns": decoder_.columns, "types": decoder_.types, **fixed}
        )
        made.append(DatasetSink(tmp_path / "data", options, encoder, decoder=decoder_, compression=compression))
        made[-1].open()
        return made[-1]

    yield make
    for sink in made:
        sink.close()


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for file in files(path) for row in pq.read_table(file, partitioning=None).to_pylist()]


def dead_letters(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in sorted(path.glob("_fastwire/diverted/*")):
        found += read_dead_letters(io.BytesIO(file.read_bytes())).to_pylist()
    return found


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


REGISTERED: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"}, {"name": "country", "type": "string"},
]}  # fmt: skip
COLUMNS: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "country", "type": ["null", "string"]}, {"name": "id", "type": "long"},
    {"name": "tag", "type": "string", "default": "none"},
]}  # fmt: skip


class GivenFeed(Feed):
    """A feed of one partition, whose values are given."""

    def __init__(self, start: Coverage | None = None) -> None:
        super().__init__(partitions=1, start=start)

    def chunk_of(self, values: list[bytes]) -> Chunk:
        """Return one entry with these values."""
        self._rows, self._given = len(values), values
        return self.chunk(1)

    def _values(self, partition: int, entry: int) -> list[bytes]:
        return self._given


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with serving() as server:
        server.register(7, REGISTERED)
        yield server


def of_registry(server: SchemaRegistryServer, schema: Any = COLUMNS, **more: Any) -> ValueDecoder:
    config = RegistryConfig.model_validate({"url": server.url})
    return decoder(("*",), schema, schemas=RegisteredSchemas(SchemaRegistry(config)), **more)


def orders(count: int, id: int = 7) -> list[bytes]:
    return [framed(id, encode(REGISTERED, {"id": i, "country": "DE"})) for i in range(count)]


def test_values_of_a_registry_are_read_into_the_columns(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    registry.register(8, {**REGISTERED, "fields": REGISTERED["fields"][:1]})
    registry.register(9, {**REGISTERED, "fields": [{"name": "id", "type": "string"}]})
    registry.register(10, REGISTERED, schemaType="JSON")
    sink, feed = opened(of_registry(registry)), GivenFeed()
    values = orders(20)
    values[3] = framed(8, b"\x06")
    values[4:7] = [framed(id, b"\2a") for id in (9, 10, 11)]
    values[7] = b"no id"
    sink.write(feed.chunk_of(values))
    sink.commit()
    assert rows(tmp_path / "data") == [
        {"country": None if i == 3 else "DE", "id": i, "tag": "none"} for i in range(20) if not 4 <= i < 8
    ]
    reasons = [letter["reason"].split(" (")[0] for letter in dead_letters(tmp_path / "data")]
    assert reasons == [
        "IncompatibleSchema 9", "IncompatibleSchema 10", "UnknownSchema 11", "NoSchemaId at byte 0 of the value",
    ]  # fmt: skip
    registry.register(11, REGISTERED)
    sink.write(feed.chunk_of(orders(2, 11)))
    sink.commit()
    assert len(rows(tmp_path / "data")) == 18
    assert sorted(registry.paths) == sorted([*(f"/schemas/ids/{id}" for id in range(7, 12)), "/schemas/ids/11"])


def test_a_registry_that_is_away_holds_back_the_values_and_says_so(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    registry.away = True
    sink = opened(of_registry(registry))
    writing = threading.Thread(target=sink.write, args=[GivenFeed().chunk_of(orders(5))])
    writing.start()
    eventually(lambda: len(registry.paths) > 2, "a second attempt")
    eventually(lambda: "the schema registry is away: " in (sink.waiting or ""), "a reason for the wait")
    registry.away = False
    writing.join()
    assert sink.waiting is None
    sink.commit()
    assert len(rows(tmp_path / "data")) == 5
    assert dead_letters(tmp_path / "data") == []


def test_the_wait_for_a_registry_ends_with_the_sink(opened: Opened, registry: SchemaRegistryServer) -> None:
    registry.away = True
    sink, failed = opened(of_registry(registry)), []

    def write() -> None:
        try:
            sink.write(GivenFeed().chunk_of(orders(5)))
        except SinkFailedError as exc:
            failed.append(str(exc))

    writing = threading.Thread(target=write)
    writing.start()
    eventually(lambda: sink.waiting, "a wait")
    sink.interrupt()
    writing.join()
    assert "the sink was stopped while it waited: the schema registry is away" in failed[0]


WIDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "country", "type": "string"}, {"name": "note", "type": "string"},
]}  # fmt: skip


def wider(count: int) -> list[bytes]:
    return [framed(8, encode(WIDER, {"id": (1 << 40) + i, "country": "FR", "note": "n"})) for i in range(count)]


def tables(path: Path) -> list[pa.Table]:
    return [pq.read_table(file, partitioning=None) for file in files(path)]


def as_one(path: Path) -> list[dict[str, Any]]:
    """Return the rows as a reader that unites the columns of the files by name returns them."""
    united: list[dict[str, Any]] = pa.concat_tables(tables(path), promote_options="permissive").to_pylist()
    return united


@pytest.mark.parametrize("partition_by", ["none", "day"])
def test_columns_of_a_newer_schema_are_added(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path, partition_by: str
) -> None:
    registry.register(8, WIDER)
    extra = () if partition_by == "none" else ("_timestamp",)
    sink = opened(of_registry(registry, REGISTERED, extra=extra), partition_by=partition_by)
    older = orders(10)
    sink.write(GivenFeed().chunk_of([*older[:5], *wider(3), *older[5:]]))
    coverage = sink.commit()
    expected = [{"id": i, "country": "DE", "note": None} for i in range(10)]
    expected[5:5] = [{"id": (1 << 40) + i, "country": "FR", "note": "n"} for i in range(3)]
    assert as_one(tmp_path / "data") == expected
    assert sorted(table.schema.names for table in tables(tmp_path / "data")) == [
        ["id", "country"], ["id", "country", "note"],
    ]  # fmt: skip
    assert [str(column) for column in sink.types] == ["id int64 not null", "country string not null", "note string"]
    assert sink.decoded == (13, 0, 1, 0)
    assert verify(tmp_path / "data", deep=True).problems == []
    # A daemon that knows the older schema only has the new columns from the dataset, and asks for nothing else.
    other = opened(of_registry(registry, REGISTERED, extra=extra), partition_by=partition_by)
    other.write(GivenFeed(start=coverage).chunk_of(orders(1)))
    other.commit()
    assert tables(tmp_path / "data")[-1].schema.names == ["id", "country", "note"]
    assert [path for path in registry.paths if path.endswith("8")] == ["/schemas/ids/8"]


@pytest.mark.parametrize("evolve", ["strict", "dead_letter"])
def test_columns_of_a_newer_schema_are_refused(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path, evolve: str
) -> None:
    registry.register(8, WIDER)
    sink, feed = opened(of_registry(registry, REGISTERED, evolve=evolve)), GivenFeed()
    chunk = feed.chunk_of([*orders(2), *wider(1)])
    if evolve == "strict":
        with pytest.raises(LogRefusedError, match=r"NewColumns 8 \(id int64 not null, note string\)"):
            sink.write(chunk)
        return
    sink.write(chunk)
    sink.commit()
    assert len(rows(tmp_path / "data")) == 2
    (letter,) = dead_letters(tmp_path / "data")
    assert letter["reason"].startswith("NewColumns 8 (id int64 not null, note string)")


@pytest.mark.parametrize("by", ["a column", "a folder"])
def test_a_field_of_a_newer_schema_takes_no_column_of_the_records(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path, by: str
) -> None:
    """Its values would land in place of offsets or times, and the next start would refuse the dataset."""
    own = "_offset" if by == "a column" else "_timestamp"
    hides = {**REGISTERED, "fields": [*REGISTERED["fields"], {"name": own, "type": "string"}]}
    registry.register(8, hides)

    def made() -> ValueDecoder:
        config = RegistryConfig.model_validate({"url": registry.url})
        wanted, extra = (("*", own), ()) if by == "a column" else (("*",), (own,))
        return decoder(wanted, REGISTERED, schemas=RegisteredSchemas(SchemaRegistry(config)), extra=extra)

    fixed = {"partition_by": "none" if by == "a column" else "day"}
    sink = opened(made(), **fixed)
    values = [*orders(2), framed(8, encode(hides, {"id": 9, "country": "FR", own: "x"}))]
    sink.write(GivenFeed().chunk_of(values))
    coverage = sink.commit()
    (table,) = tables(tmp_path / "data")
    assert (table.num_rows, pa.types.is_string(table.field(-1).type)) == (2, by == "a folder")
    (letter,) = dead_letters(tmp_path / "data")
    assert letter["reason"].startswith(f"IncompatibleSchema 8 ({own}: this is a column of the records)")
    again = opened(made(), **fixed)
    again.write(GivenFeed(start=coverage).chunk_of(orders(1)))
    again.commit()
    assert len(as_one(tmp_path / "data")) == 3


def test_new_symbols_of_an_enum_are_text_of_its_column(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    def enum(*symbols: str) -> Any:
        kind = {"type": "enum", "name": "E", "symbols": symbols}
        return {**REGISTERED, "fields": [{"name": "e", "type": kind}]}

    registry.register(7, enum("A"))
    registry.register(8, enum("B", "A"))
    sink = opened(of_registry(registry, enum("A")))
    sink.write(GivenFeed().chunk_of([framed(7, b"\0"), framed(8, b"\0"), framed(8, b"\2"), framed(7, b"\0")]))
    sink.commit()
    assert [row["e"] for row in rows(tmp_path / "data")] == ["A", "B", "A", "A"]
    assert len(files(tmp_path / "data")) == 1


def test_a_required_field_that_has_gone_is_a_dead_letter(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    renamed = {**REGISTERED, "fields": [REGISTERED["fields"][0], {"name": "land", "type": "string"}]}
    registry.register(8, renamed)
    sink = opened(of_registry(registry, REGISTERED))
    sink.write(GivenFeed().chunk_of([*orders(2), framed(8, encode(renamed, {"id": 1, "land": "FR"}))]))
    sink.commit()
    (letter,) = dead_letters(tmp_path / "data")
    assert letter["reason"].startswith("IncompatibleSchema 8 (country: the column takes no nulls and has no default")
    assert [str(column) for column in sink.types] == ["id int32 not null", "country string not null"]


def test_a_changed_schema_file_adds_columns_at_the_next_start(opened: Opened, tmp_path: Path) -> None:
    def one(schema: Any, value: dict[str, Any], start: Coverage | None = None, **more: Any) -> Coverage:
        sink = opened(decoder(("*",), schema, **more))
        sink.write(GivenFeed(start=start).chunk_of([encode(schema, value)]))
        return sink.commit()

    coverage = one(REGISTERED, {"id": 1, "country": "DE"})
    coverage = one(WIDER, {"id": 2, "country": "FR", "note": "n"}, coverage)
    one(REGISTERED, {"id": 3, "country": "ES"}, coverage)  # an older daemon goes on beside it
    assert as_one(tmp_path / "data") == [
        {"id": 1, "country": "DE", "note": None},
        {"id": 2, "country": "FR", "note": "n"},
        {"id": 3, "country": "ES", "note": None},
    ]
    for evolve in ("strict", "dead_letter"):
        with pytest.raises(DatasetMismatchError, match="differ in these columns: country, id, note"):
            opened(decoder(("*",), {**REGISTERED, "fields": REGISTERED["fields"][:1]}, evolve=evolve))


def test_two_writers_with_other_columns_commit_in_turn(opened: Opened, tmp_path: Path) -> None:
    first = opened(decoder(("*",), REGISTERED), shared=True)
    first.create_dataset()
    second = opened(decoder(("*",), WIDER), shared=True)
    third = opened(decoder(("*",), {**REGISTERED, "fields": [
        {"name": "id", "type": "int"}, {"name": "country", "type": "string"}, {"name": "note", "type": ["null", "int"]},
    ]}), shared=True)  # fmt: skip
    feed = GivenFeed()
    first.write(feed.chunk_of([encode(REGISTERED, {"id": 1, "country": "DE"})]))
    second.write(feed.chunk_of([encode(WIDER, {"id": 2, "country": "FR", "note": "n"})]))
    third.write(feed.chunk_of([b"\x06\x04ES\x02\x0a"]))
    second.commit()
    first.commit()
    assert [str(column) for column in first.types] == [
        "id int64 not null", "country string not null", "note string",
    ]  # fmt: skip
    with pytest.raises(Superseded, match="note: the column has string, and the schema has int32"):
        third.commit()
    with pytest.raises(DatasetMismatchError, match="note: the column has int32, and the schema has string"):
        third.open()
    assert len(as_one(tmp_path / "data")) == 2
    assert verify(tmp_path / "data", deep=True).problems == []


def test_the_columns_of_a_dataset_are_in_its_checkpoints(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DatasetWriter, "checkpoint_every", 2)
    coverage = None
    for schema, value in ((REGISTERED, {}), (WIDER, {"note": "n"}), (REGISTERED, {}), (REGISTERED, {})):
        sink = opened(decoder(("*",), schema))
        sink.write(GivenFeed(start=coverage).chunk_of([encode(schema, {"id": 1, "country": "DE", **value})]))
        coverage = sink.commit()
        sink.close()
    assert len([*(tmp_path / "data/_fastwire/checkpoint").iterdir()]) >= 1
    assert verify(tmp_path / "data").problems == []
    assert [column.name for column in opened(decoder(("*",), REGISTERED)).types] == ["id", "country", "note"]


# --- tombstones


class Changes(Feed):
    """A feed of one partition, whose values are given, and may be null."""

    def __init__(self) -> None:
        super().__init__(partitions=1)

    def chunk_of(self, values: list[bytes | None]) -> Chunk:
        """Return one entry with these values; its records have the keys 0, 1, ..."""
        self._rows, self._given = len(values), values
        return self.chunk(1)

    def _block(self, partition: int, entry: int) -> bytes:
        return encode_batch(Record(value=value, key=str(i)) for i, value in enumerate(self._given))


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


# --- folders by values

PLACE = {
    "type": "record",
    "name": "Place",
    "fields": [
        {"name": "country", "type": ["null", "string"]},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "number", "type": "int"},
    ],
}
DAY_MS = 86_400_000


class Places(GivenFeed):
    """A feed of places whose countries and days come in turn, and the numbers of those of each country and day."""

    def __init__(self, *countries: str | None, days: Sequence[int] = (0,)) -> None:
        super().__init__()
        self._countries, self._days = countries, days
        self.numbers: dict[tuple[str | None, int], list[int]] = {}
        self._number = 0

    def places(self, count: int) -> Chunk:
        """Return the next places."""
        values = []
        for number in range(self._number, self._number + count):
            country, day = self._countries[number % len(self._countries)], self._days[number % len(self._days)]
            self.numbers.setdefault((country, day), []).append(number)
            values.append(encode(PLACE, {"country": country, "seen": day * DAY_MS, "number": number}))
        self._number += count
        return self.chunk_of(values)


@pytest.mark.parametrize("split", ["none", "partition"])
def test_columns_of_values_become_folders(opened: Opened, tmp_path: Path, split: str) -> None:
    feed = Places("DE", "FR", None, "", "a/b=c", "DE")
    sink = opened(decoder(("*",), PLACE, extra=("country",), levels=("country",)), levels=("country",), split=split)
    for _ in range(4):
        sink.write(feed.places(60))
    sink.commit()
    found: dict[str, list[int]] = {}
    for file in files(tmp_path / "data"):
        table = pq.read_table(file, partitioning=None)
        assert table.schema.names == ["seen", "number"]
        found.setdefault(file.parent.name, []).extend(table["number"].to_pylist())
    numbers = {country: those for (country, _), those in feed.numbers.items()}
    assert {name: sorted(those) for name, those in found.items()} == {
        "country=DE": numbers["DE"],
        "country=FR": numbers["FR"],
        "country=a%2Fb%3Dc": numbers["a/b=c"],
        "country=__HIVE_DEFAULT_PARTITION__": sorted(numbers[None] + numbers[""]),
    }
    assert verify(tmp_path / "data", deep=True).problems == []
    read = pq.read_table(tmp_path / "data", filters=[("country", "==", "FR")])
    assert sorted(read["number"].to_pylist()) == numbers["FR"]


def test_the_day_of_a_column_becomes_a_folder(opened: Opened, tmp_path: Path) -> None:
    feed = Places("x", days=(0, 1, 19_000, 10_000_000))  # the last one is beyond calendars
    sink = opened(decoder(("*",), PLACE, extra=("seen",)), partition_by="day(seen)")
    sink.write(feed.places(16))
    sink.commit()
    days = {
        "dt=1970-01-01": 0,
        "dt=1970-01-02": 1,
        "dt=2022-01-08": 19_000,
        "dt=__HIVE_DEFAULT_PARTITION__": 10_000_000,
    }
    assert {
        file.parent.name: pq.read_table(file, partitioning=None)["number"].to_pylist()
        for file in files(tmp_path / "data")
    } == {name: feed.numbers["x", day] for name, day in days.items()}


def test_a_value_that_is_too_long_for_a_folder_is_a_dead_letter(opened: Opened, tmp_path: Path) -> None:
    fits = "x" * (255 - len("country="))
    feed = Places("DE", fits, fits + "x", "/" * 100)
    sink = opened(decoder(("*",), PLACE, extra=("country",), levels=("country",)), levels=("country",))
    sink.write(feed.places(16))
    sink.commit()
    assert sorted(row["number"] for row in rows(tmp_path / "data")) == sorted(
        feed.numbers["DE", 0] + feed.numbers[fits, 0]
    )
    dead = dead_letters(tmp_path / "data")
    assert {letter["reason"] for letter in dead} == {"TooLongForAFolder at byte 0 of the value, in country"}
    report = verify(tmp_path / "data", deep=True)
    assert (report.problems, report.rows, report.filtered, len(dead)) == ([], 8, 8, 8)


def test_each_of_many_folders_has_its_rows(opened: Opened, tmp_path: Path) -> None:
    feed = Places(*(f"c{number}" for number in range(1_000)))
    sink = opened(decoder(("*",), PLACE, extra=("country",), levels=("country",)), levels=("country",))
    for _ in range(30):
        sink.write(feed.places(100))
    sink.commit()
    for file in files(tmp_path / "data"):
        country = file.parent.name.removeprefix("country=")
        assert pq.read_table(file, partitioning=None)["number"].to_pylist() == feed.numbers[country, 0]
    assert len(files(tmp_path / "data")) == 1_000


def test_a_column_that_names_folders_is_no_column_of_the_files(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    """Nor is it one that a schema of the registry adds, which evolve = "strict" would refuse."""
    made = of_registry(registry, extra=("country",), levels=("country",), evolve="strict")
    assert [column.name for column in made.types] == ["id", "tag"]
    sink = opened(made, levels=("country",))
    sink.write(GivenFeed().chunk_of(orders(3)))
    sink.commit()
    (file,) = files(tmp_path / "data")
    assert file.parent.name == "country=DE"
    assert pq.read_schema(file).names == ["id", "tag"]
