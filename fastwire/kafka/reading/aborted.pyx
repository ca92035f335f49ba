"""The aborted transactions that a Fetch response lists for one partition (spec: kafka 9.1)."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport qsort
from libc.string cimport memset

from fastwire.wire.pool cimport Pool, fw_give, fw_most_payload, fw_take

cdef enum:
    BYTES_EACH = 25              # in all three arrays of the block
    MOST_LISTED = 1 << 20


cdef int by_first(const void* a, const void* b) noexcept nogil:
    cdef int64_t one = (<const Transaction*>a).first
    cdef int64_t other = (<const Transaction*>b).first
    return (one > other) - (one < other)


cdef int by_number(const void* a, const void* b) noexcept nogil:
    cdef int64_t one = (<const int64_t*>a)[0]
    cdef int64_t other = (<const int64_t*>b)[0]
    return (one > other) - (one < other)


@cython.final
@cython.no_gc                    # __dealloc__ needs the pool, which a collector could clear first; no cycle is possible
cdef class AbortedTransactions:
    """The producers with an open aborted transaction, while the batches of a partition are read in order.

    ``begin``, ``add`` and ``sort`` take the list. ``reach`` opens the transactions that begin before an offset; ``end``
    closes that of a producer at its marker. All data are in one block of the pool.
    """

    def __cinit__(self, Pool pool not None):
        self._pool = pool

    def __dealloc__(self):
        self.clear()

    cdef int64_t most(self) noexcept:
        """Return the limit of transactions in one list, which bounds its memory to that of one payload."""
        return min(<int64_t>MOST_LISTED, <int64_t>fw_most_payload(self._pool.pool) // BYTES_EACH)

    cdef void clear(self) noexcept:
        """Forget the list and release its memory."""
        if self._listed is not NULL:
            fw_give(self._pool.pool, self._listed, self._class)
        self._listed = NULL
        self._room = self._count = self._next = 0

    cdef int begin(self, int64_t count) except -1:
        """Make room for a list of ``count`` transactions, in place of the last list."""
        self.clear()
        if count == 0:
            return 0
        self._listed = <Transaction*>fw_take(self._pool.pool, <size_t>(count * BYTES_EACH), &self._class)
        if self._listed is NULL:
            raise MemoryError()
        self._room = count
        self._producers = <int64_t*>(self._listed + count)
        self._open = <uint8_t*>(self._producers + count)
        memset(self._open, 0, <size_t>count)
        return 0

    cdef void add(self, int64_t producer, int64_t first) noexcept:
        if self._count < self._room:
            self._listed[self._count] = Transaction(first, producer)
            self._producers[self._count] = producer
            self._count += 1

    cdef void sort(self) noexcept:
        """Sort the complete list; brokers need not send it in order."""
        if self._count > 1:
            qsort(self._listed, <size_t>self._count, sizeof(Transaction), by_first)
            qsort(self._producers, <size_t>self._count, sizeof(int64_t), by_number)

    cdef void reach(self, int64_t next_offset) noexcept:
        """Open the transactions that begin before ``next_offset``."""
        while self._next < self._count and self._listed[self._next].first < next_offset:
            self._open[self.place(self._listed[self._next].producer)] = 1
            self._next += 1

    cdef void end(self, int64_t producer) noexcept:
        """Close the transaction of ``producer``."""
        cdef int64_t at = self.place(producer)
        if at >= 0:
            self._open[at] = 0

    cdef bint is_open(self, int64_t producer) noexcept:
        """Return whether ``producer`` has an open aborted transaction."""
        cdef int64_t at = self.place(producer)
        return at >= 0 and self._open[at]

    cdef int64_t place(self, int64_t producer) noexcept:
        """Return the first index of ``producer`` in the block; -1 if it is not listed."""
        cdef int64_t low = 0
        cdef int64_t high = self._count
        cdef int64_t middle
        while low < high:
            middle = (low + high) // 2
            if self._producers[middle] < producer:
                low = middle + 1
            else:
                high = middle
        return low if low < self._count and self._producers[low] == producer else -1
