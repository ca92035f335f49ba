"""The columns of batches: those that a query asks for, and those of a schema."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from fastwire.errors import FastwireError


def asked_for(names: Iterable[str], asked: Collection[str]) -> list[str]:
    """Return those of ``names`` that a query asks for: as they are written, else in any case, as in SQL."""
    mine = [*names]
    exact = {name.lower() for name in mine if name in asked}
    others = {name.lower() for name in asked} - exact
    return [name for name in mine if name in asked or name.lower() in others]


def with_columns(reader: pa.RecordBatchReader, topic: str) -> pa.RecordBatchReader:
    """Return a reader for an engine, which takes no table without a column. Raises FastwireError if it has none."""
    if not reader.schema.names:
        raise FastwireError(
            f"{topic} has no columns yet: it holds no record with a field from which they could be inferred"
        )
    return reader


def only_columns(batch: pa.RecordBatch, asked: Collection[str]) -> pa.RecordBatch:
    """Return the columns of ``batch`` that a query asks for; one column stays if there are none, for the rows."""
    return batch.select(asked_for(batch.schema.names, asked) or batch.schema.names[:1])


def with_nulls(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the columns ``names``; those that ``batch`` lacks are nulls without a type."""
    held = batch.schema.names
    arrays = [batch.column(name) if name in held else pa.nulls(batch.num_rows) for name in names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema_with_nulls(batch.schema, names))


def schema_with_nulls(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema of ``with_nulls``."""
    return pa.schema([schema.field(name) if name in schema.names else pa.field(name, pa.null()) for name in names])


def twins(fields: Iterable["pa.Field[Any]"]) -> Iterator[list[str]]:
    """Yield the names side by side that differ by case only: those of these fields, and those on each level below."""
    groups: dict[str, list[str]] = {}
    for field in fields:
        groups.setdefault(field.name.lower(), []).append(field.name)
        yield from twins(_inner(field))
    yield from (names for names in groups.values() if len(names) > 1)


def _lacking(fields: Iterable["pa.Field[Any]"], held: Iterable["pa.Field[Any]"], within: str = "") -> Iterator[str]:
    """Yield the places of the ``fields`` that are not among those that are ``held``, on any level."""
    known = {field.name: field for field in held}
    for field in fields:
        if field.name not in known:
            yield f"{within}{field.name}"
        elif not pa.types.is_null(field.type):
            yield from _lacking(_inner(field), _inner(known[field.name]), f"{within}{field.name}.")


def _inner(field: "pa.Field[Any]") -> Iterator["pa.Field[Any]"]:
    kind: Any = field.type
    return (kind.field(i) for i in range(kind.num_fields))


def _may_change(kind: Any, into: Any) -> bool:
    """Return True if a cast may change values without an error: "007" to 7, and a double to a float."""
    if kind.num_fields:
        inner = {into.field(i).name: into.field(i).type for i in range(into.num_fields)}
        return any(_may_change(each.type, inner.get(each.name, each.type)) for each in _inner(pa.field("", kind)))
    if pa.types.is_string(kind):
        return not (pa.types.is_string(into) or pa.types.is_binary(into))
    return bool(pa.types.is_float64(kind) and pa.types.is_float32(into))


def in_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` with the columns of ``schema``. Raises FastwireError if it has others, or wider ones."""
    if strange := [*_lacking(batch.schema, schema)]:  # a cast would drop them within a struct
        raise FastwireError(
            f"a later record has the column {strange[0]}, which the first records lack: name the columns "
            "that you want, or read by a schema that has it (`infer --output` writes one); to_table() has all columns"
        )
    names = batch.schema.names
    columns = [
        _cast(batch.column(field.name), field) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: "pa.Field[Any]") -> pa.Array:
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # values or types that have no cast: see below
        if not _may_change(column.type, field.type):
            return column.cast(field.type)
    if pa.types.is_integer(column.type) and pa.types.is_floating(field.type):
        raise FastwireError(
            f"the column {field.name} has whole numbers that the {field.type} of other records would change: read by a "
            "schema that says its type"
        )
    raise FastwireError(
        f"a later record makes the column {field.name} {column.type}, and the first records make it {field.type}: "
        "to_table() has the wider type for all, or read by a schema that says it"
    )
