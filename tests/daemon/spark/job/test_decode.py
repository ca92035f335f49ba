"""Avro and Protobuf into Arrow columns, value by value: what comes out, and what each bad value is answered with."""

import json
import pickle
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fastwire_daemon.spark.job.avro import AvroDecoder
from fastwire_daemon.spark.job.decode import decode_values
from fastwire_daemon.spark.job.protobuf import ProtobufDecoder
from fastwire_daemon.spark.job.schema import Decoder, SchemaError
from tests.spark import schemas

PAID = datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)


def decode(decoder: Decoder, *values: bytes | None, ids: list[int] | None = None) -> tuple[list[Any], list[Any]]:
    # Executors get a pickled copy.
    copy = pickle.loads(pickle.dumps(decoder))
    records, reasons = decode_values(pa.array(values, pa.binary()), copy.compile(), copy.record, ids)
    assert records.type == decoder.record
    records.validate(full=True)
    return records.to_pylist(), reasons.to_pylist()


def avro_decoder(schema: Any = schemas.AVRO) -> AvroDecoder:
    return AvroDecoder(json.dumps(schema))


def test_avro() -> None:
    records, reasons = decode(avro_decoder(), schemas.avro(1), schemas.avro(2, note="x"), ids=[7])
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


def test_bad_avro() -> None:
    good = schemas.avro(1)
    wrong = [None, b"", good[:-1], good + b"x", b"\x01" + good[1:], good[:4] + b"\x08" + good[5:], good[:5]]
    records, reasons = decode(avro_decoder(), good, *wrong, good, ids=[7])
    assert [record is None for record in records] == [False, *[True] * len(wrong), False]
    assert reasons[1] == "the value is null"
    assert reasons[2] == "the value does not begin with a zero byte and the id of a schema"
    assert reasons[4] == "1 bytes remain after the record"
    assert reasons[6] == "the value is of schema 8, not 7"
    assert all(isinstance(reason, str) for reason in reasons[1:-1])


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_avro_cut_anywhere(cut: int) -> None:
    value = schemas.avro(1)
    records, reasons = decode(avro_decoder(), value[: len(value) - 1 - cut % len(value)], ids=[7])
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
    assert reasons[0] is reasons[2] is None
    assert reasons[1]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("string", "must be a record"),
        ({"type": "record", "name": "A", "fields": []}, "A has no fields"),
        ({"type": "record", "name": "A", "fields": [{"name": "x", "type": "strin"}]}, "is not an Avro schema"),
        ({"type": "record", "name": "A", "fields": [{"name": "x", "type": ["int", "string"]}]}, "a union of 2 types"),
        ({"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "A"]}]}, "A contains itself"),
        (
            {
                "type": "record",
                "name": "A",
                "fields": [{"name": "x", "type": {"type": "int", "logicalType": "time-millis"}}],
            },
            "time-millis: Spark has no such type",
        ),
    ],
)
def test_avro_schemas_that_cannot_be_columns(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        avro_decoder(schema)


def protobuf_decoder(message: str = "shop.Order") -> ProtobufDecoder:
    return ProtobufDecoder(schemas.descriptor_set(), message)


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
    decoder = protobuf_decoder(message)
    (found,), reasons = decode(decoder, FRAME + indexes + body, ids=[7])
    assert reasons == [None]
    assert found["sku" if message == "shop.Line" else "order_id"] == ("a" if message == "shop.Line" else 5)


@pytest.mark.parametrize(
    ("indexes", "reason"),
    [
        (b"\x00", "the value is of message shop.Line, not shop.Order.First"),
        (b"\x04\x02\x02", "the value is of message shop.Order.Second, not shop.Order.First"),
        (b"\x02\x2e", r"the value is of message \[23\], not shop.Order.First"),
        (b"\x01", "the value begins with -1 message indexes"),
        (b"\xfe\xff\xff\xff\x0f", "the value begins with 2147483647 message indexes"),
        (b"\xff\xff\xff\xff\xff\xff", "ends within its message indexes, or has none"),
        (b"\x04\x02", "ends within its message indexes, or has none"),
        (b"", "ends within its message indexes, or has none"),
    ],
)
def test_message_indexes_of_another_message(indexes: bytes, reason: str) -> None:
    records, reasons = decode(protobuf_decoder("shop.Order.First"), FRAME + indexes, ids=[7])
    assert records == [None]
    assert re.search(reason, reasons[0])


def test_bad_protobuf() -> None:
    value = schemas.protobuf(1)
    records, reasons = decode(protobuf_decoder(), value[:-1], b"\xff\xff", None, value)
    assert [record is None for record in records] == [True, True, True, False]
    assert all(reasons[:3])
    assert reasons[2] == "the value is null"


@pytest.mark.parametrize(
    ("descriptors", "message", "expected"),
    [
        (b"\xff", "shop.Order", "is no descriptor set"),
        (schemas.descriptor_set(imports=False), "shop.Order", "is not whole"),
        (schemas.descriptor_set(), "shop.Ordr", 'holds no message "shop.Ordr": there are .*shop.Line, shop.Order'),
        (schemas.descriptor_set(), "shop.Node", "shop.Node contains itself"),
    ],
)
def test_descriptor_sets_that_cannot_be_used(descriptors: bytes, message: str, expected: str) -> None:
    with pytest.raises(SchemaError, match=expected):
        ProtobufDecoder(descriptors, message)
