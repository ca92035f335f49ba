"""Numbers, dates and times as text for JSON, without the interpreter lock.

All but numbers are written with quotes. Years outside of 0-9999 have a sign and at least six digits (ISO 8601,
expanded).
"""

cimport cython
from libc.math cimport INFINITY, isnan
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """

    static int fw_reads_as(const char *text, double value, int single)
    {
        return single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value;
    }

    /* The shortest of the usual precisions whose text reads as the same number, with a point or an exponent. */
    static char *fw_write_finite(char *at, double value, int single)
    {
        int precision = single ? 6 : 15, most = single ? 9 : 17, exponent = 0;
        char *each;
        do {
            snprintf(at, 40, "%.*g", precision, value);
        } while (precision++ < most && !fw_reads_as(at, value, single));
        for (each = at; *each; each++) {
            if (*each == 'e')
                exponent = 1;
            else if (*each != '-' && *each != '+' && (*each < '0' || *each > '9')) {
                *each = '.';  /* a locale may have a comma */
                exponent = 1;
            }
        }
        if (!exponent) {
            memcpy(each, ".0", 2);
            each += 2;
        }
        return each;
    }

    /* The digits of a little-endian two's complement of 128 bits, ending before ``end``. */
    static char *fw_digits_128(char *end, const unsigned char *bytes, int *negative)
    {
        unsigned __int128 value = 0;
        int i;
        for (i = 15; i >= 0; i--)
            value = value << 8 | bytes[i];
        *negative = bytes[15] >> 7;
        if (*negative)
            value = -value;
        do {
            unsigned long long part = (unsigned long long)(value % 1000000000000000000ULL);
            value /= 1000000000000000000ULL;
            for (i = 0; value ? i < 18 : part || !i; i++) {
                *--end = (char)('0' + part % 10);
                part /= 10;
            }
        } while (value);
        return end;
    }
    """
    char* fw_write_finite(char* at, double value, bint single) noexcept nogil
    char* fw_digits_128(char* end, const uint8_t* bytes, int* negative) noexcept nogil

cdef enum:
    MAX_INTEGER = 21             # characters of the longest integer, with sign
    MAX_DIGITS = 40              # of 128 bits

cdef char[200] PAIRS             # "00" to "99"


cdef void fill_pairs() noexcept:
    cdef int i
    for i in range(100):
        PAIRS[2 * i] = <char>(c'0' + i // 10)
        PAIRS[2 * i + 1] = <char>(c'0' + i % 10)


fill_pairs()


@cython.cdivision(True)
cdef inline char* digits(char* end, uint64_t value) noexcept nogil:
    """Write ``value`` so that it ends before ``end``; return its first character."""
    while value >= 100:
        end -= 2
        memcpy(end, &PAIRS[value % 100 * 2], 2)
        value = value / 100
    if value >= 10:
        end -= 2
        memcpy(end, &PAIRS[value * 2], 2)
    else:
        end -= 1
        end[0] = <char>(c'0' + value)
    return end


cdef inline char* padded(char* at, const char* first, int64_t size, int64_t least) noexcept nogil:
    """Copy digits, with zeros before them if they are fewer than ``least``."""
    if size < least:
        memset(at, c'0', <size_t>(least - size))
        at += least - size
    memcpy(at, first, <size_t>size)
    return at + size


cdef inline char* two(char* at, int64_t value) noexcept nogil:
    memcpy(at, &PAIRS[value * 2], 2)
    return at + 2


cdef char* write_integer(char* at, uint64_t magnitude, bint negative) noexcept nogil:
    """Write an integer."""
    cdef char[MAX_INTEGER] room
    cdef char* first = digits(room + MAX_INTEGER, magnitude)
    if negative:
        at[0] = c'-'
        at += 1
    return padded(at, first, room + MAX_INTEGER - first, 0)


cdef char* write_real(char* at, double value, bint single) noexcept nogil:
    """Write a double, or (``single``) a float, so that it reads as the same number.

    JSON has no text for some: "NaN", "Infinity", "-Infinity", with quotes.
    """
    if isnan(value):
        memcpy(at, b'"NaN"', 5)
        return at + 5
    if value == INFINITY:
        memcpy(at, b'"Infinity"', 10)
        return at + 10
    if value == -INFINITY:
        memcpy(at, b'"-Infinity"', 11)
        return at + 11
    return fw_write_finite(at, value, single)


cdef char* write_decimal(char* at, const uint8_t* value, int64_t scale) noexcept nogil:
    """Write a decimal of 128 bits with ``scale`` decimal places, 0 to 38."""
    cdef char[MAX_DIGITS] room
    cdef int negative = 0
    cdef char* first = fw_digits_128(room + MAX_DIGITS, value, &negative)
    cdef int64_t size = room + MAX_DIGITS - first
    at[0] = c'"'
    at += 1
    if negative:
        at[0] = c'-'
        at += 1
    if size <= scale:
        at[0] = c'0'
        at += 1
    else:
        at = padded(at, first, size - scale, 0)
        first += size - scale
        size = scale
    if scale:
        at[0] = c'.'
        at = padded(at + 1, first, size, scale)
    at[0] = c'"'
    return at + 1


@cython.cdivision(True)
cdef char* put_date(char* at, int64_t day) noexcept nogil:
    """Write the civil date of a day since 1970, without quotes."""
    cdef int64_t era, day_of_era, year_of_era, day_of_year, shifted, year, month
    cdef char[MAX_INTEGER] room
    cdef char* first
    # Years start in March, so that the leap day comes last; an era is 400 years.
    day += 719_468
    era = (day if day >= 0 else day - 146_096) / 146_097
    day_of_era = day - era * 146_097
    year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100)
    shifted = (5 * day_of_year + 2) / 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    if 0 <= year <= 9999:
        at = two(two(at, year / 100), year % 100)
    else:
        at[0] = c'-' if year < 0 else c'+'
        first = digits(room + MAX_INTEGER, <uint64_t>(-year if year < 0 else year))
        at = padded(at + 1, first, room + MAX_INTEGER - first, 6)
    at[0] = c'-'
    at = two(at + 1, month)
    at[0] = c'-'
    return two(at + 1, day_of_year - (153 * shifted + 2) / 5 + 1)


@cython.cdivision(True)
cdef char* put_time(char* at, int64_t of_day, int64_t fraction, int64_t per_second) noexcept nogil:
    """Write the time of a second of a day with microseconds, or nanoseconds where that is the unit; without quotes."""
    cdef int64_t places = 9 if per_second > 1_000_000 else 6
    cdef char[MAX_INTEGER] room
    cdef char* first
    at = two(at, of_day / 3_600)
    at[0] = c':'
    at = two(at + 1, of_day / 60 % 60)
    at[0] = c':'
    at = two(at + 1, of_day % 60)
    at[0] = c'.'
    first = digits(room + MAX_INTEGER, fraction if places == 9 else fraction * (1_000_000 / per_second))
    return padded(at + 1, first, room + MAX_INTEGER - first, places)


cdef char* write_date(char* at, int64_t day) noexcept nogil:
    """Write the date of a day since 1970: "2026-08-01"."""
    at[0] = c'"'
    at = put_date(at + 1, day)
    at[0] = c'"'
    return at + 1


@cython.cdivision(True)
cdef char* write_time(char* at, int64_t value, int64_t per_second) noexcept nogil:
    """Write a time of day, taken modulo a day: "12:34:56.000123"."""
    cdef int64_t second = value / per_second
    cdef int64_t fraction = value % per_second
    if fraction < 0:
        fraction += per_second
        second -= 1
    second = second % 86_400
    at[0] = c'"'
    at = put_time(at + 1, second + 86_400 if second < 0 else second, fraction, per_second)
    at[0] = c'"'
    return at + 1


@cython.cdivision(True)
cdef char* write_timestamp(char* at, int64_t value, int64_t per_second, bint zoned) noexcept nogil:
    """Write a timestamp by RFC 3339, in UTC if ``zoned``, else without a zone: "2026-08-01T12:34:56.000123Z"."""
    cdef int64_t second = value / per_second
    cdef int64_t fraction = value % per_second
    cdef int64_t day, of_day
    if fraction < 0:
        fraction += per_second
        second -= 1
    day = second / 86_400
    of_day = second % 86_400
    if of_day < 0:
        of_day += 86_400
        day -= 1
    at[0] = c'"'
    at = put_date(at + 1, day)
    at[0] = c'T'
    at = put_time(at + 1, of_day, fraction, per_second)
    if zoned:
        at[0] = c'Z'
        at += 1
    at[0] = c'"'
    return at + 1
