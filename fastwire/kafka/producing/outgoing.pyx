# cython: boundscheck=True, cdivision=True
"""Rows as the records of batches of magic 2 (spec: kafka 6), and their partitions as the Java producer chooses them.

The results equal those of ``payload.encode_records``, ``producer.weight`` and ``partitioner``.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastwire.columns.block cimport Block
from fastwire.columns.routes cimport LOOSE, Routes, weight_of_headers
from fastwire.columns.rows cimport Rows, blob, headers_of, millis, number
from fastwire.wire.reader cimport Reader, read_uvarint, reader_init
from fastwire.wire.varint cimport fw_u32le
from fastwire.wire.writer cimport MOST_BYTES_A_VARINT, put_varint, varint_size

__all__ = ["RecordBlock", "RecordRoutes"]

cdef enum:
    OVERHEAD = 24                # weight of a record beside its bytes
    SEED = 0x9747B28C
    MULTIPLIER = 0x5BD1E995


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return <uint64_t>value << 1 ^ <uint64_t>(value >> 63)


cdef inline int64_t blob_size(const uint8_t* data, int64_t size) noexcept nogil:
    return 1 if data is NULL else varint_size(zigzag(size)) + size


cdef inline uint8_t* put_blob(uint8_t* p, const uint8_t* data, int64_t size) noexcept nogil:
    if data is NULL:
        return put_varint(p, zigzag(-1))
    p = put_varint(p, zigzag(size))
    memcpy(p, data, <size_t>size)
    return p + size


cdef uint32_t murmur2(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t found = <uint32_t>SEED ^ <uint32_t>size
    cdef uint32_t word
    cdef int64_t at, whole = size & ~3
    for at in range(0, whole, 4):
        word = fw_u32le(data + at) * <uint32_t>MULTIPLIER
        word = (word ^ word >> 24) * <uint32_t>MULTIPLIER
        found = found * <uint32_t>MULTIPLIER ^ word
    if whole < size:
        word = 0
        for at in range(size - 1, whole - 1, -1):
            word = word << 8 | data[at]
        found = (found ^ word) * <uint32_t>MULTIPLIER
    found = (found ^ found >> 13) * <uint32_t>MULTIPLIER
    return found ^ found >> 15


@cython.final
cdef class RecordRoutes(Routes):
    """The routes of rows for Kafka. ``orderingKey`` must be null."""

    cdef int measure(self, int64_t row) except -1:
        cdef Rows rows = self.rows
        cdef int64_t size, micros = 0, weight = OVERHEAD
        cdef const uint8_t* data
        if blob(&rows.ordering_key, row, &size) is not NULL:
            raise ValueError('Kafka has no "ordering_key"')
        data = blob(&rows.key, row, &size)
        self.hashes[row] = LOOSE if data is NULL else <int32_t>(murmur2(data, size) & 0x7FFFFFFF)
        weight += size
        blob(&rows.value, row, &size)
        if number(&rows.event_time, row, &micros) and (micros % 1000 or micros == -1000):
            rows.changed_times += 1  # -1 is the number of no time
        self.weights[row] = weight + size + (weight_of_headers(rows, row) if rows.headers.offsets is not NULL else 0)
        return 0


@cython.final
cdef class RecordBlock(Block):
    """The records of a batch, with times relative to ``base_timestamp``, that of the first one, in milliseconds."""

    cdef Block empty(self):
        return RecordBlock()

    cdef int64_t begin(self, int64_t time) noexcept:
        """Note the time of the next record; return it relative to the first one."""
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = time
        if time > self.max_timestamp:
            self.max_timestamp = time
        return time - self.base_timestamp

    cdef int put(self, Routes routes, int64_t row) except -1:
        cdef Rows rows = routes.rows
        cdef int64_t key_size, value_size, size, first, i, body
        cdef const uint8_t* key = blob(&rows.key, row, &key_size)
        cdef const uint8_t* value = blob(&rows.value, row, &value_size)
        cdef const uint8_t* data
        cdef int64_t headers = headers_of(&rows.headers, row, &first)
        cdef int64_t micros = 0
        cdef bint timed = number(&rows.event_time, row, &micros)
        cdef uint64_t delta = zigzag(self.begin(millis(micros) if timed else routes.now_ms))
        cdef uint64_t place = zigzag(self.count)
        cdef uint8_t* p
        body = 1 + varint_size(delta) + varint_size(place) + varint_size(zigzag(headers))
        body += blob_size(key, key_size) + blob_size(value, value_size)
        for i in range(first, first + headers):
            data = blob(&rows.headers.names, i, &size)
            body += blob_size(data, size)
            data = blob(&rows.headers.values, i, &size)
            body += blob_size(data, size)
        p = put_varint(self.reserve(MOST_BYTES_A_VARINT + body), zigzag(body))
        p[0] = 0
        p = put_varint(put_varint(p + 1, delta), place)
        p = put_blob(put_blob(p, key, key_size), value, value_size)
        p = put_varint(p, zigzag(headers))
        for i in range(first, first + headers):
            data = blob(&rows.headers.names, i, &size)
            p = put_blob(p, data, size)
            data = blob(&rows.headers.values, i, &size)
            p = put_blob(p, data, size)
        return self.end_record(p)

    cdef int copy(self, Block source, int64_t record) except -1:
        """Append a record of another block under its new place and base."""
        cdef Reader r
        cdef uint64_t time, delta, place
        cdef int64_t rest, body
        cdef uint8_t* p
        cdef int64_t start = source.ends[record - 1] if record else 0
        reader_init(&r, source.data + start, source.ends[record] - start)
        read_uvarint(&r)         # the size
        r.pos += 1               # the attributes
        time = read_uvarint(&r)
        read_uvarint(&r)         # the place
        rest = r.end - r.pos
        delta = zigzag(self.begin((<RecordBlock>source).base_timestamp + <int64_t>(time >> 1 ^ (0 - (time & 1)))))
        place = zigzag(self.count)
        body = 1 + varint_size(delta) + varint_size(place) + rest
        p = put_varint(self.reserve(MOST_BYTES_A_VARINT + body), zigzag(body))
        p[0] = 0
        p = put_varint(put_varint(p + 1, delta), place)
        memcpy(p, r.pos, <size_t>rest)
        return self.end_record(p + rest)
