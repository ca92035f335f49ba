"""Columns of JSON values that have no schema: those that values need besides the columns that there are."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..evolution import Column, columns_of, grown, is_textual, program_of
from ..program import SchemaError, Step
from .inference import MOST_INFERRED, Inference, parsed
from .schema import fitted

NO_COLUMNS = fitted(program_of(()), ())
"""The program of objects of which no field is known."""


class Growth(NamedTuple):
    """The columns after some values were looked at."""

    program: tuple[Step, ...]
    added: tuple[Column, ...]
    """Columns that are of a wider type, are new, or have new ones below them; of the last only what is new."""
    refused: tuple[str, ...]
    """Columns that cannot be added, each with the reason, for people."""


def growth(
    program: Sequence[Step],
    values: Iterable[bytes],
    refusal: Callable[[Sequence[Step]], str] = lambda program: "",
    maps: Collection[str] = (),
    *,
    unites: bool = False,
    wider: Mapping[str, str] = MappingProxyType({}),
    only: Collection[str] | None = None,
) -> Growth:
    """Return ``program`` with columns for the fields of ``values`` that it lacks.

    A column keeps its type, whatever the values are, but for those at the paths ``wider``, which get these types.
    ``unites`` is that of ``Inference``, for new columns; ``only`` those of these names come (None: all). Columns are
    added one after the other, and those are left out with which ``refusal`` returns a reason ("": none) for the whole
    program, or that are too many. Of a struct or a list only those below it are left out that have to be. Values that
    are no objects are passed over, and so are those that have too many fields alone. Objects at the places ``maps``
    become maps, and so do those that are maps already.
    Raises SchemaError if the other values have too many fields together, and there are no columns yet.
    """
    objects = [*_objects(values)]
    refused: list[str] = []
    held = dict(_places(columns_of(program)))
    wanted = frozenset(
        {*(place for place in maps if place not in held), *(place for place, arrow in held.items() if arrow == "+m")}
    )
    inference = _inference(wanted, unites=unites)
    try:
        for each in objects:
            inference.add(each)
    except SchemaError:
        inference = _inference(wanted, unites=unites)
        try:
            for each in _smaller(objects, wanted, refused):
                inference.add(each)
        except SchemaError as exc:
            if len(program) == len(NO_COLUMNS):
                raise
            refused.append(str(exc))
    before = columns_of(program)
    columns = _widened(before, wider)
    added = [new for old, new in zip(before, columns, strict=True) if old != new]
    made = program_of(columns) if added else tuple(program)
    found = (each for each in inference.columns() if only is None or each.name in only)
    left = [*reversed(lacking([*found], columns))]
    while left:
        column = left.pop()
        try:
            union = grown(made, program_of([column]))
        except SchemaError as exc:
            refused.append(f"{column}: {exc}")
            continue
        if len(union) > MOST_INFERRED:
            refused.append(f"{column}: there are more than {MOST_INFERRED} columns over all levels")
        elif why := refusal(union):
            parts = [*_parts(column)]
            if len(parts) > 1:
                left += reversed(parts)
            else:
                refused.append(f"{column}: {why}")
        else:
            made = union
            added.append(column)
    return Growth(made, tuple(added), tuple(refused))


def _widened(columns: Sequence[Column], wider: Mapping[str, str], within: str = "") -> tuple[Column, ...]:
    """Return ``columns`` with those of numbers and truth values at the paths ``wider`` of these types."""
    found = []
    for each in columns:
        path = f"{within}{each.name}"
        arrow = wider.get(path, each.arrow) if is_textual(each.arrow) else each.arrow
        found.append(each._replace(arrow=arrow, children=_widened(each.children, wider, f"{path}.")))
    return tuple(found)


def _parts(column: Column) -> Iterator[Column]:
    """Yield the column with one of the columns on its lowest levels at a time."""
    if not column.children:
        yield column
    for each in column.children:
        for part in _parts(each):
            yield column._replace(children=(part,))


def _objects(values: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for value in values:
        try:
            read = parsed(value)
        except ValueError:
            continue
        if isinstance(read, dict):
            yield read


def crowded(value: bytes, maps: Collection[str] = ()) -> str:
    """Return the place of the object with the most keys if ``value`` alone has too many fields for columns, else ""."""
    if len(value) < 2 * MOST_INFERRED:
        return ""  # it has no place for so many
    try:
        for each in _objects([value]):
            _inference(frozenset(maps)).add(each)
    except SchemaError as exc:
        return exc.path
    return ""


def _inference(maps: frozenset[str], *, unites: bool = False) -> Inference:
    return Inference(most=MOST_INFERRED, any_name=True, maps=maps, unites=unites)


def _places(columns: Sequence[Column], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield the places of columns, and of what is below them, as ``Inference`` names them, with their types."""
    for each in columns:
        place = f"{within}.{each.name}" if within else each.name
        column = each
        while True:
            yield place, column.arrow
            if column.arrow == "+l":
                place, column = f"{place}[]", column.children[0]
            elif column.arrow == "+m":
                place, column = f"{place}{{}}", column.children[0].children[1]
            else:
                break
        yield from _places(column.children, place)


def _smaller(objects: Iterable[dict[str, Any]], maps: frozenset[str], refused: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects without those that have too many fields alone: they would take the columns of the others."""
    places = set[str]()
    for each in objects:
        try:
            _inference(maps).add(each)
        except SchemaError as exc:
            if exc.path not in places:
                refused.append(str(exc))
            places.add(exc.path)
        else:
            yield each


def lacking(columns: Sequence[Column], held: Sequence[Column]) -> tuple[Column, ...]:
    """Return ``columns`` without what ``held`` has at the same place, of whatever type."""
    known = {each.name: each for each in held}
    found = (_lacking(each, known.get(each.name)) for each in columns)
    return tuple(each for each in found if each is not None)


def _lacking(column: Column, held: Column | None) -> Column | None:
    if held is None:
        return column
    if column.arrow != held.arrow or column.arrow not in ("+s", "+l", "+m"):
        return None
    inner = lacking(column.children, held.children)
    return held._replace(children=inner) if inner else None
