"""The columns of a dataset as those of a table, and the values of its folder levels."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from fastwire.columns.schema import Storage
from fastwire.decode.evolution import Column
from fastwire.systems import row_of

from ..config.decode import DELETED
from .columnnames import twice
from .level import NO_VALUE, level_keys

# Types by the Arrow C data interface, with the names of Delta. Its tables have no times of day and no columns that are
# always null.
_TYPES = {
    "b": "boolean", "i": "integer", "l": "long", "f": "float", "g": "double", "u": "string", "z": "binary",
    "tdD": "date",
}  # fmt: skip
_ARROW = {name: arrow for arrow, name in _TYPES.items()} | {"timestamp": "tsu:UTC", "timestamp_ntz": "tsu:"}
_STORED: Mapping[Storage, str] = {
    "int32": "i", "int64": "l", "time": "tsu:UTC", "rare time": "tsu:UTC", "bytes": "z", "strings": "u", "topic": "u",
}  # fmt: skip
_HEADERS = (Column("item", "+s", True, (Column("key", "u", True), Column("value", "z", True))),)
_LEVELS = {"t": "u", "p": "i", "dt": "tdD", "hh": "i"}
# Without an extension of the format, the names of columns are those that Parquet readers of all ages take.
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")


def data_columns(system: str, names: Sequence[str], types: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the files: ``names`` in their order, then those that ``types`` has in addition.

    ``types`` are the columns of decoded values, and those that a transform makes. Other names are those of columns of
    the records of ``system``, with a _ before them if values are decoded; ``_deleted`` is true for null values.
    """
    decoded = {column.name: column for column in types}
    own = set(names) - decoded.keys()  # a job on Spark has none, and no system
    every = row_of(system).columns if own else ()
    stored = {f"{prefix}{each.name}": each.storage for each in every for prefix in ("", "_")}
    columns = []
    for name in names:
        if name == DELETED and name in own:
            columns.append(Column(name, "b", True))
        else:
            columns.append(_stored(name, stored[name]) if name in own else decoded.pop(name))
    return (*columns, *decoded.values())


def _stored(name: str, storage: Storage) -> Column:
    return Column(name, "+l", True, _HEADERS) if storage == "headers" else Column(name, _STORED[storage], True)


def partition_columns(split: str, partition_by: str, levels: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of the folder levels, outermost first; ``levels`` are those of decoded values."""
    return (*(Column(key, _LEVELS[key], True) for key in level_keys(split, partition_by)), *levels)


def unfit(columns: Sequence[Column]) -> str:
    """Return the columns that a table cannot have, and why; "" if it can have all."""
    wrong = []
    for column in columns:
        try:
            plain_type(column)
        except ValueError as exc:
            wrong.append(str(exc))
        wrong += [
            f'the name "{name}" has a blank or one of ,;{{}}()='
            for name in _names(column)
            if _NOT_IN_NAMES.search(name)
        ]
    return "; ".join([*wrong, *twice(columns)])


def _names(column: Column) -> Iterator[str]:
    yield column.name
    for each in column.children:
        yield from _names(each)


def misfit(before: Sequence[Column], after: Sequence[Column]) -> str:
    """Return the reason why a table with the columns ``before`` cannot go on with ``after``; "" if it can.

    Either may have columns, and fields of structs on any level, that the other lacks. A table cannot make them wider,
    and files with other types than its own cannot be added.
    """
    known = {column.name: column for column in before}
    for column in after:
        was, is_ = plain_type(known.get(column.name, column)), plain_type(column)
        if with_fields(was, is_) is None:
            return f"a table cannot change the type of its column {column.name} from {was} to {is_}"
    return unfit(after)


def retyped(before: Sequence[Column], after: Sequence[Column]) -> str:
    """Return how the types of columns differ that are in both; "" if they do not. Structs may get and lack fields."""
    known = {column.name: column for column in before}
    changed = (column for column in after if not _joins(known.get(column.name, column), column))
    return "; ".join(f"{known[column.name]} cannot become {column}" for column in changed)


def _joins(one: Column, other: Column) -> bool:
    if one.arrow != other.arrow:
        return False
    if one.arrow != "+s":
        pairs = list(zip(one.children, other.children, strict=True))
    else:
        fields = {each.name: each for each in one.children}
        pairs = [(fields[each.name], each) for each in other.children if each.name in fields]
        if not pairs and one.children:
            return False  # another struct: nothing of one has a place in the other
    return all(_joins(*pair) for pair in pairs)


def with_fields(one: Any, other: Any) -> Any:
    """Return a type of ``plain_type`` with the fields that ``other`` has besides, on any level; None if they differ."""
    if one == other:
        return one
    if not isinstance(one, dict) or not isinstance(other, dict) or one["type"] != other["type"]:
        return None
    if one["type"] != "struct":
        inner = {
            key: with_fields(one[key], other[key]) for key in ("keyType", "valueType", "elementType") if key in one
        }
        return None if None in inner.values() or inner.get("keyType") != one.get("keyType") else one | inner
    theirs = {each["name"]: each for each in other["fields"]}
    fields = []
    for each in one["fields"]:
        kind = with_fields(each["type"], theirs.pop(each["name"], each)["type"])
        if kind is None:
            return None
        fields.append(each | {"type": kind})
    return one | {"fields": [*fields, *theirs.values()]}


def plain_type(column: Column, *, sized: bool = False) -> Any:
    """Return the type of a column in a table, with the names of Delta. Raises ValueError if tables have none.

    With ``sized`` texts of a fixed length are "fixed[…]" and not "binary".
    """
    kind, _, rest = column.arrow.partition(":")
    if column.arrow in _TYPES:
        return _TYPES[column.arrow]
    if kind == "w":
        return f"fixed[{rest}]" if sized else "binary"
    if kind == "d":
        digits, scale = rest.split(",")[:2]
        return f"decimal({digits},{scale})"
    if kind in ("tss", "tsm", "tsu"):
        return "timestamp" if rest else "timestamp_ntz"
    if kind == "+s":
        return {"type": "struct", "fields": [field(each, sized=sized) for each in column.children]}
    if kind == "+l":
        item = plain_type(column.children[0], sized=sized)
        return {"type": "array", "elementType": item, "containsNull": True}
    if kind == "+m":
        key, value = (plain_type(each, sized=sized) for each in column.children[0].children)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    raise ValueError(f"tables have no type for {column}")


def field(column: Column, *, sized: bool = False) -> dict[str, Any]:
    """Return a column of a table, as the log of Delta has it. All take nulls: files of other schemas may lack it."""
    return {"name": column.name, "type": plain_type(column, sized=sized), "nullable": True, "metadata": {}}


def column_of(field: Mapping[str, Any]) -> Column:
    """Return the column for a field as the log of Delta and Spark have it; it takes nulls on all levels.

    A type that tables lack keeps its name, and is :func:`unfit`.
    """
    return _column(field["name"], field["type"])


def _column(name: str, kind: Any, *, nullable: bool = True) -> Column:
    if isinstance(kind, str):
        arrow = f"d:{kind[8:-1]}" if kind.startswith("decimal(") else _ARROW.get(kind, kind)
        return Column(name, arrow, nullable)
    if kind["type"] == "struct":
        return Column(name, "+s", nullable, tuple(column_of(each) for each in kind["fields"]))
    if kind["type"] == "array":
        return Column(name, "+l", nullable, (_column("item", kind["elementType"]),))
    if kind["type"] == "map":
        pair = (_column("key", kind["keyType"], nullable=False), _column("value", kind["valueType"]))
        return Column(name, "+m", nullable, (Column("entries", "+s", False, pair),))
    return Column(name, kind["type"], nullable)


def partition_values(directory: str, columns: Sequence[Column]) -> dict[str, str | None]:
    """Return the values of the folder levels in the name of a folder, as a table's log has them; None is null.

    An empty text and the text that stands for null have names of their own: see ``level.hive_directory``.
    """
    values: dict[str, str | None] = {}
    for column, level in zip(columns, directory.split("/"), strict=False):
        name = level.partition("=")[2]
        text = unquote(name)
        if name == NO_VALUE:
            values[column.name] = None
        else:
            values[column.name] = str(int(text)) if column.arrow == "i" else text
    return values
