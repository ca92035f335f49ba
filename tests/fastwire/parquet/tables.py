"""Random schemas and tables of all types that a file can hold."""

import io
import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fastwire.parquet.file import ParquetWriter

FLAT: list[pa.DataType] = [
    pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
    pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(16),
    pa.decimal128(9, 2), pa.decimal128(38, 10), pa.decimal128(1, 0), pa.decimal256(60, 5), pa.date32(), pa.date64(),
    pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.timestamp("s"), pa.timestamp("ms", "UTC"),
    pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.null(),
]  # fmt: skip
# Inside of others pyarrow fails for an empty dictionary, and could not be compared with.
DICTIONARIES: list[pa.DataType] = [
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.binary()),
    pa.dictionary(pa.uint16(), pa.int64()),
]
_DAY_US = 86_400_000_000
_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def nullable(name: str, kind: pa.DataType, wanted: bool) -> pa.Field:
    """A field, with nulls if wanted or if there is nothing else."""
    return pa.field(name, kind, nullable=wanted or pa.types.is_null(kind))


def schema_of(rng: random.Random) -> pa.Schema:
    """One to four columns, nested up to three levels deep."""
    kinds = [
        rng.choice(DICTIONARIES) if rng.random() < 0.1 else _type(rng, rng.choice([0, 1, 2, 3]))
        for _ in range(rng.randint(1, 4))
    ]
    return pa.schema([nullable(f"c{at}", kind, rng.random() < 0.8) for at, kind in enumerate(kinds)])


def batches_of(rng: random.Random, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Some batches of very different sizes, slices among them; a table has no, few, many or only nulls."""
    nulls = rng.choice([0, 0.05, 0.5, 1])
    batches = []
    for _ in range(rng.randint(1, 4)):
        rows = rng.choice([0, 1, 2, 7, 8, 9, 100, 300])
        arrays = [pa.array([_cell(rng, field, nulls) for _ in range(rows)], field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if rows > 3 and rng.random() < 0.3:
            batch = batch.slice(rng.randint(1, 3), rng.randint(0, rows - 3))
        batches.append(batch)
    return batches


def written(
    groups: Iterable[Sequence[pa.RecordBatch]],
    schema: pa.Schema,
    *,
    columns: dict[str, tuple[str, bool]] | None = None,
    codec: str = "zstd",
) -> bytes:
    """A whole file."""
    file = io.BytesIO()
    writer = ParquetWriter(schema, file.write, codec=codec, columns=columns)
    for batches in groups:
        writer.write_row_group(batches)
    writer.close()
    return file.getvalue()


def by_pyarrow(table: pa.Table) -> bytes:
    """The file that pyarrow makes of a table."""
    file = io.BytesIO()
    pq.write_table(table, file, coerce_timestamps="us", store_schema=False)
    return file.getvalue()


def _type(rng: random.Random, depth: int) -> pa.DataType:
    if not depth or rng.random() < 0.5:
        return rng.choice(FLAT)
    kind = rng.choice(["struct", "map", "list", "large list", "fixed list"])
    if kind == "struct":
        fields = range(rng.randint(1, 3))
        return pa.struct([nullable(f"f{at}", _type(rng, depth - 1), rng.random() < 0.7) for at in fields])
    if kind == "map":
        return pa.map_(rng.choice([pa.string(), pa.int32()]), pa.field("value", _type(rng, depth - 1)))
    item = nullable("element", _type(rng, depth - 1), rng.random() < 0.7)
    if kind == "fixed list":
        return pa.list_(item, rng.choice([1, 3]))
    return pa.list_(item) if kind == "list" else pa.large_list(item)


def _cell(rng: random.Random, field: pa.Field, nulls: float) -> Any:
    return None if field.nullable and rng.random() < nulls else _value(rng, field.type, nulls)


def _value(rng: random.Random, kind: pa.DataType, nulls: float) -> Any:
    types = pa.types
    if types.is_dictionary(kind):
        value = kind.value_type
        if types.is_integer(value):
            return rng.randint(-2, 2)
        return rng.choice(["", "a", "ü"]) if types.is_string(value) else rng.choice([b"", b"\xff"])
    if types.is_struct(kind):
        return {field.name: _cell(rng, field, nulls) for field in kind}
    if types.is_map(kind):
        keys = dict.fromkeys(_value(rng, kind.key_type, 0) for _ in range(rng.randint(0, 3)))
        return [(key, _cell(rng, kind.item_field, nulls)) for key in keys]
    if types.is_fixed_size_list(kind):
        return [_cell(rng, kind.value_field, nulls) for _ in range(kind.list_size)]
    if types.is_list(kind) or types.is_large_list(kind):
        return [_cell(rng, kind.value_field, nulls) for _ in range(rng.choice([0, 0, 1, 2, 5]))]
    return flat_value(rng, kind)


def flat_value(rng: random.Random, kind: pa.DataType) -> Any:
    """A value of a type of ``FLAT``, those at its ends among them."""
    types = pa.types
    if types.is_null(kind):
        return None
    if types.is_boolean(kind):
        return rng.random() < 0.5
    if types.is_integer(kind):
        bits = kind.bit_width
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if types.is_signed_integer(kind) else (0, (1 << bits) - 1)
        return rng.choice([low, high, 0, rng.randint(low, high), rng.randint(max(low, -5), min(high, 5))])
    if types.is_floating(kind):
        return rng.choice([0.0, -0.0, float("inf"), 1.5, rng.random() * 1e9])
    if types.is_string(kind) or types.is_large_string(kind):
        return rng.choice(["", "a", "zürich", "x" * rng.randint(0, 300), str(rng.random())])
    if types.is_binary(kind) or types.is_large_binary(kind):
        return rng.choice([b"", rng.randbytes(rng.randint(0, 200))])
    if types.is_fixed_size_binary(kind):
        return rng.randbytes(kind.byte_width)
    if types.is_decimal(kind):
        digits = Decimal(rng.choice([-1, 1]) * rng.randint(0, 10**kind.precision - 1))
        return digits.scaleb(-kind.scale, Context(prec=80))
    if types.is_date(kind):
        return date(1970, 1, 1) + timedelta(days=rng.randint(-10_000, 40_000))
    if types.is_time(kind):
        return rng.randrange(_DAY_US) * _PER_S[kind.unit] // 1_000_000
    return rng.randint(-(10**9), 4 * 10**9) * _PER_S[kind.unit]
