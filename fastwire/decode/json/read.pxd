"""The walker of JSON texts, and the steps that it runs. See ``jsonread.pyx``."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from fastwire.decode.decoded cimport Reason, Record, Records
from fastwire.decode.json.value cimport Clock
from fastwire.decode.nested cimport Output

cdef enum Operation:
    OP_NULL
    OP_BOOL
    OP_INT
    OP_FLOAT
    OP_DOUBLE
    OP_TEXT
    OP_BYTES
    OP_ENUM
    OP_DECIMAL
    OP_RECORD
    OP_ARRAY
    OP_MAP

cdef enum:
    EMPTY = -1                   # a slot without a name

cdef struct Name:                # of a field or symbol, followed by a quote
    const uint8_t* text
    int64_t size                 # without the quote
    uint64_t head                # the first bytes of the text, quote included, and zeros
    uint64_t mask                # of the bytes that ``head`` has; 0: the name is never written as it is

cdef struct Step:
    Operation operation
    int64_t low
    int64_t high
    int digits
    int scale
    Clock clock
    int places
    int64_t factor               # by which a number is multiplied; 1 without a clock
    bint quotes                  # a number of the clock may stand in quotes
    bint raw                     # a text takes values of other types, as they are written
    int count                    # of names
    Name* names                  # of an enum's symbols, or of a record's children
    int32_t* slots               # indexes of names by hash, open addressing
    uint32_t last_slot

cdef struct Walk:
    int32_t* refused             # numbers of schemas
    int refused_count
    Record record
    Output out
    Step* steps
    uint8_t* scratch             # a key, symbol or time without its escapes
    int64_t scratch_size         # the longest name
    bint closed                  # as of ``JsonDecoder``
    bint partial

cdef Reason run(void* context, Records* records, int64_t most) noexcept nogil


cdef inline uint32_t hash_of(const uint8_t* text, int64_t size) noexcept nogil:
    cdef uint32_t sum = 2166136261u
    cdef int64_t i
    for i in range(size):
        sum = (sum ^ text[i]) * 16777619u
    return sum ^ sum >> 15
