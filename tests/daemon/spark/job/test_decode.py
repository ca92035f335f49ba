"""Avro, JSON and Protobuf into Arrow columns: the records, and the reason of each bad value."""

import json
import pickle
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DecimalType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fastwire_daemon.spark.job.compiled import AvroValues, JsonValues, ProtobufValues
from fastwire_daemon.spark.job.ddl import json_values
from fastwire_daemon.spark.job.schema import Decoder, SchemaError
from tests.spark import schemas
from tests.support.protobuf import FileProto, described, expected, messages, same, shown

PAID = datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)


def decode(decoder: Decoder, *values: bytes | None) -> tuple[list[Any], list[str | None]]:
    """Return the record or None, and None or the reason, of each value."""
    # Executors get a pickled copy.
    copy = pickle.loads(pickle.dumps(decoder))
    records: list[Any] = [None] * len(values)
    reasons: list[str | None] = [None] * len(values)
    upto = 0
    for part in copy.compile()(pa.array(values, pa.binary())):
        assert part.first == upto
        upto = part.upto
        part.records.validate(full=True)
        assert pa.struct(list(part.records.schema)) == decoder.record
        for row, reason in part.bad:
            reasons[row] = reason
        good = [row for row in range(part.first, part.upto) if reasons[row] is None]
        for row, record in zip(good, part.records.to_pylist(), strict=True):
            records[row] = record
    assert upto == len(values)
    return records, reasons


def avro_decoder(schema: Any = schemas.AVRO, ids: list[int] | None = None) -> AvroValues:
    return AvroValues(json.dumps(schema), ids)


def test_avro() -> None:
    records, reasons = decode(avro_decoder(ids=[7]), schemas.avro(1), schemas.avro(2, note="x"))
    assert reasons == [None, None]
    assert records[0] == {
        "order_id": 1,
        "kind": "RETAIL",
        "note": None,
        "paid": PAID,
        "total": Decimal("12.50"),
        "tags": [("n", 1)],
        "lines": [{"sku": "a", "again": None}, {"sku": "b", "again": "WHOLESALE"}],
    }
    assert records[1]["note"] == "x"


def test_avro_types_that_spark_lacks() -> None:
    """They get the nearest type of Spark's, and each column takes nulls."""
    fields = [
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "nanos", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "many", "type": {"type": "array", "items": "Two"}},
    ]
    decoder = avro_decoder({"type": "record", "name": "A", "fields": fields})
    assert [str(field.type) for field in decoder.record] == [
        "timestamp[us, tz=UTC]", "int64", "binary", "list<item: binary>",
    ]  # fmt: skip
    records, reasons = decode(decoder, b"\x02\x04ab\x02cd\x00")
    assert reasons == [None]
    assert records == [{"millis": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), "nanos": 2, "raw": b"ab", "many": [b"cd"]}]


def test_bad_avro() -> None:
    good = schemas.avro(1)
    wrong = [None, b"", good[:-1], good + b"x", b"\x01" + good[1:], good[:4] + b"\x08" + good[5:], good[:5]]
    records, reasons = decode(avro_decoder(ids=[7, 9]), good, *wrong, good)
    assert [record is None for record in records] == [False, *[True] * len(wrong), False]
    assert reasons == [
        None,
        "NoValue at byte 0 of the value",
        "NoSchemaId at byte 0 of the value",
        "Truncated at byte 32 of the value, in lines",
        "TrailingBytes at byte 33 of the value",
        "NoSchemaId at byte 0 of the value",
        "UnknownSchema 8 (the job is for 7 or 9) at byte 1 of the value",
        "Truncated at byte 5 of the value, in order_id",
        None,
    ]


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_avro_cut_anywhere(cut: int) -> None:
    value = schemas.avro(1)
    records, reasons = decode(avro_decoder(ids=[7]), value[: len(value) - 1 - cut % len(value)])
    assert records == [None]
    assert reasons[0]


def test_a_value_that_no_column_takes() -> None:
    schema = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "t", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3}}],
    }
    big = bytes([4, 0x0F, 0xFF])  # two bytes: 4095, four digits
    records, reasons = decode(avro_decoder(schema), bytes([2, 5]), big, bytes([2, 7]))
    assert records == [{"t": Decimal(5)}, None, {"t": Decimal(7)}]
    assert reasons == [None, "DecimalTooLarge at byte 1 of the value, in t", None]


def test_many_values_come_in_parts() -> None:
    """A task's memory is bounded, so a large column is decoded in several calls."""
    decoder = avro_decoder({"type": "record", "name": "A", "fields": [{"name": "raw", "type": "bytes"}]})
    large = b"\x80\x80\x80\x04" + bytes(2 << 20)  # 4 MiB announced: half of it is missing
    value = b"\x80\x80\x80\x01" + bytes(1 << 20)
    values = [value, large] * 12
    assert len([*decoder.compile()(pa.array(values, pa.binary()))]) > 1
    records, reasons = decode(decoder, *values)
    assert [record is None for record in records] == [False, True] * 12
    assert {reason for reason in reasons if reason} == {"Truncated at byte 0 of the value, in raw"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("string", "the schema is not a record"),
        ({"type": "record", "name": "A", "fields": []}, "the record at the top has no fields"),
        ({"type": "record", "name": "A", "fields": [{"name": "x", "type": "strin"}]}, '"strin" is not a type'),
        ({"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "A"]}]}, '"A" contains itself'),
        (
            {
                "type": "record",
                "name": "A",
                "fields": [{"name": "x", "type": {"type": "int", "logicalType": "time-millis"}}],
            },
            "x: Spark has no type for time32",
        ),
    ],
)
def test_avro_schemas_that_cannot_be_columns(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        avro_decoder(schema)


def json_decoder() -> JsonValues:
    line = StructType([StructField("sku", StringType(), nullable=False), StructField("count", ShortType())])
    return json_values(
        StructType(
            [
                StructField("order_id", LongType(), nullable=False),
                StructField("total", DecimalType(5, 2)),
                StructField("paid", TimestampType()),
                StructField("lines", ArrayType(line)),
                StructField("tags", MapType(StringType(), ByteType())),
            ]
        )
    )


def test_json() -> None:
    text = (
        b'{"order_id": 1, "total": 12.5, "paid": "2026-01-02T03:04:05.123456Z", "x": [{}],'
        b' "lines": [{"sku": 7, "count": -32768}, {}, null], "tags": {"a": 127, "b": null}}'
    )
    records, reasons = decode(json_decoder(), text, b'{"order_id": 2}')
    assert reasons == [None, None]
    assert records[0] == {
        "order_id": 1,
        "total": Decimal("12.50"),
        "paid": PAID,
        "lines": [{"sku": "7", "count": -32768}, {"sku": None, "count": None}, None],
        "tags": [("a", 127), ("b", None)],
    }
    assert records[1] == {"order_id": 2, "total": None, "paid": None, "lines": None, "tags": None}
    assert [str(field.type) for field in json_decoder().record] == [
        "int64", "decimal128(5, 2)", "timestamp[us, tz=UTC]", "list<item: struct<sku: string, count: int16>>",
        "map<string, int8>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{}", "MissingField at byte 1 of the value, in order_id"),
        (b'{"order_id": null}', "UnexpectedNull at byte 13 of the value, in order_id"),
        (b'{"order_id": 1, "lines": [{"count": 32768}]}', "OutOfRange at byte 36 of the value, in lines[].count"),
        (b'{"order_id": 1, "tags": {"a": -129}}', "OutOfRange at byte 30 of the value, in tags{}"),
        (b'{"order_id": 1, "total": 1000}', "DecimalTooLarge at byte 25 of the value, in total"),
        (b"\xff{}", "InvalidJson at byte 0 of the value"),
        (None, "NoValue at byte 0 of the value"),
    ],
)
def test_bad_json(text: bytes | None, reason: str) -> None:
    assert decode(json_decoder(), b'{"order_id": 3}', text)[1] == [None, reason]


def nested(depth: int) -> Any:
    return ArrayType(nested(depth - 1)) if depth else LongType()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (MapType(LongType(), LongType()), "x is map<bigint,bigint>, a type into which JSON is not decoded"),
        (NullType(), "x is void, a type"),
        (nested(40), "nests deeper than 32 levels"),
        (StructType([StructField("a", LongType())] * 2), 'has two columns "a"'),
        (StructType([StructField(f"c{i}", LongType()) for i in range(1100)]), "has more than 1024 columns"),
    ],
)
def test_columns_that_json_is_not_decoded_into(kind: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(message)):
        json_values(StructType([StructField("x", kind)]))


def protobuf_decoder(message: str = "shop.Order", ids: list[int] | None = None) -> ProtobufValues:
    return ProtobufValues(schemas.descriptor_set(), message, ids)


def test_protobuf() -> None:
    full = schemas.protobuf(
        1, kind=1, note="", serial=(1 << 64) - 1, raw=b"\xff", paid=PAID, rate={"value": 0.5}, first={"sku": "z"}
    )
    records, reasons = decode(protobuf_decoder(), full, schemas.protobuf(2), b"")
    assert reasons == [None, None, None]
    assert records[0] == {
        "order_id": 1,
        "kind": "WHOLESALE",
        "note": "",
        "lines": [{"sku": "a"}, {"sku": "b"}],
        "tags": [("n", 1)],
        "serial": Decimal((1 << 64) - 1),
        "raw": b"\xff",
        "paid": PAID,
        "rate": 0.5,
        "first": {"sku": "z"},
    }
    absent = {name: records[1][name] for name in ("note", "paid", "rate", "first")}
    assert absent == dict.fromkeys(absent)
    assert records[2]["kind"] == "RETAIL"


FRAME = b"\0\0\0\0\x07"


@pytest.mark.parametrize(
    ("message", "indexes"),
    [
        ("shop.Line", b"\x00"),  # short for the next one
        ("shop.Line", b"\x02\x00"),
        ("shop.Order", b"\x02\x02"),
        ("shop.Order.First", b"\x04\x02\x00"),
        ("shop.Order.Second", b"\x04\x02\x02"),
        ("shop.Order.Second", b"\x04\x02\x04"),  # by a client that counts the map, where this is nobody else
    ],
)
def test_message_indexes_name_the_message(message: str, indexes: bytes) -> None:
    body = {"shop.Line": b"\x0a\x01a"}.get(message, schemas.protobuf(5))
    (found,), reasons = decode(protobuf_decoder(message, [7]), FRAME + indexes + body)
    assert reasons == [None]
    assert found["sku" if message == "shop.Line" else "order_id"] == ("a" if message == "shop.Line" else 5)


@pytest.mark.parametrize(
    ("indexes", "reason"),
    [
        (b"\x00", "OtherMessage at byte 5 of the value"),
        (b"\x04\x02\x02", "OtherMessage at byte 5 of the value"),
        (b"\x02\x2e", "OtherMessage at byte 5 of the value"),
        (b"\x01", "OtherMessage at byte 5 of the value"),
        (b"\xfe\xff\xff\xff\x0f", "OtherMessage at byte 5 of the value"),
        (b"\xff\xff\xff\xff\xff\xff", "Truncated at byte 5 of the value"),
        (b"\x04\x02", "Truncated at byte 7 of the value"),
        (b"", "Truncated at byte 5 of the value"),
    ],
)
def test_message_indexes_of_another_message(indexes: bytes, reason: str) -> None:
    assert decode(protobuf_decoder("shop.Order.First", [7]), FRAME + indexes) == ([None], [reason])


def test_bad_protobuf() -> None:
    value = schemas.protobuf(1)
    records, reasons = decode(protobuf_decoder(), value[:-1], b"\xff\xff", None, value)
    assert [record is None for record in records] == [True, True, True, False]
    assert [(reason or "").partition(" ")[0] for reason in reasons] == ["Truncated", "Truncated", "NoValue", ""]
    other = decode(protobuf_decoder(ids=[7, 9]), b"\0\0\0\0\x08\0" + value)[1]
    assert other == ["UnknownSchema 8 (the job is for 7 or 9) at byte 1 of the value"]


@pytest.mark.parametrize(
    ("descriptors", "message", "expected"),
    [
        (b"\xff", "shop.Order", "is not a descriptor set"),
        (b"", "shop.Order", "the descriptor set has no files"),
        (schemas.descriptor_set(), "shop.Ordr", 'there is no message "shop.Ordr"'),
        (schemas.descriptor_set(), "", "the message is not named, and there are shop.Line, shop.Order"),
    ],
)
def test_descriptor_sets_that_cannot_be_used(descriptors: bytes, message: str, expected: str) -> None:
    with pytest.raises(SchemaError, match=expected):
        ProtobufValues(descriptors, message)


def test_a_message_in_itself_is_a_column_of_bytes() -> None:
    assert str(protobuf_decoder("shop.Node").record) == "struct<next: binary>"


def test_imports_of_google_need_not_be_in_the_set() -> None:
    decoder = ProtobufValues(schemas.descriptor_set(imports=False), "shop.Order")
    assert decoder.record == protobuf_decoder().record
    assert decode(decoder, schemas.protobuf(1, paid=PAID))[0][0]["paid"] == PAID


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(messages())
def test_messages_have_the_values_of_the_library(drawn: tuple[type[Message], list[Message]]) -> None:
    made, found = drawn
    file = FileProto()
    made.DESCRIPTOR.file.CopyToProto(file)
    decoder = ProtobufValues(described(file), made.DESCRIPTOR.full_name)
    (part,) = decoder.compile()(pa.array([each.SerializeToString() for each in found]))
    part.records.validate(full=True)
    assert all("InvalidUtf8" in reason or "OutOfRange" in reason for _, reason in part.bad)
    wrong = {row for row, _ in part.bad}
    sound = [each for row, each in enumerate(found) if row not in wrong]
    for row, message in zip(shown(part.records), sound, strict=True):
        assert same(row, expected(message)), (row, message)
