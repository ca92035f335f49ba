"""The open chunk of a connection: columns, spans and dead letters."""

cimport cython
from libc.stdint cimport INT64_MAX

from fastwire.columns.builder cimport columns_bytes, columns_drop, columns_open
from fastwire.columns.chunk cimport chunk_close, places_drop, places_open_span
from fastwire.columns.layout cimport RowLayout
from fastwire.wire.pool cimport COLUMNS_SHARE, fw_pool_limit, fw_pool_used

__all__ = ["OpenChunk"]

cdef enum:
    DEAD_LETTER_BYTES = 512           # memory of the objects around the payload of a dead letter


@cython.final
@cython.no_gc                    # __dealloc__ needs the pool, which a collector could clear first; no cycle is possible
cdef class OpenChunk:
    """The open chunk of one connection: ``take`` closes it and opens the next one.

    Rows come into ``columns``, which has the named columns of the row of a system (None: all of them), spans and runs
    into ``places``. Memory is taken by the first row only: call ``begin`` before each entry, of which nothing is in the
    columns yet. An entry for which they have no ``room`` then is rewound, and gets a chunk of its own or is not decoded
    at all.
    """

    def __cinit__(self, Pool pool not None, LogTable table not None, RowLayout row not None, columns):
        self.pool = pool
        self.table = table
        self.columns.pool = pool.pool
        self.row = row
        self.columns.layout = &row.layout
        self.columns.mask = row.mask(columns)
        self.room = fw_pool_limit(pool.pool) // COLUMNS_SHARE
        self.dead_letters = []
        self.next()

    def __dealloc__(self):
        columns_drop(&self.columns)
        places_drop(&self.places)

    cdef void next(self) noexcept:
        self.dead_letters = []
        self.dead_letter_bytes = 0
        self.charge = None
        self.table.chunks += 1
        self.number = self.table.chunks

    cdef bint empty(self) noexcept:
        return not (self.columns.rows or self.places.span_count or self.dead_letters)

    cdef bint full(self, int64_t rows, int64_t nbytes) noexcept:
        """Return whether ``rows`` more rows of ``nbytes`` should begin another chunk."""
        return self.columns.rows and (
            self.columns.rows + rows > CHUNK_ROWS or columns_bytes(&self.columns) + nbytes > CHUNK_BYTES
        )

    cdef bint heavy(self) noexcept:
        """Return whether the chunk should be taken without waiting for more: it is over its size, or the pool is."""
        if self.dead_letter_bytes > CHUNK_BYTES or (self.columns.rows and columns_bytes(&self.columns) > CHUNK_BYTES):
            return True
        return fw_pool_used(self.pool.pool) > fw_pool_limit(self.pool.pool) and not self.empty()

    cdef int begin(self) except -1:
        if self.columns.memory is NULL:
            self.columns.room = INT64_MAX
            if columns_open(&self.columns):
                raise MemoryError()
        self.columns.room = self.room
        self.columns.over = False
        return 0

    cdef str too_large(self):
        """Return the error text for an entry for which the columns had no room."""
        return (
            f"its records take more than {self.room} bytes in columns, a quarter of the memory budget: "
            "more memory (daemon.memory) lets it pass"
        )

    cdef int64_t begin_span(self, int32_t log, int64_t a, int64_t b) except -1:
        """Return the index of a new span without rows after position (a, b)."""
        cdef int64_t number = places_open_span(&self.places, log, a, b)
        if number < 0:
            raise MemoryError()
        return number

    cdef int add_dead_letter(self, letter) except -1:
        """Add a dead letter; the caller has placed its span."""
        cdef int64_t size = len(letter.payload)
        self.dead_letters.append(letter)
        self.dead_letter_bytes += size
        if self.charge is None:
            self.charge = Charge(self.pool)
        self.charge.add(size + DEAD_LETTER_BYTES)
        return 0

    cdef Chunk take(self):
        """Close the open chunk and return it; None if it is empty."""
        cdef Chunk chunk
        if self.empty():
            return None
        chunk = chunk_close(
            self.row, &self.columns, &self.places, self.table.logs, self.table.topics, self.dead_letters, self.charge
        )
        self.next()
        return chunk

    cdef void drop(self) noexcept:
        """Discard the open chunk; the slots still count its records as staged."""
        columns_drop(&self.columns)
        places_drop(&self.places)
        self.next()
