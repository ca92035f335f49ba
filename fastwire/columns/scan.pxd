cimport cython
from libc.stdint cimport int32_t, int64_t

from fastwire.columns.chunk cimport SpanRow, places_run
from fastwire.columns.layout cimport RowLayout
from fastwire.columns.logs cimport LogTable
from fastwire.columns.open cimport OpenChunk
from fastwire.columns.slots cimport SlotHead
from fastwire.wire.codecs cimport Decompressor
from fastwire.wire.pool cimport Pool
from fastwire.wire.receive cimport ReceiveBuffer
from fastwire.wire.stopwatch cimport Stopwatch

cdef enum:                       # why a scan stops, in every system
    STOP_NEED_BYTES = 0
    STOP_CHUNK_FULL = 1
    STOP_OUTPUT_CAP = 2
    STOP_FOUND = 3
    GO_ON = 99


cdef class ChunkScanner:
    cdef LogTable table
    cdef ReceiveBuffer buffer
    cdef Decompressor codecs
    cdef OpenChunk open
    cdef Stopwatch watch
    cdef object found            # what STOP_FOUND is about
    cdef bint keeps_corrupt
    cdef int64_t produced        # bytes decoded since the last read
    cdef int64_t output_cap      # of these, at which the turn ends: the loop has others to serve
    cdef int64_t rested_at       # ``received_bytes`` at the last ``rest``
    cdef readonly int64_t memory
    cdef int64_t most_frame      # bytes that a frame, or a batch of one, may take in the receive buffer
    cdef readonly int64_t frames
    cdef readonly int64_t rows
    cdef readonly int64_t received_bytes
    cdef int prepare(
        self, LogTable table, Pool pool, RowLayout row, columns, str on_corrupt, int64_t buffer_bytes, clock
    ) except -1
    cdef int run(self) except -1
    cdef str frame_too_large(self, int64_t size)

    @cython.final
    cdef inline int need(self, int64_t size) noexcept:
        """Request that the next ``size`` bytes are buffered as a whole."""
        self.buffer.wanted = size
        return STOP_NEED_BYTES

    @cython.final
    cdef inline int took(self, int32_t log, int64_t size, int64_t first, int64_t* largest) except -1:
        """Count an entry of ``size`` bytes whose rows begin at ``first``; update ``largest``, a slowly decaying
        maximum.
        """
        cdef int64_t rows = self.open.columns.rows - first
        self.produced += size
        self.rows += rows
        largest[0] -= largest[0] >> 6
        if size > largest[0]:
            largest[0] = size
        if self.table.room > 0:
            self.table.room -= min(self.table.room, rows)
        if rows and places_run(&self.open.places, log, first, rows):
            raise MemoryError()
        return 0

    @cython.final
    cdef inline SpanRow* span_of(self, SlotHead* slot, int64_t begin_a, int64_t begin_b) except NULL:
        """Return the span of a slot in the open chunk; without one it begins at the position given."""
        if slot.chunk != self.open.number:
            slot.span = self.open.begin_span(slot.log, begin_a, begin_b)
            slot.chunk = self.open.number
        return &self.open.places.spans[slot.span]
