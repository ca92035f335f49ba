"""The header of a MESSAGE frame, written by hand because one goes out for every entry (spec: pulsar 1.2, E6, E7)."""

from array import array
from collections.abc import Sequence
from struct import Struct

from fastwire.pulsar.format.ackset import bits_of, words_of
from fastwire.wire.writer import encode_varint

_SIZES = Struct(">II")


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


def ack_words(bits: int) -> Sequence[int]:
    """Return a set of bits as ``ack_set`` carries it: signed words, least significant first, no trailing zeros."""
    return memoryview(words_of(bits)).cast("q")


def ack_bits(words: Sequence[int]) -> int:
    """Return the bits of an ``ack_set``; bit i set means that element i is not acknowledged."""
    return bits_of(array("q", words).tobytes())
