"""Values of JSON tokens: numbers of each type, bytes in base64, dates and times."""

from libc.stdint cimport int64_t, uint8_t

from fastwire.decode.decoded cimport Reason
from fastwire.decode.json.token cimport Number

cdef enum Clock:                 # text that a column of dates or times takes
    CLOCK_NONE
    CLOCK_DATE
    CLOCK_TIME
    CLOCK_INSTANT                # a timestamp with a zone
    CLOCK_LOCAL                  # a timestamp without one
    CLOCK_LOOSE                  # a timestamp in UTC unless it has a zone; a date is its midnight

cdef Reason number_int(const Number* n, int64_t* to) noexcept nogil
cdef Reason number_decimal(const Number* n, int digits, int scale, void* to) noexcept nogil
cdef Reason number_double(const Number* n, double* to) noexcept nogil
cdef Reason number_float(const Number* n, float* to) noexcept nogil
cdef int64_t base64_bytes(uint8_t* text, int64_t size) noexcept nogil
cdef Reason time_value(const uint8_t* text, int64_t size, Clock clock, int places, int64_t* to) noexcept nogil
