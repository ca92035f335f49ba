from libc.stdint cimport int32_t, int64_t, uint64_t

from fastwire.columns.builder cimport Columns
from fastwire.columns.chunk cimport Chunk, Places
from fastwire.columns.layout cimport RowLayout
from fastwire.columns.logs cimport LogTable
from fastwire.wire.pool cimport Charge, Pool

cdef enum:
    CHUNK_ROWS = 16_384
    CHUNK_BYTES = 4 << 20
    OUTPUT_CAP_BYTES = 8 << 20   # of one read, with any budget: a MiB of zstd may become twenty


cdef class OpenChunk:
    cdef Pool pool
    cdef LogTable table
    cdef RowLayout row
    cdef Columns columns
    cdef Places places
    cdef list dead_letters
    cdef int64_t dead_letter_bytes
    cdef Charge charge           # of the dead letters; None without any
    cdef int64_t room            # what one entry may take in columns
    cdef uint64_t number         # of the chunk that is open: a slot whose span is in an older one begins a new span
    cdef bint empty(self) noexcept
    cdef bint full(self, int64_t rows, int64_t nbytes) noexcept
    cdef bint heavy(self) noexcept
    cdef int begin(self) except -1
    cdef str too_large(self)
    cdef int64_t begin_span(self, int32_t log, int64_t a, int64_t b) except -1
    cdef int add_dead_letter(self, letter) except -1
    cdef Chunk take(self)
    cdef void drop(self) noexcept
    cdef void next(self) noexcept
