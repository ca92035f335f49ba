from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.scan cimport ChunkScanner
from fastwire.kafka.reading.response cimport ResponseWalk
from fastwire.kafka.reading.slot cimport Slot, SlotTable

cdef enum:
    RECORDS_HEAD = 17            # bytes up to the magic, which determines the rest of the layout
    TAKEN = 100                  # of an intact batch: its rows are read now
    LEFT = 101                   # its rows are not read, or not now


cdef class PlacingScanner(ChunkScanner):
    cdef SlotTable slots
    cdef ResponseWalk at         # the current response
    cdef int place(
        self, Slot* slot, const uint8_t* p, int64_t size, int64_t base, int64_t next_offset, int64_t next_base
    ) except -1
    cdef list missed(self, Slot* slot, bytes payload)
    cdef int weigh(
        self, Slot* slot, const uint8_t* p, int64_t size, int64_t base, int64_t next_offset, int64_t next_base
    ) except -1
    cdef bint repeats(self, const uint8_t* p, int64_t size) except -1
    cdef bint is_claim(self, const uint8_t* p) except -1
    cdef int ascends(self, const uint8_t* p, int64_t size, int64_t next_offset, int64_t end) except -1
    cdef int resume(self, Slot* slot, int64_t base) except -1
    cdef int damaged(self, Slot* slot, const uint8_t* p, int64_t size, str detail, bint whole=*) except -1
    cdef int note(
        self, Slot* slot, const uint8_t* p, int64_t size, str detail, int64_t base, int64_t end, bint whole=*
    ) except -1
    cdef int through(self) except -1
    cdef bint settle(self, Slot* slot, evidence, int64_t end) except -1
    cdef int answered(self, Slot* slot, evidence) except -1
    cdef int64_t end_of(self, Slot* slot) noexcept
    cdef int conclude(self, Slot* slot, doubt) except -1
    cdef int keep_dead_letter(self, Slot* slot, found, int64_t end, reason=*) except -1
    cdef int advance(self, Slot* slot, int64_t next_offset, int32_t epoch, int64_t rows) except -1
    cdef int reject(
        self, Slot* slot, const uint8_t* p, int64_t size, int64_t next_offset, reason, str detail
    ) except -1
    cdef int refuse(self, reason, str detail, bint replaced=*) except -1
    cdef int stop_looking(self, Slot* slot) noexcept
