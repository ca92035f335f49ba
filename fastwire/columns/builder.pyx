"""The slow parts of column building: open, grow, rewind. The fast parts are inline in ``builder.pxd``.

They follow the layout of the system's row: only its requested columns take memory.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from fastwire.wire.pool cimport fw_give, fw_memory_new, fw_memory_unref, fw_take

cdef enum:
    FIRST_ROWS = 16_384
    FIRST_CELL_BYTES = 16_384
    FIRST_HEADERS = 4_096
    LARGEST_HINT = 8 << 20       # one giant record does not predict the next chunk


cdef void* block_take(Columns* c, int index, int64_t size) noexcept nogil:
    cdef int klass = 0
    cdef void* at
    if size > c.room:
        c.over = True
        return NULL
    at = fw_take(c.pool, <size_t>size, &klass)
    if at is NULL:
        return NULL
    c.room -= <int64_t>1 << klass
    c.memory.block[index] = at
    c.memory.klass[index] = klass
    if c.memory.count <= index:
        c.memory.count = index + 1
    return at


cdef void block_give(Columns* c, void* at, int klass) noexcept nogil:
    fw_give(c.pool, at, klass)
    c.room += <int64_t>1 << klass


cdef void* block_swap(Columns* c, int index, int64_t size, int64_t used) noexcept nogil:
    """Replace a block by a larger one with the first ``used`` bytes of the old one; the old one is released."""
    cdef void* old = c.memory.block[index]
    cdef int klass = c.memory.klass[index]
    cdef int64_t unused = <int64_t>1 << klass if old is not NULL and used == 0 else 0
    cdef void* at
    c.room += unused             # the size of an earlier chunk does not count against this entry
    at = block_take(c, index, size)
    c.room -= unused
    if at is NULL:
        return NULL
    if old is not NULL:
        memcpy(at, old, <size_t>used)
        block_give(c, old, klass)
    return at


cdef int64_t block_bytes(Columns* c, int index) noexcept nogil:
    return <int64_t>1 << c.memory.klass[index]


# The arena holds all columns of fixed width; every part starts on a 64-byte line.

cdef inline int64_t line(int64_t size) noexcept nogil:
    return (size + 63) & ~<int64_t>63


cdef inline bint is_header(int which) noexcept nogil:
    return which in (VAR_HEADER_KEY, VAR_HEADER_VALUE)


cdef inline bint has_bitmap(Storage storage) noexcept nogil:
    return storage in (STORE_TIME, STORE_RARE_TIME, STORE_BYTES, STORE_HEADERS)


cdef inline int64_t width(Storage storage) noexcept nogil:
    """Return the bytes of a row."""
    return 8 if storage in (STORE_INT64, STORE_TIME, STORE_RARE_TIME) else 4


cdef int64_t arena_bitmaps(Columns* c, uint8_t* base, int64_t capacity) noexcept nogil:
    """Place the bitmaps of an arena at ``base`` (NULL: only return their size). They come first, and start as zeros."""
    cdef int64_t at = 0
    cdef int i, column
    for i in range(c.layout.count):
        column = c.layout.number[i]
        if has(c.mask, column) and has_bitmap(c.layout.storage[column]):
            if base is not NULL:
                c.validity[column] = base + at
            at += line((capacity + 7) // 8)
    if base is not NULL:
        memset(base, 0, <size_t>at)
    return at


cdef int64_t arena_layout(Columns* c, uint8_t* base, int64_t capacity) noexcept nogil:
    """Set the pointers of all columns that are built for an arena at ``base`` (NULL: only return its size)."""
    cdef int64_t at = arena_bitmaps(c, base, capacity)
    cdef int i, column
    for i in range(c.layout.count):
        column = c.layout.number[i]
        if not has(c.mask, column):
            continue
        if base is not NULL:
            c.fixed[column] = base + at
            if c.layout.storage[column] == STORE_BYTES:
                c.cells[c.layout.place[column]].offsets = <int32_t*>(base + at)
                c.cells[c.layout.place[column]].validity = c.validity[column]
        at += line((capacity + 1) * width(c.layout.storage[column]))      # offsets are one more than rows
    return at


cdef int64_t written(const Columns* c, int column) noexcept nogil:
    """Return the number of rows of a column that the arena has values of."""
    if c.layout.storage[column] == STORE_BYTES:
        return c.cells[c.layout.place[column]].filled
    return c.header_filled if column == COL_HEADERS else c.rows


cdef int columns_open(Columns* c) noexcept nogil:
    """Start a new chunk. The caller has set ``pool``, ``layout``, ``mask``, ``hint`` and ``room``.

    The layout outlives the columns. An open chunk is not released.
    """
    cdef int k
    cdef uint8_t* base
    c.memory = fw_memory_new(c.pool)
    if c.memory is NULL:
        return -1
    c.rows = c.payload = c.headers = c.header_filled = c.header_present = c.header_capacity = 0
    c.timeless = False
    c.unfit_times = 0
    c.capacity = FIRST_ROWS
    memset(c.cells, 0, sizeof(c.cells))
    memset(c.rare, 0, sizeof(c.rare))
    memset(c.strings, 0, sizeof(c.strings))
    for k in range(MOST_STRINGS):
        c.strings[k].last = -1
    base = <uint8_t*>block_take(c, BLOCK_ARENA, arena_layout(c, NULL, FIRST_ROWS))
    if base is NULL:
        columns_drop(c)
        return -1
    arena_layout(c, base, FIRST_ROWS)
    for k in range(MOST_CELLS):
        if c.cells[k].offsets is not NULL and c.hint[k] > 0 and cells_grow(c, k, c.hint[k]):
            columns_drop(c)
            return -1
    return 0


cdef int columns_reserve(Columns* c, int64_t rows) noexcept nogil:
    """Make room for ``rows`` more rows."""
    cdef Columns old
    cdef int64_t capacity = c.capacity
    cdef int i, column, klass
    cdef uint8_t* base
    cdef void* block
    if capacity - c.rows >= rows:
        return 0
    while capacity - c.rows < rows:
        capacity *= 2
    old = c[0]
    block = c.memory.block[BLOCK_ARENA]
    klass = c.memory.klass[BLOCK_ARENA]
    base = <uint8_t*>block_take(c, BLOCK_ARENA, arena_layout(c, NULL, capacity))
    if base is NULL:
        return -1
    arena_layout(c, base, capacity)
    for i in range(c.layout.count):
        column = c.layout.number[i]
        if has(c.mask, column):
            memcpy(c.fixed[column], old.fixed[column], <size_t>(written(c, column) * width(c.layout.storage[column])))
            if has_bitmap(c.layout.storage[column]):
                memcpy(c.validity[column], old.validity[column], <size_t>((c.rows + 7) // 8))
    c.capacity = capacity
    block_give(c, block, klass)
    return 0


cdef int cells_grow(Columns* c, int which, int64_t extra) noexcept nogil:
    """Make room for ``extra`` more bytes of data."""
    cdef Cells* v = &c.cells[which]
    cdef int block = BLOCK_CELLS + which
    cdef int64_t capacity = v.capacity if v.capacity else FIRST_CELL_BYTES
    cdef void* at
    # Offsets are 32 bits wide. A chunk is closed long before this limit.
    if extra > 0x7FFFFFFF - v.size:
        c.over = True
        return -1
    while capacity - v.size < extra:
        capacity *= 2
    at = block_swap(c, block, capacity, v.size)
    if at is NULL:
        return -1
    v.data = <uint8_t*>at
    v.capacity = block_bytes(c, block)
    return 0


cdef int headers_grow(Columns* c, int64_t extra) noexcept nogil:
    """Make room for ``extra`` more headers: offsets and validity of both columns in one block."""
    cdef Cells* key = &c.cells[VAR_HEADER_KEY]
    cdef Cells* value = &c.cells[VAR_HEADER_VALUE]
    cdef Cells old_key = key[0]
    cdef Cells old_value = value[0]
    cdef int64_t capacity = c.header_capacity if c.header_capacity else FIRST_HEADERS
    cdef int64_t bits, four
    cdef void* old = c.memory.block[BLOCK_HEADER_CELLS]
    cdef int klass = c.memory.klass[BLOCK_HEADER_CELLS]
    cdef uint8_t* base
    while capacity - c.headers < extra:
        capacity *= 2
    bits = line((capacity + 7) // 8)
    four = line((capacity + 1) * 4)
    base = <uint8_t*>block_take(c, BLOCK_HEADER_CELLS, 2 * bits + 2 * four)
    if base is NULL:
        return -1
    memset(base, 0, <size_t>(2 * bits))
    key.validity = base
    value.validity = base + bits
    key.offsets = <int32_t*>(base + 2 * bits)
    value.offsets = <int32_t*>(base + 2 * bits + four)
    if old is not NULL:
        memcpy(key.validity, old_key.validity, <size_t>((c.headers + 7) // 8))
        memcpy(value.validity, old_value.validity, <size_t>((c.headers + 7) // 8))
        memcpy(key.offsets, old_key.offsets, <size_t>(key.filled * 4))
        memcpy(value.offsets, old_value.offsets, <size_t>(value.filled * 4))
        block_give(c, old, klass)
    c.header_capacity = capacity
    return 0


cdef uint32_t text_hash(const uint8_t* text, int64_t size) noexcept nogil:
    cdef uint32_t h = 2166136261u
    cdef int64_t i
    for i in range(size):
        h = (h ^ text[i]) * 16777619u
    return h


cdef bint dictionary_is(Dictionary* d, int32_t entry, const uint8_t* text, int64_t size) noexcept nogil:
    cdef int32_t at = d.offsets[entry]
    return d.offsets[entry + 1] - at == size and memcmp(d.data + at, text, <size_t>size) == 0


cdef int dictionary_rehash(Dictionary* d, int32_t slots) noexcept nogil:
    cdef int32_t* table = <int32_t*>calloc(<size_t>slots, sizeof(int32_t))
    cdef int32_t entry
    cdef uint32_t at
    if table is NULL:
        return -1
    for entry in range(d.count):
        at = text_hash(d.data + d.offsets[entry], d.offsets[entry + 1] - d.offsets[entry])
        while table[at & <uint32_t>(slots - 1)]:
            at += 1
        table[at & <uint32_t>(slots - 1)] = entry + 1
    free(d.table)
    d.table = table
    d.slots = slots
    return 0


cdef int dictionary_add(Columns* c, int column, const uint8_t* text, int64_t size) noexcept nogil:
    """Return the number of ``text`` among the strings of a column, or -1 without memory, or -2 if it is not UTF-8."""
    cdef Dictionary* d = &c.strings[c.layout.place[column]]
    cdef int texts = BLOCK_STRINGS + 2 * c.layout.place[column]
    cdef int offsets = texts + 1
    cdef uint32_t at
    cdef int32_t entry
    cdef void* block
    cdef int64_t room
    if d.last >= 0 and dictionary_is(d, d.last, text, size):
        return d.last
    if d.slots == 0 or d.count * 2 >= d.slots:
        if dictionary_rehash(d, d.slots * 2 if d.slots else 64):
            return -1
    at = text_hash(text, size)
    while d.table[at & <uint32_t>(d.slots - 1)]:
        entry = d.table[at & <uint32_t>(d.slots - 1)] - 1
        if dictionary_is(d, entry, text, size):
            d.last = entry
            return entry
        at += 1
    if not is_utf8(text, size):
        return -2
    if c.memory.block[offsets] is NULL or (d.count + 2) * 4 > block_bytes(c, offsets):
        block = block_swap(c, offsets, (d.count + 2) * 8, (d.count + 1) * 4 if d.count else 0)
        if block is NULL:
            return -1
        d.offsets = <int32_t*>block
    room = d.capacity - d.size
    if room < size or d.capacity == 0:
        if d.size + size > 0x3FFFFFFF:
            return -1
        block = block_swap(c, texts, (d.size + size) * 2, d.size)
        if block is NULL:
            return -1
        d.data = <uint8_t*>block
        d.capacity = block_bytes(c, texts)
    entry = d.count
    if entry == 0:
        d.offsets[0] = 0
    memcpy(d.data + d.size, text, <size_t>size)
    d.size += size
    d.offsets[entry + 1] = <int32_t>d.size
    d.count = entry + 1
    d.table[at & <uint32_t>(d.slots - 1)] = entry + 1
    d.last = entry
    return entry


cdef void cells_hole(Cells* v) noexcept nogil:
    """Write the validity of all earlier rows, which are not null, before the first null of the column."""
    v.holes = True
    memset(v.validity, 0xFF, <size_t>(v.filled >> 3))
    if v.filled & 7:
        v.validity[v.filled >> 3] = <uint8_t>((1 << (v.filled & 7)) - 1)


cdef void columns_mark(Columns* c, Mark* mark) noexcept nogil:
    cdef int k
    mark.rows = c.rows
    mark.payload = c.payload
    mark.headers = c.headers
    mark.header_present = c.header_present
    mark.unfit_times = c.unfit_times
    for k in range(MOST_CELLS):
        mark.size[k] = c.cells[k].size
        mark.present[k] = c.cells[k].present
    for k in range(MOST_RARE):
        mark.rare[k] = c.rare[k]


cdef void clear_bits(uint8_t* bits, int64_t first, int64_t last) noexcept nogil:
    cdef int64_t i
    for i in range(first, last):
        bits[i >> 3] &= <uint8_t>~(1 << (i & 7))


cdef void columns_rewind(Columns* c, const Mark* mark) noexcept nogil:
    """Forget the rows after ``mark``, a partly written row included."""
    cdef int k
    cdef Cells* v
    cdef int64_t rows
    for k in range(MOST_CELLS):
        v = &c.cells[k]
        rows = mark.headers if is_header(k) else mark.rows
        if v.filled > rows:
            if v.holes:
                clear_bits(v.validity, rows, v.filled)
            v.filled = rows
        v.size = mark.size[k]
        v.present = mark.present[k]
    if c.header_filled > mark.rows:
        clear_bits(c.validity[COL_HEADERS], mark.rows, c.header_filled)
        c.header_filled = mark.rows
    for k in range(c.layout.rare_count):
        if has(c.mask, c.layout.rare[k]):
            clear_bits(c.validity[c.layout.rare[k]], mark.rows, c.rows + 1 if c.rows < c.capacity else c.rows)
        c.rare[k] = mark.rare[k]
    c.rows = mark.rows
    c.payload = mark.payload
    c.headers = mark.headers
    c.header_present = mark.header_present
    c.unfit_times = mark.unfit_times


cdef void columns_finish(Columns* c) noexcept nogil:
    """Write the offsets that are still open; remember sizes for the next chunk."""
    cdef int i, column
    cdef int64_t row, rows
    cdef Cells* v
    for i in range(MOST_CELLS):
        v = &c.cells[i]
        if v.offsets is NULL:    # not built, or no headers
            continue
        rows = c.headers if is_header(i) else c.rows
        if v.filled < rows:
            cells_fill(v, rows)
        v.offsets[v.filled] = <int32_t>v.size
        c.hint[i] = v.size if v.size < LARGEST_HINT else LARGEST_HINT
    if has(c.mask, COL_HEADERS):
        for row in range(c.header_filled, c.rows + 1):
            int32s(c, COL_HEADERS)[row] = <int32_t>c.headers
        c.header_filled = c.rows + 1
    for i in range(c.layout.count):
        column = c.layout.number[i]
        if not has(c.mask, column):
            continue
        if c.layout.storage[column] == STORE_TIME:
            times_finish(c, column)
        elif c.layout.storage[column] == STORE_RARE_TIME:
            c.present[column] = c.rare[c.layout.place[column]]
    strings_close(c)


cdef void times_finish(Columns* c, int column) noexcept nogil:
    """Make NO_TIME values null."""
    cdef int64_t* times = int64s(c, column)
    cdef int64_t row
    c.present[column] = c.rows
    if c.timeless:
        for row in range(c.rows):
            if times[row] == NO_TIME:
                times[row] = 0
                c.present[column] -= 1
            else:
                set_bit(c.validity[column], row)


cdef void strings_close(Columns* c) noexcept nogil:
    """Free the hash tables, which are needed only to add strings."""
    cdef int k
    for k in range(MOST_STRINGS):
        free(c.strings[k].table)
        c.strings[k].table = NULL


cdef void columns_drop(Columns* c) noexcept nogil:
    """Release all memory; nothing is open afterwards."""
    if c.memory is not NULL:
        fw_memory_unref(c.memory)
        c.memory = NULL
    strings_close(c)
    c.rows = 0


cdef bint is_utf8(const uint8_t* text, int64_t size) noexcept nogil:
    """Check strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    cdef int64_t i = 0
    cdef int step
    cdef uint64_t word
    while i < size:
        if size - i >= 8:
            memcpy(&word, text + i, 8)
            if not (word & 0x8080808080808080u):
                i += 8
                continue
        step = utf8_step(text + i, size - i)
        if step < 0:
            return False
        i += step
    return True


cdef int utf8_step(const uint8_t* text, int64_t size) noexcept nogil:
    """Return the size of the code point at ``text``; a negative number: size of a malformed or incomplete sequence."""
    cdef uint8_t first = text[0]
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xBF
    cdef int extra, k
    if first < 0x80:
        return 1
    if 0xC2 <= first <= 0xDF:
        extra = 1
    elif 0xE0 <= first <= 0xEF:
        extra = 2
        low = 0xA0 if first == 0xE0 else 0x80        # overlong
        high = 0x9F if first == 0xED else 0xBF       # surrogates
    elif 0xF0 <= first <= 0xF4:
        extra = 3
        low = 0x90 if first == 0xF0 else 0x80        # overlong
        high = 0x8F if first == 0xF4 else 0xBF       # above U+10FFFF
    else:
        return -1
    for k in range(1, extra + 1):
        if k >= size or text[k] < low or text[k] > high:
            return -k
        low, high = 0x80, 0xBF
    return extra + 1


cdef int header_key_mended(Columns* c, const uint8_t* key, int64_t size) noexcept nogil:
    """Write the key of the next header, with U+FFFD for each malformed piece of UTF-8."""
    cdef Cells* v
    cdef uint8_t* at
    cdef int64_t i = 0
    cdef int64_t corrected = 0
    cdef int step
    while i < size:
        step = utf8_step(key + i, size - i)
        corrected += step if step > 0 else 3
        i += step if step > 0 else -step
    v = &c.cells[VAR_HEADER_KEY]
    if v.capacity - v.size < corrected and cells_grow(c, VAR_HEADER_KEY, corrected):
        return -1
    if cells_put(c, VAR_HEADER_KEY, c.headers, key, 0, key):
        return -1
    i = 0
    while i < size:
        at = v.data + v.size
        step = utf8_step(key + i, size - i)
        if step > 0:
            memcpy(at, key + i, <size_t>step)
            v.size += step
            i += step
        else:
            at[0], at[1], at[2] = 0xEF, 0xBF, 0xBD
            v.size += 3
            i -= step
    return 0
