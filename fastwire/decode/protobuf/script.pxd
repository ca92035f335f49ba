"""The scripts that the walker of Protobuf's encoding runs: steps with the columns that they fill."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from fastwire.decode.decoded cimport Record
from fastwire.decode.nested cimport Output
from fastwire.decode.protobuf.token cimport Kind
from fastwire.decode.scripted cimport Head, Scripts

cdef enum:
    MOST_PATH = 16               # message indexes of a framed record
    # Columns that members of oneofs may leave when others replace them. A member of a thousand columns is replaced by
    # four bytes, and each of its columns has to be looked at: this bounds the time for a record by its size.
    LEFT_BY_ALL = 1 << 16
    LEFT_BY_BYTE = 16
    NO_STEP = -1

cdef enum Wire:                  # the way in which a value is read
    WIRE_NONE                    # it is not: the records lack the field
    WIRE_BOOL
    WIRE_INT32
    WIRE_INT64
    WIRE_UINT32
    WIRE_UINT64
    WIRE_SINT32
    WIRE_SINT64
    WIRE_FIXED32
    WIRE_FIXED64
    WIRE_SFIXED32
    WIRE_SFIXED64
    WIRE_FLOAT
    WIRE_DOUBLE
    WIRE_STRING
    WIRE_BYTES
    WIRE_ENUM
    WIRE_MESSAGE
    WIRE_ENTRY                   # of a map
    WIRE_LIST
    WIRE_TIMESTAMP
    WIRE_ENCODED                 # a message that is kept as it is

cdef struct Text:
    const uint8_t* data
    int64_t size

cdef struct Step:
    Wire wire
    Kind kind                    # of a value
    Kind tagged                  # of its tag, which may be that of a message around it
    uint32_t plain               # ``tagged`` of a number, text or bytes with a column, outside of oneofs; else NO_KIND
    int column                   # that it fills; -1: the value is skipped
    int first                    # of its children
    int children
    bint wrapped
    bint closed                  # an enum
    bint packed                  # values of a list may stand in one field
    int oneof                    # index in ``chosen`` of the script; -1: none
    bint has_default
    bint zero                    # the default is zero, false or empty
    Text default
    int symbols_count
    int64_t* numbers             # of the symbols, ascending
    Text* symbols
    uint32_t near                # fields of smaller numbers have slots
    int32_t* slots               # by number: the child, or NO_STEP
    int far_count
    uint32_t* far_numbers        # of the other fields, ascending
    int32_t* far_steps

cdef struct Script:              # the steps of one schema of the records
    Head head
    Step* steps
    int count
    int* chosen                  # by oneof: the column that was set last
    int paths_count
    int32_t paths[2][MOST_PATH]  # message indexes of the message
    int paths_size[2]

cdef struct Walk:
    Output out
    Scripts known                # message indexes follow the id before a record
    Step* steps                  # of the current script
    int* chosen
    bint unnamed                 # a map's entry had a number that its enum does not have
    int* weights                 # by column: itself and those below it
    int64_t left                 # columns that members of oneofs may leave yet, in this record
    Record record


cdef inline int find_step(const Step* message, uint32_t number) noexcept nogil:
    """Return the step of a field, or NO_STEP."""
    cdef int low, high, middle
    if number < message.near:
        return message.slots[number]
    low, high = 0, message.far_count
    while low < high:
        middle = (low + high) // 2
        if message.far_numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    if low < message.far_count and message.far_numbers[low] == number:
        return message.far_steps[low]
    return NO_STEP
