"""Offsets as they stand in Spark's checkpoint: version 1.

Spark compares them as text, so the same content is always written in the same order of keys, and a source without new
records returns the object that it was given. ``p`` are the positions. ``init`` stands in the end of the first batch,
also of an empty one, and holds the beginning of that batch: the checkpoint itself holds only ends, and another request
for the beginning after a crash would return another one. ``new`` is the same for partitions that appeared later.
``inc`` identifies the topic of a name where a system can: a topic that was deleted and created again is another one.
``wit`` has, by topic, a record that its log held, where a system cannot.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastwire.errors import FastwireError
from fastwire.position import Position, format_position, parse_position, positions_of

from .ranges import QueryPartition, Witness

VERSION = 1

Positions = Mapping[QueryPartition, Position]


class OffsetError(FastwireError):
    """The offset in the checkpoint belongs to another source or a later version."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """One parsed offset."""

    system: str
    positions: Positions
    init: Positions | None = None
    new: Positions = field(default_factory=dict)
    incarnations: Mapping[str, str] = field(default_factory=dict)  # by topic
    witnesses: Mapping[str, Witness] = field(default_factory=dict)  # by topic

    def document(self) -> dict[str, Any]:
        """Return the JSON object that Spark stores."""
        found: dict[str, Any] = {
            "p": _table(self.system, self.positions),
            "sys": self.system,
            "v": VERSION,
        }
        if self.init is not None:
            found["init"] = _table(self.system, self.init)
        if self.new:
            found["new"] = _table(self.system, self.new)
        if self.incarnations:
            found["inc"] = dict(sorted(self.incarnations.items()))
        if self.witnesses:
            found["wit"] = {topic: _witness_text(self.system, one) for topic, one in sorted(self.witnesses.items())}
        return dict(sorted(found.items()))

    def begun(self, start: "Offsets | None") -> dict[QueryPartition, Position]:
        """Return the beginning of the batch that ends here, by partition. It takes precedence over ``start``."""
        if self.init is not None:
            return dict(self.init)
        return {**(start.positions if start is not None else {}), **self.new}


def read_offsets(document: Mapping[str, Any], system: str) -> Offsets:
    """Parse an object that ``document`` has returned. Raises OffsetError."""
    if "v" not in document:
        raise OffsetError("the checkpoint was written over another source: a checkpoint belongs to one query")
    version = document["v"]
    if version != VERSION:
        raise OffsetError(f"the offset in the checkpoint has version {version!r}, this fastwire knows {VERSION}")
    if document.get("sys") != system:
        raise OffsetError(
            f"the checkpoint is about {document.get('sys')!r} and the option servers about {system!r}: "
            "a checkpoint belongs to one query"
        )
    try:
        init = document.get("init")
        return Offsets(
            system,
            _positions(system, document["p"]),
            None if init is None else _positions(system, init),
            _positions(system, document.get("new", {})),
            {str(topic): str(text) for topic, text in document.get("inc", {}).items()},
            {str(topic): _witness(system, topic, text) for topic, text in document.get("wit", {}).items()},
        )
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        raise OffsetError(f"the offset in the checkpoint cannot be understood: {exc}") from None


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a query: partitions that continue, and records, None of systems that do not number them."""

    partitions: int
    records: int | None


def behind(end: str | None, latest: str | None) -> Lag | None:
    """Return how far ``end`` is behind ``latest``; None for texts of another source."""
    try:
        parsed: list[dict[str, Any] | None] = [json.loads(text) for text in (end, latest) if text]
    except ValueError:
        return None  # Spark 4.0 and 4.1 show it otherwise
    documents = [each for each in parsed if each is not None and "sys" in each]
    if len(documents) < 2:
        return None  # a reader that has not been asked yet says null
    system = documents[0]["sys"]
    ended, known = (read_offsets(each, system).positions for each in documents)
    positions = positions_of(system)
    late = [each for each, head in known.items() if each not in ended or positions.precedes(ended[each], head)]
    numbered = positions.number_columns == ("offset",)
    records = sum(known[each].a - ended[each].a for each in late if each in ended) if numbered else None
    return Lag(len(late), records)


def _table(system: str, positions: Positions) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for partition in sorted(positions):
        found.setdefault(partition.topic, {})[str(partition.index)] = format_position(system, positions[partition])
    return found


def _witness_text(system: str, witness: Witness) -> str:
    """As a text: not every JSON reader has 64 bits."""
    return f"{witness.partition.index} {format_position(system, witness.position)} {witness.value}"


def _witness(system: str, topic: str, text: str) -> Witness:
    index, position, value = text.split(" ")
    return Witness(QueryPartition(topic, int(index)), parse_position(system, position), int(value))


def _positions(system: str, table: Mapping[str, Mapping[str, str]]) -> dict[QueryPartition, Position]:
    return {
        QueryPartition(topic, int(index)): parse_position(system, text)
        for topic, partitions in table.items()
        for index, text in partitions.items()
    }
