"""Message ids in the forms of people and of other clients (spec: pulsar 14)."""

import re
from dataclasses import dataclass, field
from typing import Self

from google.protobuf.message import DecodeError

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.request import position_of

_TEXT = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::(-?\d{1,9}))?(?::(-?\d{1,9}))?")
_MOST = (1 << 63) - 1


def _unsigned(number: int) -> int:
    return number & 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """The id of a message: ``ledger`` and ``entry``, and in a batch the element ``batch_index`` of ``batch_size``.

    Ids of one partition are ordered; an entry as a whole (``batch_index`` -1) comes before its elements. ``partition``
    is -1 if there is none, or if it is unknown. ``first`` is the position of the first chunk of a chunked message; the
    id itself is that of the last chunk. ``first`` does not count for equality.
    """

    ledger: int
    entry: int
    batch_index: int = -1
    partition: int = -1
    batch_size: int = 0
    first: Position | None = field(default=None, compare=False)

    def __str__(self) -> str:
        text = f"{self.ledger}:{self.entry}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    @property
    def position(self) -> Position:
        """The position of the entry."""
        return Position(self.ledger, self.entry)

    @property
    def begin(self) -> Position:
        """The position of the entry where the message begins: the first chunk of a chunked one."""
        return self.position if self.first is None else self.first

    @property
    def before(self) -> Position:
        """The position before the start of the message; entry -1 before the first entry of a ledger."""
        return Position(self.begin.a, self.begin.b - 1)

    @property
    def ends_entry(self) -> bool:
        """True if no element of the entry follows this one, as far as the id tells."""
        return self.batch_index < 0 or 0 < self.batch_size <= self.batch_index + 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``ledger:entry``, ``ledger:entry:partition`` or ``ledger:entry:partition:batch``, Java's text forms.

        Raises ValueError.
        """
        found = _TEXT.fullmatch(text)
        if found is None or max(int(found[1]), int(found[2])) > _MOST:
            raise ValueError(f"{text!r} is not a message id: expected ledger:entry[:partition[:batch index]]")
        return cls(int(found[1]), int(found[2]), int(found[4] or -1), int(found[3] or -1))

    def __bytes__(self) -> bytes:
        """Return the stored form of official clients, which all of them can read."""
        return self.to_pb().SerializeToString()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the stored form of this class or an official client. Raises ValueError."""
        try:
            found = pb.MessageIdData.FromString(data)
        except DecodeError as exc:
            raise ValueError(f"{data!r} is not a message id: {exc}") from None
        return cls.from_pb(found)

    def to_pb(self) -> pb.MessageIdData:
        """Return the protobuf form."""
        out = pb.MessageIdData(ledgerId=_unsigned(self.ledger), entryId=_unsigned(self.entry))
        if self.partition >= 0:
            out.partition = self.partition
        if self.batch_index >= 0:
            out.batch_index = self.batch_index
            if self.batch_size > 0:
                out.batch_size = self.batch_size
        if self.first is not None:
            out.first_chunk_message_id.ledgerId = _unsigned(self.first.a)
            out.first_chunk_message_id.entryId = _unsigned(self.first.b)
            if self.partition >= 0:
                out.first_chunk_message_id.partition = self.partition
        return out

    @classmethod
    def from_pb(cls, found: pb.MessageIdData) -> Self:
        """Read the protobuf form; its unsigned 64-bit numbers become signed ones."""
        place = position_of(found)
        return cls(
            place.a,
            place.b,
            found.batch_index,
            found.partition,
            found.batch_size if found.batch_index >= 0 else 0,
            position_of(found.first_chunk_message_id) if found.HasField("first_chunk_message_id") else None,
        )


EARLIEST = MessageId(-1, -1)
LATEST = MessageId(_MOST, _MOST)
