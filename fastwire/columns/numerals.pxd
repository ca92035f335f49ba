"""Numbers, dates and times as text for JSON. See ``numerals.pyx``.

Each function writes to ``at``, where MAX_NUMERAL bytes are free, and returns the end of the text.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    MAX_NUMERAL = 64

cdef char* write_integer(char* at, uint64_t magnitude, bint negative) noexcept nogil
cdef char* write_real(char* at, double value, bint single) noexcept nogil
cdef char* write_decimal(char* at, const uint8_t* value, int64_t scale) noexcept nogil
cdef char* write_date(char* at, int64_t day) noexcept nogil
cdef char* write_time(char* at, int64_t value, int64_t per_second) noexcept nogil
cdef char* write_timestamp(char* at, int64_t value, int64_t per_second, bint zoned) noexcept nogil
