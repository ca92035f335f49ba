"""Decoding Avro beside fastavro: generated schemas and values, every truncation, damage, and hostile sizes."""

import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from fastwire.decode.avro.resolution import resolve
from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.avro.walk import REASONS, AvroDecoder
from fastwire.decode.program import BadRecord, SchemaError, deletable
from fastwire.wire.pool import Pool
from tests.support.avro import arrow_value, encode, pairs

POOL = Pool(256 << 20)
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 3}
slow = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Top", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def decode(schema: Any, values: Sequence[bytes | None], pool: Pool = POOL) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Decode all ``values`` in one call, and let pyarrow check each buffer."""
    decoded = AvroDecoder(compile_avro(json.dumps(schema)), pool).decode(pa.array(values, pa.binary()))
    assert decoded.upto == len(values)
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    assert batch.num_rows == decoded.rows == len(values) - len(decoded.bad)
    return batch, decoded.bad


def one(kind: Any, data: bytes) -> Any:
    """Return the value of the only field of a record, or the reason why it is bad with its offset."""
    batch, bad = decode(record(("f", kind)), [data])
    return (bad[0].reason, bad[0].offset) if bad else batch.to_pylist()[0]["f"]


@slow
@given(pairs())
def test_generated_schemas_and_values_are_those_of_fastavro(drawn: tuple[Any, list[Any]]) -> None:
    schema, records = drawn
    batch, bad = decode(schema, [encode(schema, each) for each in records])
    assert not bad
    assert batch.to_pylist() == [arrow_value(schema, each) for each in records]


@slow
@given(pairs())
def test_each_truncation_is_bad_and_leaves_its_neighbours(drawn: tuple[Any, list[Any]]) -> None:
    schema, records = drawn
    whole = encode(schema, records[0])
    values = [whole]
    for size in range(len(whole)):
        values += [whole[:size], whole]
    batch, bad = decode(schema, values)
    assert [each.row for each in bad] == list(range(1, len(values), 2))
    assert {each.reason for each in bad} <= {"Truncated"}
    assert all(0 <= each.offset <= len(values[each.row]) for each in bad)
    assert batch.to_pylist() == [arrow_value(schema, records[0])] * (len(whole) + 1)


@slow
@given(pairs())
def test_mutations_are_decoded_as_by_fastavro_or_bad(drawn: tuple[Any, list[Any]]) -> None:
    schema, records = drawn
    chance = random.Random(7)
    whole = encode(schema, records[0])
    values = []
    for _ in range(40):
        mutant = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            if mutant:
                mutant[chance.randrange(len(mutant))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, 99))
        values.append(bytes(mutant))
    batch, bad = decode(schema, values)
    assert all(each.reason in REASONS for each in bad)
    wrong = {each.row for each in bad}
    sound = [value for row, value in enumerate(values) if row not in wrong]
    parsed = fastavro.parse_schema(schema)
    for row, value in zip(batch.to_pylist(), sound, strict=True):
        stream = io.BytesIO(value)
        seen = fastavro.schemaless_reader(stream, parsed, return_named_type=True, return_record_name=True)
        assert stream.tell() == len(value)
        assert seen is not None
        assert set(row) == set(seen)


def test_a_record_is_found_again_behind_a_bad_one_of_every_kind() -> None:
    schema = record(
        ("list", {"type": "array", "items": {"type": "record", "name": "I", "fields": [
            {"name": "text", "type": ["null", "string"]}, {"name": "flag", "type": "boolean"},
        ]}}),
        ("last", "int"),
    )  # fmt: skip
    good = {"list": [{"text": "ab", "flag": True}, {"text": None, "flag": False}], "last": 5}
    data = encode(schema, good)
    values = [data, data[:-1] + b"\xff", data, data[:-3] + b"\x07\x00\x0a", data, None, data + b"x", data]
    batch, bad = decode(schema, values)
    assert bad == [
        BadRecord(1, "Truncated", "last", len(data) - 1),
        BadRecord(3, "InvalidBoolean", "list[].flag", len(data) - 3),
        BadRecord(5, "NoValue", "", 0),
        BadRecord(6, "TrailingBytes", "", len(data)),
    ]
    assert batch.to_pylist() == [good] * 4


@pytest.mark.parametrize(
    ("kind", "data", "seen"),
    [
        ("long", b"\xff" * 9 + b"\x01", -(1 << 63)),
        ("long", b"\xff" * 9 + b"\x02", ("InvalidVarint", 0)),
        ("long", b"\x80" * 11, ("InvalidVarint", 0)),
        ("long", b"\x80" * 9, ("Truncated", 0)),
        ("int", b"\x80\x80\x80\x80\x10", ("OutOfRange", 0)),
        ("int", b"\xff\xff\xff\xff\x0f", -(1 << 31)),
        ("boolean", b"\x02", ("InvalidBoolean", 0)),
        ("string", b"\x01", ("InvalidLength", 0)),
        ("string", b"\x04a", ("Truncated", 0)),
        ("string", b"\x04\xc3\x28", ("InvalidUtf8", 1)),
        ("bytes", b"\x04\xc3\x28", b"\xc3\x28"),
        (["null", "int"], b"\x04\x02", ("UnknownBranch", 0)),
        (["null", "int"], b"\x01", ("UnknownBranch", 0)),
        (["int"], b"\x02\x02", ("UnknownBranch", 0)),
        (["int", "string"], b"\x04\x02", ("UnknownBranch", 0)),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04", ("UnknownSymbol", 0)),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01", ("UnknownSymbol", 0)),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x00", [1, 2]),
        ({"type": "array", "items": "int"}, b"\x03\x06\x02\x04\x00", ("InvalidBlock", 0)),
        ({"type": "array", "items": "int"}, b"\x02\x02\x04\x04\x06\x00", [1, 2, 3]),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01" + b"\x00" * 2, ("Truncated", 0)),
        ({"type": "array", "items": "int"}, b"\xfe" + b"\xff" * 8 + b"\x01", ("Truncated", 0)),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", ("OutOfRange", 0)),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe" + b"\xff" * 8 + b"\x01", ("OutOfRange", 0)),
        (CENTS, b"\x04\x03\xe7", Decimal(999)),
        (CENTS, b"\x04\x03\xe8", ("DecimalTooLarge", 1)),
        (CENTS, b"\x04\xfc\x19", Decimal(-999)),
        (CENTS, b"\x04\xfc\x18", ("DecimalTooLarge", 1)),
        (CENTS, b"\x28" + b"\xff" * 20, Decimal(-1)),
        (CENTS, b"\x28" + b"\xff\xfe" * 10, ("DecimalTooLarge", 1)),
        (CENTS, b"\x00", Decimal(0)),
    ],
)  # fmt: skip
def test_limits_of_each_type(kind: Any, data: bytes, seen: Any) -> None:
    assert one(kind, data) == seen


def test_logical_types_have_the_values_of_fastavro() -> None:
    values = {
        ("int", "date"): date(1969, 12, 30),
        ("int", "time-millis"): time(23, 59, 59, 999000),
        ("long", "time-micros"): time(1, 2, 3, 4),
        ("long", "timestamp-millis"): datetime(2025, 1, 31, 1, 2, 3, 4000, UTC),
        ("long", "timestamp-micros"): datetime(1960, 1, 31, 1, 2, 3, 4, UTC),
        ("long", "local-timestamp-millis"): datetime(2025, 1, 31, 1, 2, 3, 4000),  # noqa: DTZ001 - local times have no zone
        ("long", "local-timestamp-micros"): datetime(2025, 1, 31, 1, 2, 3, 4),  # noqa: DTZ001
        ("string", "uuid"): "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    }
    decimal = {"logicalType": "decimal", "precision": 38, "scale": 10}
    fields: list[tuple[str, Any]] = [
        *((f"f{i}", {"type": kind, "logicalType": name}) for i, (kind, name) in enumerate(values)),
        ("bytes", {"type": "bytes", **decimal}),
        ("fixed", {"type": "fixed", "name": "D", "size": 5, **decimal, "precision": 9, "scale": 2}),
    ]
    numbers = [Decimal("-1234567890123456789012345678.0123456789"), Decimal("1234567.89")]
    row = dict(zip((name for name, _ in fields), [*values.values(), *numbers], strict=True))
    schema = record(*fields)
    batch, bad = decode(schema, [encode(schema, row)])
    assert not bad
    assert batch.to_pylist() == [row]
    assert batch.schema.field("bytes").type == pa.decimal128(38, 10)


def test_nanoseconds_have_their_unit() -> None:
    schema = record(
        ("utc", {"type": "long", "logicalType": "timestamp-nanos"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-nanos"}),
    )
    batch, _ = decode(schema, [encode(record(("utc", "long"), ("local", "long")), {"utc": 1, "local": -1})])
    assert batch.schema.types == [pa.timestamp("ns", "UTC"), pa.timestamp("ns")]
    assert [column.cast(pa.int64()).to_pylist() for column in batch.columns] == [[1], [-1]]


def test_a_slice_of_values_is_read_at_its_offset() -> None:
    schema = record(("f", "int"))
    values = pa.array([b"\x02", None, b"\x04", b"\x06", None, b"\x08"], pa.binary()).slice(2, 3)
    decoded = AvroDecoder(compile_avro(json.dumps(schema)), POOL).decode(values, 1)
    assert pa.record_batch(decoded).to_pylist() == [{"f": 3}]
    assert decoded.bad == [BadRecord(2, "NoValue", "", 0)]


def test_a_null_record_can_be_a_row_of_nulls() -> None:
    wide = {"type": "record", "name": "W", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
    schema = record(
        ("text", "string"), ("flag", "boolean"), ("wide", wide), ("tags", {"type": "array", "items": "int"}),
        ("fixed", {"type": "fixed", "name": "F", "size": 3}), ("any", ["int", "string"]), ("none", "null"),
    )  # fmt: skip
    good = {"text": "ab", "flag": True, "wide": {"a": 1, "b": "c"}, "tags": [1, 2], "fixed": b"xyz", "any": 5}
    data = encode(schema, {**good, "none": None})
    program = compile_avro(json.dumps(schema))
    with pytest.raises(ValueError, match="the column text takes no nulls"):
        AvroDecoder(program, POOL).keep_nulls()
    decoder = AvroDecoder(deletable(program), POOL)
    decoder.keep_nulls()
    decoded = decoder.decode(pa.array([data, None, data[:-1], None, data], pa.binary()))
    assert [(each.row, each.reason) for each in decoded.bad] == [(2, "Truncated")]
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    whole = {**good, "any": {"int": 5, "string": None}, "none": None}
    assert batch.to_pylist() == [whole, dict.fromkeys(whole), dict.fromkeys(whole), whole]


def test_columns_that_take_null_records_take_no_other_nulls() -> None:
    program = deletable(compile_avro(json.dumps(record(("f", "int"), ("g", ["null", "int"])))))
    written = compile_avro(json.dumps(record(("f", ["null", "int"]), ("g", ["null", "int"]))))
    decoder = AvroDecoder(program, POOL, written=resolve(written, program))
    decoder.keep_nulls()
    decoded = decoder.decode(pa.array([b"\2\2\0", b"\0\0", None], pa.binary()))
    assert decoded.bad == [BadRecord(1, "UnexpectedNull", "f", 1)]
    assert pa.record_batch(decoded).to_pylist() == [{"f": 1, "g": None}, {"f": None, "g": None}]
    with pytest.raises(SchemaError, match="f: the column takes no nulls and has no default"):
        resolve(compile_avro(json.dumps(record(("g", "int")))), program)


def test_no_values_have_columns() -> None:
    batch, bad = decode(record(("f", "string"), ("g", {"type": "map", "values": "int"})), [])
    assert (batch.num_rows, bad) == (0, [])


def test_a_call_ends_when_its_columns_have_grown_by_the_share_of_the_budget() -> None:
    schema = record(("f", "bytes"))
    decoder = AvroDecoder(compile_avro(json.dumps(schema)), Pool(16 << 20))
    values = pa.array([encode(schema, {"f": bytes([i]) * 100_000}) for i in range(60)], pa.binary())
    ends, seen = [0], []
    while ends[-1] < 60:
        decoded = decoder.decode(values, ends[-1])
        ends.append(decoded.upto)
        seen += pa.record_batch(decoded).column(0).to_pylist()
    assert len(ends) > 3
    assert all(first < last for first, last in pairwise(ends))
    assert [value[0] for value in seen] == list(range(60))


def test_one_record_does_not_take_more_than_its_share() -> None:
    # Each item has one byte, and a row of a hundred columns.
    wide = {"type": "record", "name": "W", "fields": [{"name": f"c{i}", "type": "long"} for i in range(100)]}
    schema = record(("f", {"type": "array", "items": ["null", wide]}))
    huge = encode(schema, {"f": [None] * 40_000})
    small = encode(schema, {"f": [None]})
    pool = Pool(64 << 20)
    batch, bad = decode(schema, [small, huge, small], pool)
    assert [(each.row, each.reason) for each in bad] == [(1, "TooLarge")]
    assert batch.to_pylist() == [{"f": [None]}] * 2
    assert pool.peak < 32 << 20


def test_the_memory_is_released_with_the_last_array() -> None:
    pool = Pool(64 << 20)
    batch, _ = decode(record(("f", "string")), [b"\x02a"] * 10, pool)
    assert pool.used > 0
    column = batch.column(0)
    del batch
    assert column.to_pylist() == ["a"] * 10
    del column
    assert pool.used == 0


def test_another_type_of_values_is_refused() -> None:
    decoder = AvroDecoder(compile_avro(json.dumps(record(("f", "int")))), POOL)
    with pytest.raises(ValueError, match="not a column of bytes"):
        decoder.decode(pa.array([1]))
    with pytest.raises(ValueError, match="record 2 of 1"):
        decoder.decode(pa.array([b"\x02"], pa.binary()), 2)


def test_the_columns_of_a_record_are_exported_once() -> None:
    decoded = AvroDecoder(compile_avro(json.dumps(record(("f", "int")))), POOL).decode(pa.array([b"\x02"], pa.binary()))
    assert pa.record_batch(decoded).num_rows == 1
    with pytest.raises(ValueError, match="exported before"):
        pa.record_batch(decoded)


def test_durations_and_wide_rows_take_many_growths() -> None:
    duration = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
    schema = record(("d", duration), ("n", ["null", duration["name"]]), ("b", "boolean"))
    rows = [{"d": bytes([i % 256]) * 12, "n": None if i % 3 else b"x" * 12, "b": i % 5 == 0} for i in range(5000)]
    batch, bad = decode(schema, [encode(schema, row) for row in rows])
    assert not bad
    assert batch.to_pylist() == rows
