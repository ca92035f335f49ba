"""The walker of Avro's binary encoding, and the scripts that it runs. See ``avroread.pyx``."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.decode.decoded cimport Records
from fastwire.decode.nested cimport Output

cdef enum Reason:
    SOUND
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
    UNEXPECTED_NULL
    NO_HEADER
    REFUSED                      # the caller has refused the record's schema
    UNKNOWN                      # the caller does not know the record's schema yet: not a property of the record
    NO_MEMORY                    # of the system, not a property of the record

cdef enum Operation:
    OP_NULL
    OP_BOOL
    OP_INT
    OP_FLOAT
    OP_DOUBLE
    OP_TEXT
    OP_BYTES
    OP_FIXED
    OP_ENUM
    OP_DECIMAL
    OP_FIXED_DECIMAL
    OP_RECORD
    OP_ARRAY
    OP_UNION
    OP_ABSENT
    OP_DEFAULT

cdef struct Symbol:
    const uint8_t* text          # NULL: the column does not take it
    int64_t size

cdef struct Step:
    Operation operation
    int column                   # that it fills; -1: the value is read and dropped
    int null_branch
    bint lone
    bint optional                # lone or null_branch: a branch is read first
    int64_t low
    int64_t high
    int64_t size                 # bytes of a value of fixed size
    int digits
    int count                    # of symbols or branches
    Symbol* symbols
    int* branches
    Symbol value                 # of OP_DEFAULT: its bytes
    int first                    # of its children
    int children

cdef struct Script:              # the steps of one schema of the records
    int32_t id
    Step* steps                  # NULL: refused
    int count

cdef struct Walk:
    Output out
    Script* scripts
    int scripts_count
    int script                   # the current one
    Step* steps                  # its steps
    bint framed                  # each record begins with the id of its schema
    int32_t id                   # of the record that stopped a run
    const uint8_t* start         # of the record
    const uint8_t* pos
    const uint8_t* end
    const uint8_t* edge          # of the whole column of bytes: readable
    int at                       # the step that failed

cdef Reason run(Walk* w, Records* records, int64_t most) noexcept nogil
