"""Entries that leave the hot loop, because it does not decode them."""

cimport cython

from fastwire.position import Position

__all__ = ["ColdEntry"]


@cython.final
cdef class ColdEntry:
    """An entry that the hot loop does not decode: damaged, encrypted, or a part of a chunked message.

    ``reason`` is a validation error's name (pulsar 13.4), ``Encrypted``, ``Chunked`` or ``CompactedIndexes``;
    ``payload`` is everything behind the command, from the broker entry metadata on; ``permits`` were debited for it.
    """

    @property
    def position(self):
        """Its place in the log."""
        return Position(self.ledger, self.entry)

    def refuse(self, str reason not None, str detail not None):
        """Say why it cannot be decoded, now that somebody has tried."""
        self.reason = reason
        self.detail = detail

    def __repr__(self):
        place = f"{self.log.topic} {self.log.partition} {self.ledger}:{self.entry}"
        return f"ColdEntry({place} {self.reason}: {self.detail})"
