"""Base of the partition slots of systems whose consumers ask for records: one slot for each log."""

from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.stdlib cimport free

from fastwire.wire.array cimport array_grown

__all__ = ["PartitionSlots"]


cdef class PartitionSlots(LogTable):
    """The slots of one pipeline by log index, shared by all connections.

    A system's ``__cinit__`` sets ``width``, the size of its own struct.
    """

    def __dealloc__(self):
        free(self.slots)

    cdef SlotHead* head(self, int64_t index) except NULL:
        """Return the slot of a log. Raises KeyError."""
        cdef SlotHead* s
        if 0 <= index < self.capacity:
            s = <SlotHead*>(self.slots + index * self.width)
            if s.known:
                return s
        raise KeyError(f"no partition {index}")

    cdef SlotHead* add_slot(self, log, int partition) except NULL:
        """Add a log; the rest of its slot is 0. It is not read before ``attach``."""
        cdef int64_t index = self.add_log(log)
        cdef char* grown = <char*>array_grown(self.slots, &self.capacity, index + 1, <size_t>self.width)
        cdef SlotHead* s
        if grown is NULL:
            raise MemoryError()
        self.slots = grown
        s = <SlotHead*>(grown + index * self.width)
        s.known = True
        s.until = INT64_MAX
        s.log = <int32_t>index
        s.topic = self.topic_of(log)
        s.partition = partition
        return s

    cdef SlotHead* begin_session(self, int64_t index, int32_t session) except NULL:
        """Count only responses to requests of ``session`` from here on. Sessions start at 1."""
        cdef SlotHead* s = self.head(index)
        if session <= 0:
            raise ValueError("sessions start at 1")
        s.session = session
        s.chunk = 0              # what follows may not be next to the end of the open span
        return s

    def detach(self, int64_t index):
        """Drop all responses about this partition from now on."""
        self.head(index).session = 0

    def end_at(self, int64_t index, int64_t until):
        """Take nothing of this partition from the offset ``until`` on: the span of what precedes it ends there."""
        self.head(index).until = until

    def session(self, int64_t index):
        """Return the session whose responses count; 0 = none."""
        return self.head(index).session
