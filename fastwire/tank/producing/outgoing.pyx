# cython: boundscheck=True, cdivision=True
"""Rows as the messages of bundles (spec: tank 6), and their partitions.

The results equal those of ``bundle.encode_bundle``, ``producer.weight`` and ``partitioner``.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastwire.columns.block cimport Block
from fastwire.columns.routes cimport LOOSE, Routes
from fastwire.columns.rows cimport Rows, blob, headers_of, millis, number
from fastwire.wire.writer cimport MOST_BYTES_A_VARINT, put_u64le, put_varint

__all__ = ["MessageBlock", "MessageRoutes"]

cdef extern from "crc32.h" nogil:
    void fw_crc32_prepare()
    uint32_t fw_crc32(const uint8_t* data, int64_t size)

cdef enum:
    OVERHEAD = 16                # weight of a message beside its bytes
    MOST_KEY = 255
    MOST_BYTES_A_HEAD = 10       # flags, time and size of the key
    HAS_KEY = 1
    SAME_TIME = 2
    NEXT = 4
    MULTIPLIER = 0x9E3779B1
    MOST_MILLIS = 253402300799999    # a larger number is in microseconds

fw_crc32_prepare()


cdef inline uint64_t encoded_time(int64_t micros) noexcept nogil:
    """Return the number of a time: in milliseconds, unless only microseconds can express it (spec: tank 6)."""
    cdef int64_t milli = millis(micros)
    if micros > <int64_t>MOST_MILLIS and (micros % 1000 or milli > <int64_t>MOST_MILLIS):
        return <uint64_t>micros
    return <uint64_t>milli


@cython.final
cdef class MessageRoutes(Routes):
    """The routes of rows for TANK. Values must be there, ``headers`` and ``orderingKey`` must not."""

    cdef int measure(self, int64_t row) except -1:
        cdef Rows rows = self.rows
        cdef int64_t first, key_size, size, micros = 0
        cdef const uint8_t* key = blob(&rows.key, row, &key_size)
        if blob(&rows.value, row, &size) is NULL:
            raise ValueError("TANK has no null values; an empty one is possible")
        self.weights[row] = OVERHEAD + size + key_size
        if number(&rows.event_time, row, &micros) and micros <= <int64_t>MOST_MILLIS:
            rows.changed_times += micros % 1000 != 0 or micros == -1000      # -1 is the number of no time
        if headers_of(&rows.headers, row, &first):
            raise ValueError('TANK has no "properties"')
        if blob(&rows.ordering_key, row, &size) is not NULL:
            raise ValueError('TANK has no "ordering_key"')
        if key_size > MOST_KEY:
            raise ValueError(f"a key of {key_size} bytes: TANK has room for {MOST_KEY}")
        self.hashes[row] = LOOSE
        if key is not NULL:
            self.hashes[row] = <int32_t>(<uint64_t>fw_crc32(key, key_size) * <uint64_t>MULTIPLIER >> 16 & 0xFFFF)
        return 0


@cython.final
cdef class MessageBlock(Block):
    """The messages of a bundle, without sequences."""

    cdef Block empty(self):
        raise NotImplementedError("bundles are never divided")

    cdef int put(self, Routes routes, int64_t row) except -1:
        cdef Rows rows = routes.rows
        cdef int64_t key_size, value_size
        cdef const uint8_t* key = blob(&rows.key, row, &key_size)
        cdef const uint8_t* value = blob(&rows.value, row, &value_size)
        cdef int64_t given = 0
        cdef uint64_t time = <uint64_t>routes.now_ms
        cdef uint8_t* p = self.reserve(MOST_BYTES_A_HEAD + MOST_BYTES_A_VARINT + key_size + value_size)
        if number(&rows.event_time, row, &given):
            time = encoded_time(given)
        p[0] = HAS_KEY if key is not NULL else 0
        if self.count and time == self.time:
            p[0] |= SAME_TIME
            p += 1
        else:
            put_u64le(p + 1, time)
            self.time = time
            p += 9
        if key is not NULL:
            p[0] = <uint8_t>key_size
            memcpy(p + 1, key, <size_t>key_size)
            p += 1 + key_size
        p = put_varint(p, <uint64_t>value_size)
        memcpy(p, value, <size_t>value_size)
        return self.end_record(p + value_size)

    def bundled(self, *, bint sparse):
        """Return the messages of a bundle; in a ``sparse`` one each has the sequence behind that of the one before."""
        cdef bytearray found = bytearray(self.encoded())
        cdef uint8_t[:] place
        cdef int64_t record
        if sparse and self.count > 2:
            place = found
            for record in range(self.count - 2):  # not the first one and the last one
                place[self.ends[record]] |= NEXT
        return bytes(found)
