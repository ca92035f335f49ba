"""The slow parts of column building: opening, growing, rewinding. The fast parts are inline in ``builder.pxd``."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from fastwire.wire.pool cimport fw_give, fw_memory_new, fw_memory_unref, fw_take

cdef enum:
    FIRST_ROWS = 16_384
    FIRST_CELL_BYTES = 16_384
    FIRST_HEADERS = 4_096
    LARGEST_HINT = 8 << 20       # what one giant record needed is no guide for the next chunk


cdef void* block_take(Columns* c, int index, int64_t size) noexcept nogil:
    cdef int klass = 0
    cdef void* at = fw_take(c.pool, <size_t>size, &klass)
    if at is NULL:
        return NULL
    c.memory.block[index] = at
    c.memory.klass[index] = klass
    if c.memory.count <= index:
        c.memory.count = index + 1
    return at


cdef void* block_swap(Columns* c, int index, int64_t size, int64_t used) noexcept nogil:
    """A larger block with the first ``used`` bytes of the old one; the old one goes back."""
    cdef void* old = c.memory.block[index]
    cdef int klass = c.memory.klass[index]
    cdef void* at = block_take(c, index, size)
    if at is NULL:
        return NULL
    if old is not NULL:
        memcpy(at, old, <size_t>used)
        fw_give(c.pool, old, klass)
    return at


cdef int64_t block_bytes(Columns* c, int index) noexcept nogil:
    return <int64_t>1 << c.memory.klass[index]


# The arena holds all columns of fixed width; every part starts on a 64-byte line.

cdef inline int64_t line(int64_t size) noexcept nogil:
    return (size + 63) & ~<int64_t>63


cdef int64_t arena_layout(Columns* c, uint8_t* base, int64_t capacity) noexcept nogil:
    """Set the column pointers for an arena at ``base`` (NULL: only return its size)."""
    cdef int64_t at = 0
    cdef int64_t bits = line((capacity + 7) // 8)
    cdef int64_t four = line((capacity + 1) * 4)
    cdef int64_t eight = line(capacity * 8)
    cdef int which
    # Bitmaps first: they must start as zeros, in one memset.
    if base is not NULL:
        for which in range(1, VAR_HEADER_KEY):
            c.cells[which].validity = base + at + (which - 1) * bits
        c.header_validity = base + at + (VAR_HEADER_KEY - 1) * bits
        c.event_time_validity = base + at + VAR_HEADER_KEY * bits
    at += bits * (VAR_HEADER_KEY + 1)
    for which in range(1, VAR_HEADER_KEY):
        if base is not NULL:
            c.cells[which].offsets = <int32_t*>(base + at)
        at += four
    if base is not NULL:
        c.header_offsets = <int32_t*>(base + at)
        c.topic = <int32_t*>(base + at + four)
        c.partition = <int32_t*>(base + at + 2 * four)
        c.timestamp_type = <int32_t*>(base + at + 3 * four)
        c.batch_index = <int32_t*>(base + at + 4 * four)
        c.producer = <int32_t*>(base + at + 5 * four)
        c.redelivery_count = <int32_t*>(base + at + 6 * four)
        c.broker = <int32_t*>(base + at + 7 * four)
    at += 8 * four
    if base is not NULL:
        c.offset = <int64_t*>(base + at)
        c.timestamp = <int64_t*>(base + at + eight)
        c.ledger = <int64_t*>(base + at + 2 * eight)
        c.event_time = <int64_t*>(base + at + 3 * eight)
        c.sequence_id = <int64_t*>(base + at + 4 * eight)
    at += 5 * eight
    return at


cdef int64_t bitmap_bytes(int64_t capacity) noexcept nogil:
    return line((capacity + 7) // 8) * (VAR_HEADER_KEY + 1)


cdef int columns_open(Columns* c) noexcept nogil:
    """Start a new chunk. ``pool``, ``mask`` and ``hint`` are the caller's; what was open is not touched."""
    cdef int which
    cdef uint8_t* base
    cdef int64_t size
    c.memory = fw_memory_new(c.pool)
    if c.memory is NULL:
        return -1
    c.rows = c.payload = c.headers = c.header_filled = c.header_present = c.event_time_present = 0
    c.header_capacity = 0
    c.capacity = FIRST_ROWS
    memset(c.cells, 0, sizeof(c.cells))
    memset(&c.producers, 0, sizeof(Dictionary))
    c.producers.last = -1
    size = arena_layout(c, NULL, FIRST_ROWS)
    base = <uint8_t*>block_take(c, BLOCK_ARENA, size)
    if base is NULL:
        columns_drop(c)
        return -1
    arena_layout(c, base, FIRST_ROWS)
    memset(base, 0, <size_t>bitmap_bytes(FIRST_ROWS))
    for which in range(1, VAR_HEADER_KEY):
        if c.hint[which] > 0 and cells_grow(c, which, c.hint[which]):
            columns_drop(c)
            return -1
    return 0


cdef int columns_reserve(Columns* c, int64_t rows) noexcept nogil:
    """Make room for ``rows`` more rows."""
    cdef Columns old
    cdef int64_t capacity = c.capacity
    cdef int64_t n = c.rows
    cdef int which, klass
    cdef uint8_t* base
    cdef void* block
    if capacity - n >= rows:
        return 0
    while capacity - n < rows:
        capacity *= 2
    old = c[0]
    block = c.memory.block[BLOCK_ARENA]
    klass = c.memory.klass[BLOCK_ARENA]
    base = <uint8_t*>block_take(c, BLOCK_ARENA, arena_layout(c, NULL, capacity))
    if base is NULL:
        return -1
    arena_layout(c, base, capacity)
    memset(base, 0, <size_t>bitmap_bytes(capacity))
    for which in range(1, VAR_HEADER_KEY):
        memcpy(c.cells[which].validity, old.cells[which].validity, <size_t>((n + 7) // 8))
        memcpy(c.cells[which].offsets, old.cells[which].offsets, <size_t>(c.cells[which].filled * 4))
    memcpy(c.header_validity, old.header_validity, <size_t>((n + 7) // 8))
    memcpy(c.event_time_validity, old.event_time_validity, <size_t>((n + 7) // 8))
    memcpy(c.header_offsets, old.header_offsets, <size_t>(c.header_filled * 4))
    memcpy(c.topic, old.topic, <size_t>(n * 4))
    memcpy(c.partition, old.partition, <size_t>(n * 4))
    memcpy(c.timestamp_type, old.timestamp_type, <size_t>(n * 4))
    memcpy(c.batch_index, old.batch_index, <size_t>(n * 4))
    memcpy(c.producer, old.producer, <size_t>(n * 4))
    memcpy(c.redelivery_count, old.redelivery_count, <size_t>(n * 4))
    memcpy(c.broker, old.broker, <size_t>(n * 4))
    memcpy(c.offset, old.offset, <size_t>(n * 8))
    memcpy(c.timestamp, old.timestamp, <size_t>(n * 8))
    memcpy(c.ledger, old.ledger, <size_t>(n * 8))
    memcpy(c.event_time, old.event_time, <size_t>(n * 8))
    memcpy(c.sequence_id, old.sequence_id, <size_t>(n * 8))
    c.capacity = capacity
    fw_give(c.pool, block, klass)
    return 0


cdef int cells_grow(Columns* c, int which, int64_t extra) noexcept nogil:
    """Make room for ``extra`` more bytes of data."""
    cdef Cells* v = &c.cells[which]
    cdef int64_t capacity = v.capacity if v.capacity else FIRST_CELL_BYTES
    cdef void* at
    # Offsets are 32 bits wide; a chunk is closed long before, this is the last line.
    if extra > 0x7FFFFFFF - v.size:
        return -1
    while capacity - v.size < extra:
        capacity *= 2
    at = block_swap(c, which, capacity, v.size)
    if at is NULL:
        return -1
    v.data = <uint8_t*>at
    v.capacity = block_bytes(c, which)
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
        fw_give(c.pool, old, klass)
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


cdef int dictionary_add(Columns* c, Dictionary* d, const uint8_t* text, int64_t size) noexcept nogil:
    """The number of ``text`` in the dictionary of this chunk, or -1 without memory, or -2 if it is no UTF-8."""
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
    if c.memory.block[BLOCK_PRODUCER_OFFSETS] is NULL or (d.count + 2) * 4 > block_bytes(c, BLOCK_PRODUCER_OFFSETS):
        block = block_swap(c, BLOCK_PRODUCER_OFFSETS, (d.count + 2) * 8, (d.count + 1) * 4 if d.count else 0)
        if block is NULL:
            return -1
        d.offsets = <int32_t*>block
    room = d.capacity - d.size
    if room < size or d.capacity == 0:
        if d.size + size > 0x3FFFFFFF:
            return -1
        block = block_swap(c, BLOCK_PRODUCERS, (d.size + size) * 2, d.size)
        if block is NULL:
            return -1
        d.data = <uint8_t*>block
        d.capacity = block_bytes(c, BLOCK_PRODUCERS)
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
    """The first null of the column is near: what is there so far is valid, and that is written now."""
    v.holes = True
    memset(v.validity, 0xFF, <size_t>(v.filled >> 3))
    if v.filled & 7:
        v.validity[v.filled >> 3] = <uint8_t>((1 << (v.filled & 7)) - 1)


cdef void columns_mark(Columns* c, Mark* mark) noexcept nogil:
    cdef int which
    mark.rows = c.rows
    mark.payload = c.payload
    mark.headers = c.headers
    mark.header_present = c.header_present
    mark.event_time_present = c.event_time_present
    for which in range(1, VAR_COUNT):
        mark.size[which] = c.cells[which].size
        mark.present[which] = c.cells[which].present


cdef void clear_bits(uint8_t* bits, int64_t first, int64_t last) noexcept nogil:
    cdef int64_t i
    for i in range(first, last):
        bits[i >> 3] &= <uint8_t>~(1 << (i & 7))


cdef void columns_rewind(Columns* c, const Mark* mark) noexcept nogil:
    """Forget the rows after ``mark``: also half of a row that was being written."""
    cdef int which
    cdef Cells* v
    cdef int64_t rows
    for which in range(1, VAR_COUNT):
        v = &c.cells[which]
        rows = mark.headers if which >= VAR_HEADER_KEY else mark.rows
        if v.filled > rows:
            if v.holes:
                clear_bits(v.validity, rows, v.filled)
            v.filled = rows
        v.size = mark.size[which]
        v.present = mark.present[which]
    if c.header_filled > mark.rows:
        clear_bits(c.header_validity, mark.rows, c.header_filled)
        c.header_filled = mark.rows
    clear_bits(c.event_time_validity, mark.rows, c.rows + 1 if c.rows < c.capacity else c.rows)
    c.rows = mark.rows
    c.payload = mark.payload
    c.headers = mark.headers
    c.header_present = mark.header_present
    c.event_time_present = mark.event_time_present


cdef void columns_finish(Columns* c) noexcept nogil:
    """Write the offsets that are still open; remember sizes for the next chunk."""
    cdef int which
    cdef int64_t i
    cdef Cells* v
    for which in range(1, VAR_COUNT):
        v = &c.cells[which]
        if which >= VAR_HEADER_KEY:
            if c.header_capacity == 0:
                continue
            if v.filled < c.headers:
                cells_fill(v, c.headers)
        elif v.filled < c.rows:
            cells_fill(v, c.rows)
        v.offsets[v.filled] = <int32_t>v.size
        c.hint[which] = v.size if v.size < LARGEST_HINT else LARGEST_HINT
    for i in range(c.header_filled, c.rows + 1):
        c.header_offsets[i] = <int32_t>c.headers
    c.header_filled = c.rows + 1
    free(c.producers.table)
    c.producers.table = NULL


cdef void columns_drop(Columns* c) noexcept nogil:
    """Give everything back; nothing is open afterwards."""
    if c.memory is not NULL:
        fw_memory_unref(c.memory)
        c.memory = NULL
    free(c.producers.table)
    c.producers.table = NULL
    c.rows = 0


cdef bint is_utf8(const uint8_t* text, int64_t size) noexcept nogil:
    """Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    cdef int64_t i = 0
    cdef int64_t k, extra
    cdef uint32_t point
    cdef uint64_t word
    while i < size:
        if size - i >= 8:
            memcpy(&word, text + i, 8)
            if not (word & 0x8080808080808080u):
                i += 8
                continue
        if text[i] < 0x80:
            i += 1
            continue
        if text[i] & 0xE0 == 0xC0:
            extra = 1
            point = text[i] & 0x1F
        elif text[i] & 0xF0 == 0xE0:
            extra = 2
            point = text[i] & 0x0F
        elif text[i] & 0xF8 == 0xF0:
            extra = 3
            point = text[i] & 0x07
        else:
            return False
        if size - i <= extra:
            return False
        for k in range(1, extra + 1):
            if text[i + k] & 0xC0 != 0x80:
                return False
            point = point << 6 | (text[i + k] & 0x3F)
        if (extra == 1 and point < 0x80) or (extra == 2 and point < 0x800) or (extra == 3 and point < 0x10000):
            return False
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            return False
        i += extra + 1
    return True
