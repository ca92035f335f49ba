"""Records that hold a key and a value: a column of bytes becomes a column of keys and one of values."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from fastwire.decode.decoded cimport Records, is_null, records_of
from fastwire.wire.varint cimport fw_u32be

__all__ = ["Part", "split_pairs"]

cdef enum:
    LENGTH = 4                   # bytes before a key or a value; a length of -1 is null (spec: pulsar 23)


cdef struct Place:               # of a key or a value in a record
    const uint8_t* data          # NULL: it is null
    int32_t size


@cython.final
cdef class Part:
    """The keys or the values of pairs: the buffers of an Arrow array of bytes with 32-bit offsets."""
    cdef readonly bytearray validity
    cdef readonly bytes offsets
    cdef readonly bytes data
    cdef uint8_t* bits
    cdef int32_t* ends
    cdef uint8_t* bytes_

    @property
    def nbytes(self):
        """Memory in bytes."""
        return len(self.validity) + len(self.offsets) + len(self.data)

    cdef int open(self, int64_t rows) except -1:
        self.validity = bytearray((rows + 7) >> 3)
        self.offsets = PyBytes_FromStringAndSize(NULL, (rows + 1) * sizeof(int32_t))
        self.bits = <uint8_t*>PyByteArray_AS_STRING(self.validity)
        self.ends = <int32_t*>PyBytes_AS_STRING(self.offsets)
        self.ends[0] = 0
        return 0

    cdef int fill(self, int64_t rows) except -1:
        """Allocate the data, whose size the offsets have."""
        self.data = PyBytes_FromStringAndSize(NULL, self.ends[rows])
        self.bytes_ = <uint8_t*>PyBytes_AS_STRING(self.data)
        return 0

    cdef void measure(self, int64_t row, Place place) noexcept nogil:
        self.ends[row + 1] = self.ends[row] + place.size
        if place.data is not NULL:
            self.bits[row >> 3] |= <uint8_t>(1 << (row & 7))

    cdef void put(self, int64_t row, Place place) noexcept nogil:
        if place.size:
            memcpy(self.bytes_ + self.ends[row], place.data, place.size)


def split_pairs(column, const uint8_t[::1] chosen not None):
    """Return the keys and the values of a binary Arrow array (of the PyCapsule interface), and the rows that are bad.

    Records that are ``chosen``, by a byte that is not 0, are pairs: a key and a value, each behind its length.
    The others are values without keys, and null records have both as null. A bad row has a null key and an empty value.
    Raises ValueError for an array of another type, or another number of ``chosen``; MemoryError.
    """
    cdef Records records
    held = records_of(&records, column, 0)
    if chosen.shape[0] != records.count:
        raise ValueError(f"{chosen.shape[0]} marks for {records.count} records")
    cdef Part keys = Part.__new__(Part)
    cdef Part values = Part.__new__(Part)
    cdef int64_t row
    cdef Place key, value
    cdef const uint8_t* marks
    bad = []
    keys.open(records.count)
    values.open(records.count)
    marks = &chosen[0] if records.count else NULL
    for row in range(records.count):
        if not locate(&records, row, marks[row], &key, &value):
            bad.append(row)
        keys.measure(row, key)
        values.measure(row, value)
    keys.fill(records.count)
    values.fill(records.count)
    with nogil:
        for row in range(records.count):
            locate(&records, row, marks[row], &key, &value)
            keys.put(row, key)
            values.put(row, value)
    del held
    return keys, values, bad


cdef bint locate(const Records* records, int64_t row, bint is_pair, Place* key, Place* value) noexcept nogil:
    """Find the key and the value of a record; return False if it is no pair, though it should be one."""
    cdef const uint8_t* p = records.data + records.offsets[records.shift + row]
    cdef const uint8_t* end = records.data + records.offsets[records.shift + row + 1]
    key[0] = value[0] = Place(data=NULL, size=0)
    if is_null(records, row):
        return True
    value[0] = Place(data=p, size=<int32_t>(end - p))
    if not is_pair:
        return True
    if read_part(&p, end, key) and read_part(&p, end, value) and p == end:
        return True
    key[0] = Place(data=NULL, size=0)
    value[0] = Place(data=end, size=0)
    return False


cdef bint read_part(const uint8_t** p, const uint8_t* end, Place* place) noexcept nogil:
    cdef int32_t size
    if end - p[0] < LENGTH:
        return False
    size = <int32_t>fw_u32be(p[0])
    p[0] += LENGTH
    if size == -1:
        place[0] = Place(data=NULL, size=0)
        return True
    if size < 0 or size > end - p[0]:
        return False
    place[0] = Place(data=p[0], size=size)
    p[0] += size
    return True
