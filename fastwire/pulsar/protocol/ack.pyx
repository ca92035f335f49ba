"""Encoding of FLOW and ACK frames from runs of entries, without an object per entry (spec: pulsar 13.2, 15)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from fastwire.wire.writer cimport MOST_BYTES_A_VARINT, put_u32be, put_varint, varint_bytes, varint_size

__all__ = ["encode_ack_cumulative", "encode_ack_elements", "encode_ack_runs", "encode_flow"]

cdef enum:
    MOST_BYTES_AN_ID = 2 + 2 * (1 + MOST_BYTES_A_VARINT)       # tag and size; ledger, entry
    HEAD_BYTES = 64


cdef inline uint8_t* put_id(uint8_t* p, int64_t ledger, int64_t entry) noexcept nogil:
    """Write a CommandAck.message_id; -1 is legal and written as an unsigned number (spec: pulsar 29, trap 13)."""
    p[0] = 0x1A
    p[1] = <uint8_t>(2 + varint_size(<uint64_t>ledger) + varint_size(<uint64_t>entry))
    p[2] = 0x08
    p = put_varint(p + 3, <uint64_t>ledger)
    p[0] = 0x10
    return put_varint(p + 1, <uint64_t>entry)


cdef bytes frame(int kind, const uint8_t* body, int64_t size):
    """Return a simple command frame: type, and one sub-command in the field of the same number (1 to 15)."""
    cdef uint8_t head[HEAD_BYTES]
    cdef uint8_t* p = head + 8
    cdef int64_t command
    p[0] = 0x08
    p[1] = <uint8_t>kind
    p[2] = <uint8_t>(kind << 3 | 2)
    p = put_varint(p + 3, <uint64_t>size)
    command = (p - head) - 8 + size
    put_u32be(head, <uint32_t>(command + 4))
    put_u32be(head + 4, <uint32_t>command)
    return PyBytes_FromStringAndSize(<char*>head, p - head) + PyBytes_FromStringAndSize(<const char*>body, size)


def encode_flow(uint64_t consumer_id, uint64_t permits):
    """Return a FLOW frame. Raises ValueError for 0, which a broker treats as a protocol error."""
    cdef uint8_t body[32]
    cdef uint8_t* p = body
    if not 0 < permits <= 0x7FFFFFFF:
        raise ValueError(f"{permits} permits cannot be granted")
    p[0] = 0x08
    p = put_varint(p + 1, consumer_id)
    p[0] = 0x10
    p = put_varint(p + 1, permits)
    return frame(11, body, p - body)


def encode_ack_cumulative(uint64_t consumer_id, int64_t ledger, int64_t entry, request_id=None):
    """Return an ACK of everything up to (ledger, entry); with ``request_id`` the broker sends ACK_RESPONSE (version
    17).
    """
    cdef uint8_t body[HEAD_BYTES]
    cdef uint8_t* p = body
    p[0] = 0x08
    p = put_varint(p + 1, consumer_id)
    p[0] = 0x10
    p[1] = 1
    p = put_id(p + 2, ledger, entry)
    if request_id is not None:
        p[0] = 0x40
        p = put_varint(p + 1, <uint64_t>request_id)
    return frame(10, body, p - body)


def encode_ack_elements(uint64_t consumer_id, elements, int max_ids=1000, request_ids=None):
    """Return the frames of individual ACKs of elements: (ledger, entry, words of the remaining set) each.

    ``max_ids`` and ``request_ids`` as in ``encode_ack_runs``. Raises ValueError for an empty set, which would
    acknowledge the whole entry.
    """
    cdef list frames = []
    cdef list ids = []
    for ledger, entry, words in elements:
        if not words:
            raise ValueError(f"nothing of {ledger}:{entry} is left: acknowledge the entry")
        ids.append(id_bytes(ledger, entry, words))
    for first in range(0, len(ids), max_ids):
        body = b"\x08" + varint_bytes(consumer_id) + b"\x10\x00" + b"".join(ids[first:first + max_ids])
        if request_ids is not None:
            body += b"\x40" + varint_bytes(<uint64_t>next(request_ids))
        frames.append(frame(10, body, len(body)))
    return frames


cdef bytes id_bytes(int64_t ledger, int64_t entry, bytes words):
    """Return a CommandAck.message_id with its ack_set; a set bit means unacknowledged, trailing zero words are left
    out.
    """
    cdef list parts = [b"\x08" + varint_bytes(<uint64_t>ledger) + b"\x10" + varint_bytes(<uint64_t>entry)]
    cdef uint64_t word
    cdef Py_ssize_t i, count = len(words) // 8
    cdef const uint8_t* bits = words
    while count:
        memcpy(&word, bits + (count - 1) * 8, 8)
        if word:
            break
        count -= 1
    for i in range(count):
        memcpy(&word, bits + i * 8, 8)
        parts.append(b"\x28" + varint_bytes(word))
    cdef bytes ident = b"".join(parts)
    return b"\x1a" + varint_bytes(len(ident)) + ident


def encode_ack_runs(uint64_t consumer_id, runs, int max_ids=1000, request_ids=None):
    """Return the frames of individual ACKs of whole entries; ``runs`` are (ledger, first entry, last entry).

    Each frame has at most ``max_ids`` ids, and the next request id of the iterator ``request_ids``, if given.
    """
    cdef int64_t ledger, first, last, entry
    cdef int count = 0
    cdef uint8_t* body
    cdef uint8_t* p
    cdef list frames = []
    if max_ids < 1:
        raise ValueError("max_ids is below 1")
    body = <uint8_t*>malloc(<size_t>max_ids * MOST_BYTES_AN_ID + HEAD_BYTES)
    if body is NULL:
        raise MemoryError()
    try:
        p = start_individual(body, consumer_id)
        for ledger, first, last in runs:
            for entry in range(first, last + 1):
                p = put_id(p, ledger, entry)
                count += 1
                if count == max_ids:
                    frames.append(end_individual(body, p, request_ids))
                    p = start_individual(body, consumer_id)
                    count = 0
        if count:
            frames.append(end_individual(body, p, request_ids))
    finally:
        free(body)
    return frames


cdef uint8_t* start_individual(uint8_t* p, uint64_t consumer_id) noexcept:
    p[0] = 0x08
    p = put_varint(p + 1, consumer_id)
    p[0] = 0x10
    p[1] = 0
    return p + 2


cdef bytes end_individual(uint8_t* body, uint8_t* p, object request_ids):
    if request_ids is not None:
        p[0] = 0x40
        p = put_varint(p + 1, <uint64_t>next(request_ids))
    return frame(10, body, p - body)
