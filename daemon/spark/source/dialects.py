"""What options say otherwise of each system: how topics and positions are written, and what only one of them has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fastwire.grammar import TopicPattern
from fastwire.position import Position
from fastwire.systems import SYSTEMS, grammar_of

__all__ = ["EARLIEST", "LATEST", "Dialect", "dialect_of"]

EARLIEST, LATEST = -2, -1  # in the JSON of positions, as in Spark's own Kafka source


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The words of one system; functions raise ValueError that says what would be right.

    ``position`` reads what stands for one in JSON. ``in_range`` are the columns that tell where a row stands in its
    range, which connections build in any case. ``group`` is the option with the name under which brokers know how
    far the query is, ``unheld`` what a stream is warned of that has none, ``prefix`` what names begin with that nobody
    has given. ``only`` are options that no other system has; ``instead`` has those of others, with what they are here
    or "".
    """

    name: str
    title: str
    topic: Callable[[str], str]
    pattern: Callable[[str], TopicPattern]
    position: Callable[[Any], Position]
    places_example: str
    least_partition: int
    in_range: frozenset[str]
    unheld: str
    group: str
    prefix: str
    only: Mapping[str, Callable[[str], Any]]
    instead: Mapping[str, str]


def dialect_of(url: str) -> Dialect:
    """By the scheme of the brokers' address; that of most users where it cannot be told."""
    grammar = grammar_of(url)
    name = SYSTEMS[0] if grammar is None else grammar.name
    dialect: Dialect = import_module(f".{name}.dialect", __package__).DIALECT
    return dialect
