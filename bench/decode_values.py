"""Decoding of values alone: a column of bytes in memory to columns of values, beside the usual Python library.

    python -m bench.decode_values [--json]

CPU time of the process; the best of many rounds over one chunk of records of 8 fields, in Avro, JSON and Protobuf.
fastavro and orjson make a dict a record and no columns, so their figures leave a step out; so does that of protobuf
(upb), whose attributes are read. pyarrow.json reads lines and knows the columns. ptars, which makes columns, is
measured where it is installed. "inferred" is the decoder of ``schema = "infer"``, which looks for fields without a
column.
"""

import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.json
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.avro.walk import AvroDecoder
from fastwire.decode.json.growth import NO_COLUMNS, growth
from fastwire.decode.json.schema import compile_json, fitted
from fastwire.decode.json.walk import JsonDecoder
from fastwire.decode.protobuf.schema import compile_protobuf
from fastwire.decode.protobuf.walk import ProtobufDecoder
from fastwire.wire.pool import Pool

from .child import show

ROWS = 16_384
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "country", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "created", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def orders() -> list[dict[str, Any]]:
    """Orders; a third has a note."""
    return [
        {
            "id": 1_000_000_000_000 + number,
            "customer": f"customer-{number:08d}",
            "amount": number * 1.5,
            "country": "Germany"[: 2 + number % 6],
            "quantity": number % 100,
            "paid": number % 2 == 0,
            "note": None if number % 3 else "please ring twice at the green door, and wait",
            "created": 1_700_000_000_000 + number,
        }
        for number in range(ROWS)
    ]


def in_avro(order: dict[str, Any]) -> bytes:
    """Return an order in Avro's binary encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, order)
    return out.getvalue()


def in_json(order: dict[str, Any]) -> bytes:
    """Return an order in JSON; one without a note has no such key."""
    return orjson.dumps({key: value for key, value in order.items() if value is not None})


def best(decode: Callable[[], object], seconds: float) -> float:
    """Return the CPU of the fastest round, in microseconds a record."""
    least = float("inf")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.process_time_ns()
        decode()
        least = min(least, (time.process_time_ns() - began) / 1000 / ROWS)
    return least


def measured() -> list[dict[str, Any]]:
    """Return the rows of the table, fastwire first in each format."""
    return [*_avro_rows(), *_json_rows(), *_protobuf_rows()]


def _avro_rows() -> list[dict[str, Any]]:
    encoded = [in_avro(order) for order in orders()]
    column = pa.array(encoded, pa.binary())
    decoder = AvroDecoder(compile_avro(json.dumps(SCHEMA)), Pool(256 << 20))
    assert decoder.decode(column).rows == ROWS
    parsed = fastavro.parse_schema(SCHEMA)
    ways: dict[str, Callable[[], object]] = {
        "fastwire": lambda: decoder.decode(column),
        "fastavro": lambda: [fastavro.schemaless_reader(io.BytesIO(value), parsed) for value in encoded],
    }
    return _rows("avro", encoded, ways)


def _json_rows() -> list[dict[str, Any]]:
    encoded = [in_json(order) for order in orders()]
    column = pa.array(encoded, pa.binary())
    decoder = JsonDecoder(compile_json(json.dumps(SCHEMA)), Pool(256 << 20))
    assert decoder.decode(column).rows == ROWS
    found = growth(NO_COLUMNS, encoded).program
    inferred = JsonDecoder(fitted(found, NO_COLUMNS), Pool(256 << 20), closed=True)
    assert inferred.decode(column).rows == ROWS
    lines = b"\n".join(encoded)
    alone = pyarrow.json.ReadOptions(use_threads=False)
    plain = [field.with_type(pa.int64()) if field.name == "created" else field for field in pa.schema(decoder)]
    known = pyarrow.json.ParseOptions(explicit_schema=pa.schema(plain))
    ways: dict[str, Callable[[], object]] = {
        "fastwire": lambda: decoder.decode(column),
        "fastwire, inferred": lambda: inferred.decode(column),
        "orjson": lambda: [orjson.loads(value) for value in encoded],
        "pyarrow.json": lambda: pyarrow.json.read_json(io.BytesIO(lines), read_options=alone, parse_options=known),
    }
    return _rows("json", encoded, ways)


def order_message() -> Any:
    """Return the class of the message of an order."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3")
    order = file.message_type.add(name="Order")
    types = {
        "long": kind.TYPE_INT64, "string": kind.TYPE_STRING, "double": kind.TYPE_DOUBLE, "int": kind.TYPE_INT32,
        "boolean": kind.TYPE_BOOL,
    }  # fmt: skip
    for number, field in enumerate(SCHEMA["fields"], 1):
        word = field["type"][1] if isinstance(field["type"], list) else field["type"]
        made = order.field.add(name=field["name"], number=number, label=kind.LABEL_OPTIONAL)
        made.type = types[word if isinstance(word, str) else word["type"]]
        if isinstance(field["type"], list):
            made.proto3_optional, made.oneof_index = True, 0
            order.oneof_decl.add(name=f"_{field['name']}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Order"))


def _protobuf_rows() -> list[dict[str, Any]]:
    order = order_message()
    encoded = [order(**{k: v for k, v in each.items() if v is not None}).SerializeToString() for each in orders()]
    column = pa.array(encoded, pa.binary())
    decoder = ProtobufDecoder(compile_protobuf(order.DESCRIPTOR), Pool(256 << 20))
    assert decoder.decode(column).rows == ROWS

    def with_attributes() -> None:
        for value in encoded:
            seen = order.FromString(value)
            _ = (seen.id, seen.customer, seen.amount, seen.country, seen.quantity, seen.paid, seen.created)
            _ = seen.note if seen.HasField("note") else None

    ways: dict[str, Callable[[], object]] = {
        "fastwire": lambda: decoder.decode(column),
        "protobuf (upb)": with_attributes,
    }
    try:
        from ptars import HandlerPool  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        pass
    else:
        handler = HandlerPool([order.DESCRIPTOR.file]).get_for_message(order.DESCRIPTOR)
        ways["ptars"] = lambda: handler.array_to_record_batch(column)
    return _rows("protobuf", encoded, ways)


def _rows(form: str, encoded: Sequence[bytes], ways: Mapping[str, Callable[[], object]]) -> list[dict[str, Any]]:
    size = round(sum(map(len, encoded)) / ROWS)
    rows: list[dict[str, Any]] = []
    for who, decode in ways.items():
        cpu = best(decode, 2.0)
        row = {"bench": "decode_values", "who": who, "format": form, "size": size}
        row["cpu_us_per_message"] = round(cpu, 4)
        if rows:
            row["times_our_cpu"] = round(cpu / rows[0]["cpu_us_per_message"], 1)
        rows.append(row)
    return rows


if __name__ == "__main__":
    show(measured())
