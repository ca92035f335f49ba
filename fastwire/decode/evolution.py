"""Columns that grow: the union of the columns of two schemas, and its form in a dataset.

New columns take nulls. A column becomes one that takes nulls, or one of a wider type if no value changes by it: int to
long and double, float to double, a decimal to more digits of the same scale, an enum to text. A field that has the name
of a column in its aliases is this column. Any other difference of types is an error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .program import MOST_COLUMNS, Node, SchemaError, Shape, Step, flatten
from .resolution import ALIKE, wider

__all__ = ["Column", "added_types", "columns_from_json", "columns_of", "columns_to_json", "grown", "program_of"]

_LOSSY = {("l", "f"), ("l", "g"), ("i", "f")}
_WORDS = {
    "n": "null", "b": "bool", "i": "int32", "l": "int64", "f": "float", "g": "double", "u": "string", "z": "binary",
    "tdD": "date", "ttm": "time[ms]", "ttu": "time[us]", "+s": "struct", "+l": "list", "+m": "map",
}  # fmt: skip
_READ: dict[str, tuple[Shape, str]] = {
    "n": ("null", "null"), "b": ("bool", "bool"), "i": ("int32", "int"), "l": ("int64", "int"),
    "f": ("float", "float"), "g": ("double", "double"), "u": ("text", "text"), "z": ("bytes", "bytes"),
    "tdD": ("int32", "int"), "ttm": ("int32", "int"), "ttu": ("int64", "int"), "+l": ("list", "array"),
    "+m": ("list", "array"),
}  # fmt: skip


class Column(NamedTuple):
    """A column of a dataset, or what is below one."""

    name: str
    arrow: str
    """Type by the Arrow C data interface."""
    nullable: bool
    children: tuple["Column", ...] = ()

    def __str__(self) -> str:
        inner = f"<{', '.join(map(str, self.children))}>" if self.children else ""
        return f"{self.name} {_WORDS.get(self.arrow, self.arrow)}{inner}{'' if self.nullable else ' not null'}"


def columns_of(program: Sequence[Step]) -> tuple[Column, ...]:
    """Return the columns of a program."""
    return tuple(_column(program, i) for i in _children(program, 0))


def _children(program: Sequence[Step], which: int) -> range:
    return range(program[which].first, program[which].first + program[which].children)


def _column(program: Sequence[Step], which: int) -> Column:
    step = program[which]
    return Column(step.name, step.arrow, step.nullable, tuple(_column(program, i) for i in _children(program, which)))


def columns_to_json(columns: Sequence[Column]) -> list[Any]:
    """Return columns as nested lists."""
    return [[*each[:3], columns_to_json(each.children)] if each.children else [*each[:3]] for each in columns]


def columns_from_json(value: Any) -> tuple[Column, ...]:
    """Return the columns of ``columns_to_json``. Raises ValueError for anything else."""
    columns = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, list) or [type(part) for part in each[:3]] != [str, str, bool] or len(each) > 4:
            raise ValueError(f"{each!r:.60} is not a column")
        name, arrow, nullable, *children = each
        columns.append(Column(name, arrow, nullable, columns_from_json(children[0]) if children else ()))
    return tuple(columns)


def program_of(columns: Sequence[Column], *, required: bool = False) -> tuple[Step, ...]:
    """Return a program with these columns, into which records can be resolved.

    With ``required`` the nulls that the columns take may be those of null records.
    """
    top = Node(Step(name="", path="", shape="struct", operation="record", arrow="+s"))
    top.children = [_node(each, each.name) for each in columns]
    for node in top.children:
        node.step = replace(node.step, required=required)
    return flatten(top)


def _node(column: Column, path: str) -> Node:
    children = [_node(each, f"{path}.{each.name}") for each in column.children]
    shape, operation = _READ.get(column.arrow, ("int64", "int"))
    more: dict[str, Any] = {}
    kind, _, rest = column.arrow.partition(":")
    if column.arrow == "+s":
        union = bool(children) and all(each.step.name == f"member{i}" for i, each in enumerate(children))
        shape, operation = "struct", "union" if union else "record"
    elif kind == "w":
        shape, operation, more = "fixed", "fixed", {"size": int(rest)}
    elif kind == "d":
        shape, operation, more = "decimal", "decimal", {"digits": int(rest.partition(",")[0])}
    step: Any = Step(
        name=column.name, path=path, shape=shape, operation=operation,  # type: ignore[arg-type]
        arrow=column.arrow, nullable=column.nullable, **more,
    )  # fmt: skip
    return Node(step, children)


def grown(columns: Sequence[Step], new: Sequence[Step]) -> tuple[Step, ...]:
    """Return the program of ``columns`` with the columns of the program ``new`` added.

    The columns keep their order and names, new ones follow. Raises SchemaError if a type is neither equal nor wider, or
    there are more columns than a program may have.
    """
    union = flatten(_Union(columns, new).record(0, 0))
    if len(union) > MOST_COLUMNS:
        raise SchemaError("", f"there are more than {MOST_COLUMNS} columns over all levels, of all schemas together")
    return union


def added_types(columns: Sequence[Column], new: Sequence[Column]) -> tuple[Column, ...]:
    """Return ``columns`` with the ``new`` ones, as ``grown`` does; () if they are the same. Raises SchemaError."""
    if not new or columns == new:
        return ()
    union = columns_of(grown(program_of(columns), program_of(new)))
    return () if union == columns else union


class _Union:
    def __init__(self, columns: Sequence[Step], new: Sequence[Step]) -> None:
        self._columns = columns
        self._new = new

    def record(self, one: int, other: int) -> Node:
        """Return the union of two records: fields by name, and the new ones behind them, with nulls."""
        left = {self._new[i].name: i for i in _children(self._new, other)}
        children = []
        for place in _children(self._columns, one):
            name = self._same(place, left)
            children.append(_copy(self._columns, place) if name is None else self.both(place, left.pop(name)))
        return Node(self._columns[one], [*children, *(self._added(i) for i in left.values())])

    def _same(self, place: int, left: dict[str, int]) -> str | None:
        """Return the name of the new field that is a column: its own name, or one in the aliases of either."""
        step = self._columns[place]
        names = (step.name, *step.aliases, *(name for name, i in left.items() if step.name in self._new[i].aliases))
        return next((name for name in names if name in left), None)

    def _added(self, which: int, name: str | None = None) -> Node:
        node = _copy(self._new, which)
        node.step = replace(node.step, name=name or node.step.name, nullable=True, required=False, default=None)
        return node

    def both(self, one: int, other: int) -> Node:
        a, b = self._columns[one], self._new[other]
        aliases = a.aliases if b.name in (a.name, *a.aliases) else (*a.aliases, b.name)
        children: list[Node] = []
        if "n" in (a.arrow, b.arrow):
            node = _copy(self._columns, one) if b.arrow == "n" else _copy(self._new, other)
            step, children = replace(node.step, name=a.name, nullable=True), node.children
        elif a.operation in ("record", "union", "array") or b.operation in ("record", "union", "array"):
            if (a.operation, a.arrow) != (b.operation, b.arrow):
                raise self._misfit(a, b)
            step, children = a, [*self._inner(one, other)]
        else:
            step = self._wider(a, b)
        required = a.required and (b.required or not b.nullable)
        return Node(replace(step, nullable=step.nullable or b.nullable, required=required, aliases=aliases), children)

    def _inner(self, one: int, other: int) -> Iterator[Node]:
        a = self._columns[one]
        if a.operation == "record":
            yield from self.record(one, other).children
        elif a.operation == "array":
            yield self.both(a.first, self._new[other].first)
        else:
            yield from self._members(one, other)

    def _members(self, one: int, other: int) -> Iterator[Node]:
        """Yield the members of two unions: those of equal types once, and the new ones with the next names."""
        left = [*_children(self._new, other)]
        places = _children(self._columns, one)
        for place in places:
            column = _column(self._columns, place)
            same = next((i for i in left if _column(self._new, i)[1:] == column[1:]), None)
            if same is not None:
                left.remove(same)
            yield _copy(self._columns, place)
        for number, i in enumerate(left, len(places)):
            yield self._added(i, f"member{number}")

    def _wider(self, a: Step, b: Step) -> Step:
        if a.operation == b.operation == "enum":
            return replace(a, symbols=tuple(dict.fromkeys((*a.symbols, *b.symbols))))
        if a.arrow == b.arrow:
            return b if a.operation == "enum" else a
        if wider(b.arrow, a.arrow) or (ALIKE.get(b.arrow) == a.arrow and "enum" not in (a.operation, b.operation)):
            return a
        if wider(a.arrow, b.arrow) and (a.arrow, b.arrow) not in _LOSSY:
            return replace(a, arrow=b.arrow, shape=b.shape, low=b.low, high=b.high, digits=b.digits)
        raise self._misfit(a, b)

    def _misfit(self, a: Step, b: Step) -> SchemaError:
        one, other = (_WORDS.get(each.arrow, each.arrow) for each in (a, b))
        return SchemaError(a.path, f"the column has {one}, and the schema has {other}")


def _copy(program: Sequence[Step], which: int) -> Node:
    return Node(program[which], [_copy(program, i) for i in _children(program, which)])
