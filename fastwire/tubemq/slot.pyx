"""Partition slots: per partition, the position and the messages that the next GET returns again.

The scanner uses this C array, indexed by log.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from struct import pack

from fastwire.position import Position

__all__ = ["SlotTable"]


@cython.final
cdef class SlotTable(PartitionSlots):
    """The slots of one pipeline by log index, shared by all connections."""

    def __cinit__(self, logs=()):
        self.width = sizeof(Slot)
        self.filters = {}

    def add(self, log, types=()):
        """Add a partition, named ``brokerId:partitionId``, and return its index; it is not read before ``attach``.

        Of messages only those whose ``$msgType$`` is among ``types`` become rows, unless there are none: a broker
        compares hashes (spec: tubemq 13).
        """
        cdef Slot* s
        cdef bytes kept
        broker, _, number = log.partition.partition(":")
        place = int(broker), int(number)    # a log that is malformed is not added
        kept = b"".join(pack("=q", len(each)) + each for each in (text.encode() for text in types))
        s = <Slot*>self.add_slot(log, place[1])
        s.broker = place[0]
        if kept:
            self.filters[s.head.log] = kept
            s.filters = <const uint8_t*><const char*>kept
            s.filter_bytes = len(kept)
        return s.head.log

    def attach(self, int64_t index, position, int32_t session):
        """Read from ``position`` on, whose offset the registration names; only responses of ``session`` count.

        The messages that the position counts are left out of the first GETs. If this process has taken the last of
        them, its id is compared. Sessions start at 1.
        """
        cdef Slot* s = <Slot*>self.begin_session(index, session)
        s.compare = s.taken > 0 and s.last_id and s.base == <int64_t>position.a and s.taken == <int64_t>position.b
        s.base = s.last = position.a
        s.taken = s.last_skip = s.owed = position.b
        s.fresh = True

    def position(self, int64_t index):
        """Return the position after the last message taken."""
        cdef Slot* s = self.get(index)
        return Position(s.base, s.taken)
