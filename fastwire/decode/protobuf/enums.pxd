"""Values of Protobuf's enums as texts. See ``protoenum.pyx``."""

from libc.stdint cimport int64_t, uint8_t

from fastwire.decode.protobuf.script cimport Step, Text

cdef enum:
    MOST_DIGITS = 11             # bytes of an int32 in digits, with its sign

cdef int find_symbol(const Step* step, int64_t number) noexcept nogil
cdef Text in_digits(int64_t number, uint8_t* digits) noexcept nogil
