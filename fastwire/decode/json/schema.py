"""Schemas of JSON values as programs: an Avro schema is used as the shape of the objects.

Columns have the types of :mod:`~fastwire.decode.avro.schema`; a value of JSON is read as follows.

| column | JSON |
|---|---|
| bool | true, false |
| int32, int64 | a number without a fraction (1.0 and 1e2 have none), also in quotes |
| float, double | a number, also in quotes, the nearest float or double; "NaN", "Infinity", "-Infinity" |
| decimal | a number, also in quotes, that the decimal holds exactly |
| utf8; an enum | a string; one of the symbols |
| binary | a string in base64 with padding (RFC 4648) |
| date, time | a string such as "2026-08-01", "12:34:56.789"; a number in the unit, not in quotes |
| timestamp | a string such as "2026-08-01T12:34:56Z"; a number in the unit, also in quotes |
| timestamp without a time zone | a string without a zone, "2026-08-01T12:34:56"; a number in the unit, also in quotes |
| struct, list, map | an object, an array, an object |
| nullable | null, and a key that is absent |

Keys that are not in the schema are checked and left out.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..avro.schema import compile_avro
from ..program import SchemaError, Step


def compile_json(text: str) -> tuple[Step, ...]:
    """Return the program of an Avro schema for values in JSON; its first step is the object of a record.

    Raises SchemaError for a schema that ``compile_avro`` refuses, and for types without a form in JSON: a union of
    several types, a record without fields, and a fixed that is not a decimal.
    """
    return _in_json(compile_avro(text))


def fitted(program: Sequence[Step], given: Sequence[Step]) -> tuple[Step, ...]:
    """Return the program of a dataset's columns with the symbols of the enums of ``given``, whose columns it has.

    Raises SchemaError for columns without a form in JSON.
    """
    enums = {step.path: step.symbols for step in given if step.operation == "enum"}
    return tuple(
        replace(step, operation="enum", symbols=enums[step.path])
        if step.shape == "text" and step.path in enums
        else step
        for step in _in_json(program)
    )


def _in_json(program: Sequence[Step]) -> tuple[Step, ...]:
    for step in program:
        if step.operation == "union":
            raise SchemaError(step.path, "a union of several types is not supported in JSON")
        if step.operation == "empty":
            raise SchemaError(step.path, "a record without fields is not supported in JSON")
        if step.shape == "fixed":
            raise SchemaError(step.path, "a fixed is not supported in JSON: use bytes")
    return tuple(program)
