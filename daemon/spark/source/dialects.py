"""The words of the options of ``format("fastwire")`` for each system, beside those of its grammar."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from fastwire.grammar import Grammar
from fastwire.systems import SYSTEMS, grammar_of, package_of

from ...config import ConfigError, Problem
from ...config.brokers.connection import connection_model

EARLIEST, LATEST = -2, -1  # in the JSON of positions, as in Spark's own Kafka source


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The words of one system. Functions raise ValueError with a message that says what would be right."""

    grammar: Grammar
    places_example: str
    least_partition: int
    """The number of the first partition; -1 if a topic may have no partitions."""
    in_range: frozenset[str]
    """The columns that tell where a row is within its range; connections build them in any case."""
    truncates: bool
    """True if a log may lose its end and go on. Else one that ends before what was read is another log of that name."""
    unheld: str
    """The warning for a stream without a group, "" for none."""
    group: str
    """The option for the name under which brokers keep the progress of a query, "" if they keep none."""
    prefix: str
    """The option for the beginning of generated names."""
    only: Mapping[str, Callable[[str], Any]]
    """The options that only this system has, each with the function that reads its text."""
    options: Mapping[str, str]
    """The options for keys of a configuration file that only this system has, by key."""
    ahead: str
    """The option for the amount that a reader requests ahead."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """The options that this system does not have, each with the equivalent one, or "": those that systems share, and
    those that other sources of Spark have, which may end with a dot for all that begin so."""


def dialect_of(url: str) -> Dialect:
    """Return the dialect for the scheme of ``url``; for an unknown scheme that of the first system.

    Raises ConfigError for a system whose brokers Spark cannot read.
    """
    grammar = grammar_of(url)
    name = SYSTEMS[0] if grammar is None else grammar.name
    reason = connection_model(name).unranged
    if reason:
        raise ConfigError([Problem("", "servers", reason)])
    return _dialect(name)


def _dialect(name: str) -> Dialect:
    dialect: Dialect = import_module(f"{package_of(name, __package__, 'spark')}.dialect").DIALECT
    return dialect


def _dialects() -> list[Dialect]:
    return [_dialect(name) for name in SYSTEMS if not connection_model(name).unranged]


def likely_dialect(given: Mapping[str, str]) -> Dialect:
    """Return the dialect for the option servers among ``given``, by names in lower case.

    Without it that of the system whose own words are among them; the others are mistakes to be named. Raises as
    ``dialect_of``.
    """
    if "servers" not in given:
        for dialect in _dialects():
            if any(name.lower() in given for name in dialect.only) or any(_stands(dialect, name) for name in given):
                return dialect
    return dialect_of(given.get("servers", ""))


def _stands(dialect: Dialect, lower: str) -> str | None:
    """Return the key of ``instead`` for an option, by its name in lower case."""
    names = {name.lower(): name for name in dialect.instead}
    if lower in names:
        return names[lower]
    return next((name for name in dialect.instead if name.endswith(".") and lower.startswith(name)), None)


def elsewhere_hint(lower: str) -> str:
    """Return what to use instead of an option of another source or sink of Spark; "" for an unknown name."""
    for dialect in _dialects():
        if (name := _stands(dialect, lower)) and (equivalent := dialect.instead[name]):
            return f", which has {equivalent} instead"
    return ""


def option_elsewhere(dialect: Dialect, lower: str) -> tuple[str, str] | None:
    """Return the option that ``dialect`` does not have, by its name in lower case, and the equivalent one or "".

    The result is None for a name that no system has.
    """
    if name := _stands(dialect, lower):
        return (lower if name.endswith(".") else name), dialect.instead[name]
    for other in _dialects():
        if name := _stands(other, lower):
            return (lower if name.endswith(".") else name), other.instead[name]
        for name in other.only:
            if name.lower() == lower:
                roles = {other.group: dialect.group, other.prefix: dialect.prefix, other.ahead: dialect.ahead}
                return name, roles.get(name, "")
    return None
