"""Names of columns that readers of a dataset would take for others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastwire.decode.evolution import Column


@dataclass(frozen=True, slots=True)
class NameRule:
    """The names that columns of a dataset may have, beside the folder ``levels`` that readers take columns from.

    Case is ignored for levels, and with ``folded`` for columns, on each level of structs: Spark, Hive and the tables
    distinguish no case. ``longest`` is the size of a name in bytes; 0: any.
    """

    levels: tuple[str, ...] = ()
    folded: bool = False
    longest: int = 0

    def refusal(self, columns: Sequence[Column]) -> str:
        """Return the columns that cannot be in files of the dataset, and why; "" if all can."""
        levels = {level.lower(): level for level in self.levels}
        clashes = [(each.name, levels[each.name.lower()]) for each in columns if each.name.lower() in levels]
        wrong = [
            f'"{name}" names the folders {level}=…, too, which readers show in its place' for name, level in clashes
        ]
        if self.longest:
            wrong += [f'"{each.name}" is too long' for each in columns if len(each.name.encode()) > self.longest]
        return "; ".join([*wrong, *(twice(columns) if self.folded else ())])


ANY_NAME = NameRule()


def twice(columns: Sequence[Column], within: str = "") -> Iterator[str]:
    """Yield the names that are twice among ``columns``, or within one of them, where case is ignored."""
    seen: dict[str, str] = {}
    for column in columns:
        path, name = f"{within}{column.name}", column.name.lower()
        if name in seen:
            yield (
                f'"{path}" is twice there' if seen[name] == path else f'"{path}" and "{seen[name]}" differ by case only'
            )
        seen.setdefault(name, path)
    for column in columns:
        yield from twice(column.children, f"{within}{column.name}.")


def crossed(columns: Sequence[Column]) -> str:
    """Return a place that two columns have if a dot parts the names on the way to them, as in Iceberg; "" if none."""
    seen: set[str] = set()
    for path in _paths(columns, ""):
        if path.lower() in seen:
            return f'"{path}" is the name of a column and the place of another'
        seen.add(path.lower())
    return ""


def _paths(columns: Sequence[Column], within: str) -> Iterator[str]:
    for column in columns:
        path = f"{within}{column.name}"
        yield path
        items = [each._replace(name="element") for each in column.children] if column.arrow == "+l" else column.children
        yield from _paths(items, f"{path}.")
