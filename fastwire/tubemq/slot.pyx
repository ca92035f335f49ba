"""Partition slots: per partition, the position and the messages that the next GET returns again.

The scanner uses this C array, indexed by log.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free

from fastwire.columns.logs cimport LogTable
from fastwire.wire.array cimport array_grown

from struct import pack

from fastwire.position import Position

__all__ = ["SlotTable"]


@cython.final
cdef class SlotTable(LogTable):
    """The slots of one pipeline by log index, shared by all connections."""

    def __cinit__(self):
        self.filters = {}

    def __dealloc__(self):
        free(self.slots)

    cdef Slot* get(self, int64_t index) except NULL:
        if index < 0 or index >= self.capacity or not self.slots[index].known:
            raise KeyError(f"no partition {index}")
        return &self.slots[index]

    def add(self, log, types=()):
        """Add a partition, named ``brokerId:partitionId``, and return its index; it is not read before ``attach``.

        Of messages only those whose ``$msgType$`` is among ``types`` become rows, unless there are none: a broker
        compares hashes (spec: tubemq 13).
        """
        cdef int64_t index
        cdef Slot* grown
        cdef Slot* s
        cdef bytes kept
        broker, _, number = log.partition.partition(":")
        place = int(broker), int(number)
        kept = b"".join(pack("=q", len(each)) + each for each in (text.encode() for text in types))
        index = self.add_log(log)
        grown = <Slot*>array_grown(self.slots, &self.capacity, index + 1, sizeof(Slot))
        if grown is NULL:
            raise MemoryError()
        self.slots = grown
        s = &self.slots[index]
        s.known = True
        s.log = <int32_t>index
        s.topic = self.topic_of(log)
        s.broker, s.partition = place
        if kept:
            self.filters[index] = kept
            s.filters = <const uint8_t*><const char*>kept
            s.filter_bytes = len(kept)
        return index

    def attach(self, int64_t index, position, int32_t session):
        """Read from ``position`` on, whose offset the registration names; only responses of ``session`` count.

        The messages that the position counts are left out of the first GETs. Sessions start at 1.
        """
        cdef Slot* s = self.get(index)
        if session <= 0:
            raise ValueError("sessions start at 1")
        s.base = s.last = position.a
        s.taken = s.last_skip = s.owed = position.b
        s.fresh = True
        s.session = session
        s.chunk = 0              # the next message may not follow the end of the open span

    def detach(self, int64_t index):
        """Drop all responses about this partition from now on."""
        self.get(index).session = 0

    def session(self, int64_t index):
        """Return the session whose responses count; 0 = none."""
        return self.get(index).session

    def position(self, int64_t index):
        """Return the position after the last message taken."""
        cdef Slot* s = self.get(index)
        return Position(s.base, s.taken)

    def largest_message(self, int64_t index):
        """Return the size of the largest recent message in bytes."""
        return self.get(index).largest
