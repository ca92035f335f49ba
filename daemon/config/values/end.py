"""The key ``end`` of a source, and the option ``--until``: where a bounded run ends."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from fastwire.grammar import Grammar
from fastwire.position import Position

from .fields import grammar_in, parse_moment, parse_start
from .text import kind

_CHOICES = (
    '"now" (what the topic holds at the first start), a time that is past such as "2025-01-31T00:00:00Z", '
    "or a table of positions by partition"
)


@dataclass(frozen=True, slots=True)
class End:
    """The end of a bounded run: a time, positions by the full name of the partition, or with neither the present."""

    time: datetime | None = None
    positions: Mapping[str, Position] = field(default_factory=dict)

    @property
    def is_now(self) -> bool:
        """True if the end is that of the logs when the run begins."""
        return self.time is None and not self.positions

    @property
    def run(self) -> str:
        """The name of a run with this end. Runs up to "now" need the time of their beginning, too."""
        if self.positions:
            return f"positions {zlib.crc32(repr(sorted(self.positions.items())).encode()):08x}"
        return str(self)

    def __str__(self) -> str:
        if self.time is not None:
            return self.time.isoformat().replace("+00:00", "Z")
        count = len(self.positions)
        return f"positions of {count} partition{'s' * (count != 1)}" if count else "now"


def parse_end(value: object, grammar: Grammar | None = None) -> End:
    """Read the key ``end`` in the grammar of a system. Raises ValueError with the choices."""
    if value == "now":
        return End()
    if isinstance(value, Mapping):
        return End(positions=parse_start(value, grammar).positions)
    if isinstance(value, str) and value.startswith("-"):
        raise ValueError(f'"{value}" would be another time after each restart: write the time itself')
    moment = parse_moment(value)
    if moment is None:
        raise ValueError(f"must be {_CHOICES}, not " + (f'"{value}"' if isinstance(value, str) else kind(value)))
    if moment > datetime.now(UTC):
        raise ValueError(f'"{value}" is not past yet: which records lie before it is known only then')
    return End(moment)


EndField = Annotated[
    End,
    PlainValidator(lambda value, info: parse_end(value, grammar_in(info))),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": ["now"]},
                {"type": "string", "format": "date-time"},
                {"type": "object", "additionalProperties": {"type": "string", "pattern": "^-?[0-9]+([:@]-?[0-9]+)?$"}},
            ]
        }
    ),
]
