"""Branches of Avro's unions: the name that identifies each, its column, and the pairs of two unions.

A branch is its full name and its aliases, never its place or its shape. Types without a name are identified by their
type, of which a union has one. (spec: Avro 1.12, "Unions", "Schema Resolution", "Aliases")
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from .program import Step

Branch = tuple[str, ...]
"""The full name of a branch, and its aliases; of a type without a name the name of the type."""

ARRAY, MAP = "[]", "{}"
"""Arrays and maps as branches; a record may be called "array"."""

_NAMELESS = {
    "null", "boolean", "int", "long", "float", "double", "bytes", "string", ARRAY, MAP,
}  # fmt: skip


def has_name(branch: Branch) -> bool:
    """Return True for a record, an enum or a fixed, whose name identifies it."""
    return bool(branch) and branch[0] not in _NAMELESS


def member_names(branches: Sequence[Branch]) -> list[str]:
    """Return the names of the columns of branches: the short name of each, or the full one where several share it."""
    shorts = Counter(_short(branch).casefold() for branch in branches)
    names: list[str] = []
    for branch in branches:
        short = _short(branch)
        names.append(free_name(short if shorts[short.casefold()] == 1 else _full(branch), branch, names))
    return names


def free_name(name: str, branch: Branch, taken: Collection[str]) -> str:
    """Return a name for the column of a branch that differs by more than the case from those that are ``taken``."""
    used = {each.casefold() for each in taken}
    full = _full(branch) if branch else name
    numbers = (f"{full}_{number}" for number in count(2))
    return next(each for each in chain((name, full), numbers) if each.casefold() not in used)


def _full(branch: Branch) -> str:
    return branch[0].replace(".", "_") if has_name(branch) else _short(branch)


def _short(branch: Branch) -> str:
    return {ARRAY: "array", MAP: "map"}.get(branch[0]) or branch[0].rpartition(".")[2]


def merged(one: Branch, other: Branch) -> Branch:
    """Return the names of ``one``, and those that ``other`` has in addition."""
    return (*one, *(name for name in other if name not in one))


def is_numbered(members: Sequence[Step]) -> bool:
    """Return True for columns that may be those of a union in a dataset that does not know the names of branches."""
    return bool(members) and all(each.name == f"member{i}" and not each.branch for i, each in enumerate(members))


def numbered(program: Sequence[Step]) -> tuple[Step, ...]:
    """Return ``program`` with the columns of its unions named ``member0``, ``member1`` …, as older versions did."""
    steps = list(program)
    for union in program:
        if union.operation == "union":
            for place in range(union.children):
                steps[union.first + place] = replace(steps[union.first + place], name=f"member{place}")
    return tuple(steps)


def pairs(written: Sequence[Step], columns: Sequence[Step], fits: Callable[[int, int], bool]) -> dict[int, int]:
    """Return the index among the members ``columns`` of each of the members ``written`` that is the same branch.

    A branch with a name is one of the same name, else one that has its name as an alias, else one whose name it has as
    an alias. A branch without a name must also fit (a call with both indices), and equal types go first.
    """
    found: dict[int, int] = {}
    for one, other in _candidates(written, columns):
        if one in found or other in found.values():
            continue
        if has_name(written[one].branch) or fits(one, other):
            found[one] = other
    return found


def _candidates(written: Sequence[Step], columns: Sequence[Step]) -> Iterator[tuple[int, int]]:
    both = [(i, j) for i, one in enumerate(written) for j, other in enumerate(columns) if one.branch and other.branch]
    same = [(i, j) for i, j in both if written[i].branch[0] == columns[j].branch[0]]
    yield from sorted(same, key=lambda pair: written[pair[0]].arrow != columns[pair[1]].arrow)
    named = [(i, j) for i, j in both if has_name(written[i].branch)]
    yield from ((i, j) for i, j in named if written[i].branch[0] in columns[j].branch)
    yield from ((i, j) for i, j in named if columns[j].branch[0] in written[i].branch)
