"""The delivered chunk of a consumer, with acks and redelivery of its rows (spec: pulsar 11, 15, 16)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from fastwire.columns.chunk import Chunk
from fastwire.position import Position, Span
from fastwire.pulsar.columns import batch_index, elements
from fastwire.pulsar.protocol.message_id import MessageId

from ...consuming.received import ReceivedChunk

Rows = int | slice | Iterable[int]
Run = tuple[int, int, int]  # ledger, first entry, last entry
Element = tuple[int, int, int]  # consumer, ledger, entry


class Receiver(Protocol):
    """The methods of a consumer that a delivery calls."""

    async def acknowledge(self, delivery: "Delivery", rows: Rows | None = None, *, receipt: bool = False) -> None:
        """See ``Delivery.ack``."""

    async def acknowledge_to(self, delivery: "Delivery", row: int | None = None, *, receipt: bool = False) -> None:
        """See ``Delivery.ack_to``."""

    def reject(self, delivery: "Delivery", rows: Rows | None = None, delay_s: float | None = None) -> None:
        """See ``Delivery.nack``."""

    async def try_again(self, delivery: "Delivery", rows: Rows, delay_s: float) -> None:
        """See ``Delivery.retry``."""


class Delivery(ReceivedChunk):
    """A received chunk whose rows can be acknowledged, rejected or retried.

    Rows are given as a number, a slice, or several numbers. The rows of one batch are one entry for the broker: it
    redelivers the whole entry, but rows that were acknowledged are not delivered again. A row that its producer sent
    in chunks is several entries, which are acknowledged, rejected and sought together.
    """

    __slots__ = ("_consumer", "dealt", "moves", "parts")

    def __init__(
        self, chunk: Chunk, consumer: Receiver, moves: int, parts: Mapping[Element, Sequence[Run]] | None = None
    ) -> None:
        super().__init__(chunk)
        self._consumer = consumer
        self.moves = moves  # the consumer's count of seeks
        self.parts = parts or {}  # the other entries of each chunked message, by the entry of its row
        self.dealt = 0  # rows that were acknowledged or rejected, as bits

    def spans(self) -> list[Span]:
        """Return the spans of positions that the chunk covers, by partition."""
        return self._chunk.spans()

    def message_id(self, row: int) -> MessageId:
        """Return the id of a record. Raises IndexError, or ValueError without columns ledger, offset, batchIndex."""
        row = range(self.rows)[row]
        ((number, ledger, entry, *_),) = elements(self._chunk, row, row + 1)
        parts = self.parts.get((number, ledger, entry))
        first = Position(*min(parts)[:2]) if parts else None
        partition = int(self._chunk.log(number).partition)
        return MessageId(ledger, entry, batch_index(self._chunk, row), partition, first=first)

    async def ack(self, rows: Rows | None = None, *, receipt: bool = False) -> None:
        """Acknowledge these records, by default all: they are not delivered again.

        Acks are sent in groups, a moment later. With ``receipt`` this returns when the broker has confirmed them
        (brokers older than 2.8 do not) and raises AckRefused if it does not.
        """
        await self._consumer.acknowledge(self, rows, receipt=receipt)

    async def ack_to(self, row: int | None = None, *, receipt: bool = False) -> None:
        """Acknowledge everything up to this record, by default to the end of the chunk, with all earlier chunks.

        Without ``row`` each partition is acknowledged up to its last entry in the chunk, else only the partition of
        ``row``. Raises ValueError on Shared and Key_Shared subscriptions, which have no order.
        """
        await self._consumer.acknowledge_to(self, row, receipt=receipt)

    async def nack(self, rows: Rows | None = None, *, delay_s: float | None = None) -> None:
        """Reject these records, by default all: they are redelivered after the backoff, or after ``delay_s`` seconds.

        The other records of their batches are redelivered with them, unless they were acknowledged.
        """
        self._consumer.reject(self, rows, delay_s)

    async def retry(self, rows: Rows | None = None, *, delay_s: float = 0.0) -> None:
        """Publish these records, by default all, to the retry topic, then acknowledge them.

        They are delivered again after ``delay_s`` seconds with the property RECONSUMETIMES, and become dead letters
        when it exceeds the policy's limit. Raises ProduceError, without an ack; ValueError without a retry policy.
        """
        await self._consumer.try_again(self, slice(None) if rows is None else rows, delay_s)


def elements_of(chunk: Chunk, rows: Rows) -> dict[Element, tuple[int, int, int]]:
    """Return rows by entry: (consumer, ledger, entry) -> its first row, the delivered elements, the chosen ones."""
    found: dict[Element, tuple[int, int, int]] = {}
    for first, end in ranges(chunk.rows, rows):
        for number, ledger, entry, row, held, bits in elements(chunk, first, end):
            _, _, before = found.get((number, ledger, entry), (row, held, 0))
            found[number, ledger, entry] = row, held, before | bits
    return found


def ranges(count: int, rows: Rows) -> list[tuple[int, int]]:
    """Return rows as ranges (first, end), in order. Raises IndexError."""
    places = range(count)
    if isinstance(rows, int):
        row = places[rows]
        return [(row, row + 1)]
    if isinstance(rows, slice):
        chosen = places[rows]
        if chosen.step == 1:
            return [(chosen.start, chosen.stop)] if chosen else []
        rows = chosen
    found: list[tuple[int, int]] = []
    for row in sorted(places[row] for row in rows):
        if found and found[-1][1] >= row:
            found[-1] = found[-1][0], row + 1
        else:
            found.append((row, row + 1))
    return found
