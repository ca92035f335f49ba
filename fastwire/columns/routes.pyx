# cython: boundscheck=True, cdivision=True
"""Routing of rows to partitions: by the request of a row, else by its key, else to the current partition."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, malloc

from fastwire.columns.builder cimport is_utf8
from fastwire.columns.rows cimport blob, headers_of, is_valid, number

__all__ = ["Routes"]


cdef class Routes:
    """The rows of a batch with their weights and the hashes of their keys; systems derive from it.

    Rows without an event time get the time ``now_ms``. ``step`` hands the rows out in their order. Raises ValueError
    for a row that the system cannot store.
    """

    def __cinit__(self, Rows rows not None, int64_t now_ms, *_):
        cdef size_t room = <size_t>rows.count + 1
        self.rows = rows
        self.now_ms = now_ms
        self.lowest, self.highest = 0, -1
        self.weights = <int64_t*>malloc(room * sizeof(int64_t))
        self.hashes = <int32_t*>malloc(room * sizeof(int32_t))
        self.order = <int32_t*>malloc(room * sizeof(int32_t))
        self.targets = <int32_t*>malloc(room * sizeof(int32_t))
        if self.weights is NULL or self.hashes is NULL or self.order is NULL or self.targets is NULL:
            raise MemoryError()

    def __init__(self, Rows rows, int64_t now_ms, *_):
        cdef int64_t row, wanted
        for row in range(rows.count):
            self.measure(row)
            wanted = 0
            if number(&rows.partition, row, &wanted):
                if self.highest < self.lowest:
                    self.lowest = self.highest = wanted
                self.lowest, self.highest = min(self.lowest, wanted), max(self.highest, wanted)

    def __dealloc__(self):
        free(self.weights)
        free(self.hashes)
        free(self.order)
        free(self.targets)

    cdef int measure(self, int64_t row) except -1:
        """Set the weight of a row and the hash of its key. Raises ValueError if the system cannot store the row."""
        raise NotImplementedError

    cdef int64_t requested_of(self, int64_t row) noexcept nogil:
        """Return the requested partition of a row, or -1."""
        cdef int64_t wanted = -1
        if not number(&self.rows.partition, row, &wanted):
            return -1
        return wanted

    cdef bint is_loose(self, int64_t row) noexcept nogil:
        return self.hashes[row] == LOOSE and self.requested_of(row) < 0

    @property
    def left(self):
        """The number of rows that no step has returned yet."""
        return self.rows.count - self.next

    @property
    def requested(self):
        """The lowest and the highest requested partition; an empty tuple without any."""
        return (self.lowest, self.highest) if self.lowest <= self.highest else ()

    @property
    def begins_loose(self):
        """True if the next row goes to the current partition."""
        return self.next < self.rows.count and self.is_loose(self.next)

    def step(self, int64_t partitions, int64_t current, tuple room not None, int64_t most_bytes):
        """Return the next rows, up to ``most_bytes``, and at least one: a list of (partition, first, stop, weight).

        ``first`` and ``stop`` are for ``Block.add``, and valid until the next call. Rows without a key and a request go
        to ``current``. ``room`` is the number of records and bytes that complete its open batch: when this step has
        completed it, the step ends before such a row. ``partitions`` must be above all requests.
        """
        cdef int64_t* ends
        cdef int64_t* sums
        cdef int64_t row, target, weight, total = 0
        cdef int64_t first = self.next
        cdef int64_t room_records, room_bytes
        room_records, room_bytes = room
        if partitions < 1 or not 0 <= current < partitions or self.highest >= partitions or self.lowest < 0:
            raise ValueError(f"no partition {current}, or one that is requested, of {partitions}")
        ends = <int64_t*>calloc(<size_t>partitions, sizeof(int64_t))
        sums = <int64_t*>calloc(<size_t>partitions, sizeof(int64_t))
        if ends is NULL or sums is NULL:
            free(ends)
            free(sums)
            raise MemoryError()
        with nogil:
            while self.next < self.rows.count:
                row, weight = self.next, self.weights[self.next]
                if total and total + weight > most_bytes:
                    break
                target = self.requested_of(row)
                if target < 0 and self.hashes[row] == LOOSE:
                    if (room_records <= 0 or room_bytes <= 0) and row > first:
                        break
                    target = current
                elif target < 0:
                    target = self.hashes[row] % partitions
                if target == current:
                    room_records -= 1
                    room_bytes -= weight
                self.targets[row] = <int32_t>target
                ends[target] += 1
                sums[target] += weight
                total += weight
                self.next += 1
        try:
            return self._shares(partitions, first, ends, sums)
        finally:
            free(ends)
            free(sums)

    cdef list _shares(self, int64_t partitions, int64_t first, int64_t* ends, int64_t* sums):
        cdef int64_t row, target, at = 0, count
        shares = []
        for target in range(partitions):
            count = ends[target]
            if count:
                shares.append((target, at, at + count, sums[target]))
            ends[target] = at
            at += count
        for row in range(first, self.next):
            target = self.targets[row]
            self.order[ends[target]] = <int32_t>row
            ends[target] += 1
        return shares


cdef int64_t weight_of_headers(Rows rows, int64_t row) except -1:
    """Return the weight of the headers of a row. Raises ValueError for one without a key in UTF-8."""
    cdef int64_t first, i, size, other, weight = 0
    cdef int64_t count = headers_of(&rows.headers, row, &first)
    cdef const uint8_t* name
    for i in range(first, first + count):
        name = blob(&rows.headers.names, i, &size)
        if name is NULL or not is_valid(rows.headers.pair_validity, i):
            raise ValueError("a header has no key")
        if not is_utf8(name, size):
            raise ValueError("the key of a header is not UTF-8")
        blob(&rows.headers.values, i, &other)
        weight += size + other + 8
    return weight
