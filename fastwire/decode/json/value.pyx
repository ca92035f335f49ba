"""Values of JSON tokens. A number that its column cannot hold exactly is refused; a double is the nearest one."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from fastwire.decode.decoded cimport DECIMAL, INEXACT, RANGE, SOUND, TIME, Reason
from fastwire.decode.json.token cimport Number

cdef extern from *:
    """
    #include <locale.h>
    #include <math.h>
    #include <stdlib.h>

    static locale_t fw_plain_locale;

    static void fw_json_locale(void)
    {
        fw_plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    }

    /* The digits between p and end, times ten to `shift`, as an integer of at most `most` digits, which is at most 38.
       1: it has more; 2: it has a fraction. */
    static int fw_json_decimal(const unsigned char *p, const unsigned char *end, int64_t shift, int most, void *to)
    {
        int negative = *p == '-';
        int64_t count = 0, kept;
        unsigned __int128 sum = 0, tenth = 1;
        const unsigned char *at;
        while (--most)
            tenth *= 10;
        for (at = p; at < end && (*at | 0x20) != 'e'; at++)
            count += *at >= '0';
        end = at;
        kept = count + shift;
        for (at = p; at < end; at++) {
            if (*at < '0')
                continue;
            if (kept-- <= 0) {
                if (*at != '0')
                    return 2;
                continue;
            }
            if (sum >= tenth)
                return 1;
            sum = sum * 10 + (*at - '0');
        }
        for (; shift > 0 && sum; shift--) {
            if (sum >= tenth)
                return 1;
            sum *= 10;
        }
        if (negative)
            sum = -sum;
        __builtin_memcpy(to, &sum, 16);
        return 0;
    }

    static int fw_json_int(const unsigned char *p, const unsigned char *end, int64_t shift, int64_t *to)
    {
        __int128 sum;
        int fault = fw_json_decimal(p, end, shift, 19, &sum);
        if (fault)
            return fault;
        *to = (int64_t)sum;
        return *to != sum;
    }

    static int fw_json_instant(int64_t seconds, int64_t unit, int64_t fraction, int64_t *to)
    {
        __int128 sum = (__int128)seconds * unit + fraction;
        *to = (int64_t)sum;
        return *to != sum;
    }
    """
    void fw_json_locale()
    int fw_json_decimal(const uint8_t* p, const uint8_t* end, int64_t shift, int most, void* to) nogil
    int fw_json_int(const uint8_t* p, const uint8_t* end, int64_t shift, int64_t* to) nogil
    int fw_json_instant(int64_t seconds, int64_t unit, int64_t fraction, int64_t* to) nogil
    double fw_strtod "strtod_l"(const char*, char**, void* locale) nogil
    float fw_strtof "strtof_l"(const char*, char**, void* locale) nogil
    void* fw_plain_locale
    bint isinf(double) nogil

fw_json_locale()

cdef double[23] TENS             # powers of ten that a double holds exactly
cdef float[11] SMALL_TENS        # and a float
cdef uint8_t[256] SIXES          # the value of a base64 letter; 64: it is none


cdef void fill_tables() noexcept:
    cdef int i
    TENS[0] = SMALL_TENS[0] = 1
    for i in range(1, 23):
        TENS[i] = TENS[i - 1] * 10
    for i in range(1, 11):
        SMALL_TENS[i] = SMALL_TENS[i - 1] * 10
    for i in range(256):
        SIXES[i] = 64
    for i in range(26):
        SIXES[c'A' + i] = <uint8_t>i
        SIXES[c'a' + i] = <uint8_t>(26 + i)
    for i in range(10):
        SIXES[c'0' + i] = <uint8_t>(52 + i)
    SIXES[c'+'] = 62
    SIXES[c'/'] = 63


fill_tables()


cdef Reason number_int(const Number* n, int64_t* to) noexcept nogil:
    """Set ``to`` to an integer of 64 bits; 1.0 and 1e2 are integers."""
    cdef int fault
    if n.whole and not n.many and n.digits <= <uint64_t>0x7FFFFFFFFFFFFFFF + n.negative:
        to[0] = <int64_t>(0 - n.digits if n.negative else n.digits)
        return SOUND
    fault = fw_json_int(n.start, n.end, n.exponent, to)
    return SOUND if not fault else RANGE if fault == 1 else INEXACT


cdef Reason number_decimal(const Number* n, int digits, int scale, void* to) noexcept nogil:
    """Set the 16 bytes at ``to`` to the unscaled value of a decimal of up to ``digits`` digits."""
    cdef int fault = fw_json_decimal(n.start, n.end, n.exponent + scale, digits, to)
    return SOUND if not fault else DECIMAL if fault == 1 else INEXACT


cdef Reason number_double(const Number* n, double* to) noexcept nogil:
    """Set ``to`` to the nearest double. Two exact numbers have a quotient or product that is rounded once."""
    if not n.many and n.digits <= <uint64_t>1 << 53 and -22 <= n.exponent <= 22:
        to[0] = <double>n.digits
        if n.exponent < 0:
            to[0] /= TENS[-n.exponent]
        else:
            to[0] *= TENS[n.exponent]
        if n.negative:
            to[0] = -to[0]
        return SOUND
    to[0] = fw_strtod(<const char*>n.start, NULL, fw_plain_locale)       # ends at a byte that no number has
    return RANGE if isinf(to[0]) else SOUND


cdef Reason number_float(const Number* n, float* to) noexcept nogil:
    """Set ``to`` to the nearest float."""
    if not n.many and n.digits <= 1 << 24 and -10 <= n.exponent <= 10:
        to[0] = <float>n.digits
        if n.exponent < 0:
            to[0] /= SMALL_TENS[-n.exponent]
        else:
            to[0] *= SMALL_TENS[n.exponent]
        if n.negative:
            to[0] = -to[0]
        return SOUND
    to[0] = fw_strtof(<const char*>n.start, NULL, fw_plain_locale)
    return RANGE if isinf(to[0]) else SOUND


cdef int64_t base64_bytes(uint8_t* text, int64_t size) noexcept nogil:
    """Replace padded base64 by its bytes, and return their number; -1: it is not base64 (spec: RFC 4648, section 4)."""
    cdef int64_t read = 0
    cdef int64_t written = 0
    cdef uint8_t a, b, c, d
    if size & 3:
        return -1
    while read < size:
        a, b, c, d = SIXES[text[read]], SIXES[text[read + 1]], SIXES[text[read + 2]], SIXES[text[read + 3]]
        read += 4
        if (a | b) & 64:
            return -1
        if c | d < 64:
            text[written] = a << 2 | b >> 4
            text[written + 1] = <uint8_t>(b << 4 | c >> 2)
            text[written + 2] = <uint8_t>(c << 6 | d)
            written += 3
            continue
        # Only the last four letters may have padding, and bits that belong to no byte are zero.
        if read < size or text[read - 1] != c'=' or b & 15 and c == 64:
            return -1
        if c == 64 and text[read - 2] != c'=' or c < 64 and c & 3:
            return -1
        text[written] = a << 2 | b >> 4
        written += 1
        if c < 64:
            text[written] = <uint8_t>(b << 4 | c >> 2)
            written += 1
    return written


cdef inline int number_at(const uint8_t* text, int digits) noexcept nogil:
    """Return a number of so many digits; a large negative number if there are other letters."""
    cdef int i
    cdef int number = 0
    for i in range(digits):
        if <uint8_t>(text[i] - c'0') > 9:
            return -1000000
        number = number * 10 + text[i] - c'0'
    return number


cdef bint read_date(const uint8_t* text, int64_t* days) noexcept nogil:
    """Read "2026-08-01" as days since 1970; False if the text is no day of the Gregorian calendar."""
    cdef int year = number_at(text, 4)
    cdef int month = number_at(text + 5, 2)
    cdef int day = number_at(text + 8, 2)
    cdef bint leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    cdef int longest = 31
    if month == 2:
        longest = 29 if leap else 28
    elif month in (4, 6, 9, 11):
        longest = 30
    if text[4] != c'-' or text[7] != c'-' or year < 0 or not 1 <= month <= 12 or not 1 <= day <= longest:
        return False
    # A year that begins in March has its leap day at the end, and months of 153 days in five.
    cdef int64_t years = year - (month < 3)
    cdef int64_t months = month - 3 if month > 2 else month + 9
    days[0] = years * 365 + (years + 400) // 4 - (years + 400) // 100 + (years + 400) // 400 - 97
    days[0] += (months * 153 + 2) // 5 + day - 1 - 719468
    return True


cdef Reason time_value(const uint8_t* text, int64_t size, Clock clock, int places, int64_t* to) noexcept nogil:
    """Set ``to`` to a date in days, or to a time or timestamp in units of a second with ``places`` decimal places.

    (spec: RFC 3339, also with a space for the T, and with zones as +01 and +0100)
    """
    cdef bint loose = clock == CLOCK_LOOSE
    cdef int64_t days = 0
    cdef int64_t seconds, unit = 1
    cdef int hours, minutes, _
    cdef int64_t at = 0
    if clock != CLOCK_TIME:
        if size < 10 or not read_date(text, &days):
            return TIME
        at = 10
        if clock == CLOCK_DATE:
            to[0] = days
            return SOUND if size == 10 else TIME
        if size == 10 and loose:
            text, size = <const uint8_t*>b"0000-00-00T00:00:00", 19
        if size == 10 or text[10] not in b'Tt ':
            return TIME
        at = 11
    if size - at < 8 or text[at + 2] != c':' or text[at + 5] != c':':
        return TIME
    hours, minutes, seconds = number_at(text + at, 2), number_at(text + at + 3, 2), number_at(text + at + 6, 2)
    if not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60):
        return TIME
    seconds += days * 86400 + hours * 3600 + minutes * 60
    at += 8
    cdef int64_t fraction = 0
    cdef int missing = places
    cdef bint lost = False
    if at < size and text[at] == c'.':
        at += 1
        if at == size or <uint8_t>(text[at] - c'0') > 9:
            return TIME
        while at < size and <uint8_t>(text[at] - c'0') <= 9:
            if missing:
                fraction = fraction * 10 + text[at] - c'0'
                missing -= 1
            elif text[at] != c'0':
                lost = True
            at += 1
    if loose and at == size:
        pass
    elif clock == CLOCK_INSTANT or loose:
        if at == size:
            return TIME
        if text[at] in b'+-':
            hours, minutes = number_at(text + at + 1, 2) if size - at >= 3 else -1, 0
            if size - at == 6 and text[at + 3] == c':':
                minutes = number_at(text + at + 4, 2)
            elif size - at == 5:
                minutes = number_at(text + at + 3, 2)
            elif size - at != 3:
                return TIME
            if not (0 <= hours < 24 and 0 <= minutes < 60):
                return TIME
            seconds -= (hours * 3600 + minutes * 60) * (-1 if text[at] == c'-' else 1)
        elif text[at] not in b'Zz' or size - at != 1:
            return TIME
    elif at != size:
        return TIME
    if lost and not loose:
        return INEXACT
    for _ in range(places):
        unit *= 10
    for _ in range(missing):
        fraction *= 10
    return RANGE if fw_json_instant(seconds, unit, fraction, to) else SOUND
