"""The rare tokens of Protobuf's encoding: varints with more bits than a number has, and fields that are skipped."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastwire.decode.decoded cimport DEEP, SOUND, TAG, TRUNCATED, Reason, Record, varint_fault

cdef enum:
    MOST_GROUPS = 100            # inside each other, in an unknown field


cdef Reason read_overlong(Record* t, uint64_t* value) noexcept nogil:
    """Read a varint of ten bytes with more than 64 bits, of which all parsers of Protobuf drop the upper ones."""
    cdef int i
    if t.end - t.pos < 10 or t.pos[9] >= 0x80:
        return varint_fault(t)
    value[0] = <uint64_t>(t.pos[9] & 1) << 63
    for i in range(9):
        if t.pos[i] < 0x80:
            return varint_fault(t)
        value[0] |= <uint64_t>(t.pos[i] & 0x7F) << 7 * i
    t.pos += 10
    return SOUND


cdef Reason skip_value(Record* t, uint32_t tag) noexcept nogil:
    """Skip the value behind a tag."""
    cdef uint64_t number = 0
    cdef int64_t size = 0
    cdef const uint8_t* behind
    cdef Reason fault
    if tag & 7 == KIND_VARINT:
        return read_varint(t, &number)
    if tag & 7 == KIND_SIZED:
        fault = read_size(t, &size)
        if fault:
            return fault
    elif tag & 7 == KIND_64 or tag & 7 == KIND_32:
        size = 8 if tag & 7 == KIND_64 else 4
        if t.end - t.pos < size:
            return TRUNCATED
    elif tag & 7 == KIND_GROUP:
        return skip_group(t, tag >> 3, &behind)
    else:
        return TAG
    t.pos += size
    return SOUND


cdef Reason skip_group(Record* t, uint32_t number, const uint8_t** last) noexcept nogil:
    """Skip a group and the tag that ends it, to whose begin ``last`` is set."""
    cdef uint32_t[MOST_GROUPS] open
    cdef int depth = 1
    cdef uint32_t tag = 0
    cdef Reason fault
    open[0] = number
    while depth:
        if t.pos == t.end:
            return TRUNCATED
        last[0] = t.pos
        fault = read_tag(t, &tag)
        if fault:
            return fault
        if tag & 7 == KIND_END:
            depth -= 1
            if open[depth] != tag >> 3:
                t.pos = last[0]
                return TAG
        elif tag & 7 == KIND_GROUP:
            if depth == MOST_GROUPS:
                t.pos = last[0]
                return DEEP
            open[depth] = tag >> 3
            depth += 1
        else:
            fault = skip_value(t, tag)
            if fault:
                return fault
    return SOUND
