"""Columns of Arrow as those of a table: their types, and their values as the driver writes them.

The driver writes the bytes of an Arrow type and the server reads those of the column's, so both must agree exactly:
an int64 in a column ``double precision`` would be another number. Each array is made the one of the column's type, and
a value that is not the same there is refused.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fastwire.columns.text import LineFormatter
from fastwire.decode.evolution import Column

_SQL: Mapping[pa.DataType, str] = {
    pa.null(): "text", pa.bool_(): "boolean", pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer",
    pa.int64(): "bigint", pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint",
    pa.uint64(): "numeric(20,0)", pa.float32(): "real", pa.float64(): "double precision", pa.string(): "text",
    pa.binary(): "bytea", pa.date32(): "date", pa.time32("s"): "time", pa.time32("ms"): "time", pa.time64("us"): "time",
}  # fmt: skip
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19, pa.uint8(): 3, pa.uint16(): 5, pa.uint32(): 10,
           pa.uint64(): 20}  # fmt: skip
_INTS = {"int2": 16, "int4": 32, "int8": 64}
_TEXTS = ("text", "varchar", "citext")
_JSON = ("json", "jsonb")
# Microseconds since 1970 and days since 1970 that the server takes; the driver would make infinity of one before.
_MICROS = (-210_866_803_200_000_000, 9_223_371_331_199_999_999 - 946_684_800_000_000)
_DAYS = (-2_440_588, 2_145_031_948)
_PLAIN: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(), "int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float32(),
    "float8": pa.float64(), "bytea": pa.binary(), "date": pa.date32(), "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", tz="UTC"),
}  # fmt: skip


class Held(NamedTuple):
    """The type of a column of a table."""

    name: str
    """The name of the base type in the catalog of the server, without the one underscore of arrays: "int4"."""
    text: str
    """The type as people write it: "numeric(10,2)[]"."""
    array: bool = False
    enum: bool = False
    digits: int | None = None
    """numeric: precision; varchar: characters; None if it has any."""
    scale: int | None = None
    """numeric: digits behind the point; of times: digits of a second; None if it has any."""


def too_fine(column: Column) -> bool:
    """Return True if a column has nanoseconds, also within its values: PostgreSQL keeps microseconds."""
    return column.arrow[:3] in ("tsn", "ttn") or any(map(too_fine, column.children))


def sql_type(kind: pa.DataType) -> str:
    """Return the type of a new column for values of an Arrow type."""
    kind = _plain(kind)
    if kind in _SQL:
        return _SQL[kind]
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type):
        return f"{sql_type(kind.value_type)}[]"
    return "jsonb"


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without what does not matter to a table: dictionaries, and lengths of more than 2 GiB."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def misfit(kind: pa.DataType, held: Held, of_bytes: bool = False) -> bool:
    """Return True if a column of type ``held`` cannot have all values of an Arrow type.

    ``of_bytes`` is true for columns of the records, whose bytes may be text.
    """
    plain = _plain(kind)
    if pa.types.is_null(plain):
        return False
    if held.array:
        within = held._replace(array=False)
        if held.enum or held.name not in (*_PLAIN, *_TEXTS, "numeric"):
            return True
        return not pa.types.is_list(plain) or pa.types.is_nested(plain.value_type) or misfit(plain.value_type, within)
    if pa.types.is_integer(plain):
        if held.name == "numeric":
            return held.digits is not None and held.digits - (held.scale or 0) < _DIGITS[plain]
        return sql_type(plain) not in _no_wider_than(held.name)
    if pa.types.is_floating(plain):
        return held.name != "float8" and (held.name != "float4" or plain != pa.float32())
    if pa.types.is_string(plain):
        return held.name not in (*_TEXTS, *_JSON, "uuid") and not held.enum
    if pa.types.is_binary(plain):
        uuid = held.name == "uuid" and kind == pa.binary(16)
        return held.name != "bytea" and not uuid and not (of_bytes and held.name in (*_TEXTS, *_JSON))
    if pa.types.is_decimal(plain):
        if held.name != "numeric" or held.digits is None:
            return held.name != "numeric"
        scale = held.scale or 0
        return bool(scale < plain.scale or held.digits - scale < plain.precision - plain.scale)
    if pa.types.is_timestamp(plain):
        return held.name != sql_type(plain) or held.scale not in (None, 6)
    if pa.types.is_time(plain):
        return held.name != "time" or held.scale not in (None, 6)
    if plain in (pa.bool_(), pa.date32()):
        return held.name != ("bool" if plain == pa.bool_() else "date")
    return held.name not in _JSON


def _no_wider_than(name: str) -> tuple[str, ...]:
    return {"int2": ("smallint",), "int4": ("smallint", "integer"), "int8": ("smallint", "integer", "bigint")}.get(
        name, ()
    )


Unfit = dict[int, tuple[str, str]]
"""SQLSTATE and reason of the rows that cannot have their value in the column."""


def fitting(array: pa.Array, held: Held, of_bytes: bool = False) -> tuple[pa.Array, Unfit]:
    """Return the values as the driver writes them into a column, and the rows whose values it cannot have.

    The rows that do not fit are null in the result.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        found = _converter(array.type, held, of_bytes)(array)
        unfit = _outside(found)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as exc:
        if len(array) == 1:
            return pa.nulls(1, _target(array.type, held)), {0: _reason(exc, held)}
        parts, unfit, first = [], {}, 0
        for half in (array.slice(0, len(array) // 2), array.slice(len(array) // 2)):
            part, wrong = fitting(half, held, of_bytes)
            parts.append(part)
            unfit |= {first + row: why for row, why in wrong.items()}
            first += len(half)
        return _concat(parts), unfit
    if unfit:
        mask = pa.array([row in unfit for row in range(len(found))], pa.bool_())
        found = pc.if_else(mask, pa.scalar(None, found.type), found)
    return found, unfit


def _concat(parts: list[pa.Array]) -> pa.Array:
    kinds = {part.type for part in parts}
    if len(kinds) > 1:  # decimals of several widths, and nulls without a type
        widest = next((part.type for part in parts if part.null_count < len(part)), parts[0].type)
        parts = [part if part.type == widest else part.cast(widest) for part in parts]
    return pa.concat_arrays(parts)


def _reason(exc: Exception, held: Held) -> tuple[str, str]:
    return "22023", f"the value does not fit the type {held.text}: {str(exc).splitlines()[0]}"


def _target(kind: pa.DataType, held: Held) -> pa.DataType:
    """Return the type that ``fitting`` makes of values of ``kind``."""
    return _converter(kind, held, True)(pa.nulls(1, kind)).type


def _converter(kind: pa.DataType, held: Held, of_bytes: bool) -> Callable[[pa.Array], pa.Array]:
    plain = _plain(kind)
    if held.array:
        if not pa.types.is_list(plain):
            return _refused(kind, held)
        return lambda array: _list(array, held._replace(array=False))
    if pa.types.is_null(plain):
        return lambda array: pa.nulls(len(array), _PLAIN.get(held.name, pa.string()))
    if held.name in _JSON:
        return lambda array: _as_json(array, plain, held.name, of_bytes)
    if held.name == "uuid":
        return lambda array: _as_uuid(array, plain)
    if held.name == "numeric" and (pa.types.is_integer(plain) or pa.types.is_decimal(plain)):
        return lambda array: _as_numeric(array, held)
    if held.name in _TEXTS or held.enum:
        if pa.types.is_string(plain) or (of_bytes and pa.types.is_binary(plain)):
            return lambda array: _as_text(array, held)
        return _refused(kind, held)
    wanted = _PLAIN.get(held.name)
    alike = (
        (pa.types.is_integer(plain) and held.name in _INTS)
        or (pa.types.is_floating(plain) and wanted in (plain, pa.float64()))
        or (pa.types.is_timestamp(plain) and held.name == sql_type(plain))
        or (pa.types.is_time(plain) and held.name == "time")
        or plain == wanted
    )  # fmt: skip
    return (lambda array: array.cast(wanted)) if alike else _refused(kind, held)


def _refused(kind: pa.DataType, held: Held) -> Callable[[pa.Array], pa.Array]:
    """Return what takes nulls only: values of another kind than the column's."""

    def converted(array: pa.Array) -> pa.Array:
        if array.null_count < len(array):
            raise ValueError(f"it is of type {kind}")
        return pa.nulls(len(array), _PLAIN.get(held.name, pa.string()))

    return converted


def _list(array: pa.Array, within: Held) -> pa.Array:
    items = _converter(array.type.value_type, within, False)(array.flatten())
    if _outside(items):
        raise ValueError("a time in it is outside of what PostgreSQL has")
    offsets = pc.subtract(array.offsets, array.offsets[0]) if len(array) else array.offsets
    if array.null_count:  # a null list may have items in the buffer, and flatten leaves them out
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    return pa.ListArray.from_arrays(offsets, items, mask=array.is_null() if array.null_count else None)


def _as_json(array: pa.Array, plain: pa.DataType, name: str, of_bytes: bool) -> pa.Array:
    if pa.types.is_string(plain) or pa.types.is_binary(plain):
        text = array.cast(pa.string())
    else:
        text = _json_texts(array, () if of_bytes else ("v",))
    return text if name == "json" else pa.ExtensionArray.from_storage(pa.json_(pa.string()), text)


def _json_texts(array: pa.Array, base64: tuple[str, ...]) -> pa.Array:
    """Return each value as JSON, in the form of the files of JSON lines; ``base64`` is that of ``LineFormatter``."""
    pieces: list[bytes] = []
    if not len(array):
        return pa.array([], pa.string())
    LineFormatter(pa.record_batch({"v": array}), base64=base64).write(pieces.append)
    lines = pc.split_pattern(pa.array([b"".join(pieces).rstrip(b"\n")], pa.large_binary()), b"\n").flatten()
    # A line is {"v":…}; a line feed within a text is escaped.
    texts = pc.binary_slice(lines.cast(pa.binary()), 5, -1).cast(pa.string())
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), texts) if array.null_count else texts


def _as_text(array: pa.Array, held: Held) -> pa.Array:
    texts = array.cast(pa.string())
    # The server would cut blanks at the end in silence.
    if held.digits is not None and pc.any(pc.greater(pc.utf8_length(texts), held.digits), min_count=0).as_py():
        raise ValueError(f"it has more than {held.digits} characters")
    return texts


def _as_uuid(array: pa.Array, plain: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(array.type) and array.type.byte_width == 16:
        stored = array
    else:
        texts = pc.utf8_lower(pc.replace_substring(array.cast(pa.string()), "-", ""))
        if not pc.all(pc.match_substring_regex(texts, "^[0-9a-f]{32}$"), min_count=0).as_py():
            raise ValueError("it is not a UUID")
        # One object a value: Arrow has no function for hexadecimal digits.
        stored = pa.array([None if text is None else bytes.fromhex(text) for text in texts.to_pylist()], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), stored)


def _as_numeric(array: pa.Array, held: Held) -> pa.Array:
    kind = array.type
    if pa.types.is_integer(kind):
        array = array.cast(pa.decimal128(_DIGITS[kind], 0))
    if held.digits is None or (held.scale or 0) >= array.type.scale:
        return array  # the server refuses more digits before the point than there are
    return array.cast(pa.decimal256(76, held.scale or 0))  # raises for digits that would be cut


def _outside(found: pa.Array) -> Unfit:
    """Return the rows with times that the server does not have; the driver makes others of some of them."""
    kind = found.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)) or not len(found):
        return {}
    low, high = _MICROS if pa.types.is_timestamp(kind) else _DAYS
    numbers = found.cast(pa.int64()) if pa.types.is_timestamp(kind) else found.view(pa.int32())
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or (ends["min"] >= low and ends["max"] <= high):
        return {}
    wrong = pc.or_(pc.less(numbers, low), pc.greater(numbers, high))
    rows = pc.indices_nonzero(pc.fill_null(wrong, False)).to_pylist()
    return dict.fromkeys(rows, ("22008", "the time is outside of what PostgreSQL has"))
