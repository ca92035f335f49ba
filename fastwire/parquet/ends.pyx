"""Statistics of column chunks and pages, from the encoded values (parquet.thrift, Statistics and ColumnOrder)."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from fastwire.parquet.buffer cimport Bytes, bytes_drop, bytes_reserve
from fastwire.parquet.schema cimport (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    ORDER_DECIMAL,
    ORDER_NONE,
    ORDER_UNSIGNED,
    Node,
)

import struct as _struct

from fastwire.parquet.thrift import BINARY, FALSE, TRUE, binary

cdef enum:
    LONGEST = 64                 # bytes of a text in the statistics

cdef uint64_t TOP = 1ull << 63

ctypedef fused Number:
    int32_t
    int64_t
    uint32_t
    uint64_t


cdef inline void ends_of(const Number* values, int64_t count, Number* low, Number* high) noexcept nogil:
    cdef int64_t i
    cdef Number least = values[0], most = values[0]
    for i in range(1, count):
        least = min(least, values[i])
        most = max(most, values[i])
    low[0] = least
    high[0] = most


@cython.final
cdef class Ends:

    def __init__(self, Node node):
        self.node = node

    def __dealloc__(self):
        bytes_drop(&self.first)
        bytes_drop(&self.last)

    cdef int take(self, const uint8_t* data, int64_t size, int64_t count) except -1:
        """Take ``count`` values of the encoding PLAIN in ``size`` bytes."""
        cdef int32_t a = 0, b = 0
        cdef uint32_t c = 0, d = 0
        cdef int64_t e = 0, f = 0
        cdef uint64_t g = 0, h = 0
        cdef int failed = 0
        if not count or self.node.order == ORDER_NONE:
            return 0
        if self.node.physical == INT32:
            if self.node.order == ORDER_UNSIGNED:
                ends_of[uint32_t](<const uint32_t*>data, count, &c, &d)
                e, f = c, d
            else:
                ends_of[int32_t](<const int32_t*>data, count, &a, &b)
                e, f = a, b
            self.integers(e, f)
        elif self.node.physical == INT64:
            if self.node.order == ORDER_UNSIGNED:
                ends_of[uint64_t](<const uint64_t*>data, count, &g, &h)
                e, f = <int64_t>(g ^ TOP), <int64_t>(h ^ TOP)  # in the order of signed numbers
            else:
                ends_of[int64_t](<const int64_t*>data, count, &e, &f)
            self.integers(e, f)
        elif self.node.physical == FLOAT:
            self.reals(data, count, False)
        elif self.node.physical == DOUBLE:
            self.reals(data, count, True)
        elif self.node.physical == BOOLEAN:
            self.bools(data, count)
        else:
            with nogil:
                failed = self.texts(data, count)
            if failed:
                raise MemoryError()
        return 0

    cdef void integers(self, int64_t low, int64_t high) noexcept:
        self.low = min(self.low, low) if self.known else low
        self.high = max(self.high, high) if self.known else high
        self.known = True

    cdef void reals(self, const uint8_t* data, int64_t count, bint wide) noexcept:
        cdef int64_t i
        cdef double value
        for i in range(count):
            value = (<const double*>data)[i] if wide else <double>(<const float*>data)[i]
            if value != value:
                continue                     # not a number: in no order
            if not self.known:
                self.least = self.greatest = value
                self.known = True
            elif value < self.least:
                self.least = value
            elif value > self.greatest:
                self.greatest = value

    cdef void bools(self, const uint8_t* bits, int64_t count) noexcept:
        cdef int64_t i
        cdef int value
        for i in range(count):
            value = (bits[i >> 3] >> (i & 7)) & 1
            self.integers(value, value)

    cdef int texts(self, const uint8_t* data, int64_t count) noexcept nogil:
        cdef int64_t size = self.node.length
        cdef int32_t told
        for _ in range(count):
            if self.node.physical == BYTE_ARRAY:
                memcpy(&told, data, 4)
                size = told
                data += 4
            if not self.known:
                if keep(&self.first, data, size) or keep(&self.last, data, size):
                    return -1
                self.known = True
            else:
                if self.compare(data, size, &self.first) < 0 and keep(&self.first, data, size):
                    return -1
                if self.compare(data, size, &self.last) > 0 and keep(&self.last, data, size):
                    return -1
            data += size
        return 0

    cdef int compare(self, const uint8_t* data, int64_t size, const Bytes* other) noexcept nogil:
        cdef int found
        if self.node.order == ORDER_DECIMAL and (data[0] ^ other.data[0]) & 0x80:
            return -1 if data[0] & 0x80 else 1
        found = memcmp(data, other.data, <size_t>min(size, other.size))
        return found if found else (size > other.size) - (size < other.size)

    cdef int join(self, Ends other) except -1:
        """Take the values that ``other`` has taken."""
        if not other.known:
            return 0
        if self.node.physical in (INT32, INT64, BOOLEAN):
            self.integers(other.low, other.high)
        elif self.node.physical in (FLOAT, DOUBLE):
            self.least = min(self.least, other.least) if self.known else other.least
            self.greatest = max(self.greatest, other.greatest) if self.known else other.greatest
        else:
            if not self.known or self.compare(other.first.data, other.first.size, &self.first) < 0:
                if keep(&self.first, other.first.data, other.first.size):
                    raise MemoryError()
            if not self.known or self.compare(other.last.data, other.last.size, &self.last) > 0:
                if keep(&self.last, other.last.data, other.last.size):
                    raise MemoryError()
        self.known = True
        return 0

    cpdef tuple bounds(self):
        """Return the encoded bounds: (low, low is a value, high or None, high is a value); None without an order."""
        if not self.known:
            return None
        low_exact = high_exact = True
        if self.node.physical == INT32:
            code = "<I" if self.node.order == ORDER_UNSIGNED else "<i"
            low, high = _struct.pack(code, self.low), _struct.pack(code, self.high)
        elif self.node.physical == INT64:
            if self.node.order == ORDER_UNSIGNED:
                low = _struct.pack("<Q", <uint64_t>self.low ^ TOP)
                high = _struct.pack("<Q", <uint64_t>self.high ^ TOP)
            else:
                low, high = _struct.pack("<q", self.low), _struct.pack("<q", self.high)
        elif self.node.physical == BOOLEAN:
            low, high = bytes((self.low,)), bytes((self.high,))
        elif self.node.physical in (FLOAT, DOUBLE):
            # Zero has two signs, which readers may tell apart.
            code = "<f" if self.node.physical == FLOAT else "<d"
            low = _struct.pack(code, -0.0 if self.least == 0 else self.least)
            high = _struct.pack(code, 0.0 if self.greatest == 0 else self.greatest)
        else:
            low, high = self.first.data[:self.first.size], self.last.data[:self.last.size]
            if self.node.order != ORDER_DECIMAL:
                low, low_exact = shortened(low, self.node.text), len(low) <= LONGEST
                high, high_exact = greater(high, self.node.text), len(high) <= LONGEST
        return low, low_exact, high, high_exact

    cdef list fields(self):
        """Return the encoded fields of parquet.thrift's Statistics, the count of nulls left aside."""
        bounds = self.bounds()
        if bounds is None:
            return []
        low, low_exact, high, high_exact = bounds
        fields = []
        if high is not None:
            fields.append((5, BINARY, binary(high)))
        fields.append((6, BINARY, binary(low)))
        if high is not None:
            fields.append((7, TRUE if high_exact else FALSE, b""))
        fields.append((8, TRUE if low_exact else FALSE, b""))
        return fields


cdef int keep(Bytes* to, const uint8_t* data, int64_t size) noexcept nogil:
    to.size = 0
    if bytes_reserve(to, size + 1):
        return -1
    memcpy(to.data, data, <size_t>size)
    to.size = size
    return 0


cdef bytes shortened(bytes value, bint text):
    """The beginning of a value, of whole characters if it is text: not greater than the value."""
    if len(value) <= LONGEST:
        return value
    if not text:
        return value[:LONGEST]
    return value[:LONGEST].decode("utf-8", "ignore").encode()


cdef object greater(bytes value, bint text):
    """A short value that is not less than ``value``; None if there is none."""
    if len(value) <= LONGEST:
        return value
    if not text:
        cut = value[:LONGEST].rstrip(b"\xff")
        return cut[:-1] + bytes((cut[-1] + 1,)) if cut else None
    letters = value[:LONGEST].decode("utf-8", "ignore")
    while letters:
        letters, number = letters[:-1], ord(letters[len(letters) - 1]) + 1
        if number == 0xD800:
            number = 0xE000                  # surrogates are no characters
        if number <= 0x10FFFF:
            return (letters + chr(number)).encode()
    return None
