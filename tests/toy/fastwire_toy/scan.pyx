"""The hot loop of a toy connection: decodes the records of fetch responses into columns."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.builder cimport (
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
    int32s,
    int64s,
)
from fastwire.columns.logs cimport LogTable
from fastwire.columns.scan cimport STOP_FOUND, ChunkScanner
from fastwire.wire.pool cimport Pool
from fastwire.wire.reader cimport Reader, read_span, read_u32be, read_u64be, reader_error, reader_init
from fastwire.wire.varint cimport fw_u32be

from fastwire.errors import ProtocolError

from .columns import ROW

__all__ = ["Slot", "Scanner"]

cdef enum:
    HEAD = 5                     # size and kind of a frame


cdef class Slot:
    """The read position of a partition: ``offset`` is that of the next record."""
    cdef readonly int index
    cdef readonly int partition
    cdef public int64_t offset
    cdef int64_t largest

    def __cinit__(self, int index, int partition, int64_t offset):
        self.index = index
        self.partition = partition
        self.offset = offset


cdef class Scanner(ChunkScanner):
    """Decodes the bytes of one connection. Fetched records are those of the partition of ``slot``.

    ``take_found`` returns the JSON text of an answer, empty for records.
    """
    cdef public Slot slot

    def __cinit__(self, LogTable table not None, Pool pool not None, *, columns=None):
        self.prepare(table, pool, ROW, columns, "stop", 1 << 18, None)

    cdef int run(self) except -1:
        """Decode one answer."""
        cdef const uint8_t* p = self.buffer.data + self.buffer.start
        cdef int64_t present = self.buffer.end - self.buffer.start
        cdef int64_t size
        if present < HEAD:
            return self.need(HEAD)
        size = 4 + <int64_t>fw_u32be(p)
        if size < HEAD or size > self.most_frame or p[4] > (self.slot is not None):
            raise ProtocolError("size", 0, detail=f"a frame of {size} bytes and kind {p[4]}")
        if present < size:
            return self.need(size)
        if p[4] == 0:
            self.found = PyBytes_FromStringAndSize(<const char*>(p + HEAD), size - HEAD)
        else:
            self.found = b""
            self.records(self.slot, p + HEAD, size - HEAD)
        self.buffer.start += size
        self.frames += 1
        return STOP_FOUND

    cdef int records(self, Slot slot, const uint8_t* p, int64_t size) except -1:
        """Decode the records of a fetch. ``slot`` moves on when all of them are sound."""
        cdef Columns* c = &self.open.columns
        cdef Reader r
        cdef int64_t span, first, next_offset = slot.offset
        self.open.begin()
        span = self.open.begin_span(slot.index, slot.offset, 0)
        first = c.rows
        reader_init(&r, p, <Py_ssize_t>size)
        while r.pos < r.end:
            self.record(slot, next_offset, &r)
            if r.fault:
                raise reader_error(&r, "record")
            next_offset += 1
        slot.offset = next_offset
        self.open.places.spans[span].end_a = next_offset
        self.open.places.spans[span].rows += c.rows - first
        self.took(slot.index, size, first, &slot.largest)
        return 0

    cdef int record(self, Slot slot, int64_t offset, Reader* r) except -1:
        """Append the record at ``offset``, unless its bytes are cut short."""
        cdef Columns* c = &self.open.columns
        cdef int64_t row = c.rows
        cdef int64_t milli, size
        cdef const uint8_t* data
        if row >= c.capacity and columns_reserve(c, 1):
            raise MemoryError()
        milli = <int64_t>read_u64be(r)
        data = cell(r, &size)
        if data is not NULL and has(c.mask, COL_KEY) and cells_put(c, VAR_KEY, row, data, size, r.end):
            raise MemoryError()
        data = cell(r, &size)
        if data is not NULL and has(c.mask, COL_VALUE) and cells_put(c, VAR_VALUE, row, data, size, r.end):
            raise MemoryError()
        c.payload += size
        if r.fault:
            return 0             # the caller ends the connection, and the chunk with it
        if has(c.mask, COL_TOPIC):
            int32s(c, COL_TOPIC)[row] = self.table.topic_of(self.table.logs[slot.index])
        if has(c.mask, COL_PARTITION):
            int32s(c, COL_PARTITION)[row] = slot.partition
        if has(c.mask, COL_OFFSET):
            int64s(c, COL_OFFSET)[row] = offset
        if has(c.mask, COL_TIMESTAMP):
            int64s(c, COL_TIMESTAMP)[row] = milli * 1000
        if has(c.mask, COL_TIMESTAMP_TYPE):
            int32s(c, COL_TIMESTAMP_TYPE)[row] = 0
        c.rows = row + 1
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
