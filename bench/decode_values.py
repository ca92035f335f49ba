"""Decoding of values alone: a column of bytes in memory to columns of values, beside the usual Python library.

    python -m bench.decode_values [--json]

CPU time of the process; the best of many rounds over one chunk of records of 8 fields, 62 bytes on average. The library
makes a dict a record and no columns, so its figure leaves a step out.
"""

import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa

from fastwire.decode.avro import compile_avro
from fastwire.decode.avrowalk import AvroDecoder
from fastwire.wire.pool import Pool

from .child import show

ROWS = 16_384
SCHEMA = {
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


def values() -> list[bytes]:
    """Encoded orders; a third has a note."""
    schema = fastavro.parse_schema(SCHEMA)
    encoded = []
    for number in range(ROWS):
        out = io.BytesIO()
        order = {
            "id": 1_000_000_000_000 + number,
            "customer": f"customer-{number:08d}",
            "amount": number * 1.5,
            "country": "Germany"[: 2 + number % 6],
            "quantity": number % 100,
            "paid": number % 2 == 0,
            "note": None if number % 3 else "please ring twice at the green door, and wait",
            "created": 1_700_000_000_000 + number,
        }
        fastavro.schemaless_writer(out, schema, order)
        encoded.append(out.getvalue())
    return encoded


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
    """Return the rows of the table, fastwire first."""
    encoded = values()
    column = pa.array(encoded, pa.binary())
    decoder = AvroDecoder(compile_avro(json.dumps(SCHEMA)), Pool(256 << 20))
    assert decoder.decode(column).rows == ROWS
    parsed = fastavro.parse_schema(SCHEMA)
    ways: dict[str, Callable[[], object]] = {
        "fastwire": lambda: decoder.decode(column),
        "fastavro": lambda: [fastavro.schemaless_reader(io.BytesIO(value), parsed) for value in encoded],
    }
    size = round(sum(map(len, encoded)) / ROWS)
    rows: list[dict[str, Any]] = []
    for who, decode in ways.items():
        cpu = best(decode, 2.0)
        row = {"bench": "decode_values", "who": who, "format": "avro", "size": size}
        row["cpu_us_per_message"] = round(cpu, 4)
        if rows:
            row["times_our_cpu"] = round(cpu / rows[0]["cpu_us_per_message"], 1)
        rows.append(row)
    return rows


if __name__ == "__main__":
    show(measured())
