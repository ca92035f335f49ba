"""Positions of partitions by their numbers, for systems whose positions are offsets."""

import re

from fastwire.grammar import Grammar
from fastwire.position import Position

from ...config import Start, TopicChoice

_OFFSET = re.compile(r"[0-9]+|-[1-9][0-9]*")


def start_at_offsets(text: str, topics: TopicChoice, grammar: Grammar, mark: str) -> Start | None:
    """Return the start of ``--from`` for an offset of every partition, or offsets by partition such as ``0=5,2=7``.

    Partitions that are not named begin at their end, and a negative offset of a partition counts from there. ``mark``
    stands between topic and number in the name of a partition. Returns None if ``text`` is something else. Raises
    ValueError for numbers of partitions with a pattern.
    """
    offsets = _offsets_of(text)
    if not offsets:
        return None
    if topics.pattern is not None and None not in offsets:
        raise ValueError("names partitions, and of which topic they are is not said")
    positions = {
        grammar.partition(f"{topic}{mark}{number}")[0]: (
            Position(offset, 0) if offset < 0 else grammar.positions.parse(str(offset))
        )
        for topic in topics.names
        for number, offset in offsets.items()
        if number is not None
    }
    return Start("latest", positions=positions, offset=offsets.get(None))


def _offsets_of(text: str) -> dict[int | None, int]:
    """Return offsets by partition, under None that of all partitions; empty if ``text`` is something else."""
    if text.isdecimal():
        return {None: int(text)}
    pairs = [part.split("=") for part in text.split(",")]
    if all(len(pair) == 2 and pair[0].isdecimal() and _OFFSET.fullmatch(pair[1]) for pair in pairs):
        return {int(number): int(offset) for number, offset in pairs}
    return {}
