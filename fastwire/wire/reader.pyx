"""The exception of a reader after a failed read."""

from fastwire.errors import ProtocolError


cdef object reader_error(Reader* r, str what):
    """Return the exception for the first failed read; ``what`` names the record."""
    cdef Py_ssize_t left = (r.end - r.start) - r.fault_at
    if r.fault == FAULT_TRUNCATED:
        return ProtocolError(what, r.fault_at, r.wanted, left)
    if r.fault == FAULT_VARINT:
        return ProtocolError(what, r.fault_at, detail="varint does not fit 64 bits")
    if r.fault == FAULT_WIRE_TYPE:
        return ProtocolError(what, r.fault_at, detail=f"wire type {r.wanted} does not fit the field")
    if r.fault == FAULT_MISSING:
        return ProtocolError(what, r.fault_at, detail=f"required field {r.wanted} is missing")
    return ProtocolError(what, r.fault_at, detail=f"length {r.wanted} is negative or beyond the frame")
