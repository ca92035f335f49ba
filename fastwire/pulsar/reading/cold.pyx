"""Entries that the hot loop does not decode."""

cimport cython

from fastwire.columns.chunk import DeadLetter
from fastwire.reason import Reason
from fastwire.position import Position

__all__ = ["UNDECODED", "ColdEntry"]

# Reasons of intact entries that need more than the hot loop; all other reasons mean damage.
UNDECODED = frozenset({Reason.ENCRYPTED, Reason.CHUNKED, Reason.COMPACTED})


@cython.final
cdef class ColdEntry:
    """An entry that the hot loop does not decode: damaged, encrypted, or a chunk of a chunked message.

    ``reason`` is a Reason, one of ``UNDECODED`` for an intact entry. ``payload`` is everything after the command, from
    the broker entry metadata on; it is empty for ``Reason.FRAME``. ``permits`` were debited for it. ``too_often``: it
    was redelivered more often than ``SlotTable.limit_redeliveries`` allows.
    """

    @property
    def position(self):
        """Its position in the log."""
        return Position(self.ledger, self.entry)

    cdef object letter(self):
        """Return the entry as a dead letter."""
        reason = f"{self.reason}: {self.detail}"
        words = self.ack_set or b""
        return DeadLetter(self.log, self.position, reason, self.payload, self.permits, words, self.reason)

    def refuse(self, reason not None, str detail not None, bytes payload=None):
        """Set the reason of the failure; ``payload``, if given, replaces the entry's own in the dead letter."""
        self.reason = reason
        self.detail = detail
        if payload is not None:
            self.payload = payload

    def __repr__(self):
        place = f"{self.log.topic} {self.log.partition} {self.ledger}:{self.entry}"
        return f"ColdEntry({place} {self.reason}: {self.detail})"
