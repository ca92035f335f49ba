"""Tags and values of Protobuf's encoding (spec: protobuf.dev, "Encoding"). All functions stay within the record."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from fastwire.decode.decoded cimport SOUND, TAG, TRUNCATED, Reason, Record, varint_fault
from fastwire.wire.varint cimport fw_varint, fw_varint32

cdef enum Kind:                  # of a tag: the wire type
    KIND_VARINT = 0
    KIND_64 = 1
    KIND_SIZED = 2
    KIND_GROUP = 3
    KIND_END = 4                 # of a group
    KIND_32 = 5
    NO_KIND = 8

# These functions begin at ``pos`` and move it behind the token; after a fault it is at the place of the fault.
cdef Reason read_overlong(Record* t, uint64_t* value) noexcept nogil
cdef Reason skip_value(Record* t, uint32_t tag) noexcept nogil
cdef Reason skip_group(Record* t, uint32_t number, const uint8_t** last) noexcept nogil


cdef inline Reason read_varint(Record* t, uint64_t* value) noexcept nogil:
    cdef const uint8_t* behind = fw_varint(t.pos, t.end, value)
    if behind is NULL:
        return read_overlong(t, value)
    t.pos = behind
    return SOUND


cdef inline Reason read_size(Record* t, int64_t* size) noexcept nogil:
    """Read a length, and compare it with the bytes that are there."""
    cdef const uint8_t* start = t.pos
    cdef uint64_t raw = 0
    cdef Reason fault = read_varint(t, &raw)
    if fault:
        return fault
    if raw > <uint64_t>(t.end - t.pos):
        t.pos = start
        return TRUNCATED
    size[0] = <int64_t>raw
    return SOUND


cdef inline Reason read_tag(Record* t, uint32_t* tag) noexcept nogil:
    """Read the number and the wire type of a field; a number is never 0."""
    cdef uint64_t raw = 0
    cdef const uint8_t* behind
    if t.pos[0] < 0x80:
        raw = t.pos[0]
        behind = t.pos + 1
    else:
        behind = fw_varint32(t.pos, t.end, &raw)
        if behind is NULL:
            return TRUNCATED if t.end - t.pos < 5 and varint_fault(t) == TRUNCATED else TAG
    if raw < 8 or raw & 7 > KIND_32:
        return TAG
    t.pos = behind
    tag[0] = <uint32_t>raw
    return SOUND
