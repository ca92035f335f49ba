"""Records of one schema read into the columns of another one.

A field of the records fills the column of its name, or of one of the column's aliases; any other field is read and
dropped. A column without a field takes its default, or null. Numbers may become wider: int to long, float or double,
long to float or double, float to double, a decimal to one of more digits and the same scale; text and bytes become each
other. A value that may be null is read into a column without nulls, and is bad where it is null. A symbol of an enum
that the column's enum does not have becomes the default of that enum, or makes the value bad.
(spec: Avro 1.12, "Schema Resolution")

A branch of a union is read into the column of this branch: by its full name and aliases, a type without a name by its
type. A nested record none of whose fields has a column does not fit.

Other than in Avro, names of records, enums and fixed types outside of unions need not be equal, a column that takes
nulls needs no default, text takes the symbols of an enum, logical types have to be equal, and a union of several types
is read into a union only.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from ..branches import has_name, pairs
from ..program import Node, SchemaError, Step, flatten

_WIDER = {"i": "lfg", "l": "fg", "f": "g"}
ALIKE = {"u": "z", "z": "u"}
"""Types whose values become each other."""
_DECIMAL = re.compile(r"d:(\d+),(\d+)")


def resolve(written: Sequence[Step], columns: Sequence[Step]) -> tuple[Step, ...]:
    """Return the program that reads records of the program ``written`` into the columns of the program ``columns``.

    Raises SchemaError if a field does not fit its column, or a column has neither a field, a default nor nulls.
    """
    return flatten(_Resolver(written, columns).record(0, 0))


def wider(one: str, other: str) -> bool:
    """Return True if each value of the Arrow type ``one`` is a value of the wider number type ``other``."""
    mine, others = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if mine and others:
        return mine[2] == others[2] and int(mine[1]) < int(others[1])
    return len(other) == 1 and other in _WIDER.get(one, "")


class _Resolver:
    def __init__(self, written: Sequence[Step], columns: Sequence[Step]) -> None:
        self._written = written
        self._columns = columns
        self._tries: dict[tuple[int, int], Node | None] = {}

    def record(self, which: int, column: int) -> Node:
        step, target = self._written[which], self._columns[column]
        fields = {self._written[i].name: i for i in range(step.first, step.first + step.children)}
        places = {}
        for place in range(target.first, target.first + target.children):
            names = (self._columns[place].name, *self._columns[place].aliases)
            if (name := next((each for each in names if each in fields and fields[each] not in places), None)) is None:
                continue
            places[fields[name]] = place
        children = [self.match(i, places[i]) if i in places else self.dropped(i) for i in fields.values()]
        if which and fields and target.children and not places:
            raise SchemaError(step.path, "none of the fields of the record has a column")
        filled = set(places.values())
        for place in range(target.first, target.first + target.children):
            if place not in filled:
                children.append(self.lacking(place))
        return Node(replace(step, column=column), children)

    def match(self, which: int, column: int) -> Node:
        """Read the value of a step into a column. Raises SchemaError if their types do not fit."""
        step, target = self._written[which], self._columns[column]
        if step.operation == "null" and target.nullable:
            return Node(replace(step, column=column))
        if step.operation in ("record", "union", "array") or target.operation in ("record", "union", "array"):
            if (step.operation, step.arrow) != (target.operation, target.arrow):
                raise self.misfit(step, target)
            if step.operation == "record":
                return self.record(which, column)
            if step.operation == "union":
                return self.union(which, column)
            return Node(replace(step, column=column), [self.match(step.first, target.first)])
        if step.operation == target.operation == "enum":
            allowed = set(target.symbols)
            symbols = tuple(symbol if symbol in allowed else target.default_symbol for symbol in step.symbols)
            return Node(replace(step, column=column, symbols=symbols))
        if step.arrow == target.arrow and target.operation != "enum":
            return Node(replace(step, column=column))
        if step.operation != "enum" and target.operation != "enum":
            if ALIKE.get(step.arrow) == target.arrow and step.operation != "empty":
                return Node(replace(step, column=column, operation=target.operation))
            if wider(step.arrow, target.arrow):
                return Node(replace(step, column=column))
        raise self.misfit(step, target)

    def union(self, which: int, column: int) -> Node:
        """Read a value of a union: each branch into the column of this branch, else of a wider type without a name."""
        step, target = self._written[which], self._columns[column]
        written, columns = self._written[_inner(step)], self._columns[_inner(target)]
        same = pairs(written, columns, lambda i, place: self._tried(step.first + i, target.first + place) is not None)
        for i, branch in enumerate(written):
            for place, member in enumerate(columns):
                if i in same or place in same.values() or has_name(branch.branch) or has_name(member.branch):
                    continue
                if self._tried(step.first + i, target.first + place) is not None:
                    same[i] = place
        children = [
            (self._tried(step.first + i, target.first + same[i]) if i in same else None) or self.dropped(step.first + i)
            for i in range(len(written))
        ]
        return Node(replace(step, column=column), children)

    def _tried(self, which: int, column: int) -> Node | None:
        """Return what ``match`` returns, or None if the types do not fit; nested unions are not tried again."""
        if (which, column) not in self._tries:
            try:
                self._tries[which, column] = self.match(which, column)
            except SchemaError:
                self._tries[which, column] = None
        return self._tries[which, column]

    def dropped(self, which: int) -> Node:
        """Read a value that has no column."""
        step = self._written[which]
        children = [self.dropped(i) for i in range(step.first, step.first + step.children)]
        return Node(replace(step, column=-1), children)

    def lacking(self, column: int) -> Node:
        """Fill a column that the records have no field for."""
        target = self._columns[column]
        step = Step(
            name=target.name,
            path=target.path,
            shape=target.shape,
            arrow=target.arrow,
            operation="absent",
            column=column,
        )
        if target.default is not None:
            return Node(replace(step, operation="default", default=target.default), [self.own(column)])
        if target.nullable and not target.required:
            return Node(step)
        raise SchemaError(target.path, "the column takes no nulls and has no default, and the records lack its field")

    def own(self, column: int) -> Node:
        """Read a value that is encoded by the schema of the column itself."""
        target = self._columns[column]
        children = [self.own(i) for i in range(target.first, target.first + target.children)]
        return Node(replace(target, column=column), children)

    def misfit(self, step: Step, target: Step) -> SchemaError:
        have, wanted = (f"{each.operation} ({each.arrow})" for each in (step, target))
        return SchemaError(step.path, f"the records have {have}, which does not fit the column's {wanted}")


def _inner(step: Step) -> slice:
    return slice(step.first, step.first + step.children)
