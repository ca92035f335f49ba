"""Growable columns over pooled memory, into which the decoders of all systems write records.

A row is ``row = c.rows``; the decoder appends variable-sized cells to that row, sets its fixed cells and then raises
``rows``. Cells that are constant within a batch are filled in one go afterwards. A variable-sized column that has no
cell for a row is null there: ``filled`` says up to which row its offsets are written, so an absent column costs
nothing a row.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastwire.wire.pool cimport fw_memory, fw_pool
from fastwire.wire.varint cimport FW_STEP, fw_copy_steps

cdef enum:                       # numbers of columns: those that all systems share
    COL_KEY = 0
    COL_VALUE = 1
    COL_TOPIC = 2
    COL_PARTITION = 3
    COL_OFFSET = 4
    COL_TIMESTAMP = 5
    COL_TIMESTAMP_TYPE = 6
    COL_HEADERS = 7
    COL_OWN = 8                  # a system numbers its own columns from here
    MOST_COLUMNS = 32            # as many as the mask has bits

cdef enum:                       # places of variable-sized cells
    VAR_VALUE = 0
    VAR_KEY = 1
    VAR_HEADER_KEY = 2           # rows of this and the next are headers, not records
    VAR_HEADER_VALUE = 3
    VAR_OWN = 4                  # a system's own ``bytes`` columns begin here, in the order of its row

cdef enum:                       # at most so many of a row are ...
    MOST_CELLS = 8               # variable-sized
    MOST_STRINGS = 2             # strings
    MOST_RARE = 2                # rare times

cdef enum:                       # blocks of a chunk's memory
    BLOCK_ARENA = 0
    BLOCK_CELLS = 1              # one for each variable-sized column
    BLOCK_HEADER_CELLS = BLOCK_CELLS + MOST_CELLS      # offsets and validity of the halves of the headers
    BLOCK_STRINGS = BLOCK_HEADER_CELLS + 1             # two for each column of strings: text, and offsets
    BLOCK_TOPICS = BLOCK_STRINGS + 2 * MOST_STRINGS

cdef enum Storage:               # how a column is stored; ``fastwire.columns.schema`` says what each is
    STORE_INT32
    STORE_INT64
    STORE_TIME
    STORE_RARE_TIME
    STORE_BYTES
    STORE_STRINGS
    STORE_TOPIC
    STORE_HEADERS

cdef struct Layout:              # the row of one system, see RowLayout
    int count
    int number[MOST_COLUMNS]     # of each column, in the order of the row
    Storage storage[MOST_COLUMNS]              # by number, as all that follows
    const char* name[MOST_COLUMNS]
    int place[MOST_COLUMNS]      # among the variable-sized cells, the strings or the rare times
    int rare_count
    int rare[MOST_RARE]          # numbers of the rare times

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

cdef struct Dictionary:          # strings that repeat
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
    const Layout* layout
    uint32_t mask
    int64_t rows
    int64_t capacity             # rows the arena has room for
    int64_t room                 # bytes by which blocks may still grow for the current entry
    bint over                    # the entry needs more than ``room``
    int64_t payload              # bytes of values
    void* fixed[MOST_COLUMNS]    # numbers, times, indexes, or the offsets of cells and headers; NULL: not built
    uint8_t* validity[MOST_COLUMNS]
    int64_t present[MOST_COLUMNS]              # of times, when the chunk is finished: rows that are not null
    int64_t rare[MOST_RARE]      # of rare times: rows that are not null
    Cells cells[MOST_CELLS]      # without offsets: not built
    int64_t hint[MOST_CELLS]     # bytes of cells that the last chunk needed
    Dictionary strings[MOST_STRINGS]
    bint timeless                # some time may be NO_TIME
    int64_t unfit_times          # times beyond LAST_MILLI, either way; the nearest one that fits stands for them
    int64_t headers              # header rows
    int64_t header_capacity
    int64_t header_filled
    int64_t header_present

cdef enum:
    NO_TIME = -4611686018427387904   # as a timestamp: null; no whole number of milliseconds
    LAST_MILLI = 9223372036854775    # the most milliseconds that 64 bits of microseconds can hold

cdef struct Mark:                # the state to return to after a damaged batch
    int64_t rows
    int64_t payload
    int64_t size[MOST_CELLS]
    int64_t present[MOST_CELLS]
    int64_t rare[MOST_RARE]
    int64_t headers
    int64_t header_present
    int64_t unfit_times

# These functions return 0, or -1 without memory: in the system, or (``over``) in the ``room`` of the entry.
cdef int columns_open(Columns* c) noexcept nogil
cdef int columns_reserve(Columns* c, int64_t rows) noexcept nogil
cdef int cells_grow(Columns* c, int which, int64_t extra) noexcept nogil
cdef int headers_grow(Columns* c, int64_t extra) noexcept nogil
cdef int dictionary_add(Columns* c, int column, const uint8_t* text, int64_t size) noexcept nogil
cdef void columns_mark(Columns* c, Mark* mark) noexcept nogil
cdef void columns_rewind(Columns* c, const Mark* mark) noexcept nogil
cdef void columns_finish(Columns* c) noexcept nogil
cdef void columns_drop(Columns* c) noexcept nogil
cdef void cells_hole(Cells* v) noexcept nogil
cdef bint is_utf8(const uint8_t* text, int64_t size) noexcept nogil
cdef int header_key_mended(Columns* c, const uint8_t* key, int64_t size) noexcept nogil


cdef inline bint has(uint32_t mask, int column) noexcept nogil:
    """Return True if ``mask`` says that a column is built."""
    return (mask >> column) & 1


cdef inline int32_t* int32s(const Columns* c, int column) noexcept nogil:
    """Return a column of 32-bit numbers, indexes or list offsets. The caller has checked that it is built."""
    return <int32_t*>c.fixed[column]


cdef inline int64_t* int64s(const Columns* c, int column) noexcept nogil:
    """Return a column of 64-bit numbers or times. The caller has checked that it is built."""
    return <int64_t*>c.fixed[column]


cdef inline void set_bit(uint8_t* bits, int64_t i) noexcept nogil:
    bits[i >> 3] |= <uint8_t>(1 << (i & 7))


cdef inline void cells_fill(Cells* v, int64_t row) noexcept nogil:
    """Write nulls from the first row without a cell up to ``row``."""
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
    """Set the cell of ``row`` to a copy of ``data``, which is readable up to ``edge``. Rows are set in
    ascending order.
    """
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
    elif size:                   # an empty cell may precede any allocated data
        memcpy(v.data + v.size, data, <size_t>size)
    v.size += size
    return 0


cdef struct Lane:                # the end of a variable-sized column, to which a plain loop appends cells
    int32_t* offsets
    uint8_t* data
    uint8_t* at
    int64_t room                 # for data that are copied in whole steps; below 0 = not a column for plain loops


# A loop keeps a lane in registers. A compiler must assume that a write to a column changes the column's own fields, and
# would reload them after each cell.

cdef inline void lane_open(Lane* lane, const Cells* v, int64_t first) noexcept nogil:
    """Open a lane for rows from ``first`` on; ``room`` is negative if the column has nulls or lacks the row before."""
    lane.offsets = v.offsets
    lane.data = v.data
    lane.at = v.data + v.size
    lane.room = -1 if v.holes or v.filled != first else v.capacity - v.size - FW_STEP


cdef inline void lane_put(Lane* lane, int64_t row, const uint8_t* data, int64_t size) noexcept nogil:
    """Append a cell. ``size`` is within ``room``, and FW_STEP bytes after ``data`` are readable."""
    lane.offsets[row] = <int32_t>(lane.at - lane.data)
    if size <= SMALL_CELL:
        fw_copy_steps(lane.at, data, size)
    else:
        memcpy(lane.at, data, <size_t>size)
    lane.at += size
    lane.room -= size


cdef inline void lane_close(const Lane* lane, Cells* v, int64_t rows) noexcept nogil:
    """Take over the ``rows`` cells of a lane."""
    v.size = lane.at - lane.data
    v.filled += rows
    v.present += rows


cdef inline int header_put(
    Columns* c, const uint8_t* key, int64_t key_size, const uint8_t* value, int64_t value_size
) noexcept nogil:
    """Add a header to the current row; ``value`` NULL makes it null.

    A key that is not UTF-8 is written with U+FFFD, as Java's clients read it: its record is sound all the same.
    """
    cdef int64_t row = c.headers
    if row >= c.header_capacity:
        if headers_grow(c, 1):
            return -1
    if not is_utf8(key, key_size):
        if header_key_mended(c, key, key_size):
            return -1
    elif cells_put(c, VAR_HEADER_KEY, row, key, key_size, key + key_size):
        return -1
    if value is not NULL:
        if cells_put(c, VAR_HEADER_VALUE, row, value, value_size, value + value_size):
            return -1
    c.headers = row + 1
    return 0


cdef inline void headers_close(Columns* c, int64_t row, int64_t first) noexcept nogil:
    """Record that the current row has the headers from ``first`` on."""
    cdef int64_t i
    for i in range(c.header_filled, row + 1):
        int32s(c, COL_HEADERS)[i] = <int32_t>first
    c.header_filled = row + 1
    set_bit(c.validity[COL_HEADERS], row)
    c.header_present += 1


cdef inline void rare_time_put(Columns* c, int column, int64_t row, int64_t micros) noexcept nogil:
    int64s(c, column)[row] = micros
    set_bit(c.validity[column], row)
    c.rare[c.layout.place[column]] += 1


cdef inline int64_t time_of_millis(Columns* c, int64_t milli) noexcept nogil:
    """Return a time in microseconds; one that these cannot count is counted, and becomes the nearest one."""
    cdef int64_t last = <int64_t>LAST_MILLI
    if -last <= milli <= last:
        return milli * 1000
    c.unfit_times += 1
    return last * 1000 if milli > 0 else -last * 1000


cdef inline int64_t columns_bytes(const Columns* c) noexcept nogil:
    """Return the bytes of all variable-sized cells, because keys and headers count for the size of a chunk."""
    cdef int64_t sum = 0
    cdef int k
    for k in range(MOST_STRINGS):
        sum += c.strings[k].size
    for k in range(MOST_CELLS):
        sum += c.cells[k].size
    return sum


ctypedef fused Number:
    int32_t
    int64_t


cdef inline void fill(Number* column, int64_t first, int64_t last, Number value) noexcept nogil:
    cdef int64_t i
    if last - first == 1:
        column[first] = value
        return
    for i in range(first, last):
        column[i] = value
