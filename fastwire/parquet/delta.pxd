"""DELTA_BINARY_PACKED of 32 and 64 bit integers (parquet-format, Encodings.md, "Delta Encoding")."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from fastwire.parquet.buffer cimport Bytes, bit_length, bytes_reserve, put_byte, put_varint, zigzag

cdef enum:
    BLOCK = 128                  # deltas of a block
    MINIBLOCKS = 4
    MINIBLOCK = 32

ctypedef fused Counter:
    int32_t
    int64_t


cdef inline int put_deltas(Bytes* b, const Counter* values, int64_t count) noexcept nogil:
    """Append ``count`` values; return -1 without memory. Differences wrap at the width of the type, as readers add."""
    cdef int64_t at
    cdef int waiting
    if bytes_reserve(b, 64):
        return -1
    put_varint(b, BLOCK)
    put_varint(b, MINIBLOCKS)
    put_varint(b, <uint64_t>count)
    put_varint(b, zigzag(values[0]) if count else 0)
    at = 1
    while at < count:
        waiting = <int>min(BLOCK, count - at)
        if put_block[Counter](b, values + at, waiting):
            return -1
        at += waiting
    return 0


cdef inline int put_block(Bytes* b, const Counter* values, int count) noexcept nogil:
    """Append the differences between ``count`` values and the ones before them."""
    cdef Counter[BLOCK] steps
    cdef Counter least, most
    cdef int i, m, width, last, have
    cdef uint64_t used, value, bits
    cdef int[MINIBLOCKS] widths
    for i in range(count):
        if Counter is int32_t:
            steps[i] = <int32_t>(<uint32_t>values[i] - <uint32_t>values[i - 1])
        else:
            steps[i] = <int64_t>(<uint64_t>values[i] - <uint64_t>values[i - 1])
    least = most = steps[0]
    for i in range(1, count):
        least = min(least, steps[i])
        most = max(most, steps[i])
    if bytes_reserve(b, 32 + MINIBLOCKS + BLOCK * 8):
        return -1
    put_varint(b, zigzag(least))
    if least == most:
        for _ in range(MINIBLOCKS):
            put_byte(b, 0)
        return 0
    for m in range(MINIBLOCKS):
        used = 0
        for i in range(m * MINIBLOCK, min((m + 1) * MINIBLOCK, count)):
            used |= above[Counter](steps[i], least)
        widths[m] = bit_length(used)
        put_byte(b, widths[m])
    for m in range(MINIBLOCKS):
        width = widths[m]
        if not width:
            continue
        bits = 0
        have = 0
        last = min((m + 1) * MINIBLOCK, count)
        for i in range(m * MINIBLOCK, (m + 1) * MINIBLOCK):
            value = above[Counter](steps[i], least) if i < last else 0
            bits |= value << have
            if have + width >= 64:
                memcpy(b.data + b.size, &bits, 8)
                b.size += 8
                have += width - 64
                bits = value >> (width - have) if have else 0
            else:
                have += width
        while have > 0:
            put_byte(b, <int>(bits & 0xFF))
            bits >>= 8
            have -= 8
    return 0


cdef inline uint64_t above(Counter value, Counter least) noexcept nogil:
    if Counter is int32_t:
        return <uint64_t>(<uint32_t>value - <uint32_t>least)
    else:
        return <uint64_t>value - <uint64_t>least
