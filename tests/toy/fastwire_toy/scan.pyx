"""The hot loop of a toy connection: decodes the records of fetch responses into columns."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.builder cimport (
    COL_HEADERS,
    COL_KEY,
    COL_OFFSET,
    COL_PARTITION,
    COL_TIMESTAMP,
    COL_TIMESTAMP_TYPE,
    COL_TOPIC,
    COL_VALUE,
    VAR_KEY,
    VAR_VALUE,
    Columns,
    cells_put,
    columns_reserve,
    has,
    header_put,
    headers_close,
    int32s,
    int64s,
)
from fastwire.columns.chunk cimport SpanRow
from fastwire.columns.logs cimport LogTable
from fastwire.columns.open cimport OUTPUT_CAP_BYTES
from fastwire.columns.scan cimport GO_ON, STOP_CHUNK_FULL, STOP_NEED_BYTES, STOP_OUTPUT_CAP, STOP_OWN, ChunkScanner
from fastwire.wire.pool cimport Pool
from fastwire.wire.reader cimport Reader, read_span, read_u16be, read_u32be, read_u64be, reader_error, reader_init
from fastwire.wire.varint cimport fw_u32be

from enum import IntEnum

from fastwire.errors import ProtocolError

from .columns import ROW

__all__ = ["Place", "Scanner", "Stop"]

cdef enum:
    HEAD = 9                     # size, kind and number of a frame
    STOP_ANSWER = STOP_OWN


class Stop(IntEnum):
    """Reason of the return of ``Scanner.scan``. The caller handles it and calls again."""

    NEED_BYTES = STOP_NEED_BYTES
    CHUNK_FULL = STOP_CHUNK_FULL
    OUTPUT_CAP = STOP_OUTPUT_CAP
    ANSWER = STOP_ANSWER


cdef class Place:
    """Where a partition is read: ``offset`` is that of the next record."""
    cdef readonly int index
    cdef public int64_t offset
    cdef int32_t partition
    cdef int64_t largest
    cdef unsigned long long chunk
    cdef int64_t span

    def __cinit__(self, int index, int partition, int64_t offset):
        self.index = index
        self.partition = partition
        self.offset = offset


cdef class Scanner(ChunkScanner):
    """Decodes the bytes of one connection. ``expect`` announces the fetches whose records are decoded."""
    cdef dict places             # by number of the request
    cdef object answer

    def __cinit__(self, LogTable table not None, Pool pool not None, *, columns=None):
        self.prepare(table, pool, ROW, columns, "stop", 1 << 18, None)
        self.places = {}

    def expect(self, int request, Place place not None):
        """Decode the records of the answer to ``request`` as those of ``place``."""
        self.places[request] = place

    def take_answer(self):
        """Return the number of an answered request, and the JSON text (empty for records)."""
        return self.answer

    cdef int run(self) except -1:
        cdef const uint8_t* p = self.buffer.data + self.buffer.start
        cdef int64_t present = self.buffer.end - self.buffer.start
        cdef int64_t size, request
        cdef int stop
        if present < HEAD:
            return self.need(HEAD)
        size = 4 + <int64_t>fw_u32be(p)
        if size < HEAD or size > self.most_frame or p[4] > 1:
            raise ProtocolError("size", 0, detail=f"a frame of {size} bytes and kind {p[4]}")
        if present < size:
            return self.need(size)
        request = fw_u32be(p + 5)
        place = self.places.get(request)
        text = b""
        if p[4] == 0:
            text = PyBytes_FromStringAndSize(<const char*>(p + HEAD), size - HEAD)
        elif place is None:
            raise ProtocolError("number", 5, detail=f"records for request {request}, which is no fetch")
        else:
            if self.produced >= OUTPUT_CAP_BYTES:
                return STOP_OUTPUT_CAP
            stop = self.records(place, p + HEAD, size - HEAD)
            if stop != GO_ON:
                return stop
        self.places.pop(request, None)
        self.buffer.start += size
        self.frames += 1
        self.answer = request, text
        return STOP_ANSWER

    cdef int records(self, Place place, const uint8_t* p, int64_t size) except -1:
        """Decode the records of a fetch; those before the place have landed and are left out."""
        cdef Columns* c = &self.open.columns
        cdef SpanRow* span
        cdef Reader r
        cdef int64_t offset, first
        if self.open.full(1, size):
            return STOP_CHUNK_FULL
        self.open.begin()
        if place.chunk != self.open.number:
            place.span = self.open.begin_span(place.index, place.offset, 0)
            place.chunk = self.open.number
        first = c.rows
        reader_init(&r, p, <Py_ssize_t>size)
        while r.pos < r.end:
            offset = <int64_t>read_u64be(&r)
            if offset >= place.offset:
                self.record(place, offset, &r)
                place.offset = offset + 1
            else:
                self.pass_by(&r)
            if r.fault:
                raise reader_error(&r, "record")
        span = &self.open.places.spans[place.span]
        span.end_a = place.offset
        span.rows += c.rows - first
        self.took(place.index, size, first, &place.largest)
        return GO_ON

    cdef int record(self, Place place, int64_t offset, Reader* r) except -1:
        cdef Columns* c = &self.open.columns
        cdef int64_t row = c.rows
        cdef int64_t milli, size, headers
        cdef int64_t first = c.headers
        cdef const uint8_t* key
        cdef int64_t key_size = 0
        if row >= c.capacity and columns_reserve(c, 1):
            raise MemoryError()
        milli = <int64_t>read_u64be(r)
        key = cell(r, &size)
        if key is not NULL and has(c.mask, COL_KEY) and cells_put(c, VAR_KEY, row, key, size, r.end):
            raise MemoryError()
        key = cell(r, &size)
        if key is not NULL and has(c.mask, COL_VALUE) and cells_put(c, VAR_VALUE, row, key, size, r.end):
            raise MemoryError()
        c.payload += size
        headers = read_u16be(r)
        for _ in range(headers):
            key = cell(r, &key_size)
            value = cell(r, &size)
            if key is not NULL and has(c.mask, COL_HEADERS) and header_put(c, key, key_size, value, size):
                raise MemoryError()
        if r.fault:
            return 0             # the caller ends the connection, and the chunk with it
        if headers and has(c.mask, COL_HEADERS):
            headers_close(c, row, first)
        if has(c.mask, COL_TOPIC):
            int32s(c, COL_TOPIC)[row] = self.table.topic_of(self.table.logs[place.index])
        if has(c.mask, COL_PARTITION):
            int32s(c, COL_PARTITION)[row] = place.partition
        if has(c.mask, COL_OFFSET):
            int64s(c, COL_OFFSET)[row] = offset
        if has(c.mask, COL_TIMESTAMP):
            int64s(c, COL_TIMESTAMP)[row] = milli * 1000
        if has(c.mask, COL_TIMESTAMP_TYPE):
            int32s(c, COL_TIMESTAMP_TYPE)[row] = 0
        c.rows = row + 1
        return 0

    cdef int pass_by(self, Reader* r) except -1:
        """Read a record that has landed, without keeping it."""
        cdef int64_t size
        read_u64be(r)
        cell(r, &size)
        cell(r, &size)
        for _ in range(2 * read_u16be(r)):
            cell(r, &size)
        return 0


cdef inline const uint8_t* cell(Reader* r, int64_t* size) noexcept:
    """Return the bytes of a key or value and their ``size``; NULL and 0 for null."""
    cdef const uint8_t* found
    size[0] = <int32_t>read_u32be(r)
    if size[0] == -1:
        size[0] = 0
        return NULL
    found = read_span(r, <Py_ssize_t>size[0])
    if found is NULL:
        size[0] = 0
    return found
