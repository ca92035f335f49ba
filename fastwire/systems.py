"""The list of message systems.

The package of a system has the modules ``position`` with ``POSITIONS``, ``grammar`` with ``GRAMMAR`` and ``columns``
with ``ROW``.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from .grammar import Grammar
from .position import Positions

if TYPE_CHECKING:
    from .columns.layout import RowLayout

__all__ = ["SYSTEMS", "grammar_of", "grammars", "positions", "row_of"]

SYSTEMS = ("pulsar", "kafka")
"""The names of the systems."""


@cache
def grammars() -> tuple[Grammar, ...]:
    """Return the grammars of all systems."""
    return tuple(import_module(f".{name}.grammar", __package__).GRAMMAR for name in SYSTEMS)


def positions() -> tuple[Positions, ...]:
    """Return the positions of all systems, which import less than the grammars."""
    return tuple(import_module(f".{name}.position", __package__).POSITIONS for name in SYSTEMS)


def row_of(name: str) -> "RowLayout":
    """Return the columns of the records of a system, by the name of the system."""
    row: RowLayout = import_module(f".{name}.columns", __package__).ROW
    return row


def grammar_of(url: object) -> Grammar | None:
    """Return the grammar of the system that a URL leads to, by its scheme; None if no system has it."""
    scheme = str(url).strip().partition("://")[0].lower()
    return next((grammar for grammar in grammars() if scheme in grammar.schemes), None)
