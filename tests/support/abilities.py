"""The table of abilities (`tests/abilities.md`), and how the tests that it names came out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.source_tree import ROOT

TABLE = ROOT / "tests" / "abilities.md"
FOLDERS = ("daemon", "fastwire", "real", "real", "real")  # by column: where its modules stand
HOLE = "–"


@dataclass(frozen=True)
class Ability:
    """A row of the table: ``cells`` has a column's test modules, their paths relative to the repository."""

    system: str
    what: str
    cells: tuple[tuple[str, ...], ...]


def module(folder: str, name: str) -> str:
    if name == HOLE:
        return name
    near = f"tests/{folder}/{name}.py"
    return near if (ROOT / near).is_file() else f"tests/{name}.py"


def read(table: Path = TABLE) -> Iterator[Ability]:
    """Yield the rows of the table."""
    system = ""
    for line in table.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            system = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| ability"):
            what, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            columns = zip(FOLDERS, cells, strict=True)
            yield Ability(
                system, what, tuple(tuple(module(folder, name) for name in cell.split()) for folder, cell in columns)
            )


def unknown(ability: Ability) -> list[str]:
    """Return the modules of a row that do not exist."""
    return [name for cell in ability.cells for name in cell if name != HOLE and not (ROOT / name).is_file()]


def marked(modules: Sequence[str], outcomes: dict[str, set[str]]) -> str:
    """Return the mark of a cell: ✓ all passed, ✗ one failed, ? one did not run, – has no test, · needs none."""
    if not modules or HOLE in modules:
        return HOLE if modules else "·"
    came = [outcomes.get(name, set()) for name in modules]
    if any({"failed", "error"} & each for each in came):
        return "✗"
    return "✓" if all("passed" in each for each in came) else "?"


def written(abilities: Sequence[Ability], mark: Callable[[Sequence[str]], str]) -> Iterator[str]:
    """Yield the table in lines, one an ability."""
    yield "embedded broker, without a broker, real broker, official producer, official consumer"
    for ability in abilities:
        yield f"{' '.join(mark(cell) for cell in ability.cells)}  {ability.system}: {ability.what}"
