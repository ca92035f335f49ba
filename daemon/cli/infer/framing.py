"""The formats and framings by which values of records are recognised."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from fastwire.decode.json.inference import parsed

HEADER = 5  # bytes: a zero, and the id of a schema (the wire format of Confluent's registry)
MOST_ID = 1 << 24
WRAPPER = frozenset({"schema", "payload"})
"""Keys of a value by Kafka Connect's JSON converter with schemas."""
_OPERATIONS = frozenset("crudtm")


class Kind(StrEnum):
    """Kinds of values; the texts are for people, of several values and of ``one``."""

    one: str

    def __new__(cls, several: str, one: str) -> "Kind":
        """Make a kind of its two texts."""
        made = str.__new__(cls, several)
        made._value_, made.one = several, one
        return made

    NULL = "null values (tombstones)", "null value (a tombstone)"
    OBJECT = "JSON objects", "JSON object"
    JSON = "JSON values that are no objects", "JSON value that is no object"
    FRAMED = "values behind the id of a schema", "value behind the id of a schema"
    TEXT = "texts that are no JSON", "text that is no JSON"
    BINARY = "binary values", "binary value"


class Sorted:
    """The values of a topic by their kinds."""

    def __init__(self, values: Iterable[bytes | None]) -> None:
        self.counts: Counter[Kind] = Counter()
        """Number of values by kind, nulls included."""
        self.objects: list[dict[str, Any]] = []
        self.ids: Counter[int] = Counter()
        """Number of values by the id of the schema that they begin with."""
        for value in values:
            self._take(value)

    @property
    def total(self) -> int:
        """The number of values."""
        return self.counts.total()

    @property
    def kind(self) -> Kind | None:
        """The kind of most values that are not null; None if there is none."""
        counts = Counter({kind: count for kind, count in self.counts.items() if kind != Kind.NULL})
        return counts.most_common(1)[0][0] if counts else None

    @property
    def change_events(self) -> int:
        """The number of objects that are change events of Debezium."""
        return sum(map(is_change_event, self.objects))

    def _take(self, value: bytes | None) -> None:
        if value is None:
            self.counts[Kind.NULL] += 1
            return
        id = int.from_bytes(value[1:HEADER], "big")
        if value[:1] == b"\0" and len(value) > HEADER and 0 < id < MOST_ID:
            self.counts[Kind.FRAMED] += 1
            self.ids[id] += 1
            return
        try:
            read = parsed(value)
        except ValueError:
            self.counts[Kind.TEXT if _is_text(value) else Kind.BINARY] += 1
            return
        self.counts[Kind.OBJECT if isinstance(read, dict) else Kind.JSON] += 1
        if isinstance(read, dict):
            self.objects.append(read)


def is_change_event(value: dict[str, Any]) -> bool:
    """Return True for a change event of Debezium, also one within the wrapper with its schema."""
    event = value["payload"] if value.keys() == WRAPPER else value
    return (
        isinstance(event, dict)
        and event.get("op") in _OPERATIONS
        and "source" in event
        and ("after" in event or "before" in event)
    )


def _is_text(value: bytes) -> bool:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return all(each.isprintable() or each in "\t\r\n" for each in text)
