"""Tokens of JSON text: white space, strings and numbers (spec: RFC 8259). All functions stay within the record."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from fastwire.decode.decoded cimport SOUND, SYNTAX, TRUNCATED, Reason, Record

cdef struct Number:
    const uint8_t* start
    const uint8_t* end
    bint negative
    bint whole                   # it has neither a fraction nor an exponent
    bint many                    # it has more digits than ``digits`` holds
    uint64_t digits              # all digits as one integer, up to 19 of them
    int64_t exponent             # of ten, by which ``digits`` is multiplied

cdef extern from *:
    """
    #if defined(__SSE2__) && !defined(FW_PORTABLE)
    #include <emmintrin.h>
    #endif
    /* The first byte from p on, before end, that ends a run of plain text: a quote, a backslash or a control character;
       `high` is set if there may be bytes above 0x7F before it. Bytes before edge are readable. */
    static inline const unsigned char *fw_json_plain(
        const unsigned char *p, const unsigned char *end, const unsigned char *edge, int *high)
    {
    #if defined(__SSE2__) && !defined(FW_PORTABLE)
        const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\\\'), control = _mm_set1_epi8(0x1F);
        while (p < end && edge - p >= 16) {
            __m128i v = _mm_loadu_si128((const __m128i *)p);
            unsigned above = (unsigned)_mm_movemask_epi8(v);
            unsigned hit = (unsigned)_mm_movemask_epi8(_mm_or_si128(
                _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)),
                _mm_cmpeq_epi8(_mm_min_epu8(v, control), v)));
            if (hit) {
                unsigned at = (unsigned)__builtin_ctz(hit);
                *high |= (above & ((1u << at) - 1)) != 0;
                p += at;
                return p < end ? p : end;
            }
            *high |= above != 0;
            p += 16;
        }
    #endif
        for (; p < end; p++) {
            if (*p == '"' || *p == '\\\\' || *p < 0x20)
                return p;
            *high |= *p >> 7;
        }
        return end;
    }
    """
    const uint8_t* plain "fw_json_plain"(
        const uint8_t* p, const uint8_t* end, const uint8_t* edge, int* high) noexcept nogil

# These functions begin at ``pos`` and move it behind the token; after a fault it is at the place of the fault.
cdef Reason read_word(Record* t, const char* word, int64_t size) noexcept nogil
cdef Reason read_string(Record* t, uint8_t* to, int64_t room, int64_t* size) noexcept nogil
cdef int64_t raw_size(const Record* t) noexcept nogil
cdef Reason read_rest(Record* t, Number* n) noexcept nogil
cdef Reason skip_value(Record* t, int depth) noexcept nogil
cdef Reason not_this(const Record* t) noexcept nogil


cdef inline void white(Record* t) noexcept nogil:
    """Skip white space."""
    while t.pos < t.end and t.pos[0] <= c' ' and t.pos[0] in (c' ', c'\n', c'\r', c'\t'):
        t.pos += 1


cdef inline Reason want(Record* t, uint8_t sign) noexcept nogil:
    """Skip white space around ``sign``."""
    white(t)
    if t.pos == t.end:
        return TRUNCATED
    if t.pos[0] != sign:
        return SYNTAX
    t.pos += 1
    white(t)
    return SOUND


cdef inline bint enter(Record* t) noexcept nogil:
    """Step into the object or array at ``pos``; False if it is empty, and ``pos`` is behind it."""
    cdef uint8_t last = t.pos[0] + 2             # "{" and "}", "[" and "]" in ASCII
    t.pos += 1
    white(t)
    if t.pos < t.end and t.pos[0] == last:
        t.pos += 1
        return False
    return True


cdef inline Reason proceed(Record* t, uint8_t last, bint* more) noexcept nogil:
    """Step from the end of an item to the next one, or out of its object or array, which ends with ``last``."""
    white(t)
    if t.pos == t.end:
        return TRUNCATED
    more[0] = t.pos[0] != last
    if more[0]:
        return want(t, c',')
    t.pos += 1
    return SOUND


cdef inline Reason key_start(const Record* t) noexcept nogil:
    """Check that a key begins at ``pos``."""
    return TRUNCATED if t.pos == t.end else SOUND if t.pos[0] == c'"' else SYNTAX


cdef inline const uint8_t* read_digits(const uint8_t* p, const uint8_t* end, uint64_t* number) noexcept nogil:
    """Append the digits from ``p`` on to ``number``, which wraps around, and return the place behind them."""
    while p < end and <uint8_t>(p[0] - c'0') <= 9:
        number[0] = number[0] * 10 + <uint8_t>(p[0] - c'0')
        p += 1
    return p


cdef inline Reason read_number(Record* t, Number* n) noexcept nogil:
    """Read a number; ``pos`` is before the end of the record. A number at the very end is cut off, since the text of a
    record is an object.
    """
    cdef const uint8_t* p = t.pos
    cdef const uint8_t* first
    cdef uint64_t digits = 0
    n.start = p
    n.negative = p[0] == c'-'
    p += n.negative
    first = p
    t.pos = p = read_digits(p, t.end, &digits)
    if p == t.end or p == first:
        return TRUNCATED if p == t.end else SYNTAX
    if first[0] == c'0' and p - first > 1:
        t.pos = first + 1
        return SYNTAX
    n.digits = digits
    n.whole = True
    n.many = p - first > 19
    n.exponent = 0
    n.end = p
    if p[0] == c'.' or p[0] | 0x20 == c'e':
        return read_rest(t, n)
    return SOUND
