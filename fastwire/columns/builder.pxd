"""Growable columns over pooled memory: what every system's decoder writes records into.

A row is ``row = c.rows``; the decoder appends variable-sized cells to that row, sets its fixed cells and then raises
``rows``. Cells that are constant within a batch are filled in one go afterwards. A variable-sized column that has no
cell for a row is null there: ``filled`` says up to which row its offsets are written, so an absent column costs
nothing a row.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastwire.wire.pool cimport fw_memory, fw_pool
from fastwire.wire.varint cimport FW_STEP, fw_copy_steps

cdef enum:                       # variable-sized cells; the number is also the block of the chunk's memory
    VAR_VALUE = 1
    VAR_KEY = 2
    VAR_ORDERING_KEY = 3
    VAR_SCHEMA_VERSION = 4
    VAR_HEADER_KEY = 5           # rows of this and the next are headers, not records
    VAR_HEADER_VALUE = 6
    VAR_COUNT = 7

cdef enum:                       # further blocks of a chunk's memory
    BLOCK_ARENA = 0
    BLOCK_HEADER_CELLS = 7       # offsets and validity of the two header columns
    BLOCK_PRODUCERS = 8
    BLOCK_PRODUCER_OFFSETS = 9
    BLOCK_TOPICS = 10

cdef enum:                       # which columns are built
    HAS_KEY = 1 << 0
    HAS_VALUE = 1 << 1
    HAS_TOPIC = 1 << 2
    HAS_PARTITION = 1 << 3
    HAS_OFFSET = 1 << 4
    HAS_TIMESTAMP = 1 << 5
    HAS_TIMESTAMP_TYPE = 1 << 6
    HAS_HEADERS = 1 << 7
    HAS_LEDGER = 1 << 8
    HAS_BATCH_INDEX = 1 << 9
    HAS_EVENT_TIME = 1 << 10
    HAS_PRODUCER = 1 << 11
    HAS_SEQUENCE_ID = 1 << 12
    HAS_ORDERING_KEY = 1 << 13
    HAS_SCHEMA_VERSION = 1 << 14
    HAS_REDELIVERY_COUNT = 1 << 15
    HAS_BROKER = 1 << 16

cdef enum:
    SMALL_CELL = 512             # up to here copying in steps beats a call of memcpy

cdef struct Cells:               # one variable-sized column
    int32_t* offsets             # rows + 1
    uint8_t* validity
    uint8_t* data
    int64_t size                 # bytes of data in use
    int64_t capacity
    int64_t filled               # rows whose offsets are written
    int64_t present              # rows that are not null
    bint holes                   # there is a null; until then validity is not written

cdef struct Dictionary:          # strings that repeat: producer names
    int32_t* offsets
    uint8_t* data
    int64_t size
    int64_t capacity
    int32_t count
    int32_t slots                # of the hash table; a power of two
    int32_t* table               # entry + 1, 0 = free
    int32_t last                 # the entry that was asked for last

cdef struct Columns:
    fw_pool* pool
    fw_memory* memory
    uint32_t mask
    int64_t rows
    int64_t capacity             # rows the arena has room for
    int64_t payload              # bytes of values
    Cells cells[VAR_COUNT]
    int64_t hint[VAR_COUNT]      # what the last chunk needed
    int64_t headers              # header rows
    int64_t header_capacity
    int32_t* header_offsets      # list offsets, rows + 1
    uint8_t* header_validity
    int64_t header_filled
    int64_t header_present
    Dictionary producers
    int32_t* topic
    int32_t* partition
    int64_t* offset
    int64_t* timestamp
    int32_t* timestamp_type
    int64_t* ledger
    int32_t* batch_index
    int64_t* event_time
    uint8_t* event_time_validity
    int64_t event_time_present
    int32_t* producer
    int64_t* sequence_id
    int32_t* redelivery_count
    int32_t* broker

cdef struct Mark:                # where to go back to when a batch turns out to be damaged
    int64_t rows
    int64_t payload
    int64_t size[VAR_COUNT]
    int64_t present[VAR_COUNT]
    int64_t headers
    int64_t header_present
    int64_t event_time_present

# All of these return 0, or -1 when the system has no memory left.
cdef int columns_open(Columns* c) noexcept nogil
cdef int columns_reserve(Columns* c, int64_t rows) noexcept nogil
cdef int cells_grow(Columns* c, int which, int64_t extra) noexcept nogil
cdef int headers_grow(Columns* c, int64_t extra) noexcept nogil
cdef int dictionary_add(Columns* c, Dictionary* d, const uint8_t* text, int64_t size) noexcept nogil
cdef void columns_mark(Columns* c, Mark* mark) noexcept nogil
cdef void columns_rewind(Columns* c, const Mark* mark) noexcept nogil
cdef void columns_finish(Columns* c) noexcept nogil
cdef void columns_drop(Columns* c) noexcept nogil
cdef void cells_hole(Cells* v) noexcept nogil
cdef bint is_utf8(const uint8_t* text, int64_t size) noexcept nogil


cdef inline void set_bit(uint8_t* bits, int64_t i) noexcept nogil:
    bits[i >> 3] |= <uint8_t>(1 << (i & 7))


cdef inline void cells_fill(Cells* v, int64_t row) noexcept nogil:
    """Nulls from the first row that has no cell yet up to ``row``, which lies behind it."""
    cdef int64_t i
    if not v.holes:
        cells_hole(v)
    cdef int32_t at = <int32_t>v.size
    for i in range(v.filled, row):
        v.offsets[i] = at
    v.filled = row


cdef inline int cells_put(
    Columns* c, int which, int64_t row, const uint8_t* data, int64_t size, const uint8_t* edge
) noexcept nogil:
    """Set the cell of ``row`` (rows only ever grow) to a copy of ``data``; up to ``edge`` reading is harmless."""
    cdef Cells* v = &c.cells[which]
    if v.capacity - v.size < size:
        if cells_grow(c, which, size):
            return -1
    if v.filled < row:
        cells_fill(v, row)
    v.offsets[row] = <int32_t>v.size
    v.filled = row + 1
    if v.holes:
        set_bit(v.validity, row)
    v.present += 1
    if size <= SMALL_CELL and edge - data >= size + FW_STEP and v.capacity - v.size >= size + FW_STEP:
        fw_copy_steps(v.data + v.size, data, size)
    elif size:                   # an empty cell may come before there is any data to point at
        memcpy(v.data + v.size, data, <size_t>size)
    v.size += size
    return 0


cdef struct Lane:                # the end of a variable-sized column, while a plain loop puts cells there row by row
    int32_t* offsets
    uint8_t* data
    uint8_t* at
    int64_t room                 # for data that is copied in whole steps; below 0 = it is no column for plain loops


# A loop keeps a lane in registers: what is written to a column could be anything, so a compiler would load the column's
# own fields anew behind each cell.

cdef inline void lane_open(Lane* lane, const Cells* v, int64_t first) noexcept nogil:
    """For rows from ``first`` on; a column that has nulls, or no cell for the row before, is left to ``cells_put``."""
    lane.offsets = v.offsets
    lane.data = v.data
    lane.at = v.data + v.size
    lane.room = -1 if v.holes or v.filled != first else v.capacity - v.size - FW_STEP


cdef inline void lane_put(Lane* lane, int64_t row, const uint8_t* data, int64_t size) noexcept nogil:
    """``size`` is within ``room``, and FW_STEP bytes behind ``data`` may be read."""
    lane.offsets[row] = <int32_t>(lane.at - lane.data)
    if size <= SMALL_CELL:
        fw_copy_steps(lane.at, data, size)
    else:
        memcpy(lane.at, data, <size_t>size)
    lane.at += size
    lane.room -= size


cdef inline void lane_close(const Lane* lane, Cells* v, int64_t rows) noexcept nogil:
    """``rows`` cells were put."""
    v.size = lane.at - lane.data
    v.filled += rows
    v.present += rows


cdef inline int header_put(
    Columns* c, const uint8_t* key, int64_t key_size, const uint8_t* value, int64_t value_size
) noexcept nogil:
    """Add a header to the current row; ``value`` NULL makes it null. Keys must be UTF-8."""
    cdef int64_t row = c.headers
    if row >= c.header_capacity:
        if headers_grow(c, 1):
            return -1
    if cells_put(c, VAR_HEADER_KEY, row, key, key_size, key + key_size):
        return -1
    if value is not NULL:
        if cells_put(c, VAR_HEADER_VALUE, row, value, value_size, value + value_size):
            return -1
    c.headers = row + 1
    return 0


cdef inline void headers_close(Columns* c, int64_t row, int64_t first) noexcept nogil:
    """The current row has the headers from ``first`` on."""
    cdef int64_t i
    for i in range(c.header_filled, row + 1):
        c.header_offsets[i] = <int32_t>first
    c.header_filled = row + 1
    set_bit(c.header_validity, row)
    c.header_present += 1


cdef inline void event_time_put(Columns* c, int64_t row, int64_t micros) noexcept nogil:
    c.event_time[row] = micros
    set_bit(c.event_time_validity, row)
    c.event_time_present += 1


cdef inline int64_t columns_bytes(const Columns* c) noexcept nogil:
    """Bytes of all variable-sized cells: a chunk is as large as its keys and headers too."""
    cdef int64_t sum = c.producers.size
    cdef int which
    for which in range(1, VAR_COUNT):
        sum += c.cells[which].size
    return sum


cdef inline void fill32(int32_t* column, int64_t first, int64_t last, int32_t value) noexcept nogil:
    cdef int64_t i
    if last - first == 1:
        column[first] = value
        return
    for i in range(first, last):
        column[i] = value


cdef inline void fill64(int64_t* column, int64_t first, int64_t last, int64_t value) noexcept nogil:
    cdef int64_t i
    if last - first == 1:
        column[first] = value
        return
    for i in range(first, last):
        column[i] = value
