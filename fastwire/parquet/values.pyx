"""Values in the encoding PLAIN, and dictionaries of them (parquet-format, Encodings.md)."""

from libc.stdint cimport (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    int8_t,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint16_t,
    uint32_t,
    uint64_t,
)
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from fastwire.columns.arrow cimport ArrowArray
from fastwire.parquet.buffer cimport Bytes, bytes_drop, bytes_reserve
from fastwire.parquet.schema cimport (
    INT32,
    READ_BINARY,
    READ_BITS,
    READ_LARGE,
    READ_NARROW,
    READ_NOTHING,
    READ_PLAIN,
    READ_REVERSED,
    Node,
)

from fastwire.parquet.errors import UnwritableError

cdef extern from *:
    """
    #define FW_SWAP64(x) __builtin_bswap64(x)
    """
    uint64_t swap64 "FW_SWAP64"(uint64_t) noexcept nogil

cdef enum:
    STEP = 64                    # bytes of a copy whose size the compiler knows
    STEPS = 128
    FIRST_SLOTS = 256

ctypedef fused Offset:
    int32_t
    int64_t

ctypedef fused Word:
    uint32_t
    uint64_t

ctypedef fused Scaled:
    int32_t
    int64_t


cdef int put_values(Bytes* b, Node node, const Picked* values) except -1:
    """Append values of ``node`` as PLAIN. Raises UnwritableError for one that its type cannot hold, and MemoryError.

    Numbers that are no copies are stored as such: ``b`` has values of this width only.
    """
    cdef int failed = 0
    cdef const uint8_t* data
    if values.count == 0 or node.read == READ_NOTHING:
        return 0
    data = <const uint8_t*>values.array.buffers[1]
    if node.read == READ_BINARY:
        with nogil:
            failed = put_binary[int32_t](b, <const int32_t*>data, <const uint8_t*>values.array.buffers[2], values)
    elif node.read == READ_LARGE:
        with nogil:
            failed = put_binary[int64_t](b, <const int64_t*>data, <const uint8_t*>values.array.buffers[2], values)
    elif node.read == READ_PLAIN:
        with nogil:
            failed = put_plain(b, data, node.width, values)
    elif node.read == READ_BITS:
        with nogil:
            failed = put_bools(b, data, values)
    elif node.read == READ_NARROW:
        with nogil:
            failed = put_narrow(b, data, node.width, node.signed, values)
    elif node.read == READ_REVERSED:
        with nogil:
            failed = put_reversed(b, data, node.width, node.length, values)
    elif node.width == 4:
        with nogil:
            failed = put_scaled[int32_t](b, <const int32_t*>data, node.factor, node.physical == INT32, values)
    else:
        with nogil:
            failed = put_scaled[int64_t](b, <const int64_t*>data, node.factor, node.physical == INT32, values)
    if failed == -1:
        raise MemoryError()
    if failed:
        raise UnwritableError(f"the column {'.'.join(node.path)} has a value beyond the range of its type in Parquet")
    return 0


cdef int put_binary(Bytes* b, const Offset* offsets, const uint8_t* data, const Picked* values) noexcept nogil:
    """Append size and bytes of each value."""
    cdef int64_t i, at, size, last
    cdef int64_t total = 0
    cdef int32_t told
    cdef uint8_t* to
    cdef const uint8_t* source
    cdef const int64_t* index = values.index
    if index is NULL:
        total = offsets[values.first + values.count] - offsets[values.first]
        last = offsets[values.first + values.count]
    else:
        last = 0
        for i in range(values.count):
            at = index[i]
            total += offsets[at + 1] - offsets[at]
            last = max(last, <int64_t>offsets[at + 1])
    if bytes_reserve(b, total + 4 * values.count + STEPS):
        return -1
    to = b.data + b.size
    for i in range(values.count):
        at = place(values, i)
        size = offsets[at + 1] - offsets[at]
        if size > INT32_MAX:
            return -2
        source = data + offsets[at]
        told = <int32_t>size
        memcpy(to, &told, 4)
        to += 4
        # Copies of a known size are a few vector moves; what they write beyond the value is overwritten by the next.
        if size <= STEP and offsets[at] + STEP <= last:
            memcpy(to, source, STEP)
        elif size <= STEPS and offsets[at] + STEPS <= last:
            memcpy(to, source, STEPS)
        elif size:
            memcpy(to, source, <size_t>size)
        to += size
    b.size = to - b.data
    return 0


cdef inline void pick(Word* to, const Word* data, const int64_t* index, int64_t count) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        to[i] = data[index[i]]


cdef int put_plain(Bytes* b, const uint8_t* data, int width, const Picked* values) noexcept nogil:
    """Append values whose bytes are the same in Arrow."""
    cdef int64_t i
    cdef uint8_t* to
    if bytes_reserve(b, values.count * width + 8):
        return -1
    to = b.data + b.size
    if values.index is NULL:
        memcpy(to, data + values.first * width, <size_t>(values.count * width))
    elif width == 4:
        pick(<uint32_t*>to, <const uint32_t*>data, values.index, values.count)
    elif width == 8:
        pick(<uint64_t*>to, <const uint64_t*>data, values.index, values.count)
    else:
        for i in range(values.count):
            memcpy(to + i * width, data + values.index[i] * width, <size_t>width)
    b.size += values.count * width
    return 0


cdef int put_bools(Bytes* b, const uint8_t* bits, const Picked* values) noexcept nogil:
    """Append bits behind a page's levels; the caller gives all values of a page at once."""
    cdef int64_t i, at
    cdef int64_t size = (values.count + 7) // 8
    cdef uint8_t* to
    if bytes_reserve(b, size):
        return -1
    to = b.data + b.size
    memset(to, 0, <size_t>size)
    for i in range(values.count):
        at = place(values, i)
        to[i >> 3] |= <uint8_t>(((bits[at >> 3] >> (at & 7)) & 1) << (i & 7))
    b.size += size
    return 0


cdef int put_narrow(Bytes* b, const uint8_t* data, int width, bint signed, const Picked* values) noexcept nogil:
    cdef int64_t i, at
    cdef int32_t* to
    if bytes_reserve(b, values.count * 4):
        return -1
    to = <int32_t*>(b.data + b.size)
    for i in range(values.count):
        at = place(values, i)
        if width == 1:
            to[i] = (<const int8_t*>data)[at] if signed else <int32_t>data[at]
        else:
            to[i] = (<const int16_t*>data)[at] if signed else <int32_t>(<const uint16_t*>data)[at]
    b.size += values.count * 4
    return 0


cdef int put_scaled(Bytes* b, const Scaled* data, int64_t factor, bint narrow, const Picked* values) noexcept nogil:
    """Append integers times ``factor`` (above 0), or divided by it (below 0, rounded down)."""
    cdef int64_t i, value
    cdef uint8_t* to
    cdef int64_t by = -factor
    if bytes_reserve(b, values.count * 8):
        return -1
    to = b.data + b.size
    for i in range(values.count):
        value = data[place(values, i)]
        if factor > 0:
            if value > INT64_MAX // factor or value < -(INT64_MAX // factor):
                return -2
            value *= factor
        else:
            value = value // by if value >= 0 else -((by - 1 - value) // by)
        if narrow:
            if value > INT32_MAX or value < INT32_MIN:
                return -2
            (<int32_t*>to)[i] = <int32_t>value
        else:
            (<int64_t*>to)[i] = value
    b.size += values.count * (4 if narrow else 8)
    return 0


cdef int put_reversed(Bytes* b, const uint8_t* data, int width, int length, const Picked* values) noexcept nogil:
    """Append two's complement numbers, most significant byte first, in ``length`` of ``width`` bytes."""
    cdef int64_t i
    cdef int k
    cdef const uint8_t* source
    cdef uint8_t* to
    cdef uint8_t sign
    if bytes_reserve(b, values.count * length + 8):
        return -1
    to = b.data + b.size
    if width == 16 and length <= 8:
        return put_short(b, <const int64_t*>data, length, values)
    for i in range(values.count):
        source = data + place(values, i) * width
        sign = 0xFF if source[width - 1] & 0x80 else 0
        for k in range(length):
            to[length - 1 - k] = source[k] if k < width else sign
        # What is cut off must repeat the sign, or another number would be written.
        for k in range(length, width):
            if source[k] != sign:
                return -2
        if length < width and (to[0] & 0x80) != (sign & 0x80):
            return -2
        to += length
    b.size += values.count * length
    return 0


cdef int put_short(Bytes* b, const int64_t* halves, int length, const Picked* values) noexcept nogil:
    """The same for numbers of 16 bytes that fit into ``length`` of eight; the caller has reserved them."""
    cdef int64_t i, at, low, wide = 0
    cdef uint64_t swapped
    cdef int unused = 64 - 8 * length
    cdef uint8_t* to = b.data + b.size
    for i in range(values.count):
        at = 2 * place(values, i)
        low = halves[at]
        # Of the upper half and the bits that are cut off nothing is lost but repetitions of the sign.
        wide |= halves[at + 1] ^ (low >> 63)
        wide |= low ^ (<int64_t>(<uint64_t>low << unused) >> unused)
        swapped = swap64(<uint64_t>low) >> unused
        memcpy(to, &swapped, 8)
        to += length
    b.size += values.count * length
    return -2 if wide else 0


cdef int64_t size_of(Node node, ArrowArray* array, int64_t at) noexcept nogil:
    """Return the bytes of a value in the encoding PLAIN (of a bool: one)."""
    if node.read == READ_BINARY:
        return 4 + (<const int32_t*>array.buffers[1])[at + 1] - (<const int32_t*>array.buffers[1])[at]
    if node.read == READ_LARGE:
        return 4 + (<const int64_t*>array.buffers[1])[at + 1] - (<const int64_t*>array.buffers[1])[at]
    if node.read == READ_REVERSED:
        return node.length
    return max(node.width, 1)


# --- dictionaries

cdef uint64_t FIRST_HASH = 0x9E3779B97F4A7C15u


cdef inline uint64_t mixed(uint64_t h, uint64_t word) noexcept nogil:
    h = (h ^ word) * 0xFF51AFD7ED558CCDu
    return h ^ (h >> 32)


cdef inline uint64_t hash_of(const uint8_t* text, int64_t size) noexcept nogil:
    cdef uint64_t h = FIRST_HASH ^ <uint64_t>size
    cdef uint64_t word
    cdef int64_t at = 0
    while at + 8 <= size:
        memcpy(&word, text + at, 8)
        h = mixed(h, word)
        at += 8
    word = 0
    if at < size:
        memcpy(&word, text + at, <size_t>(size - at))
        h = mixed(h, word)
    return h ^ (h >> 29)


cdef int words_more(Words* w) noexcept nogil:
    """Double the table, and the room for words."""
    cdef int32_t slots = max(w.slots * 2, FIRST_SLOTS), i
    cdef uint64_t at
    cdef int32_t* table = <int32_t*>calloc(<size_t>slots, 4)
    cdef Entry* grown = <Entry*>realloc(w.entries, <size_t>(slots // 2) * sizeof(Entry))
    if grown is not NULL:
        w.entries = grown
    if table is NULL or grown is NULL:
        free(table)
        return -1
    w.capacity = slots // 2
    for i in range(w.count):
        at = hash_of(w.text.data + w.entries[i].at, w.entries[i].size) & <uint64_t>(slots - 1)
        while table[at]:
            at = (at + 1) & <uint64_t>(slots - 1)
        table[at] = i + 1
    free(w.table)
    w.table = table
    w.slots = slots
    return 0


cdef int32_t word_of(Words* w, const uint8_t* value, int64_t size) noexcept nogil:
    """Return the number of a value, given without the size before it, a new one if it is new; -1 without memory."""
    cdef uint64_t at
    cdef int32_t found
    cdef int32_t told = <int32_t>size
    if w.count >= w.capacity and words_more(w):
        return -1
    at = hash_of(value, size) & <uint64_t>(w.slots - 1)
    while w.table[at]:
        found = w.table[at] - 1
        if w.entries[found].size == size and memcmp(w.text.data + w.entries[found].at, value, <size_t>size) == 0:
            return found
        at = (at + 1) & <uint64_t>(w.slots - 1)
    if bytes_reserve(&w.text, size + 16):    # a value may be read as eight bytes
        return -1
    memcpy(w.text.data + w.text.size, &told, <size_t>w.prefix)
    w.text.size += w.prefix
    w.table[at] = w.count + 1
    w.entries[w.count].at = w.text.size
    w.entries[w.count].size = size
    if size:
        memcpy(w.text.data + w.text.size, value, <size_t>size)
    w.text.size += size
    w.count += 1
    return w.count - 1


cdef int words_of(
    Words* w, const int32_t* offsets, const uint8_t* data, const Picked* picked, int32_t* numbers
) noexcept nogil:
    """Write the number of each picked value to ``numbers``, as ``word_of`` returns it; return -1 without memory.

    It is for values that change from one to the next: the loop has no branch that depends on a short value.
    """
    cdef int64_t i, at, size
    cdef int64_t last = offsets[place(picked, picked.count - 1) + 1] - 8
    cdef uint64_t value, other, mask, h
    cdef int32_t found
    for i in range(picked.count):
        at = place(picked, i)
        size = offsets[at + 1] - offsets[at]
        if 0 < size <= 8 and offsets[at] <= last and w.slots:
            mask = ~<uint64_t>0 >> (64 - 8 * size)
            memcpy(&value, data + offsets[at], 8)
            value &= mask
            h = mixed(FIRST_HASH ^ <uint64_t>size, value)
            found = w.table[(h ^ (h >> 29)) & <uint64_t>(w.slots - 1)] - 1
            if found >= 0 and w.entries[found].size == size:
                memcpy(&other, w.text.data + w.entries[found].at, 8)
                if other & mask == value:
                    numbers[i] = found
                    continue
        found = word_of(w, data + offsets[at], size)
        if found < 0:
            return -1
        numbers[i] = found
    return 0


cdef void words_drop(Words* w) noexcept nogil:
    bytes_drop(&w.text)
    free(w.entries)
    free(w.table)
    memset(w, 0, sizeof(Words))
