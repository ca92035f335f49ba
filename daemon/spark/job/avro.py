"""Decodes Avro values with a compiled reader, and maps Avro types to Arrow columns."""

import io
import json
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pyarrow as pa

from .schema import Reader, SchemaError

__all__ = ["AvroDecoder"]

Convert = Callable[[Any], Any]

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
}
_LARGEST_PRECISION = 38


class AvroDecoder:
    """Decoder of bare values (no container file) of one Avro record schema. Raises SchemaError."""

    def __init__(self, schema: str) -> None:
        self._text = schema
        self.record  # noqa: B018 - rejects an unusable schema here and not on an executor

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroDecoder, (self._text,)

    @cached_property
    def _typed(self) -> tuple[pa.DataType, Convert | None]:
        try:
            schema = json.loads(self._text)
        except ValueError as exc:
            raise SchemaError(f"is not JSON: {exc}") from None
        if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
            raise SchemaError("must be a record: its fields become the columns")
        self._parsed()  # any error in the schema itself
        return _typed(schema, {}, (), "")

    @property
    def record(self) -> pa.StructType:
        """The Arrow type of the records."""
        return self._typed[0]

    def _parsed(self) -> Any:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType

        try:
            return fastavro.parse_schema(json.loads(self._text))
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError) as exc:
            raise SchemaError(f"is not an Avro schema: {type(exc).__name__}: {exc}") from None

    def compile(self) -> Reader:
        """Return the functions that read values in this process."""
        from fastavro import schemaless_reader

        schema, convert = self._parsed(), self._typed[1]

        def read(value: bytes) -> dict[str, Any]:
            stream = io.BytesIO(value)
            record: dict[str, Any] = schemaless_reader(stream, schema, None)
            left = len(value) - stream.tell()
            if left:
                raise ValueError(f"{left} bytes remain after the record")
            return record if convert is None else dict(convert(record))

        return Reader(bare=read, framed=read)


def _typed(
    schema: Any, names: dict[str, Any], inside: tuple[str, ...], space: str
) -> tuple[pa.DataType, Convert | None]:
    """Return the Arrow type, and the conversion of the reader's values to it (None: no conversion)."""
    if isinstance(schema, list):
        return _union(schema, names, inside, space)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema], None
        full = schema if "." in schema or not space else f"{space}.{schema}"
        known = full if full in names else schema
        if known in inside:
            raise SchemaError(f"{schema} contains itself: no column can hold that")
        return _typed(names[known], names, inside, space)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _typed(kind, names, inside, space)
    if kind in ("record", "error", "enum", "fixed"):
        name, _, own = schema["name"].rpartition(".")[::-1]
        space = own or schema.get("namespace", space)
        full = f"{space}.{name}" if space else name
        names[full] = schema
        inside = (*inside, full)
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = schema.get("precision", 0)
        if not 1 <= precision <= _LARGEST_PRECISION:
            raise SchemaError(f"a decimal of {precision} digits: Spark has 1 to {_LARGEST_PRECISION}")
        return pa.decimal128(precision, schema.get("scale", 0)), None
    if kind in ("record", "error"):
        return _struct(schema, names, inside, space)
    if kind == "enum":
        return pa.string(), None
    if kind == "fixed":
        return pa.binary(), None
    if kind == "array":
        element, convert = _typed(schema["items"], names, inside, space)
        if convert is None:
            return pa.list_(element), None
        return pa.list_(element), lambda values, convert=convert: [convert(value) for value in values]
    if kind == "map":
        element, convert = _typed(schema["values"], names, inside, space)
        if convert is None:
            return pa.map_(pa.string(), element), lambda values: list(values.items())
        return pa.map_(pa.string(), element), lambda values: [(key, convert(value)) for key, value in values.items()]
    if kind in _PLAIN:
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical], str if logical == "uuid" else None
        if logical in ("time-millis", "time-micros", "duration"):
            raise SchemaError(f"{logical}: Spark has no such type")
        return _PLAIN[kind], None
    return _typed(kind, names, inside, space)


def _union(
    schema: list[Any], names: dict[str, Any], inside: tuple[str, ...], space: str
) -> tuple[pa.DataType, Convert | None]:
    others = [branch for branch in schema if branch != "null"]
    if len(others) != 1:
        raise SchemaError(f"a union of {len(others)} types besides null: no column can hold that")
    found, convert = _typed(others[0], names, inside, space)
    if convert is None or len(others) == len(schema):
        return found, convert
    return found, lambda value: None if value is None else convert(value)


def _struct(
    schema: Any, names: dict[str, Any], inside: tuple[str, ...], space: str
) -> tuple[pa.DataType, Convert | None]:
    fields, converts = [], {}
    for field in schema["fields"]:
        found, convert = _typed(field["type"], names, inside, space)
        fields.append(pa.field(field["name"], found))
        if convert is not None:
            converts[field["name"]] = convert
    if not fields:
        raise SchemaError(f"{schema['name']} has no fields")
    if not converts:
        return pa.struct(fields), None

    def converted(record: dict[str, Any]) -> dict[str, Any]:
        for name, convert in converts.items():
            record[name] = convert(record[name])
        return record

    return pa.struct(fields), converted
