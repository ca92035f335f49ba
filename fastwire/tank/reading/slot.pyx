"""Partition slots: per partition, the next sequence, and the state from the last answer.

The scanner uses this C array, indexed by log, for every bundle. Python reads the slots of an answer after its end.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from dataclasses import dataclass

from fastwire.position import Position

__all__ = ["PartitionResult", "SlotTable"]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """State of a partition in the last answer (spec: tank 5.2); ``status`` is a PartitionStatus.

    ``high_watermark`` is wrong in some answers without messages (spec: tank 5.4): no position comes from it, except
    from that of BOUNDARY, which is right (spec: tank 5.6). ``first_available`` counts for BOUNDARY only, ``leader``
    (host and port) for REDIRECT. ``received`` counts bytes of bundles. ``needed`` is the size in bytes that the next
    request must have to hold the bundle that was cut off, 0 if none was. ``stuck``: whole bundles came, and none has a
    message to read, so the same request would get them again (spec: tank 5.5); if the high-water mark is below the
    position, they are not committed yet.
    """

    status: int
    high_watermark: int
    first_available: int
    leader: tuple[str, int] | None
    received: int
    needed: int
    stuck: bool


@cython.final
cdef class SlotTable(PartitionSlots):
    """The slots of one pipeline by log index, shared by all connections."""

    def __cinit__(self, logs=()):
        self.width = sizeof(Slot)

    def add(self, log):
        """Add a partition and return its index; it is not read before ``attach``."""
        cdef Slot* s = <Slot*>self.add_slot(log, int(log.partition))
        s.port = -1
        return s.head.log

    def attach(self, int64_t index, position, int32_t session, witness=None):
        """Read from ``position`` on; only answers to requests of ``session`` (above 0) count from here on.

        ``witness`` is what the message before the position is known by, see ``look_back``.
        """
        cdef Slot* s = <Slot*>self.begin_session(index, session)
        s.witnessed = witness is not None
        s.witness = 0 if witness is None else witness
        s.sequence = s.began = position.a
        s.received = s.needed = 0
        self.look_back(index)

    def look_back(self, int64_t index):
        """Request the message before the position, too, and compare it with what it is known by, if it is."""
        cdef Slot* s = self.get(index)
        s.compare = s.witnessed and s.sequence > 0

    def position(self, int64_t index):
        """Return the position before the next message to read."""
        return Position(self.get(index).sequence, 0)

    def fetch_sequence(self, int64_t index):
        """Return the first sequence of the next request."""
        cdef Slot* s = self.get(index)
        return s.sequence - 1 if s.compare else s.sequence

    def result(self, int64_t index):
        """Return the state of this partition in the last answer."""
        cdef Slot* s = self.get(index)
        leader = None
        if s.port >= 0:
            leader = (f"{s.host >> 24}.{s.host >> 16 & 255}.{s.host >> 8 & 255}.{s.host & 255}", s.port)
        return PartitionResult(
            s.status, s.high_watermark, s.first_available, leader, s.received, s.needed,
            s.received > 0 and s.needed == 0 and s.sequence == s.began,
        )
