"""The decoder that those of all formats share. See ``decoded.pyx``."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from fastwire.columns.builder cimport is_utf8
from fastwire.decode.nested cimport Output, nested_cut, nested_null
from fastwire.wire.pool cimport Pool
from fastwire.wire.varint cimport fw_u32be

cdef enum:
    MOST_OUTPUT = 8 << 20        # growth of the columns after which a call ends
    HEADER = 5                   # a zero, and the id of the schema in 4 bytes (spec: Confluent wire format)

cdef enum Reason:                # why a record is bad
    SOUND                        # it is not
    TRUNCATED
    VARINT
    RANGE
    BOOLEAN
    LENGTH
    BRANCH
    SYMBOL
    UTF8
    DECIMAL
    BLOCK
    TRAILING
    NO_VALUE
    TOO_LARGE
    NULL_VALUE
    NO_HEADER
    REFUSED                      # the caller has refused the record's schema
    UNKNOWN                      # the caller does not know the record's schema yet: not a property of the record
    NO_MEMORY                    # of the system, not a property of the record
    SYNTAX                       # the others are of text
    DEEP
    ESCAPE
    TYPE
    MISSING
    DUPLICATE
    INEXACT
    BASE64
    TIME
    TAG                          # these three are of Protobuf
    OTHER
    REPLACED
    STRANGE                      # a field of JSON that has no column

cdef struct Record:              # the bytes of a record, and the place in them
    const uint8_t* start
    const uint8_t* pos
    const uint8_t* end
    const uint8_t* edge          # of the whole column of bytes: readable
    int at                       # the step that failed, or -1
    bint numbered                # ``id`` is the number of its schema
    int32_t id

cdef struct Records:             # a column of bytes
    const uint8_t* validity
    const int32_t* offsets
    const uint8_t* data
    int64_t shift                # index of the first record in the buffers
    int64_t count
    int64_t next                 # the record to read
    const int32_t* ids           # NULL, or the number of each record's schema

# Reads the record of a context into the columns. After a fault the columns may have a part of it.
ctypedef Reason (*Reading)(void* context) noexcept nogil

# Decodes records until one is bad, or the columns have grown by ``most``.
ctypedef Reason (*Run)(void* context, Records* records, int64_t most) noexcept nogil


cdef class Decoded:
    cdef object _schema
    cdef object _array
    cdef readonly list bad
    cdef readonly int64_t rows
    cdef readonly int64_t upto
    cdef readonly int64_t nbytes
    cdef readonly object unknown


cdef class RecordDecoder:
    cdef Output* out             # of the format's walker, as the next two
    cdef Record* record
    cdef void* context
    cdef Run run
    cdef Pool pool
    cdef list texts              # names and symbols that the columns and steps point to

    cdef int open(self, Output* out, Record* record, void* context, Run run, program, Pool pool) except -1
    cdef tuple steps(self)
    cdef str reason(self, Reason fault)
    cdef object unknown_id(self)


cdef tuple names_of(reasons)
cdef object records_of(Records* records, values, int64_t first)


cdef inline Reason read_id(Record* record, int32_t* id) noexcept nogil:
    """Read the id of a record's schema from its header, which stays there, unless the caller has given its number."""
    if record.numbered:
        id[0] = record.id
        return SOUND
    if record.end - record.pos < HEADER or record.pos[0]:
        return NO_HEADER
    id[0] = <int32_t>fw_u32be(record.pos + 1)
    return SOUND


cdef inline bint is_text(const uint8_t* text, int64_t size, const uint8_t* edge) noexcept nogil:
    """Check UTF-8, quickly where it is ASCII; bytes before ``edge`` are readable."""
    cdef uint64_t word
    cdef uint64_t seen = 0
    cdef int64_t i
    if size >= 8:
        for i in range(0, size - 7, 8):
            memcpy(&word, text + i, 8)
            seen |= word
        memcpy(&word, text + size - 8, 8)
        seen |= word
    elif edge - text >= 8 and size:
        memcpy(&word, text, 8)
        seen = word << 8 * (8 - size)            # the machine is little-endian
    elif size:
        return is_utf8(text, size)
    return not seen & 0x8080808080808080u or is_utf8(text, size)


cdef inline Reason varint_fault(const Record* record) noexcept nogil:
    """Tell a varint at ``pos`` that is cut off from one of more than 64 bits."""
    cdef const uint8_t* p = record.pos
    while p < record.end and p - record.pos < 10:
        if p[0] < 0x80:
            return VARINT
        p += 1
    return TRUNCATED if p == record.end and p - record.pos < 10 else VARINT


cdef inline bint is_null(const Records* records, int64_t row) noexcept nogil:
    cdef int64_t bit = row + records.shift
    return records.validity is not NULL and not records.validity[bit >> 3] >> (bit & 7) & 1


cdef inline Reason null_record(Output* out) noexcept nogil:
    if not out.keeps_nulls:
        return NO_VALUE
    if nested_null(out, 0):
        return TOO_LARGE if out.over else NO_MEMORY
    return SOUND


cdef inline Reason run_records(
    Output* out, Record* record, void* context, Reading reading, Records* records, int64_t most
) noexcept nogil:
    """Decode records until one is bad, which is removed from the columns, or the columns have grown by ``most``.

    It is inline so that the compiler knows ``reading``, and has it in the loop.
    """
    cdef const int32_t* offsets = records.offsets + records.shift
    cdef int64_t row, kept
    cdef Reason fault
    record.edge = records.data + offsets[records.count]
    while True:
        row = records.next
        kept = out.columns[0].length
        record.start = record.pos = records.data + offsets[row]
        record.end = records.data + offsets[row + 1]
        record.at = -1
        if record.numbered:
            record.id = records.ids[row]
        out.grown = 0
        out.over = False
        fault = null_record(out) if is_null(records, row) else reading(context)
        if fault:
            nested_cut(out, 0, kept)
            return fault
        records.next += 1
        if records.next == records.count or out.regrown >= most:
            return SOUND
