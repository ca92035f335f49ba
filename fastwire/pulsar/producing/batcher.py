"""Grouping of outgoing records into batches (spec: pulsar 24.2)."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from fastwire.columns.routes import Routes
from fastwire.pulsar.format.payload import Record
from fastwire.pulsar.producing.outgoing import MessageBlock


class Batching(Enum):
    """The keys in a batch, which a broker hands to one consumer of a Key_Shared subscription (spec: pulsar 19).

    KEY: one key; a record with another one ends the batch. Each key and the whole partition keep their order.
    GROUPED: one key, and a batch for each: larger batches, among which the keys of a partition lose their order.
    MIXED: any keys: large batches in the order of the partition; on Key_Shared keys lose their order.
    """

    KEY = "key"
    GROUPED = "grouped"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of a batch. The first limit that is reached closes it."""

    messages: int = 1000
    bytes: int = 128 << 10
    delay_s: float = 0.01
    keys: Batching = Batching.KEY

    def __post_init__(self) -> None:
        if self.messages < 1 or self.bytes < 1 or self.delay_s < 0:
            raise ValueError("a batch needs messages and bytes of at least 1, and a delay that is not negative")


@dataclass(slots=True)
class Batch:
    """Records of one entry, with the sender's ticket for each, or rows; and the time of the first one in seconds."""

    since: float
    publish_time: int
    records: list[Record] | MessageBlock = field(default_factory=list)
    tickets: list[object] = field(default_factory=list)
    weight: int = 0


def weight(record: Record) -> int:
    """Return the approximate size of a record before compression, in bytes."""
    size = 32 + len(record.value or b"") + len(record.key or "") + len(record.ordering_key or b"")
    for key, value in record.properties:
        size += len(key) + len(value) + 8
    return size


class Batcher:
    """The open batches of a producer. The limits apply to all keys together, so that a rare key does not wait long."""

    def __init__(self, limits: BatchLimits) -> None:
        self.messages = 0
        self.weight = 0
        self.keys = limits.keys
        self._limits = limits
        self._rows = False  # the open batch is of rows
        self._open: dict[Hashable, Batch] = {}  # in order of their first records

    @property
    def deadline(self) -> float | None:
        """Time at which the open batches must be closed; None if there are none."""
        for batch in self._open.values():
            return batch.since + self._limits.delay_s
        return None

    def has_room(self, size: int) -> bool:
        """Return whether a record of ``size`` bytes fits into the open batches."""
        return not self.messages or self.weight + size <= self._limits.bytes

    @property
    def room(self) -> tuple[int, int]:
        """Messages and bytes that complete the open batches."""
        return self._limits.messages - self.messages, self._limits.bytes - self.weight

    @property
    def full(self) -> bool:
        """True if the open batches must be closed now."""
        return self.messages >= self._limits.messages or self.weight >= self._limits.bytes

    def add(self, record: Record, ticket: object, size: int, now: float, publish_time: int) -> None:
        """Add a record to the batch of its key. Requires that ``takes`` returns True."""
        key = self._key(record)
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = Batch(now, publish_time)
        assert isinstance(batch.records, list)
        batch.records.append(record)
        batch.tickets.append(ticket)
        batch.weight += size
        self.messages += 1
        self.weight += size

    def _key(self, record: Record) -> Hashable:
        if self.keys is Batching.MIXED:
            return None
        # An ordering key takes the place of the key in all decisions by key (spec: pulsar 29, trap 18).
        return (record.key, record.key_is_base64) if record.ordering_key is None else record.ordering_key

    def takes(self, record: Record) -> bool:
        """Return False if the open batches have to be closed before ``record``, but for the limits.

        Numbers of the sender have to rise from entry to entry, or a broker takes the lower ones for stored records.
        """
        if self._rows:
            return False
        if self.keys is Batching.GROUPED and record.sequence_id is None:
            return True
        return not self._open or (len(self._open) == 1 and self._key(record) in self._open)

    def takes_rows(self, key: Hashable) -> bool:
        """Return False if the open batches have to be closed before rows with ``key``, but for the limits."""
        return not self._open or (self._rows and key in self._open)

    def add_rows(
        self, routes: Routes, first: int, stop: int, key: Hashable, now: float, publish_time: int, sequence: int
    ) -> int:
        """Add rows of a share to their batch, a new one with number ``sequence``; return the first without room.

        Requires that ``takes_rows`` returns True.
        """
        batch = self._open.get(key)
        if batch is None:
            self._rows = True
            batch = self._open[key] = Batch(now, publish_time, MessageBlock(sequence))
        block = batch.records
        assert isinstance(block, MessageBlock)
        first = block.add(routes, first, stop, self._limits.messages, self._limits.bytes)
        self.messages = len(block)
        self.weight = batch.weight = block.weight
        return first

    def take(self) -> list[Batch]:
        """Close all batches and return them in the order of their first records."""
        batches = list(self._open.values())
        self._open.clear()
        self._rows = False
        self.messages = 0
        self.weight = 0
        return batches
