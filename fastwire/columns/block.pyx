# cython: boundscheck=True, cdivision=True
"""The encoded records of a batch that is written: bytes in a buffer that grows, and where each record ends."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from fastwire.wire.array cimport array_grown

__all__ = ["Block"]

cdef enum:
    FIRST_BYTES = 4096


cdef class Block:
    """Records of one batch, encoded; systems derive from it. ``weight`` is their size as producers count it."""

    def __dealloc__(self):
        free(self.data)
        free(self.ends)
        free(self.origins)

    def __len__(self):
        """Return the number of records."""
        return self.count

    def add(self, Routes routes, int64_t first, int64_t stop, int64_t most_records, int64_t most_bytes):
        """Append rows of a share of ``Routes.step`` while there is room for them, and at least one to an empty block.

        Returns the next one, ``stop`` if all are taken. A block is full at ``most_records``, or at a weight of
        ``most_bytes``.
        """
        cdef int64_t row
        if not 0 <= first <= stop <= routes.rows.count:
            raise ValueError(f"rows {first} to {stop} of {routes.rows.count}")
        while first < stop and self.count < most_records and self.weight < most_bytes:
            row = routes.order[first]
            if self.count and self.weight + routes.weights[row] > most_bytes:
                break
            self.note_origin(routes.rows.origin + row if routes.rows.origin >= 0 else -1)
            self.put(routes, row)
            self.weight += routes.weights[row]
            first += 1
        return first

    def encoded(self, int64_t record=-1):
        """Return the bytes of all records, or of one. Raises IndexError."""
        cdef int64_t start = 0, end = self.size
        if record >= 0:
            if record >= self.count:
                raise IndexError(f"record {record} of {self.count}")
            start, end = self.ends[record - 1] if record else 0, self.ends[record]
        return PyBytes_FromStringAndSize(<char*>self.data + start, end - start)

    def halves(self):
        """Return two blocks, with the records of this one. The weight is divided by the number of bytes."""
        cdef Block one = self.empty()
        cdef Block other = self.empty()
        cdef int64_t record, middle = self.count // 2
        for record in range(middle):
            one.note_origin(self.origins[record])
            one.copy(self, record)
        for record in range(middle, self.count):
            other.note_origin(self.origins[record])
            other.copy(self, record)
        if self.size:
            one.weight = <int64_t>(<double>self.weight * (self.ends[middle - 1] if middle else 0) / self.size)
        other.weight = self.weight - one.weight
        return one, other

    @property
    def origin_numbers(self):
        """The number of each record among those of ``Rows`` with an origin, as a list; -1 for one without."""
        cdef int64_t record
        return [self.origins[record] for record in range(self.count)]

    cdef int note_origin(self, int64_t origin) except -1:
        """Note the number of the record that is put or copied next."""
        cdef int64_t* origins = <int64_t*>array_grown(
            self.origins, &self.origins_room, self.count + 1, sizeof(int64_t)
        )
        if origins is NULL:
            raise MemoryError()
        self.origins = origins
        origins[self.count] = origin
        return 0

    cdef Block empty(self):
        """Return a new block for records of this one."""
        raise NotImplementedError

    cdef int put(self, Routes routes, int64_t row) except -1:
        """Append a row."""
        raise NotImplementedError

    cdef int copy(self, Block source, int64_t record) except -1:
        """Append a record of another block of the same kind."""
        cdef int64_t start = source.ends[record - 1] if record else 0
        cdef int64_t size = source.ends[record] - start
        cdef uint8_t* p = self.reserve(size)
        memcpy(p, source.data + start, <size_t>size)
        return self.end_record(p + size)

    cdef uint8_t* reserve(self, int64_t size) except NULL:
        """Return the place of the next record, with room for ``size`` bytes and at least one."""
        cdef int64_t room = self.room if self.room else FIRST_BYTES
        cdef void* grown
        cdef int64_t* ends = <int64_t*>array_grown(self.ends, &self.ends_room, self.count + 1, sizeof(int64_t))
        if ends is NULL:
            raise MemoryError()
        self.ends = ends
        while room - self.size <= size:
            room *= 2
        if room > self.room:
            grown = realloc(self.data, <size_t>room)
            if grown is NULL:
                raise MemoryError()
            self.data = <uint8_t*>grown
            self.room = room
        return self.data + self.size

    cdef int end_record(self, uint8_t* end) except -1:
        """Note that a record is written up to ``end``."""
        self.size = end - self.data
        self.ends[self.count] = self.size
        self.count += 1
        return 0
