"""The chunk that a connection is filling: columns, spans and dead letters, until it is closed and handed on."""

cimport cython

from fastwire.columns.builder cimport columns_bytes, columns_drop, columns_open
from fastwire.columns.chunk cimport chunk_close, places_drop, places_open_span

__all__ = ["OpenChunk"]


@cython.final
@cython.no_gc                    # __dealloc__ needs the pool, which a collector could clear first; no cycle is possible
cdef class OpenChunk:
    """Rows come into ``columns``, spans and runs into ``places``; ``take`` closes it and opens the next one.

    Memory is taken by the first row only: ``begin`` before anything is put into the columns.
    """

    def __cinit__(self, Pool pool not None, LogTable table not None, mask):
        self.pool = pool
        self.table = table
        self.columns.pool = pool.pool
        self.columns.mask = mask
        self.diverted = []
        self.next()

    def __dealloc__(self):
        columns_drop(&self.columns)
        places_drop(&self.places)

    cdef void next(self) noexcept:
        self.diverted = []
        self.diverted_bytes = 0
        self.table.chunks += 1
        self.number = self.table.chunks

    cdef bint empty(self) noexcept:
        return not (self.columns.rows or self.places.span_count or self.diverted)

    cdef bint full(self, int64_t rows, int64_t nbytes) noexcept:
        """Whether ``rows`` more rows of ``nbytes`` should begin another chunk."""
        return self.columns.rows and (
            self.columns.rows + rows > CHUNK_ROWS or columns_bytes(&self.columns) + nbytes > CHUNK_BYTES
        )

    cdef int begin(self) except -1:
        if self.columns.memory is NULL and columns_open(&self.columns):
            raise MemoryError()
        return 0

    cdef int64_t begin_span(self, int32_t log, int64_t a, int64_t b) except -1:
        """The number of a new span of no rows behind position (a, b)."""
        cdef int64_t number = places_open_span(&self.places, log, a, b)
        if number < 0:
            raise MemoryError()
        return number

    cdef int divert(self, letter) except -1:
        """Add a dead letter; the caller has placed its span."""
        self.diverted.append(letter)
        self.diverted_bytes += len(letter.payload)
        return 0

    cdef Chunk take(self):
        """Close what is open and return it; None if there is nothing in it."""
        cdef Chunk chunk
        if self.empty():
            return None
        chunk = chunk_close(&self.columns, &self.places, self.table.logs, self.table.topics, self.diverted)
        self.next()
        return chunk

    cdef void drop(self) noexcept:
        """Forget what is open; the slots still count it as staged."""
        columns_drop(&self.columns)
        places_drop(&self.places)
        self.next()
