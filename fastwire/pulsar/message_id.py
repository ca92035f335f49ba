"""Message ids as people and other clients have them (pulsar 14)."""

import re
from dataclasses import dataclass
from typing import Self

from google.protobuf.message import DecodeError

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb

__all__ = ["EARLIEST", "LATEST", "MessageId"]

_TEXT = re.compile(r"(-?\d{1,19}):(-?\d{1,19})(?::(-?\d{1,9}))?(?::(-?\d{1,9}))?")
_MOST = (1 << 63) - 1


def _unsigned(number: int) -> int:
    return number & 0xFFFFFFFFFFFFFFFF


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """Where a message is: ``ledger`` and ``entry``, in a batch the element ``batch_index`` of ``batch_size``.

    Ids of one partition are ordered; an entry as a whole (``batch_index`` -1) comes before its elements. ``partition``
    is -1 where there is none, or where it is not known.
    """

    ledger: int
    entry: int
    batch_index: int = -1
    partition: int = -1
    batch_size: int = 0

    def __str__(self) -> str:
        text = f"{self.ledger}:{self.entry}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"

    @property
    def position(self) -> Position:
        """The entry, as positions have it."""
        return Position(self.ledger, self.entry)

    @property
    def before(self) -> Position:
        """The place in front of the entry; -1 of its ledger in front of the first one."""
        return Position(self.ledger, self.entry - 1)

    @property
    def ends_entry(self) -> bool:
        """Whether nothing of the entry comes behind it, as far as the id tells."""
        return self.batch_index < 0 or 0 < self.batch_size <= self.batch_index + 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """``ledger:entry``, ``ledger:entry:partition`` or ``ledger:entry:partition:batch``, as Java writes it.

        Raises ValueError.
        """
        found = _TEXT.fullmatch(text)
        if found is None or max(int(found[1]), int(found[2])) > _MOST:
            raise ValueError(f"{text!r} is no message id: expected ledger:entry[:partition[:batch index]]")
        return cls(int(found[1]), int(found[2]), int(found[4] or -1), int(found[3] or -1))

    def __bytes__(self) -> bytes:
        """The form in which official clients store ids; compatible with all of them."""
        return self.to_pb().SerializeToString()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What this or an official client has stored. Raises ValueError."""
        try:
            found = pb.MessageIdData.FromString(data)
        except DecodeError as exc:
            raise ValueError(f"{data!r} is no message id: {exc}") from None
        return cls.from_pb(found)

    def to_pb(self) -> pb.MessageIdData:
        """The protocol's form."""
        out = pb.MessageIdData(ledgerId=_unsigned(self.ledger), entryId=_unsigned(self.entry))
        if self.partition >= 0:
            out.partition = self.partition
        if self.batch_index >= 0:
            out.batch_index = self.batch_index
            if self.batch_size > 0:
                out.batch_size = self.batch_size
        return out

    @classmethod
    def from_pb(cls, found: pb.MessageIdData) -> Self:
        """Out of the protocol's form: unsigned on the wire, signed in meaning."""
        return cls(
            _signed(found.ledgerId),
            _signed(found.entryId),
            found.batch_index,
            found.partition,
            found.batch_size if found.batch_index >= 0 else 0,
        )


EARLIEST = MessageId(-1, -1)
LATEST = MessageId(_MOST, _MOST)
