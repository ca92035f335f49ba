"""A matrix of what is shown to work, and by which witness: a row for each claim, its tests in the cells.

A cell that could hold a proof and holds none is a hole, and shown as one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["WITNESSES", "Row", "cell", "written"]

# By the letter of a column.
WITNESSES = {
    "D": "the embedded broker",
    "G": "bytes and commands without a broker, golden ones where there are some",
    "R": "a real broker",
    "P": "the official client as producer",
    "C": "the official client as consumer of what we produced",
}


@dataclass(frozen=True)
class Row:
    """``proofs`` has the tests by column, as ``module::test``; ``open`` the columns that could have some, too."""

    part: str
    what: str
    proofs: dict[str, str]
    open: str = ""


def cell(row: Row, column: str) -> list[str]:
    """The tests in a cell, as pytest names them."""
    return [
        f"tests/{module}.py::{name}"
        for module, _, name in (each.partition("::") for each in row.proofs.get(column, "").split())
    ]


def written(rows: list[Row], mark: Callable[[list[str]], str]) -> Iterator[str]:
    """The table in lines, and the holes below it; ``mark`` says what came of the tests of a cell."""
    yield "  ".join(f"{letter} {name}" for letter, name in WITNESSES.items())
    holes = []
    part = ""
    for row in rows:
        cells = []
        for column in WITNESSES:
            if tests := cell(row, column):
                cells.append(mark(tests))
            elif column in row.open:
                cells.append("–")
                holes.append(f"{row.what}: {WITNESSES[column]}")
            else:
                cells.append("·")
        yield f"{' '.join(cells)}  {row.part + ': ' if row.part != part else '  '}{row.what}"
        part = row.part
    yield f"holes: {len(holes)}" + "".join(f"\n  – {hole}" for hole in holes)
