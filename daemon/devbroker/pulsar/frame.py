"""The header of a MESSAGE frame, written by hand because one goes out for every entry (spec: pulsar 1.2, E6, E7)."""

from collections.abc import Sequence
from struct import Struct

from fastwire.wire.writer import encode_varint

_SIZES = Struct(">II")
_WORD = (1 << 64) - 1


class MessageHeader:
    """Writes the headers of one consumer; what never changes is encoded once."""

    def __init__(self, consumer_id: int, partition: int) -> None:
        self._consumer = b"\x08" + encode_varint(consumer_id)
        # A real broker writes the partition always, -1 with its ten bytes.
        self._partition = b"\x18" + encode_varint(partition)
        self._ledger = -1  # the last one, and how it is written: entries of one ledger follow each other
        self._ledger_field = b""

    def encode(
        self,
        position: tuple[int, int],
        body_bytes: int,
        *,
        redelivery_count: int = 0,
        ack_set: Sequence[int] = (),
        epoch: int | None = None,
    ) -> bytes:
        """Return sizes and command of a frame whose command is followed by ``body_bytes``."""
        ledger, entry = position
        if ledger != self._ledger:
            self._ledger, self._ledger_field = ledger, b"\x08" + encode_varint(ledger)
        ids = b"%b\x10%b%b" % (self._ledger_field, encode_varint(entry), self._partition)
        message = b"%b\x12%c%b" % (self._consumer, len(ids), ids)
        if redelivery_count:
            message += b"\x18" + encode_varint(redelivery_count)
        for word in ack_set:
            message += b"\x20" + encode_varint(word)
        if epoch is not None:
            message += b"\x28" + encode_varint(epoch)
        command = b"\x08\x09\x4a%b%b" % (encode_varint(len(message)), message)
        return _SIZES.pack(4 + len(command) + body_bytes, len(command)) + command


def ack_words(bits: int) -> list[int]:
    """Return a set of bits as ``ack_set`` carries it: signed words, least significant first, no trailing zeros."""
    words = []
    while bits:
        word = bits & _WORD
        words.append(word - (1 << 64) if word >> 63 else word)
        bits >>= 64
    return words


def ack_bits(words: Sequence[int]) -> int:
    """Return the bits of an ``ack_set``; bit i set means that element i is not acknowledged."""
    bits = 0
    for place, word in enumerate(words):
        bits |= (word & _WORD) << 64 * place
    return bits
