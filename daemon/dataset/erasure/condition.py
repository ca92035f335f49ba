"""The rows to be erased: comparisons of columns with literals, as in a WHERE clause."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>[-+]?[0-9]+(?:\.[0-9]+)?)|(?P<quoted>"(?:[^"]|"")+")
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>[=(),.]))""",
    re.VERBOSE,
)
_FORM = """must be such as "key = 'a'", "customer.id IN (7, 8)", or several of these joined by AND"""

_OF_NO_LITERAL = ("NaN", "Infinity", "-Infinity")  # texts in JSON lines, of columns of numbers

Literal = str | int | float | bool


class ConditionError(ValueError):
    """A condition that cannot be read, or that compares a column with what it cannot have."""


@dataclass(frozen=True, slots=True)
class _Term:
    """``column``, by the names of the columns that it is in, has one of ``values``."""

    column: tuple[str, ...]
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """All of its terms hold. A null is equal to nothing."""

    terms: Sequence[_Term]

    @property
    def texts(self) -> list[bytes]:
        """The texts that it compares with."""
        return [value.encode() for term in self.terms for value in term.values if isinstance(value, str)]

    def missing(self, schema: pa.Schema) -> set[str]:
        """Return the columns that it names and ``schema`` does not have: no row of such a file is meant."""
        return {".".join(term.column) for term in self.terms if _field(schema, term.column) is None}

    def rows(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether it is meant.

        Raises ConditionError where a column cannot have any of the literals that it is compared with.
        """
        found: Any = pa.array([True] * batch.num_rows, pa.bool_())
        for term in self.terms:
            column = _column(batch, term.column)
            wanted = _literals(term, column.type)
            equal = pc.is_in(column, value_set=pa.array(wanted, column.type), skip_nulls=True)
            found = pc.and_(found, equal)
        return found

    def is_met(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of JSON is meant. Raises ConditionError as ``rows`` does, by the value of the row."""
        found = [_is_in(_value(row, term.column), term) for term in self.terms]  # a list: each of them is checked
        return all(found)

    def has(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of JSON has all columns, with a null or not."""
        return all(_has(row, term.column) for term in self.terms)


def parse_condition(text: str) -> Condition:
    """Read the option ``--where``. Raises ConditionError."""
    tokens = _tokens(text)
    terms = []
    while True:
        terms.append(_term(tokens, text))
        if not tokens:
            return Condition(tuple(terms))
        if _word(tokens.pop(0)) != "AND":
            raise ConditionError(_FORM)


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ConditionError(f"{_FORM}; not understood: {text[at:].strip()[:40]}")
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def _word(token: tuple[str, str]) -> str:
    return token[1].upper() if token[0] == "word" else ""


def _term(tokens: list[tuple[str, str]], text: str) -> _Term:
    try:
        column = [_name(tokens.pop(0))]
        while tokens[0] == ("sign", "."):
            tokens.pop(0)
            column.append(_name(tokens.pop(0)))
        operator = tokens.pop(0)
        if operator == ("sign", "="):
            return _Term(tuple(column), (_value_of(tokens.pop(0)),))
        if _word(operator) != "IN" or tokens.pop(0) != ("sign", "("):
            raise ConditionError(_FORM)
        values = [_value_of(tokens.pop(0))]
        while (sign := tokens.pop(0)) == ("sign", ","):
            values.append(_value_of(tokens.pop(0)))
        if sign != ("sign", ")"):
            raise ConditionError(_FORM)
        return _Term(tuple(column), tuple(values))
    except IndexError:
        raise ConditionError(_FORM) from None


def _name(token: tuple[str, str]) -> str:
    kind, text = token
    if kind == "quoted":
        return text[1:-1].replace('""', '"')
    if kind != "word" or text.upper() in ("AND", "OR", "NOT", "IN"):
        raise ConditionError(_FORM)
    return text


def _value_of(token: tuple[str, str]) -> Literal:
    kind, text = token
    if kind == "text":
        return text[1:-1].replace("''", "'")
    if kind == "number":
        return float(text) if "." in text else int(text)
    if kind == "word" and text.upper() in ("TRUE", "FALSE"):
        return text.upper() == "TRUE"
    raise ConditionError(_FORM)


def _field(schema: pa.Schema, path: Sequence[str]) -> pa.Field | None:
    field = schema.field(path[0]) if schema.get_field_index(path[0]) >= 0 else None
    for name in path[1:]:
        kind = None if field is None else field.type
        at = kind.get_field_index(name) if kind is not None and pa.types.is_struct(kind) else -1
        if kind is None or at < 0:
            return None
        field = kind.field(at)
    return field


def _column(batch: pa.RecordBatch, path: Sequence[str]) -> Any:
    column: Any = batch.column(path[0])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    if pa.types.is_nested(column.type):
        raise ConditionError(f"{'.'.join(path)} is a {column.type}: name one of its columns")
    return column


def _literals(term: _Term, kind: pa.DataType) -> list[Any]:
    """Return the values of a term as the column has them, without others: files of a dataset may have other types."""
    found, refused = [], []
    for value in term.values:
        try:
            found.append(_literal(value, kind, term.column))
        except ConditionError as exc:
            refused.append(exc)
    if not found:
        raise refused[0]
    return found


def _literal(value: Literal, kind: pa.DataType, path: Sequence[str]) -> Any:
    """Return ``value`` as the column has it."""
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if binary and isinstance(value, str):
        return value.encode()
    try:
        text = binary or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        by_text = isinstance(value, str) and (text or pa.types.is_temporal(kind) or pa.types.is_decimal(kind))
        of_kind = isinstance(value, bool) == pa.types.is_boolean(kind) and text == isinstance(value, str)
        if not (by_text or of_kind):
            raise ConditionError
        return pa.scalar(value).cast(kind).as_py()
    except (ValueError, pa.ArrowException):
        raise ConditionError(f"{value!r} is no value of the column {'.'.join(path)}, which has {kind}") from None


def _value(row: Any, path: Sequence[str]) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, Mapping) else None
    return row


def _has(row: Any, path: Sequence[str]) -> bool:
    for name in path:
        if row is None:  # it may have the column in other rows
            return True
        if not isinstance(row, Mapping) or name not in row:
            return False
        row = row[name]
    return True


def _is_in(value: Any, term: _Term) -> bool:
    if value is None or value in _OF_NO_LITERAL or (isinstance(value, Mapping) and value.keys() == {"base64"}):
        return value in term.values
    kind, name = _kind(value), ".".join(term.column)
    same = [each for each in term.values if _kind(each) == kind]
    if same:
        return value in same
    if kind in ("object", "array"):
        raise ConditionError(f"{name} is an {kind}: name one of its columns")
    raise ConditionError(f"{term.values[0]!r} is no value of the column {name}, which has a {kind}")


def _kind(value: Any) -> str:
    """Return the kind of a value of JSON: values of different kinds are never equal."""
    kinds = {bool: "truth value", int: "number", float: "number", str: "text", list: "array"}
    return kinds.get(type(value), "object")
