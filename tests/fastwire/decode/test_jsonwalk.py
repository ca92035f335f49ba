"""Decoding JSON beside orjson and pyarrow: generated schemas and texts, truncation, damage, and hostile values."""

import io
import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastwire.columns.text import LineFormatter
from fastwire.decode.evolution import Column, columns_of, grown, program_of
from fastwire.decode.json.schema import compile_json, fitted
from fastwire.decode.json.walk import REASONS, JsonDecoder
from fastwire.decode.program import BadRecord, SchemaError, deletable
from fastwire.wire.pool import Pool
from tests.support.json import documents, expected, is_json, written

POOL = Pool(256 << 20)
NOT_JSON = {"Truncated", "InvalidJson", "InvalidEscape", "InvalidUtf8", "TrailingBytes"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
WHOLE = {"type": "bytes", "logicalType": "decimal", "precision": 38}
DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "int", "logicalType": "time-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
many = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
chances = st.randoms(use_true_random=False)


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Top", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def decode(schema: Any, values: Sequence[bytes | None], pool: Pool = POOL) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Decode all ``values`` in one call, and let pyarrow check each buffer."""
    decoded = JsonDecoder(compile_json(json.dumps(schema)), pool).decode(pa.array(values, pa.binary()))
    assert decoded.upto == len(values)
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    assert batch.num_rows == decoded.rows == len(values) - len(decoded.bad)
    return batch, decoded.bad


def one(kind: Any, text: str | bytes) -> Any:
    """Return the value of the only field of a record, or the reason why it is bad, and its place in ``text``."""
    value = text if isinstance(text, bytes) else text.encode()
    batch, bad = decode(record(("f", kind)), [b'{"f":%s}' % value])
    return (bad[0].reason, bad[0].offset - 5) if bad else batch.to_pylist()[0]["f"]


@many
@given(documents())
def test_formatted_lines_have_the_values_again(drawn: tuple[Any, list[Any]]) -> None:
    schema, values = drawn
    batch, _ = decode(schema, [json.dumps(value).encode() for value in values])
    pieces: list[bytes] = []
    LineFormatter(batch, base64=batch.schema.names).write(pieces.append)
    again, bad = decode(schema, b"".join(pieces).splitlines())
    assert (again.to_pylist(), bad) == (batch.to_pylist(), [])


@many
@given(documents(), chances)
def test_generated_texts_in_any_spelling(drawn: tuple[Any, list[Any]], chance: random.Random) -> None:
    schema, records = drawn
    texts = [written(each, chance) for each in records]
    batch, bad = decode(schema, texts)
    assert not bad
    assert batch.to_pylist() == [expected(schema, each) for each in texts]


@many
@given(documents(), chances)
def test_each_truncation_is_bad_and_leaves_its_neighbours(drawn: tuple[Any, list[Any]], chance: random.Random) -> None:
    schema, records = drawn
    whole = written(records[0], chance).strip()
    values = [whole]
    for size in range(len(whole)):
        values += [whole[:size], whole]
    batch, bad = decode(schema, values)
    assert [each.row for each in bad] == list(range(1, len(values), 2))
    assert {each.reason for each in bad} <= {"Truncated"}
    assert all(0 <= each.offset <= len(values[each.row]) for each in bad)
    assert batch.to_pylist() == [expected(schema, whole)] * (len(whole) + 1)


@many
@given(documents(), chances)
def test_mutations_are_decoded_as_by_orjson_or_bad(drawn: tuple[Any, list[Any]], chance: random.Random) -> None:
    schema, records = drawn
    whole = written(records[0], chance)
    values = []
    for _ in range(60):
        mutant = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(mutant))
            mutant[at : at + chance.randint(0, 2)] = chance.choice(
                (b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b".", b"e9", b" ", b"\x00", b"\xff",
                 b"null", b"true", b"\\ud83d", b"\\udca9", b"\xed\xa0\x80", b"\xc3\xa9", b"")
            )  # fmt: skip
        values.append(bytes(mutant))
    batch, bad = decode(schema, values)
    reasons = {each.row: each.reason for each in bad}
    assert set(reasons.values()) <= set(REASONS)
    rows = iter(batch.to_pylist())
    for row, value in enumerate(values):
        if row in reasons:
            assert reasons[row] not in NOT_JSON or not is_json(value), value
        else:
            assert is_json(value), value
            assert next(rows) == expected(schema, value), value


@many
@given(
    st.lists(st.floats() | st.floats(width=32), min_size=1),
    st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3)),
)
def test_doubles_and_floats_are_the_nearest(numbers: list[float], decimals: list[Decimal]) -> None:
    texts = [repr(number).replace("inf", "1e400").replace("nan", "1") for number in numbers] + [*map(str, decimals)]
    schema = record(("d", "double"), ("f", "float"))
    for text in texts:
        batch, bad = decode(schema, [f'{{"d":{text},"f":0}}'.encode(), f'{{"d":0,"f":{text}}}'.encode()])
        double = float(text)
        assert [each.path for each in bad if each.row == 0] == (["d"] if abs(double) == float("inf") else [])
        if not bad:
            assert batch.column("d")[0].as_py() == double
            assert batch.column("f")[1].as_py() == pa.array([text]).cast(pa.float32())[0].as_py()


def test_texts_are_decoded_as_by_pyarrow() -> None:
    schema = record(
        ("id", "long"),
        ("amount", ["null", "double"]),
        ("name", "string"),
        ("tags", {"type": "array", "items": "string"}),
        ("at", {**record(("x", "long"), ("ok", "boolean")), "name": "At"}),
    )
    values = [
        {
            "name": f'né {i} \U0001f4a9 "quoted"',
            "id": i,
            "unknown": [{"a": [1, None]}],
            "amount": i / 7 if i % 3 else None,
            "tags": ["a\n", "b"] * (i % 3),
            "at": {"ok": i % 2 == 0, "x": -i},
        }
        for i in range(300)
    ]
    texts = [json.dumps(value, ensure_ascii=i % 2 == 0).encode() for i, value in enumerate(values)]
    batch, bad = decode(schema, texts)
    options = pyarrow.json.ParseOptions(explicit_schema=batch.schema, unexpected_field_behavior="ignore")
    assert not bad
    theirs = pyarrow.json.read_json(io.BytesIO(b"\n".join(texts)), parse_options=options)
    assert batch.to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize(
    ("kind", "text", "seen"),
    [
        ("long", "9223372036854775807", (1 << 63) - 1),
        ("long", "-9223372036854775808", -(1 << 63)),
        ("long", "9223372036854775808", ("OutOfRange", 0)),
        ("long", "-9223372036854775809", ("OutOfRange", 0)),
        ("long", "18446744073709551616", ("OutOfRange", 0)),
        ("long", "1" + "0" * 400, ("OutOfRange", 0)),
        ("long", "1e400", ("OutOfRange", 0)),
        ("long", "1e99999999999999999999", ("OutOfRange", 0)),
        ("long", "0e99999999999999999999", 0),
        ("long", "100e-2", 1),
        ("long", "1.0000000000000000000000000", 1),
        ("long", "1.5", ("Inexact", 0)),
        ("long", "1e-99999999999999999999", ("Inexact", 0)),
        ("long", "-0", 0),
        ("long", "01", ("InvalidJson", 1)),
        ("long", "+1", ("InvalidJson", 0)),
        ("long", "1.", ("InvalidJson", 2)),
        ("long", ".5", ("InvalidJson", 0)),
        ("long", "1e", ("InvalidJson", 2)),
        ("long", "-", ("InvalidJson", 1)),
        ("long", "0x10", ("InvalidJson", 1)),
        ("long", "NaN", ("InvalidJson", 0)),
        ("long", '"12"', 12),
        ("long", '"1e2"', 100),
        ("long", '" 12"', ("WrongType", 0)),
        ("long", '""', ("WrongType", 0)),
        ("long", '"12a"', ("WrongType", 0)),
        ("long", '"NaN"', ("WrongType", 0)),
        ("long", "true", ("WrongType", 0)),
        ("long", "null", ("UnexpectedNull", 0)),
        ("long", "nul", ("InvalidJson", 3)),
        (["null", "long"], "null", None),
        ("int", "2147483648", ("OutOfRange", 0)),
        ("int", "-2147483648", -(1 << 31)),
        ("double", "-0.0", -0.0),
        ("double", '"-1.5"', -1.5),
        ("double", '"Infinity"', float("inf")),
        ("double", '"-Infinity"', -float("inf")),
        ("double", '"-NaN"', ("WrongType", 0)),
        ("double", '"Inf"', ("WrongType", 0)),
        ("double", "1e309", ("OutOfRange", 0)),
        ("double", "1e-400", 0.0),
        ("double", "123456789012345678901234567890", 123456789012345678901234567890.0),
        ("double", "0." + "0" * 300 + "123456789012345678901", float("0." + "0" * 300 + "123456789012345678901")),
        ("float", "1e39", ("OutOfRange", 0)),
        ("float", "16777217", 16777216.0),
        ("boolean", "false", False),
        ("boolean", "0", ("WrongType", 0)),
        ("boolean", '"true"', ("WrongType", 0)),
        ("string", "1", ("WrongType", 0)),
        ("string",
         r'"\ud83d\uDCA9 \u00e9 \u20ac \u0041 \u0000 \"\\\/\b\f\n\r\t"', "\U0001f4a9 é € A \0 " + '"\\/\b\f\n\r\t'),
        ("string", r'"ab\ud83d"', ("InvalidEscape", 3)),
        ("string", r'"\ud83d\n"', ("InvalidEscape", 1)),
        ("string", r'"\ud83d\u0041"', ("InvalidEscape", 1)),
        ("string", r'"\udca9"', ("InvalidEscape", 1)),
        ("string", r'"\u12g4"', ("InvalidEscape", 1)),
        ("string", r'"\x41"', ("InvalidEscape", 1)),
        ("string", '"a\nb"', ("InvalidJson", 2)),
        ("string", b'"\xed\xa0\x80"', ("InvalidUtf8", 1)),
        ("string", b'"a\\n\xff"', ("InvalidUtf8", 4)),
        ("bytes", '"aGk="', b"hi"),
        ("bytes", r'"aGk\u003d"', b"hi"),
        ("bytes", r'"\/\/8="', b"\xff\xff"),
        ("bytes", '"aGk"', ("InvalidBase64", 0)),
        ("bytes", '"aGl="', ("InvalidBase64", 0)),
        ("bytes", '"aA=="', b"h"),
        ("bytes", '"aB=="', ("InvalidBase64", 0)),
        ("bytes", '"a==="', ("InvalidBase64", 0)),
        ("bytes", '"aA==aA=="', ("InvalidBase64", 0)),
        ("bytes", '"aA=A"', ("InvalidBase64", 0)),
        ("bytes", '""', b""),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, r'"\u0042"', "B"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, '"C"', ("UnknownSymbol", 0)),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "1", ("WrongType", 0)),
        (CENTS, "1.5", Decimal("1.50")),
        (CENTS, '"-999.99"', Decimal("-999.99")),
        (CENTS, "12345e-2", Decimal("123.45")),
        (CENTS, "1000", ("DecimalTooLarge", 0)),
        (CENTS, "1e3", ("DecimalTooLarge", 0)),
        (CENTS, "0.001", ("Inexact", 0)),
        (CENTS, "0.010", Decimal("0.01")),
        (WHOLE, "9" * 38, Decimal("9" * 38)),
        (WHOLE, "-" + "9" * 38, Decimal("-" + "9" * 38)),
        (WHOLE, "1" + "0" * 38, ("DecimalTooLarge", 0)),
        (DATE, '"2024-02-29"', date(2024, 2, 29)),
        (DATE, '"1900-02-29"', ("InvalidTime", 0)),
        (DATE, '"0001-01-01"', date(1, 1, 1)),
        (DATE, '"2024-13-01"', ("InvalidTime", 0)),
        (DATE, '"2024-2-1"', ("InvalidTime", 0)),
        (DATE, '"2024-02-01 "', ("InvalidTime", 0)),
        (DATE, "-1", date(1969, 12, 31)),
        (TIME, '"23:59:59.999"', time(23, 59, 59, 999000)),
        (TIME, '"23:59:59.9990"', time(23, 59, 59, 999000)),
        (TIME, '"23:59:59.9991"', ("Inexact", 0)),
        (TIME, '"24:00:00"', ("InvalidTime", 0)),
        (TIME, "86400000", ("OutOfRange", 0)),
        (MICROS, '"2025-01-31T01:02:03.000004Z"', datetime(2025, 1, 31, 1, 2, 3, 4, UTC)),
        (MICROS, r'"1969-12-31 23:59:59.5\u002B00:30"', datetime(1969, 12, 31, 23, 29, 59, 500000, UTC)),
        (MICROS, '"2025-01-31T01:02:03-0100"', datetime(2025, 1, 31, 2, 2, 3, 0, UTC)),
        (MICROS, '"2025-01-31T01:02:03+01"', datetime(2025, 1, 31, 0, 2, 3, 0, UTC)),
        (MICROS, '"2025-01-31T01:02:03"', ("InvalidTime", 0)),
        (MICROS, '"2025-01-31T01:02:03.Z"', ("InvalidTime", 0)),
        (MICROS, '"2025-01-31T01:02:60Z"', ("InvalidTime", 0)),
        (MICROS, '"2025-01-31T01:02:03.0000001Z"', ("Inexact", 0)),
        (MICROS, '"' + "2" * 100 + '"', ("OutOfRange", 0)),
        (MICROS, '"1700000000000000"', datetime(2023, 11, 14, 22, 13, 20, 0, UTC)),
        (MICROS, '"-5e5"', datetime(1969, 12, 31, 23, 59, 59, 500000, UTC)),
        (MICROS, '"1.5"', ("Inexact", 0)),
        (MICROS, '"1700000000000000 "', ("InvalidTime", 0)),
        (MICROS, '""', ("InvalidTime", 0)),
        (LOCAL, '"1700000000000"', datetime(2023, 11, 14, 22, 13, 20)),  # noqa: DTZ001
        (DATE, '"20240229"', ("InvalidTime", 0)),
        (TIME, '"123456"', ("InvalidTime", 0)),
        (MICROS, "1700000000000000", datetime(2023, 11, 14, 22, 13, 20, 0, UTC)),
        (NANOS, '"2300-01-01T00:00:00Z"', ("OutOfRange", 0)),
        (LOCAL, '"2025-01-31T01:02:03.004"', datetime(2025, 1, 31, 1, 2, 3, 4000)),  # noqa: DTZ001 - local times have no zone
        (LOCAL, '"2025-01-31T01:02:03Z"', ("InvalidTime", 0)),
        ({"type": "array", "items": "int"}, "[1,]", ("InvalidJson", 3)),
        ({"type": "array", "items": "int"}, "[1 2]", ("InvalidJson", 3)),
        ({"type": "array", "items": "int"}, "[ ]", []),
        ({"type": "map", "values": "int"}, '{"a":1,"a":2}', [("a", 1), ("a", 2)]),
        ({"type": "map", "values": "int"}, '{"a":1,}', ("InvalidJson", 7)),
        ({"type": "map", "values": "int"}, "[]", ("WrongType", 0)),
    ],
)  # fmt: skip
def test_limits_of_each_type(kind: Any, text: str | bytes, seen: Any) -> None:
    found = one(kind, text)
    assert found == seen
    assert str(found) == str(seen)  # -0.0, too


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("1677-09-21T00:12:43.145224192Z", -(1 << 63)),
        ("1677-09-21T00:12:43.145224191Z", "OutOfRange"),
        ("1677-09-21T00:12:44Z", -9223372036000000000),
        ("2262-04-11T23:47:16Z", 9223372036000000000),
        ("2262-04-11T23:47:16.854775807Z", (1 << 63) - 1),
        ("2262-04-11T23:47:16.854775808Z", "OutOfRange"),
        ("9223372036854775807", (1 << 63) - 1),
    ],
)
def test_the_first_and_the_last_nanosecond(text: str, seen: Any) -> None:
    decoded = JsonDecoder(compile_json(json.dumps(record(("f", NANOS)))), POOL).decode(
        pa.array([b'{"f":"%s"}' % text.encode()], pa.binary())
    )
    found = [each.reason for each in decoded.bad] or pa.record_batch(decoded).column(0).cast(pa.int64()).to_pylist()
    assert found == [seen]


def test_a_record_is_found_again_behind_a_bad_one_of_every_kind() -> None:
    item = {"type": "record", "name": "I", "fields": [
        {"name": "text", "type": ["null", "string"]}, {"name": "flag", "type": "boolean"},
    ]}  # fmt: skip
    schema = record(("list", {"type": "array", "items": item}), ("last", "int"))
    good = b'{"last":5,"list":[{"text":"ab","flag":true},{"flag":false}]}'
    values = [
        good,
        good.replace(b"false", b"0"),
        good,
        good.replace(b',"flag":true', b""),
        good,
        None,
        good + b" x",
        good.replace(b'"text":"ab"', b'"flag":true'),
        b"null",
        b"[]",
        b"",
        good.replace(b'"last":5,', b'"last":5,"last":6,'),
        good.replace(b'"last":5', b'"\\u006cast":5'),
    ]
    batch, bad = decode(schema, values)
    assert bad == [
        BadRecord(1, "WrongType", "list[].flag", 52),
        BadRecord(3, "MissingField", "list[].flag", 30),
        BadRecord(5, "NoValue", "", 0),
        BadRecord(6, "TrailingBytes", "", len(good) + 1),
        BadRecord(7, "DuplicateKey", "list[].flag", 31),
        BadRecord(8, "UnexpectedNull", "", 0),
        BadRecord(9, "WrongType", "", 0),
        BadRecord(10, "Truncated", "", 0),
        BadRecord(11, "DuplicateKey", "last", 10),
    ]
    assert batch.to_pylist() == [{"list": [{"text": "ab", "flag": True}, {"text": None, "flag": False}], "last": 5}] * 4


def test_unknown_keys_are_checked_and_left_out() -> None:
    schema = record(("f", ["null", "int"]))
    deep, deeper = b"[" * 512 + b"]" * 512, b"[" * 513 + b"]" * 513
    texts = {
        b"1.5e3": None, b'"\\ud83d\\udca9"': None, b'{"f":1,"g":[true,false,null,{}]}': None, deep: None,
        deeper: "TooDeep", b"[" * 200_000: "TooDeep", b"[1": "Truncated", b"tru": "InvalidJson", b"01": "InvalidJson",
        b'{"a" 1}': "InvalidJson", b"{1:2}": "InvalidJson", b"[}": "InvalidJson", b'"\xff"': "InvalidUtf8",
        b'"\\ud83d"': "InvalidEscape", b"": "InvalidJson", b'{"a":1,}': "InvalidJson",
    }  # fmt: skip
    values = [b'{"x\xc3\xa9":%s,"f":7,"' % text + b"long" * 100 + b'":0}' for text in texts]
    values[6] = values[6].split(b",")[0]
    batch, bad = decode(schema, values)
    assert {each.row: each.reason for each in bad} == {
        row: reason for row, reason in enumerate(texts.values()) if reason is not None
    }
    assert batch.to_pylist() == [{"f": 7}] * 4


def test_objects_of_many_fields_in_any_order() -> None:
    names = [f"{'a' * (i % 17)}_{i}" for i in range(300)]
    schema = record(*((name, ["null", "int"]) for name in names))
    chance = random.Random(3)
    rows = []
    for _ in range(50):
        chosen = chance.sample(names, chance.randrange(300))
        rows.append({name: chance.randrange(1000) for name in chosen})
    batch, bad = decode(schema, [json.dumps(row).encode() for row in rows])
    assert not bad
    assert batch.to_pylist() == [{name: row.get(name) for name in names} for row in rows]


def test_one_record_does_not_take_more_than_its_share() -> None:
    # Each item has three bytes, and a row of a hundred columns.
    wide = {"type": "record", "name": "W", "fields": [{"name": f"c{i}", "type": ["null", "long"]} for i in range(100)]}
    schema = record(("f", {"type": "array", "items": wide}))
    huge, small = b'{"f":[%s{}]}' % (b"{}," * 40_000), b'{"f":[]}'
    pool = Pool(64 << 20)
    batch, bad = decode(schema, [small, huge, small], pool)
    assert [(each.row, each.reason) for each in bad] == [(1, "TooLarge")]
    assert batch.to_pylist() == [{"f": []}] * 2
    assert pool.peak < 32 << 20


def test_columns_of_a_dataset_that_are_wider_than_the_schema() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    given = compile_json(json.dumps(record(("e", enum), ("i", "int"), ("f", "float"))))
    dataset = [
        Column("e", "u", nullable=False), Column("i", "g", nullable=False), Column("f", "g", nullable=True),
        Column("new", "i", nullable=True), Column("at", "ttm", nullable=True),
    ]  # fmt: skip
    program = fitted(grown(given, program_of(dataset)), given)
    values = [
        b'{"e":"A","i":1,"f":0.1}',
        b'{"e":"B","i":1,"f":0.1}',
        b'{"e":"A","i":1.5,"f":1,"new":2147483648}',
        b'{"e":"A","i":1.5,"new":2147483647,"at":"00:00:00.001"}',
        b'{"e":"A","i":1.5,"at":86400000}',
    ]
    decoded = JsonDecoder(program, POOL).decode(pa.array(values, pa.binary()))
    assert [(each.row, each.reason) for each in decoded.bad] == [
        (1, "UnknownSymbol"), (2, "OutOfRange"), (4, "OutOfRange"),
    ]  # fmt: skip
    assert pa.record_batch(decoded).to_pylist() == [
        {"e": "A", "i": 1.0, "f": 0.1, "new": None, "at": None},
        {"e": "A", "i": 1.5, "f": None, "new": 2147483647, "at": time(0, 0, 0, 1000)},
    ]
    with pytest.raises(SchemaError, match="x: a fixed is not supported in JSON"):
        fitted(program_of([Column("x", "w:4", nullable=True)]), given)


def test_null_records_are_rows_and_other_records_keep_their_required_fields() -> None:
    schema = compile_json(json.dumps(record(("f", "int"), ("g", ["null", "int"]))))
    dataset = program_of(columns_of(deletable(schema)), required=True)
    decoder = JsonDecoder(fitted(grown(deletable(schema), dataset), schema), POOL)
    decoder.keep_nulls()
    decoded = decoder.decode(pa.array([b'{"f":1}', None, b"{}", b'{"f":null}', b"null"], pa.binary()))
    assert [(each.row, each.reason) for each in decoded.bad] == [
        (2, "MissingField"), (3, "UnexpectedNull"), (4, "UnexpectedNull"),
    ]  # fmt: skip
    assert pa.record_batch(decoded).to_pylist() == [{"f": 1, "g": None}, {"f": None, "g": None}]


def test_a_slice_of_values_is_read_at_its_offset() -> None:
    values = pa.array([b"{}", None, b'{"f":1}', b'{"f":2}', None, b"{}"], pa.binary()).slice(2, 3)
    decoded = JsonDecoder(compile_json(json.dumps(record(("f", "int")))), POOL).decode(values, 1)
    assert pa.record_batch(decoded).to_pylist() == [{"f": 2}]
    assert decoded.bad == [BadRecord(2, "NoValue", "", 0)]


LOOSE = [
    ("t", b'"2026-01-02"', datetime(2026, 1, 2, tzinfo=UTC)),
    ("t", b'"2026-01-02 03:04:05"', datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ("t", b'"2026-01-02T03:04:05.1234567+01"', datetime(2026, 1, 2, 2, 4, 5, 123456, UTC)),
    ("t", b"-5", datetime(1969, 12, 31, 23, 59, 55, tzinfo=UTC)),
    ("t", b"9223372036855", "OutOfRange"),
    ("t", b'"2026-01-02T"', "InvalidTime"),
    ("s", b'"a\\n"', "a\n"),
    ("s", b"null", None),
    ("s", b"-1.50e3", "-1.50e3"),
    ("s", b"false", "false"),
    ("s", b'{"a": [1,  "\\u00e9"]}', '{"a": [1,  "\\u00e9"]}'),
    ("s", b"[1,}", "InvalidJson"),
    ("s", b"tru", "InvalidJson"),
    ("s", b'{"a":"\xff"}', "InvalidUtf8"),
    ("s", b"[" * 5000, "TooDeep"),
]


@pytest.mark.parametrize(("name", "text", "expected"), LOOSE)
def test_loose_values(name: str, text: bytes, expected: Any) -> None:
    """They are read as Spark's from_json reads them: other types as text, times without a zone, seconds."""
    program = program_of([Column("t", "tsu:UTC", True), Column("s", "u", True)])
    value = b'{"%s":%s}' % (name.encode(), text)
    for first in (value, *(value[:cut] for cut in range(len(value))[-60:])):
        decoded = JsonDecoder(program, POOL, loose=True).decode(pa.array([first], pa.binary()))
        batch = pa.record_batch(decoded)
        batch.validate(full=True)
        found = decoded.bad[0].reason if decoded.bad else batch.to_pylist()[0][name]
        assert found == expected if first == value else decoded.bad
    strict = JsonDecoder(program, POOL).decode(pa.array([value], pa.binary()))
    assert bool(strict.bad) == (text not in (b"null", b'"a\\n"', b"-5", b"9223372036855"))


@pytest.mark.parametrize(
    ("older", "newer", "text", "value"),
    [
        ("int", "long", "1099511627776", 1 << 40),
        ("int", "double", "1.5", 1.5),
        (CENTS, {**CENTS, "precision": 9}, "1234567.89", Decimal("1234567.89")),
    ],
)
def test_a_column_made_wider_takes_the_wider_values(older: Any, newer: Any, text: str, value: Any) -> None:
    have, new = (compile_json(json.dumps(record(("f", kind)))) for kind in (older, newer))
    decoded = JsonDecoder(fitted(grown(have, new), have), POOL).decode(pa.array([b'{"f":%s}' % text.encode()]))
    assert (decoded.bad, pa.record_batch(decoded).to_pylist()) == ([], [{"f": value}])
