"""Inference of the columns of JSON objects from samples of them.

| JSON | column |
|---|---|
| true, false | bool |
| numbers without a fraction; beyond 64 bits | int64; a decimal of 38 digits |
| numbers, some with a fraction or an exponent | double |
| strings | text; with ``times`` a timestamp or a date, if each of them is one |
| objects, arrays | structs, lists; maps where ``maps`` names the path |

Each column takes nulls. Where a field has values of several types, the type of most of them counts; with ``unites``
numbers, truth values and texts together are text, as one type. Nulls, empty objects and empty arrays say nothing about
a type: a field that has nothing else has no column.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from ..evolution import Column
from ..program import MOST_DEPTH, SchemaError

MOST_INFERRED = 512
"""Columns over all levels that are inferred, unless the caller says another number."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_INT64, _EXACT, _DECIMAL = 1 << 63, 1 << 53, 10**38
_SHOWN = 40  # characters of an example
_TYPES: dict[str, Any] = {
    "bool": "boolean",
    "int": "long",
    "big int": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
    "double": "double",
    "text": "string",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
}
_ARROW = {
    "bool": "b",
    "int": "l",
    "big int": "d:38,0",
    "double": "g",
    "text": "u",
    "timestamp": "tsu:UTC",
    "date": "tdD",
}
_NUMBERS = ("int", "big int", "double")
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string", "record", "enum", "fixed", "map",
               "array"}  # fmt: skip


def parsed(value: bytes) -> Any:
    """Return the JSON value that ``value`` encodes in UTF-8. Raises ValueError if there is none (RFC 8259)."""
    try:
        return json.loads(value.decode(), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it nests too deep") from None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


class Fact(NamedTuple):
    """A field as the samples have it."""

    path: str
    """The place: "customer.tags[]", "prices{}" for the values of a map."""
    type: str
    """The type of the column; "" if the field has none."""
    objects: int
    """Number of objects or arrays that could have it."""
    present: int
    """Number of its values, nulls included."""
    nulls: int
    types: dict[str, int]
    """Number of values by the type that JSON gives them, without nulls, the most frequent first."""
    example: str
    """One value as JSON, cut."""
    odd: tuple[str, ...]
    """Sentences for people about what does not fit."""

    @property
    def null_share(self) -> float:
        """The share of nulls, with objects that lack the field, from 0 to 1."""
        return (self.objects - self.present + self.nulls) / self.objects if self.objects else 0.0


@dataclass(slots=True)
class _Seen:
    """The values at one path."""

    path: str
    present: int = 0
    nulls: int = 0
    types: Counter[str] = field(default_factory=Counter)
    example: str = ""
    widest: int = 0
    """The largest magnitude of a number without a fraction."""
    moments: int = 0
    """Number of texts that are times with a zone."""
    dates: int = 0
    deep: bool = False
    """True if there are objects or arrays in too deep a level."""
    fields: dict[str, "_Seen"] = field(default_factory=dict)
    item: "_Seen | None" = None
    """Of a list its items, of a map its values."""

    def kind(self, *, unites: bool = False) -> str:
        """Return the type of the column, as of ``Inference``; "" without one."""
        kinds = Counter({kind: count for kind, count in self.types.items() if kind not in _NUMBERS})
        if numbers := sum(self.types[kind] for kind in _NUMBERS):
            kinds["double" if self.types["double"] else "big int" if self.types["big int"] else "int"] = numbers
        scalars = [kind for kind in kinds if kind not in ("object", "array")]
        if unites and len(scalars) > 1:
            kinds["text"] = sum(kinds.pop(kind) for kind in scalars)
        return kinds.most_common(1)[0][0] if kinds else ""


class Inference:
    """Collects the fields of objects, and makes a schema of them.

    ``maps`` are the paths of objects whose keys are values: they become maps. With more than ``most`` columns ``add``
    raises SchemaError, which names the object that has the most keys. ``without`` are keys at the top to leave out.
    With ``any_name`` fields have columns whose names no Avro schema can have, as long as they can be printed.
    ``unites``: see above.
    """

    def __init__(
        self,
        *,
        maps: frozenset[str] = frozenset(),
        times: bool = False,
        most: int = MOST_INFERRED,
        without: frozenset[str] = frozenset(),
        any_name: bool = False,
        unites: bool = False,
    ) -> None:
        self._maps = maps
        self._times = times
        self._most = most
        self._without = without
        self._any_name = any_name
        self._unites = unites
        self._top = _Seen("")
        self._columns = 0

    def add(self, record: dict[str, Any]) -> None:
        """Take one object into account; what nests too deep has no columns. Raises SchemaError for too many columns."""
        self._add(self._top, {name: each for name, each in record.items() if name not in self._without}, 0)

    @property
    def objects(self) -> int:
        """The number of objects."""
        return self._top.present

    def schema(self, name: str) -> str:
        """Return the Avro schema in JSON of a record ``name``, which ``compile_json`` takes.

        Raises SchemaError if there is no column.
        """
        made = _Schema(self).record(self._top, name)
        if made is None:
            raise SchemaError("", "the samples have no field with a value, so there is no column")
        return json.dumps(made, indent=2, ensure_ascii=False) + "\n"

    def columns(self) -> tuple[Column, ...]:
        """Return the columns, as :meth:`schema` has them; () if there is none."""
        return self._columns_in(self._top)

    def facts(self) -> Iterator[Fact]:
        """Yield the fields in the order in which they came, each before those in it."""
        yield from self._facts_below(self._top)

    def type_of(self, seen: _Seen) -> str:
        """Return the type of a column: a key of the table of types, "struct", "list" or "map"; "" without one."""
        kind = seen.kind(unites=self._unites)
        if kind == "object":
            return "map" if seen.path in self._maps else "struct" if any(map(self.type_of, self.named(seen))) else ""
        if kind == "array":
            return "list" if seen.item is not None and self.type_of(seen.item) else ""
        if kind == "text" and self._times and seen.types["text"] in (seen.moments, seen.dates):
            return "timestamp" if seen.moments else "date"
        return kind

    def named(self, seen: _Seen) -> list[_Seen]:
        """Return the fields of an object whose names a schema can have."""
        return [each for name, each in seen.fields.items() if self._can_name(name)]

    # --- inside

    def _can_name(self, name: str) -> bool:
        return bool(name and name.isprintable()) if self._any_name else bool(_NAME.fullmatch(name))

    def _columns_in(self, seen: _Seen) -> tuple[Column, ...]:
        of_fields = ((name, each) for name, each in seen.fields.items() if self._can_name(name))
        return tuple(column for name, each in of_fields if (column := self._column(name, each)) is not None)

    def _column(self, name: str, seen: _Seen) -> Column | None:
        kind = self.type_of(seen)
        if kind == "struct":
            inner = self._columns_in(seen)
            return Column(name, "+s", True, inner) if inner else None
        if kind == "list":
            item = None if seen.item is None else self._column("item", seen.item)
            return None if item is None else Column(name, "+l", True, (item,))
        if kind == "map":
            value = None if seen.item is None else self._column("value", seen.item)
            entries = None if value is None else Column("entries", "+s", False, (Column("key", "u", False), value))
            return None if entries is None else Column(name, "+m", True, (entries,))
        return Column(name, _ARROW[kind], True) if kind else None

    def _add(self, seen: _Seen, value: Any, depth: int) -> None:
        """Take a value into account; ``depth`` is that of its type in the Avro schema, where unions count as well."""
        seen.present += 1
        if value is None:
            seen.nulls += 1
            return
        kind = _kind_of(value)
        seen.types[kind] += 1
        if not seen.example and kind not in ("object", "array"):
            text = json.dumps(value, ensure_ascii=False)
            seen.example = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        if kind in ("object", "array") and depth > MOST_DEPTH - 3:
            seen.deep = True
        elif kind == "object":
            for name, each in value.items():
                self._add(self._field(seen, name), each, depth + (3 if seen.path in self._maps else 2))
        elif kind == "array":
            for each in value:
                seen.item = seen.item or self._new(f"{seen.path}[]")
                self._add(seen.item, each, depth + 2)
        elif kind == "text":
            seen.moments += _is_time(value, _MOMENT)
            seen.dates += _is_time(value, _DATE)
        elif kind in ("int", "big int"):
            seen.widest = max(seen.widest, abs(value))

    def _field(self, seen: _Seen, name: str) -> _Seen:
        if seen.path in self._maps:
            seen.item = seen.item or self._new(f"{seen.path}{{}}")
            return seen.item
        if name not in seen.fields:
            seen.fields[name] = self._new(f"{seen.path}.{name}" if seen.path else name)
        return seen.fields[name]

    def _new(self, path: str) -> _Seen:
        self._columns += 1
        made = _Seen(path)
        if self._columns > self._most:
            worst = max(self._all(self._top), key=lambda each: len(each.fields))
            few = ", ".join(json.dumps(name, ensure_ascii=False)[:_SHOWN] for name in list(worst.fields)[-3:])
            what = worst.path or "the top of the values"
            raise SchemaError(
                worst.path,
                f"there are more than {self._most} columns, {len(worst.fields)} of them in {what}, whose last keys are "
                f"{few}. Keys that are values, such as ids, are not names of columns: such an object has to be a map",
            )
        return made

    def _all(self, seen: _Seen) -> Iterator[_Seen]:
        yield seen
        for each in (*seen.fields.values(), *([] if seen.item is None else [seen.item])):
            yield from self._all(each)

    def _facts_below(self, seen: _Seen) -> Iterator[Fact]:
        for name, each in seen.fields.items():
            odd = () if self._can_name(name) else ("is left out: a name has letters, digits and _ only",)
            yield self._fact(each, seen.types["object"], odd)
            if not odd:
                yield from self._facts_below(each)
        if seen.item is not None:
            yield self._fact(seen.item, seen.item.present)
            yield from self._facts_below(seen.item)

    def _fact(self, seen: _Seen, objects: int, odd: tuple[str, ...] = ()) -> Fact:
        types = dict(seen.types.most_common())
        kind = "" if odd else self.type_of(seen)
        return Fact(seen.path, kind, objects, seen.present, seen.nulls, types, seen.example, (*odd, *_oddities(seen)))


class _Schema:
    """The Avro schema of what was seen; each of its records needs a name of its own."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference
        self._names = set(_PRIMITIVES)

    def record(self, seen: _Seen, name: str) -> dict[str, Any] | None:
        """Return the schema of an object, None if it has no columns."""
        label = self._free(name)
        fields = []
        for each in self._inference.named(seen):
            if (kind := self._type(each)) is not None:
                own = each.path.removeprefix(f"{seen.path}.") if seen.path else each.path
                fields.append({"name": own, "type": ["null", kind], "default": None})
        return {"type": "record", "name": label, "fields": fields} if fields else None

    def _type(self, seen: _Seen) -> Any:
        kind = self._inference.type_of(seen)
        if kind == "struct":
            return self.record(seen, seen.path)
        if kind in ("list", "map"):
            inner = None if seen.item is None else self._type(seen.item)
            if inner is None:
                return None
            return {"type": "array", "items": ["null", inner]} if kind == "list" else {
                "type": "map", "values": ["null", inner]}  # fmt: skip
        return _TYPES[kind] if kind else None

    def _free(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "record"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        label, number = plain, 1
        while label in self._names:
            number += 1
            label = f"{plain}_{number}"
        self._names.add(label)
        return label


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if -_INT64 <= value < _INT64:
            return "int"
        return "big int" if abs(value) < _DECIMAL else "double"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "text"
    return "object" if isinstance(value, dict) else "array"


def _is_time(text: str, form: re.Pattern[str]) -> bool:
    if not form.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _oddities(seen: _Seen) -> Iterator[str]:
    total, kind = sum(seen.types.values()), seen.kind()
    mine = sum(seen.types[each] for each in (_NUMBERS if kind in _NUMBERS else (kind,)))
    if total > mine:
        counts = ", ".join(f"{count} {each}" for each, count in seen.types.most_common())
        yield f"has values of several types ({counts}): those that cannot be read as {kind} make dead letters"
    if kind == "double" and seen.widest > _EXACT:
        yield f"has numbers with a fraction and others up to {seen.widest}: a double keeps 53 bits of these"
    if not total and seen.present:
        yield "has only nulls: it has no column"
    if seen.deep:
        yield "has objects or arrays that nest too deep for a schema: they are left out"
    elif kind == "object" and not seen.fields and seen.item is None:
        yield "has only empty objects: it has no column"
    elif kind == "array" and seen.item is None:
        yield "has only empty arrays: it has no column"
