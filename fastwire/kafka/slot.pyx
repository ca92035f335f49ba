"""Partition slots: per partition, what has been read, and what the last answer said of it.

A C array by slot number, which is the log index: the scanner reads and writes it for every batch, and Python looks at
those that an answer speaks of when it is through.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from fastwire.columns.logs cimport LogTable
from fastwire.wire.array cimport array_grown

from dataclasses import dataclass

from fastwire.position import Position

__all__ = ["SlotTable", "Told"]


@dataclass(frozen=True, slots=True)
class Told:
    """What the last answer said of a partition (kafka 9): ``error`` is 0 where there is none.

    ``leader`` and ``leader_epoch`` are hints, -1 without; ``diverging`` is the offset at which the leader's log leaves
    ours, -1 if it does not; ``received`` is how many bytes of records came. Offsets are -1 where they are not known.
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
cdef class SlotTable(LogTable):
    """Slots by log index; shared by all connections of a pipeline."""

    def __dealloc__(self):
        free(self.slots)

    cdef Slot* get(self, int64_t index) except NULL:
        if index < 0 or index >= self.capacity or not self.slots[index].known:
            raise KeyError(f"no partition {index}")
        return &self.slots[index]

    def add(self, log):
        """Register a partition and return its index; it is not read before ``attach``."""
        cdef int64_t index = self.add_log(log)
        cdef Slot* grown
        cdef Slot* s
        grown = <Slot*>array_grown(self.slots, &self.capacity, index + 1, sizeof(Slot))
        if grown is NULL:
            raise MemoryError()
        self.slots = grown
        s = &self.slots[index]
        s.known = True
        s.log = <int32_t>index
        s.topic = self.topic_of(log)
        s.partition = int(log.partition)
        s.epoch = s.leader = s.leader_epoch = s.preferred_replica = -1
        s.high_watermark = s.stable_offset = s.log_start = s.diverging_offset = -1
        return index

    def attach(self, int64_t index, position, int32_t session):
        """Read on from ``position``; only answers to requests of ``session`` (above 0) count from here on."""
        cdef Slot* s = self.get(index)
        if session <= 0:
            raise ValueError("sessions start at 1")
        s.offset = position.a
        s.epoch = position.b
        s.session = session
        s.chunk = 0              # what comes next may not follow what the open span ends with

    def detach(self, int64_t index):
        """Drop every answer about this partition from now on."""
        self.get(index).session = 0

    def session(self, int64_t index):
        """Which answers count; 0 = none."""
        return self.get(index).session

    def position(self, int64_t index):
        """What comes next, with the leader epoch of what came last."""
        cdef Slot* s = self.get(index)
        return Position(s.offset, s.epoch)

    def told(self, int64_t index):
        """What the last answer said of this partition."""
        cdef Slot* s = self.get(index)
        return Told(
            s.error, s.high_watermark, s.stable_offset, s.log_start, s.leader, s.leader_epoch, s.preferred_replica,
            s.diverging_offset, s.received,
        )

    def largest_batch(self, int64_t index):
        """Bytes of the largest recent batch, decompressed."""
        return self.get(index).largest
