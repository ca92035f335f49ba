"""The walker of Avro's binary encoding, and the scripts that it runs. See ``avroread.pyx``."""

from libc.stdint cimport int64_t, uint8_t

from fastwire.decode.decoded cimport Reason, Record, Records
from fastwire.decode.nested cimport Output
from fastwire.decode.scripted cimport Head, Scripts

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
    OP_EMPTY

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
    Head head
    Step* steps
    int count

cdef struct Walk:
    Output out
    Scripts known
    Step* steps                  # of the current script
    Record record

cdef Reason run(void* context, Records* records, int64_t most) noexcept nogil
