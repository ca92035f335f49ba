"""Columns that grow: the union of the columns of two schemas, and its form in a dataset.

New columns take nulls. A column becomes one that takes nulls, or one of a wider type if no value changes by it: int to
long and double, float to double, a decimal to more digits of the same scale, an enum to text. A field that has the name
of a column in its aliases is this column, and so is a branch of a union. Any other difference of types is an error.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from .avro.resolution import ALIKE, wider
from .branches import free_name, is_numbered, merged, pairs
from .program import MOST_COLUMNS, Node, SchemaError, Shape, Step, flatten

_LOSSY = {("l", "f"), ("l", "g"), ("i", "f")}
_TEXTUAL = {"b", "i", "l", "f", "g"}
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
    branch: tuple[str, ...] = ()
    """Of a column in a union: the full name of the branch whose values it has, and its aliases."""

    @property
    def plain(self) -> "Column":
        """The column as files have it, without the names of branches."""
        return self._replace(children=tuple(each.plain for each in self.children), branch=())

    def __str__(self) -> str:
        inner = f"<{', '.join(map(str, self.children))}>" if self.children else ""
        return f"{self.name} {_WORDS.get(self.arrow, self.arrow)}{inner}{'' if self.nullable else ' not null'}"


def columns_of(program: Sequence[Step]) -> tuple[Column, ...]:
    """Return the columns of a program."""
    return tuple(_column(program, i) for i in _children(program, 0))


def _members_of(program: Sequence[Step], which: int) -> list[Step]:
    return [program[i] for i in _children(program, which)]


def _shape(program: Sequence[Step], which: int) -> Any:
    """Return the type of a column without the names in unions, to compare."""
    names = program[which].operation != "union" and not is_numbered(_members_of(program, which))
    inner = tuple((program[i].name if names else "", _shape(program, i)) for i in _children(program, which))
    return program[which].arrow, inner


def _children(program: Sequence[Step], which: int) -> range:
    return range(program[which].first, program[which].first + program[which].children)


def _column(program: Sequence[Step], which: int) -> Column:
    step = program[which]
    children = tuple(_column(program, i) for i in _children(program, which))
    return Column(step.name, step.arrow, step.nullable, children, step.branch)


def columns_to_json(columns: Sequence[Column]) -> list[Any]:
    """Return columns as nested lists: name, type, whether it takes nulls, columns in it, names of the branch."""
    return [_to_json(each) for each in columns]


def _to_json(column: Column) -> list[Any]:
    parts = [*column[:3], columns_to_json(column.children), [*column.branch]]
    while not parts[-1] and len(parts) > 3:
        parts.pop()
    return parts


def columns_from_json(value: Any) -> tuple[Column, ...]:
    """Return the columns of ``columns_to_json``. Raises ValueError for anything else."""
    columns = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, list) or [type(part) for part in each[:3]] != [str, str, bool] or len(each) > 5:
            raise ValueError(f"{each!r:.60} is not a column")
        name, arrow, nullable, *more = each
        branch = more[1] if len(more) == 2 else []
        if not isinstance(branch, list) or not all(isinstance(part, str) for part in branch):
            raise ValueError(f"{each!r:.60} is not a column")
        columns.append(Column(name, arrow, nullable, columns_from_json(more[0]) if more else (), tuple(branch)))
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
        shape, operation = "struct", "union" if any(each.step.branch for each in children) else "record"
    elif kind == "w":
        shape, operation, more = "fixed", "fixed", {"size": int(rest)}
    elif kind == "d":
        shape, operation, more = "decimal", "decimal", {"digits": int(rest.partition(",")[0])}
    step: Any = Step(
        name=column.name, path=path, shape=shape, operation=operation,  # type: ignore[arg-type]
        arrow=column.arrow, nullable=column.nullable, branch=column.branch, **more,
    )  # fmt: skip
    return Node(step, children)


def is_textual(arrow: str) -> bool:
    """Return True for the types of numbers and truth values, whose values have a text that readers agree on."""
    return arrow in _TEXTUAL or arrow.startswith("d:")


def grown(columns: Sequence[Step], new: Sequence[Step]) -> tuple[Step, ...]:
    """Return the program of ``columns`` with the columns of the program ``new`` added.

    The columns keep their order and names, new ones follow. Raises SchemaError if a type is neither equal nor wider, or
    there are more columns than a program may have.
    """
    return _checked(_Union(columns, new))


def adopted(columns: Sequence[Step], held: Sequence[Step]) -> tuple[Step, ...]:
    """Return :func:`grown` of ``columns`` and those of a dataset, which name the members of unions and order them.

    Columns ``member0``, ``member1`` … of a dataset that does not know the names of branches are those of the branches
    of the same type, if there are as many.
    """
    return _checked(_Union(columns, held, held=True))


def named_as(columns: Sequence[Column], held: Sequence[Column]) -> tuple[Column, ...]:
    """Return ``columns`` with the names that a dataset has for the members of unions, and in its order."""
    return columns_of(flatten(_Names(program_of(columns), program_of(held), held=True).record(0, 0)))


def _checked(union: "_Union") -> tuple[Step, ...]:
    program = flatten(union.record(0, 0))
    if len(program) > MOST_COLUMNS:
        raise SchemaError("", f"there are more than {MOST_COLUMNS} columns over all levels, of all schemas together")
    return program


def added_types(
    columns: Sequence[Column], new: Sequence[Column], *, landing: bool = False, widening: bool = False
) -> tuple[Column, ...]:
    """Return ``columns`` with the ``new`` ones, as ``grown`` does; () if they are the same. Raises SchemaError.

    Files that are ``landing`` have the ``new`` names already: then a member of a union must have the same name in both.
    With ``widening`` a long beside a double is a double, which keeps 53 bits of it, and a number or truth value beside
    a text is text.
    """
    if not new or columns == new:
        return ()
    union = columns_of(_checked(_Union(program_of(columns), program_of(new), landing=landing, widening=widening)))
    return () if union == columns else union


class _Union:
    def __init__(
        self,
        columns: Sequence[Step],
        new: Sequence[Step],
        *,
        held: bool = False,
        landing: bool = False,
        widening: bool = False,
    ) -> None:
        self._columns = columns
        self._new = new
        self._held = held
        self._landing = landing
        self._widening = widening
        self._lossy = _LOSSY - {("l", "g")} if widening else _LOSSY
        self._tries: dict[tuple[int, int], Node | SchemaError] = {}

    def record(self, one: int, other: int) -> Node:
        """Return the union of two records: fields by name, and the new ones behind them, with nulls."""
        left = {self._new[i].name: i for i in _children(self._new, other)}
        children = []
        for place in _children(self._columns, one):
            name = self._same(place, left)
            children.append(_copy(self._columns, place) if name is None else self.both(place, left.pop(name)))
        return Node(self._columns[one], [*children, *self._new_ones(left.values()).values()])

    def _same(self, place: int, left: dict[str, int]) -> str | None:
        """Return the name of the new field that is a column: its own name, or one in the aliases of either."""
        step = self._columns[place]
        names = (step.name, *step.aliases, *(name for name, i in left.items() if step.name in self._new[i].aliases))
        return next((name for name in names if name in left), None)

    def _new_ones(self, which: Iterable[int]) -> dict[int, Node]:
        return {i: self._added(i) for i in which}

    def _added(self, which: int) -> Node:
        node = _copy(self._new, which)
        node.step = replace(node.step, nullable=True, required=False, default=None)
        return node

    def both(self, one: int, other: int) -> Node:
        a, b = self._columns[one], self._new[other]
        aliases = a.aliases if b.name in (a.name, *a.aliases) else (*a.aliases, b.name)
        children: list[Node] = []
        if "n" in (a.arrow, b.arrow):
            node = _copy(self._columns, one) if b.arrow == "n" else _copy(self._new, other)
            step, children = replace(node.step, name=a.name, nullable=True), node.children
        elif self._are_unions(one, other):
            node = self._members(one, other)
            step, children = node.step, node.children
        elif a.operation in ("record", "union", "array") or b.operation in ("record", "union", "array"):
            if (a.operation, a.arrow) != (b.operation, b.arrow):
                raise self._misfit(a, b)
            step, children = a, [*self._inner(one, other)]
        else:
            step = self._wider(a, b)
        required = a.required and (b.required or not b.nullable)
        return Node(replace(step, nullable=step.nullable or b.nullable, required=required, aliases=aliases), children)

    def _inner(self, one: int, other: int) -> Iterator[Node]:
        if self._columns[one].operation == "record":
            yield from self.record(one, other).children
        else:
            yield self.both(self._columns[one].first, self._new[other].first)

    def _are_unions(self, one: int, other: int) -> bool:
        """Return True for two unions; one may be of a dataset that does not know the names of branches."""
        operations = (self._columns[one].operation, self._new[other].operation)
        if operations == ("record", "union"):
            return is_numbered(_members_of(self._columns, one))
        if operations == ("union", "record"):
            return is_numbered(_members_of(self._new, other))
        return operations == ("union", "union")

    def _members(self, one: int, other: int) -> Node:
        """Return the union of two unions, with the members of the one that names them before the others."""
        places, others = _children(self._columns, one), _children(self._new, other)
        same = self._same_members(one, other)
        own = {place: _copy(self._columns, place) for place in places}
        own |= {place: self._joined(place, i) for i, place in same.items()}
        added = self._new_ones(i for i in others if i not in same)
        theirs = {i: own[same[i]] if i in same else added[i] for i in others if i in same or i in added}
        lead, rest = (theirs, own) if self._held else (own, theirs)
        children = list({id(node): node for node in (*lead.values(), *rest.values())}.values())
        names: list[str] = []
        for node in children:
            names.append(free_name(node.step.name, node.step.branch, names))
            if self._landing and names[-1] != node.step.name:
                raise SchemaError(node.step.path, f"another branch has the column {node.step.name}")
            node.step = replace(node.step, name=names[-1])
        step = self._columns[one]
        index = {id(node): number for number, node in enumerate(children)}
        of_branches = tuple(place if place < 0 else index[id(own[places[place]])] for place in step.branches)
        return Node(replace(step, operation="union", branches=of_branches), children)

    def _joined(self, place: int, i: int) -> Node:
        """Return the member that both unions have."""
        node, mine, theirs = self._tried(place, i), self._columns[place], self._new[i]
        if isinstance(node, SchemaError):
            raise node
        if self._landing and mine.name != theirs.name:
            raise SchemaError(mine.path, f"the branch has the column {mine.name}, not {theirs.name}")
        first, second = (theirs, mine) if self._held else (mine, theirs)
        branch = merged(first.branch, second.branch)
        step = replace(node.step, name=first.name, nullable=True, branch=branch, aliases=())
        return Node(step, node.children)

    def _same_members(self, one: int, other: int) -> dict[int, int]:
        """Return the member of ``one`` for each member of ``other`` that is the same."""
        mine, theirs = list(_children(self._columns, one)), list(_children(self._new, other))
        found = pairs([self._new[i] for i in theirs], [self._columns[i] for i in mine], partial(self._fit, one, other))
        same = {theirs[i]: mine[place] for i, place in found.items()}
        same |= self._of_no_name(
            [i for i in theirs if i not in same], [place for place in mine if place not in same.values()]
        )
        return same

    def _of_no_name(self, theirs: Sequence[int], mine: Sequence[int]) -> dict[int, int]:
        """Return the same for members of a dataset that does not know the names of branches, by their types."""
        same: dict[int, int] = {}
        groups: dict[Any, tuple[list[int], list[int], list[int], list[int]]] = {}
        for side, program, members in ((0, self._new, theirs), (2, self._columns, mine)):
            for i in members:
                group = groups.setdefault(_shape(program, i), ([], [], [], []))
                group[side + bool(program[i].branch)].append(i)
        for unknown, known, mine_unknown, mine_known in groups.values():
            for some, places in ((unknown, mine_known), (known, mine_unknown)):
                if len(some) == len(places):
                    same |= zip(some, places, strict=True)
        names = {self._columns[place].name: place for place in mine if not self._columns[place].branch}
        for i in theirs:
            if not self._new[i].branch and i not in same and self._new[i].name in names:
                same[i] = names[self._new[i].name]
        return same

    def _fit(self, one: int, other: int, i: int, place: int) -> bool:
        return not isinstance(self._tried(self._columns[one].first + place, self._new[other].first + i), SchemaError)

    def _tried(self, one: int, other: int) -> Node | SchemaError:
        """Return what ``both`` returns or raises, each once: nested unions would be tried again on each level."""
        if (one, other) not in self._tries:
            try:
                self._tries[one, other] = self.both(one, other)
            except SchemaError as exc:
                self._tries[one, other] = exc
        return self._tries[one, other]

    def _wider(self, a: Step, b: Step) -> Step:
        if a.operation == b.operation == "enum":
            return replace(a, symbols=tuple(dict.fromkeys((*a.symbols, *b.symbols))))
        if a.arrow == b.arrow:
            return b if a.operation == "enum" else a
        if self._holds(a.arrow, b.arrow) or (
            ALIKE.get(b.arrow) == a.arrow and "enum" not in (a.operation, b.operation)
        ):
            return a
        if self._holds(b.arrow, a.arrow) and (a.arrow, b.arrow) not in self._lossy:
            return replace(a, arrow=b.arrow, shape=b.shape, low=b.low, high=b.high, digits=b.digits)
        raise self._misfit(a, b)

    def _holds(self, one: str, other: str) -> bool:
        """Return True if a column of the type ``one`` may have the values of ``other``, which is another type."""
        return wider(other, one) or (self._widening and one == "u" and is_textual(other))

    def _misfit(self, a: Step, b: Step) -> SchemaError:
        one, other = (_WORDS.get(each.arrow, each.arrow) for each in (a, b))
        return SchemaError(a.path, f"the column has {one}, and the schema has {other}")


class _Names(_Union):
    """The columns as they are, but for the names of the members of unions."""

    def both(self, one: int, other: int) -> Node:
        """Return the column ``one``."""
        node, theirs = _copy(self._columns, one), self._new[other]
        if self._are_unions(one, other):
            return self._members(one, other)
        if node.step.operation in ("record", "array") and (node.step.operation, node.step.arrow) == (
            theirs.operation,
            theirs.arrow,
        ):
            node.children = [*self._inner(one, other)]
        return node

    def _new_ones(self, which: Iterable[int]) -> dict[int, Node]:
        return {}


def _copy(program: Sequence[Step], which: int) -> Node:
    return Node(program[which], [_copy(program, i) for i in _children(program, which)])
