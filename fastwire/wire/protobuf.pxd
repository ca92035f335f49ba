"""Fields of protobuf messages, read in place: pointers are into the frame."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from fastwire.wire.reader cimport FAULT_LENGTH, FAULT_WIRE_TYPE, Reader, read_span, read_uvarint, reader_fail


cdef inline void skip_scalar(Reader* r, uint64_t tag) noexcept nogil:
    cdef uint64_t size
    if tag & 7 == 0:
        read_uvarint(r)
    elif tag & 7 == 1:
        read_span(r, 8)
    elif tag & 7 == 2:
        size = read_uvarint(r)
        if size > <uint64_t>(r.end - r.pos):
            reader_fail(r, FAULT_LENGTH, <Py_ssize_t>(size & 0x7FFFFFFF))
        else:
            read_span(r, <Py_ssize_t>size)
    elif tag & 7 == 5:
        read_span(r, 4)
    else:
        reader_fail(r, FAULT_WIRE_TYPE, <Py_ssize_t>(tag & 7))


cdef inline void skip_field(Reader* r, uint64_t tag) noexcept nogil:
    cdef int depth = tag & 7 == 3                # a group: obsolete, still legal as an unknown field
    if not depth:
        skip_scalar(r, tag)
    while depth and not r.fault:
        tag = read_uvarint(r)
        if r.fault:
            return
        if tag & 7 == 3:
            depth += 1
        elif tag & 7 == 4:
            depth -= 1
        else:
            skip_scalar(r, tag)


cdef inline const uint8_t* read_bytes(Reader* r, int64_t* size) noexcept nogil:
    """Return a length-delimited field; NULL and size 0 after a fault."""
    cdef uint64_t n = read_uvarint(r)
    if n > <uint64_t>(r.end - r.pos):
        reader_fail(r, FAULT_LENGTH, <Py_ssize_t>(n & 0x7FFFFFFF))
        size[0] = 0
        return NULL
    size[0] = <int64_t>n
    r.pos += n
    return r.pos - n
