"""The list of message systems.

The package of a system has the modules ``position`` with ``POSITIONS``, ``grammar`` with ``GRAMMAR`` and ``columns``
with ``ROW``. Systems of other projects are entry points of the group ``fastwire.systems``: a name, which is also the
scheme of the system's URLs, and the package that has all modules of the system. They are looked up when a name or a URL
is not one of the systems here, and not in lists of examples and columns.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from .grammar import Grammar
from .position import Positions

if TYPE_CHECKING:
    from .columns.layout import RowLayout

SYSTEMS = ("pulsar", "kafka", "tank", "tubemq")
"""The names of the systems of fastwire itself."""


@cache
def _registered(name: str) -> str | None:
    """Return the package that an entry point names for a system; None without one."""
    from importlib.metadata import entry_points  # imported here because it takes 10 ms

    return next((point.value for point in entry_points(group="fastwire.systems", name=name)), None)


def package_of(name: str, room: str, folder: str = "") -> str:
    """Return the package with the modules of a system: in ``room`` for a system of fastwire, else the registered one.

    ``folder`` is the part of the registered package that stands for ``room``. Raises ValueError for an unknown name.
    """
    if name in SYSTEMS:
        return f"{room}.{name}"
    package = _registered(name)
    if package is None:
        raise ValueError(f"unknown system {name!r}: known are {', '.join(SYSTEMS)}")
    return f"{package}.{folder}".rstrip(".")


@cache
def grammar_named(name: str) -> Grammar:
    """Return the grammar of a system, also of a registered one. Raises ValueError for an unknown name."""
    grammar: Grammar = import_module(f"{package_of(name, __package__)}.grammar").GRAMMAR
    return grammar


@cache
def grammars() -> tuple[Grammar, ...]:
    """Return the grammars of the systems of fastwire itself."""
    return tuple(map(grammar_named, SYSTEMS))


def pattern_examples() -> tuple[str, ...]:
    """Return the different examples of patterns of topics of the systems of fastwire itself."""
    return tuple(dict.fromkeys(grammar.pattern_example for grammar in grammars() if grammar.pattern_example))


def positions() -> tuple[Positions, ...]:
    """Return the positions of the systems of fastwire itself, which import less than the grammars."""
    return tuple(map(positions_named, SYSTEMS))


def positions_named(name: str) -> Positions:
    """Return the positions of a system, also of a registered one. Raises ValueError for an unknown name."""
    found: Positions = import_module(f"{package_of(name, __package__)}.position").POSITIONS
    return found


def row_of(name: str) -> "RowLayout":
    """Return the columns of the records of a system, by the name of the system."""
    row: RowLayout = import_module(f"{package_of(name, __package__)}.columns").ROW
    return row


def grammar_of(url: object) -> Grammar | None:
    """Return the grammar of the system that a URL leads to, by its scheme; None if no system has it."""
    scheme, mark, _ = str(url).strip().lower().partition("://")
    found = next((grammar for grammar in grammars() if scheme in grammar.schemes), None)
    if found is None and mark:
        name = scheme.partition("+")[0]
        if _registered(name) is not None and scheme in grammar_named(name).schemes:
            return grammar_named(name)
    return found


def grammar_without_tls(url: object) -> Grammar | None:
    """Return the grammar of a system that has no TLS, for a URL that asks for it; None for any other URL."""
    plain, _, tls = str(url).strip().lower().partition("://")[0].partition("+")
    return grammar_of(f"{plain}://") if tls == "ssl" and grammar_of(url) is None else None
