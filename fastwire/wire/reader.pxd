"""Bounds-checked reader of untrusted bytes that does not raise while it reads.

The first failure empties the reader: every later read returns 0 or NULL, and the caller checks ``fault`` once per
record.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "<endian.h>" nogil:
    uint16_t be16toh(uint16_t)
    uint32_t be32toh(uint32_t)
    uint64_t be64toh(uint64_t)
    uint16_t le16toh(uint16_t)
    uint32_t le32toh(uint32_t)
    uint64_t le64toh(uint64_t)

cdef enum Fault:
    FAULT_NONE = 0
    FAULT_TRUNCATED = 1          # fewer bytes left than the field needs
    FAULT_VARINT = 2             # a varint that no 64-bit number can have
    FAULT_LENGTH = 3             # a negative length, or one beyond its frame
    FAULT_WIRE_TYPE = 4          # a protobuf wire type that does not exist or does not fit the field
    FAULT_MISSING = 5            # a required field is absent

cdef struct Reader:
    const uint8_t* start         # first byte of the frame; never moves
    const uint8_t* pos           # next byte to read
    const uint8_t* end           # one past the last byte
    Py_ssize_t fault_at          # offset of the first read that failed
    Py_ssize_t wanted            # bytes that read asked for
    Fault fault

cdef inline void reader_init(Reader* r, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    r.start = r.pos = data
    r.end = data + size
    r.fault_at = r.wanted = 0
    r.fault = FAULT_NONE

cdef inline void reader_fail(Reader* r, Fault fault, Py_ssize_t wanted) noexcept nogil:
    if r.fault == FAULT_NONE:
        r.fault = fault
        r.fault_at = r.pos - r.start
        r.wanted = wanted
    r.pos = r.end                # every later read fails too, and costs nothing

cdef inline const uint8_t* read_span(Reader* r, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t* here = r.pos
    if size < 0 or r.end - here < size:
        reader_fail(r, FAULT_LENGTH if size < 0 else FAULT_TRUNCATED, size)
        return NULL
    r.pos = here + size
    return here

cdef inline uint8_t read_u8(Reader* r) noexcept nogil:
    cdef const uint8_t* p = read_span(r, 1)
    return p[0] if p else 0

cdef inline uint16_t read_u16be(Reader* r) noexcept nogil:
    cdef uint16_t raw
    cdef const uint8_t* p = read_span(r, 2)
    if not p:
        return 0
    memcpy(&raw, p, 2)           # wire data is not aligned
    return be16toh(raw)

cdef inline uint32_t read_u32be(Reader* r) noexcept nogil:
    cdef uint32_t raw
    cdef const uint8_t* p = read_span(r, 4)
    if not p:
        return 0
    memcpy(&raw, p, 4)
    return be32toh(raw)

cdef inline uint64_t read_u64be(Reader* r) noexcept nogil:
    cdef uint64_t raw
    cdef const uint8_t* p = read_span(r, 8)
    if not p:
        return 0
    memcpy(&raw, p, 8)
    return be64toh(raw)

cdef inline uint16_t read_u16le(Reader* r) noexcept nogil:
    cdef uint16_t raw
    cdef const uint8_t* p = read_span(r, 2)
    if not p:
        return 0
    memcpy(&raw, p, 2)
    return le16toh(raw)

cdef inline uint32_t read_u32le(Reader* r) noexcept nogil:
    cdef uint32_t raw
    cdef const uint8_t* p = read_span(r, 4)
    if not p:
        return 0
    memcpy(&raw, p, 4)
    return le32toh(raw)

cdef inline uint64_t read_u64le(Reader* r) noexcept nogil:
    cdef uint64_t raw
    cdef const uint8_t* p = read_span(r, 8)
    if not p:
        return 0
    memcpy(&raw, p, 8)
    return le64toh(raw)

cdef inline uint64_t read_uvarint_slow(Reader* r) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef const uint8_t* p = r.pos
    while p < r.end:
        byte = p[0]
        p += 1
        if shift == 63 and byte > 1:
            reader_fail(r, FAULT_VARINT, 10)
            return 0
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            r.pos = p
            return value
        shift += 7
    reader_fail(r, FAULT_TRUNCATED, r.end - r.pos + 1)
    return 0

cdef inline uint64_t read_uvarint(Reader* r) noexcept nogil:
    # One and two bytes are nearly all varints of a batch: tags, lengths, counters.
    cdef const uint8_t* p = r.pos
    if r.end - p >= 2:
        if p[0] < 0x80:
            r.pos = p + 1
            return p[0]
        if p[1] < 0x80:
            r.pos = p + 2
            return (p[0] & 0x7F) | (<uint64_t>p[1] << 7)
    return read_uvarint_slow(r)

cdef object reader_error(Reader* r, str what)
