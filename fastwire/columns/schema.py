"""The row: which columns each system's records have, in which order, and how a file format should treat them.

Names are those of Spark's Kafka source where it has them. ``role`` is what an encoder may rely on: ``constant`` cells
repeat within a batch, ``counter`` cells grow by small steps, ``plain`` cells are anything, ``list`` is nested.
"""

from dataclasses import dataclass
from typing import Literal

__all__ = ["COLUMNS", "Column", "column_mask", "column_names"]

Role = Literal["constant", "counter", "plain", "list"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: ``bit`` is its place in the builder's mask, ``stats`` asks for minimum and maximum in files."""

    name: str
    bit: int
    role: Role
    nullable: bool = False
    stats: bool = False


_KEY = Column("key", 0, "plain", nullable=True)
_VALUE = Column("value", 1, "plain", nullable=True)
_TOPIC = Column("topic", 2, "constant")
_PARTITION = Column("partition", 3, "constant", stats=True)
_OFFSET_OF_BATCH = Column("offset", 4, "constant", stats=True)
_TIMESTAMP = Column("timestamp", 5, "constant", stats=True)
_TIMESTAMP_TYPE = Column("timestampType", 6, "constant")
_HEADERS = Column("headers", 7, "list", nullable=True)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "pulsar": (
        _KEY,
        _VALUE,
        _TOPIC,
        _PARTITION,
        _OFFSET_OF_BATCH,
        _TIMESTAMP,
        _TIMESTAMP_TYPE,
        _HEADERS,
        Column("ledger", 8, "constant", stats=True),
        Column("batchIndex", 9, "counter"),
        Column("eventTime", 10, "counter", nullable=True),
        Column("producer", 11, "constant"),
        Column("sequenceId", 12, "counter"),
        Column("orderingKey", 13, "plain", nullable=True),
        Column("schemaVersion", 14, "constant", nullable=True),
        Column("redeliveryCount", 15, "constant"),
    ),
    "kafka": (
        _KEY,
        _VALUE,
        _TOPIC,
        _PARTITION,
        Column("offset", 4, "counter", stats=True),
        Column("timestamp", 5, "counter", stats=True),
        _TIMESTAMP_TYPE,
        _HEADERS,
    ),
}


def column_names(system: str) -> tuple[str, ...]:
    """All columns of ``system`` in their order."""
    return tuple(column.name for column in COLUMNS[system])


def column_mask(system: str, columns: "frozenset[str] | None") -> int:
    """The builder's mask for the named columns (None: all). Raises ValueError for a name the system does not have."""
    unknown = (columns or frozenset()) - set(column_names(system))
    if unknown:
        raise ValueError(f"{system} records have no column {', '.join(sorted(unknown))}")
    return sum(1 << column.bit for column in COLUMNS[system] if columns is None or column.name in columns)
