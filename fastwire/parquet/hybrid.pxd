"""The RLE and bit-packing hybrid of levels and dictionary indexes (parquet-format, Encodings.md, "RLE = 3")."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from fastwire.parquet.buffer cimport Bytes, bytes_reserve, put_byte, put_varint

ctypedef fused Small:
    uint8_t
    int32_t

cdef enum:
    GROUP = 8                    # values of a bit-packed group; a run is shorter as such from here on
    WORTH_A_RUN = 4              # bytes of a bitmap that are all zeros or all ones


cdef inline int put_run(Bytes* b, int64_t count, uint32_t value, int width) noexcept nogil:
    """Append ``count`` times ``value``, of ``width`` bits."""
    cdef int i
    if bytes_reserve(b, 16):
        return -1
    put_varint(b, <uint64_t>count << 1)
    for i in range((width + 7) // 8):
        put_byte(b, (value >> (8 * i)) & 0xFF)
    return 0


cdef inline int put_packed(Bytes* b, const Small* values, int64_t count, int width) noexcept nogil:
    """Append ``count`` values in groups of eight, the last one padded with zeros."""
    cdef int64_t groups = (count + GROUP - 1) // GROUP, i
    cdef uint64_t bits = 0, value
    cdef int have = 0
    cdef int64_t end
    if bytes_reserve(b, groups * width + 24):
        return -1
    put_varint(b, <uint64_t>groups << 1 | 1)
    end = b.size + groups * width
    for i in range(count):
        value = <uint32_t>values[i]
        bits |= value << have
        have += width
        if have >= 64:
            memcpy(b.data + b.size, &bits, 8)
            b.size += 8
            have -= 64
            bits = value >> (width - have)
    memcpy(b.data + b.size, &bits, 8)
    b.size += (have + 7) // 8
    if b.size < end:
        memset(b.data + b.size, 0, <size_t>(end - b.size))
        b.size = end
    return 0


cdef inline bint eight_same(const Small* values) noexcept nogil:
    cdef Small other = 0
    cdef int i
    for i in range(1, GROUP):
        other |= values[i] ^ values[0]
    return other == 0


cdef inline int put_hybrid(Bytes* b, const Small* values, int64_t count, int width) noexcept nogil:
    """Append values of ``width`` bits (1 to 32): runs of eight and more as runs, all others packed."""
    cdef int64_t at = 0, first, run
    while at < count:
        run = GROUP if at + GROUP <= count and eight_same[Small](values + at) else 1
        if run == GROUP or at + GROUP > count:
            while at + run < count and values[at + run] == values[at]:
                run += 1
        if run >= GROUP or at + run == count:
            if put_run(b, run, <uint32_t>values[at], width):
                return -1
            at += run
            continue
        first = at
        at += GROUP
        while at + GROUP <= count and not eight_same[Small](values + at):
            at += GROUP
        if at + GROUP > count:
            at = count                       # fewer than a group: packed as its end
        if put_packed(b, values + first, at - first, width):
            return -1
    return 0


cdef inline int put_bitmap(Bytes* b, const uint8_t* bits, int64_t count) noexcept nogil:
    """Append ``count`` levels 0 or 1, the bits of a bitmap (lowest first, as Arrow and Parquet have them)."""
    cdef int64_t at = 0, whole = count // 8, first, run
    while at < whole:
        run = 0
        if bits[at] == 0 or bits[at] == 0xFF:
            run = 1
            while at + run < whole and bits[at + run] == bits[at]:
                run += 1
        if run >= WORTH_A_RUN:
            if put_run(b, run * 8, bits[at] & 1, 1):
                return -1
            at += run
            continue
        first = at
        at += max(run, 1)
        while at < whole:
            run = 0
            while run < WORTH_A_RUN and at + run < whole and bits[at + run] == bits[at] and (
                bits[at] == 0 or bits[at] == 0xFF
            ):
                run += 1
            if run == WORTH_A_RUN:
                break
            at += max(run, 1)
        at = min(at, whole)
        if bytes_reserve(b, at - first + 16):
            return -1
        put_varint(b, <uint64_t>(at - first) << 1 | 1)
        memcpy(b.data + b.size, bits + first, <size_t>(at - first))
        b.size += at - first
    if count % 8:
        if bytes_reserve(b, 16):
            return -1
        put_varint(b, 3)
        put_byte(b, bits[whole] & ((1 << (count % 8)) - 1))
    return 0


cdef inline void append_bits(uint8_t* to, int64_t at, const uint8_t* bits, int64_t first, int64_t count) noexcept nogil:
    """Copy ``count`` bits from bit ``first`` on behind the ``at`` bits of ``to``; what follows in ``to`` is zero."""
    cdef int64_t done = 0
    cdef int64_t source
    cdef int take, bit, place
    cdef uint32_t value
    while done < count:
        source = first + done
        place = <int>((at + done) & 7)
        take = <int>min(8 - place, count - done)
        bit = <int>(source & 7)
        value = bits[source >> 3] >> bit
        if bit + take > 8:
            value |= <uint32_t>bits[(source >> 3) + 1] << (8 - bit)
        value &= (1 << take) - 1
        to[(at + done) >> 3] |= <uint8_t>(value << place)
        done += take
