"""Partition slots: per partition, the read offsets, and the state from the last response.

The scanner uses this C array, indexed by log, for every batch. Python reads the slots of a response after its end.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from dataclasses import dataclass

from fastwire.position import Position

__all__ = ["PartitionResult", "SlotTable"]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """State of a partition in the last response (spec: kafka 9); ``error`` is an error code, 0 without.

    ``leader`` and ``leader_epoch`` are hints, -1 without. ``diverging`` is the offset at which the leader's log differs
    from the records read, -1 if it does not. ``received`` counts bytes of records. Unknown offsets are -1.
    """

    error: int
    high_watermark: int
    stable_offset: int
    log_start: int
    leader: int
    leader_epoch: int
    preferred_replica: int
    diverging: int
    received: int


@cython.final
cdef class SlotTable(PartitionSlots):
    """The slots of one pipeline by log index, shared by all connections."""

    def __cinit__(self, logs=()):
        self.width = sizeof(Slot)
        self.doubts = {}
        self.dead_letters = {}

    cdef void set_ask(self, Slot* s, int64_t offset) noexcept:
        """Let the next request begin at ``offset``; -1: at the position."""
        self.probing += (offset >= 0) - (s.ask >= 0)
        s.ask = offset

    def add(self, log):
        """Add a partition and return its index; it is not read before ``attach``."""
        cdef Slot* s = <Slot*>self.add_slot(log, int(log.partition))
        s.ask = s.confirmed = -1
        s.epoch = s.leader = s.leader_epoch = s.preferred_replica = -1
        s.high_watermark = s.stable_offset = s.log_start = s.diverging_offset = -1
        return s.head.log

    def attach(self, int64_t index, position, int32_t session, witness=None):
        """Read from ``position`` on; only responses to requests of ``session`` (above 0) count from here on.

        ``witness`` is what the record before the position is known by, see ``look_back``.
        """
        cdef Slot* s = <Slot*>self.begin_session(index, session)
        s.offset = position.a
        s.epoch = position.b
        s.witnessed = witness is not None
        s.witness = 0 if witness is None else witness
        self.look_back(index)
        self.set_ask(s, -1)
        s.doubted = s.aligned = False
        s.confirmed = -1
        s.room = 0
        self.doubts.pop(index, None)
        self.dead_letters.pop(index, None)

    def look_back(self, int64_t index):
        """Request the record before the position, too, and compare it with what it is known by, if it is."""
        cdef Slot* s = self.get(index)
        s.compare = s.witnessed and s.offset > 0

    def detach(self, int64_t index):
        """Drop all responses about this partition from now on."""
        PartitionSlots.detach(self, index)
        self.set_ask(self.get(index), -1)

    def position(self, int64_t index):
        """Return the next offset, with the leader epoch of the last record."""
        cdef Slot* s = self.get(index)
        return Position(s.offset, s.epoch)

    def fetch_offset(self, int64_t index):
        """Return the offset of the next request: the position, or another one in the search for the end of a batch,
        or to look back.
        """
        cdef Slot* s = self.get(index)
        return s.ask if s.ask >= 0 else s.offset - s.compare

    def fetch_bytes(self, int64_t index, int64_t most):
        """Return the bytes to request, ``most`` by default: the batches after a doubtful one have to be included."""
        return max(most, self.get(index).room)

    def result(self, int64_t index):
        """Return the state of this partition in the last response."""
        cdef Slot* s = self.get(index)
        return PartitionResult(
            s.error, s.high_watermark, s.stable_offset, s.log_start, s.leader, s.leader_epoch, s.preferred_replica,
            s.diverging_offset, s.received,
        )
