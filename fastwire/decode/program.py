"""Programs that decoders run: the nested columns of a schema, and how each is read."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ..errors import FastwireError

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
    "record", "array", "union", "absent", "default", "empty",
]  # fmt: skip
"""Way in which a value is read. A map is an array of records of a key and a value. An "empty" value has no bytes.

A field that the records lack is "absent", and its column gets a null, or it has a "default", which its child reads."""


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

    def __str__(self) -> str:
        return self.told("the value")

    def told(self, what: str) -> str:
        """Return the reason and the place for people; ``what`` names the record."""
        place = f"{self.reason} at byte {self.offset} of {what}"
        return f"{place}, in {self.path}" if self.path else place


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One column of a program, and how its value is read.

    In a program of :func:`~fastwire.decode.avro.resolution.resolve` a step is a value of the records' schema, and
    ``column`` is the index of the step of the columns' program that it fills.
    """

    name: str
    path: str
    shape: Shape
    operation: Operation
    arrow: str
    """Type by the Arrow C data interface: "l", "tsu:UTC", "+s"."""
    nullable: bool = False
    required: bool = False
    """True if the column takes nulls for records that are null, and no record has a null or lacks the field."""
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
    symbols: tuple[bytes | None, ...] = ()
    """Texts of an ``enum``; None for one that the column does not take."""
    default_symbol: bytes | None = None
    """The text of symbols that an ``enum`` does not have; None if they are bad."""
    branches: tuple[int, ...] = ()
    """Of a ``union``: the index of the child of each branch, and -1 for the null."""
    branch: tuple[str, ...] = ()
    """Of a child of a ``union``: the full name of the branch, and its aliases (``fastwire.decode.branches``)."""
    first: int = 0
    """Index of the first child in the program; the others follow it."""
    children: int = 0
    column: int | None = None
    """Index of the column that it fills, -1 for none; None: its own index, for records of the columns' own schema."""
    default: bytes | None = None
    """The encoded value of a field that records lack; None if the schema has no default."""
    aliases: tuple[str, ...] = ()
    """Other names of a field in the schemas of older records."""
    wire: str = ""
    """Type of the value by the language of Protobuf ("sint32"), or of ``protobuf.schema``; "": Avro's."""
    number: int = 0
    """Number of a field of Protobuf."""
    numbers: tuple[int, ...] = ()
    """Number of each of ``symbols`` in Protobuf, ascending."""
    closed: bool = False
    """True for an enum of Protobuf whose other numbers are unknown fields, not values."""
    wrapped: bool = False
    """True if a message of Protobuf has the value in its field 1."""
    grouped: bool = False
    """True if a message of Protobuf ends with a tag of its own, and has no length before it."""
    oneof: int = -1
    """Number of the oneof of a field of Protobuf among those of its message; -1 for none."""


@dataclass(slots=True)
class Node:
    """A step before its children have their places in the program."""

    step: Step
    children: list["Node"] = field(default_factory=list)
    least: int = 0
    """Bytes of the shortest value."""


def deletable(program: Sequence[Step]) -> tuple[Step, ...]:
    """Return ``program`` with columns that take the nulls of null records. Other records need the same fields."""
    top = program[0]
    fields = range(top.first, top.first + top.children)
    return tuple(
        replace(step, nullable=True, required=step.required or not step.nullable) if i in fields else step
        for i, step in enumerate(program)
    )


def flatten(top: Node) -> tuple[Step, ...]:
    """Number the steps level by level, so that the children of each follow one another."""
    steps: list[Step] = []
    queue = deque([top])
    taken = 1
    while queue:
        node = queue.popleft()
        steps.append(replace(node.step, first=taken, children=len(node.children)))
        taken += len(node.children)
        queue += node.children
    return tuple(steps)
