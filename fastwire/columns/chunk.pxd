from libc.stdint cimport int32_t, int64_t

from fastwire.columns.builder cimport Columns
from fastwire.columns.layout cimport RowLayout
from fastwire.wire.pool cimport Charge


cdef struct SpanRow:             # one log's part of a chunk: (start, end], positions as pairs
    int32_t log
    int64_t start_a
    int64_t start_b
    int64_t end_a
    int64_t end_b
    int64_t rows
    bint holds                   # what lies between held and start was received and is not landed yet
    int64_t held_a
    int64_t held_b
    bint witnessed               # ``witness`` is known: see ``Span.witness``
    int64_t witness


cdef struct RunRow:              # consecutive rows of one log
    int32_t log
    int64_t first
    int64_t rows


cdef struct Places:              # the spans and runs of an open chunk
    SpanRow* spans
    int64_t span_count
    int64_t span_capacity
    RunRow* runs
    int64_t run_count
    int64_t run_capacity

cdef int64_t places_open_span(Places* p, int32_t log, int64_t a, int64_t b) noexcept nogil   # index, or -1
cdef int places_run(Places* p, int32_t log, int64_t first, int64_t rows) noexcept nogil
cdef void places_drop(Places* p) noexcept nogil


cdef class Chunk:
    cdef Columns columns
    cdef RowLayout _row          # whose layout the columns have; None for markers
    cdef Places places
    cdef list _logs
    cdef list _topics
    cdef list _marked            # spans given as objects
    cdef readonly list dead_letters
    cdef Charge _dead_letter_charge  # of their payloads; None without any
    cdef list _charges           # the same for a part of chunks: those of the chunks
    cdef object _carried         # rows that are not in ``columns``
    cdef readonly int64_t rows
    cdef readonly int64_t payload_bytes
    cdef readonly int64_t nbytes

# Takes over columns and places: the caller's copies are empty afterwards.
cdef Chunk chunk_close(
    RowLayout row, Columns* columns, Places* places, list logs, list topics, list dead_letters, Charge charge
)
