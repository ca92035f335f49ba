"""Columns as Arrow has them: those of records, of decoded values, and of the results of queries that files hold."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastwire.systems import row_of

if TYPE_CHECKING:
    import pyarrow as pa

    from fastwire.decode.evolution import Column

KEY = "_key"
"""The column of keys where values are decoded. It has the type of their schema if keys are decoded as well."""

# Arrow types of results, by the Arrow C data interface. Files hold these and what is nested of them.
_FORMATS = {
    "bool": "b", "int32": "i", "int64": "l", "float": "f", "double": "g", "string": "u", "binary": "z",
    "date32[day]": "tdD", "time64[us]": "ttu", "null": "n",
}  # fmt: skip


def names_of_records(system: str, decoded: "Sequence[Column] | None") -> tuple[str, ...]:
    """Return the columns of records of ``system`` that a query reads, by the names that ``read_transform`` gives them.

    Decoded values and keys are none of them.
    """
    if decoded is None:
        return row_of(system).names
    typed = {"_value", *(KEY for column in decoded if column.name == KEY)}
    return tuple(name for name in (f"_{name}" for name in row_of(system).names) if name not in typed)


def types_of_records(system: str, prefix: str = "") -> "dict[str, pa.DataType]":
    """Return the columns of records of ``system``, with a ``prefix`` of their names, as plain types of Arrow.

    Columns of chunks that are dictionaries of text are text here.
    """
    import pyarrow as pa

    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    headers = pa.list_(pa.field("item", pair, nullable=False))
    types = {
        "int32": pa.int32(), "int64": pa.int64(), "bytes": pa.binary(), "strings": pa.string(), "topic": pa.string(),
        "time": pa.timestamp("us", "UTC"), "rare time": pa.timestamp("us", "UTC"), "headers": headers,
    }  # fmt: skip
    return {f"{prefix}{column.name}": types[column.storage] for column in row_of(system).columns}


def check_result(schema: "pa.Schema") -> None:
    """Raise ValueError for columns of a result that cannot land, with the reason: "has …"."""
    names = [name.lower() for name in schema.names]
    if repeated := next((name for name in schema.names if names.count(name.lower()) > 1), None):
        raise ValueError(f'has the column "{repeated}" more than once: give one another name')
    columns_in(schema)


def arrow_schema(columns: "Sequence[Column]") -> "pa.Schema":
    """Return columns as Arrow has them."""
    import pyarrow as pa

    from fastwire.decode.avro.walk import AvroDecoder
    from fastwire.decode.evolution import program_of
    from fastwire.wire.pool import Pool

    # The types of columns do not depend on the format of the values.
    return pa.schema(AvroDecoder(program_of(columns), Pool(64 << 20))) if columns else pa.schema([])


def columns_in(schema: "pa.Schema") -> "tuple[Column, ...]":
    """Return the columns of a result. Raises ValueError for a type that files do not hold."""
    return tuple(_column(field, field.name) for field in schema)


def _column(field: "pa.Field", top: str) -> "Column":
    import pyarrow as pa

    from fastwire.decode.evolution import Column

    kind, children = field.type, []
    arrow = _FORMATS.get(str(kind), "")
    if pa.types.is_timestamp(kind):
        arrow = f"ts{kind.unit[:1]}:{kind.tz or ''}"
    elif pa.types.is_decimal128(kind):
        arrow = f"d:{kind.precision},{kind.scale}"
    elif pa.types.is_struct(kind):
        arrow, children = "+s", list(kind)
    elif pa.types.is_list(kind):
        arrow, children = "+l", [kind.value_field]
    elif pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        arrow, children = "+m", [pa.field("entries", entries, nullable=False)]
    if not arrow:
        raise ValueError(
            f'has the column "{top}" of the type {kind}, which files do not hold: cast it, for example to '
            "BIGINT, DOUBLE or VARCHAR"
        )
    return Column(field.name, arrow, field.nullable, tuple(_column(each, top) for each in children))
