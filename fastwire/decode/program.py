"""Programs that decoders run: the nested columns of a schema, and how each is read."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..errors import FastwireError

__all__ = ["MOST_COLUMNS", "MOST_DEPTH", "BadRecord", "Operation", "SchemaError", "Shape", "Step"]

MOST_DEPTH = 32
"""Levels of nested columns that a program may have. A walker recurses at most as deep."""

MOST_COLUMNS = 1024
"""Columns that a program may have, over all levels. Each takes at least one block of pooled memory."""

Shape = Literal[
    "null", "bool", "int32", "int64", "float", "double", "decimal", "text", "bytes", "fixed", "struct", "list",
]  # fmt: skip
"""Layout of a column in memory."""

Operation = Literal[
    "null", "bool", "int", "float", "double", "text", "bytes", "fixed", "enum", "decimal", "fixed decimal",
    "record", "array", "union",
]  # fmt: skip
"""Way in which a value is read. A map is an array of records of a key and a value."""


class SchemaError(FastwireError):
    """A schema is not valid, or has no columns. ``path`` is the place in the schema: "customer.tags[]"."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(f"{path}: {message}" if path else message)


class BadRecord(NamedTuple):
    """A record that does not match its schema."""

    row: int
    """Index of the record in the column of bytes."""
    reason: str
    """Stable name for programs, see ``REASONS`` of the walker."""
    path: str
    """Column that could not be read: "customer.tags[]"; "" is the record itself."""
    offset: int
    """Place in the record's bytes, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One column of a program, and how its value is read."""

    name: str
    path: str
    shape: Shape
    operation: Operation
    arrow: str
    """Type by the Arrow C data interface: "l", "tsu:UTC", "+s"."""
    nullable: bool = False
    null_branch: int = -1
    """Number of the null among the two branches of a union; -1 if the value is not in such a union."""
    lone: bool = False
    """True for a union of a single branch, whose number is read and must be 0."""
    low: int = -(1 << 63)
    high: int = (1 << 63) - 1
    """Range of an ``int``, limits included."""
    size: int = 0
    """Bytes of a ``fixed`` value."""
    digits: int = 0
    """Precision of a decimal."""
    symbols: tuple[bytes, ...] = ()
    """Texts of an ``enum``."""
    branches: tuple[int, ...] = ()
    """Of a ``union``: the index of the child of each branch, and -1 for the null."""
    first: int = 0
    """Index of the first child in the program; the others follow it."""
    children: int = 0
