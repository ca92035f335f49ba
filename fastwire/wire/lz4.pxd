"""The head of an LZ4 frame (spec: kafka 8)::

    u32le magic | u8 flags | u8 size of blocks | u64le size of the content, if flagged | u8 sum of these but the magic
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    LZ4_MAGIC = 0x184D2204
    LZ4_INDEPENDENT = 0x60       # version 1, independent blocks, no checksums, size or dictionary


cdef inline uint32_t u32le(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint32_t lz4_descriptor_sum(const uint8_t* p, int64_t size) noexcept nogil:
    """Return the second byte of xxHash32 (seed 0) of fewer than 16 bytes, the last byte of a frame header."""
    cdef uint32_t h = 374761393u + <uint32_t>size
    cdef int64_t i = 0
    while i + 4 <= size:
        h += u32le(p + i) * 3266489917u
        h = (h << 17 | h >> 15) * 668265263u
        i += 4
    while i < size:
        h += <uint32_t>p[i] * 374761393u
        h = (h << 11 | h >> 21) * 2654435761u
        i += 1
    h = (h ^ h >> 15) * 2246822519u
    h = (h ^ h >> 13) * 3266489917u
    return (h ^ h >> 16) >> 8 & 0xFF


cdef inline int64_t lz4_independent(const uint8_t* p, int64_t size, int64_t* block) noexcept nogil:
    """Return the size of a header that independent blocks of at most ``block`` bytes follow; 0 = another header."""
    if size < 7 or u32le(p) != LZ4_MAGIC or p[4] != LZ4_INDEPENDENT or p[5] & 0x8F or p[5] < 0x40:
        return 0
    if p[6] != lz4_descriptor_sum(p + 4, 2):
        return 0
    block[0] = <int64_t>1 << (8 + 2 * (p[5] >> 4))
    return 7


cdef inline int64_t lz4_end(const uint8_t* p, int64_t size) noexcept nogil:
    """Return the size of a frame with its end mark; ``size`` if it has none within, or if another frame follows it."""
    cdef int64_t at = 7
    cdef int64_t block
    if size < at or u32le(p) != LZ4_MAGIC:
        return size
    at += (8 if p[4] & 0x08 else 0) + (4 if p[4] & 0x01 else 0)
    while size - at >= 4:
        block = u32le(p + at)
        at += 4
        if block == 0:
            at += 4 if p[4] & 0x04 else 0        # a sum of the content
            return size if at > size or (size - at >= 4 and u32le(p + at) == LZ4_MAGIC) else at
        at += (block & 0x7FFFFFFF) + (4 if p[4] & 0x10 else 0)
    return size
