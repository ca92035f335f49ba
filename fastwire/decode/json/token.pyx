"""The slow parts of JSON tokens: escapes, fractions and exponents, and values that are skipped."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from fastwire.columns.builder cimport is_utf8
from fastwire.decode.decoded cimport DEEP, ESCAPE, TYPE, UTF8

cdef enum:
    MOST_SKIPPED = 512             # levels of nesting in a value that is skipped
    MOST_EXPONENT = 1_000_000_000  # beyond any number of digits in a record


cdef Reason read_word(Record* t, const char* word, int64_t size) noexcept nogil:
    """Read "null", "true" or "false"."""
    cdef int64_t i
    for i in range(size):
        if t.pos == t.end:
            return TRUNCATED
        if t.pos[0] != <uint8_t>word[i]:
            return SYNTAX
        t.pos += 1
    return SOUND


cdef Reason not_this(const Record* t) noexcept nogil:
    """Return the reason why the value at ``pos`` is not of the type that its column needs."""
    if t.pos == t.end:
        return TRUNCATED
    return TYPE if t.pos[0] in b'{["tfn-0123456789' else SYNTAX


cdef int64_t raw_size(const Record* t) noexcept nogil:
    """Return the bytes between the quote at ``pos`` and the one that closes the string, or up to the end."""
    cdef const uint8_t* p = t.pos + 1
    cdef int high = 0
    while True:
        p = plain(p, t.end, t.edge, &high)
        if p == t.end or p[0] == c'"':
            return p - t.pos - 1
        p += 2 if p[0] == c'\\' and t.end - p > 1 else 1


cdef Reason hex_digits(Record* t, uint32_t* code) noexcept nogil:
    """Read the four hexadecimal digits of an escape."""
    cdef int _
    cdef uint8_t letter
    code[0] = 0
    for _ in range(4):
        if t.pos == t.end:
            return TRUNCATED
        letter = t.pos[0]
        if <uint8_t>(letter - c'0') <= 9:
            letter -= c'0'
        elif <uint8_t>((letter | 0x20) - c'a') <= 5:
            letter = (letter | 0x20) - c'a' + 10
        else:
            return ESCAPE
        code[0] = code[0] << 4 | letter
        t.pos += 1
    return SOUND


cdef Reason read_escape(Record* t, uint8_t* to, int* size) noexcept nogil:
    """Read an escape behind its backslash, and write its character as UTF-8, up to 4 bytes.

    A surrogate without its other half is no character.
    """
    cdef uint32_t code = 0
    cdef uint32_t low = 0
    cdef const uint8_t* start = t.pos - 1
    cdef Reason fault
    if t.pos == t.end:
        return TRUNCATED
    cdef uint8_t letter = t.pos[0]
    size[0] = 1
    if letter in b'"\\/':
        to[0] = letter
    elif letter == c'n':
        to[0] = c'\n'
    elif letter == c't':
        to[0] = c'\t'
    elif letter == c'r':
        to[0] = c'\r'
    elif letter == c'b':
        to[0] = c'\b'
    elif letter == c'f':
        to[0] = c'\f'
    elif letter != c'u':
        t.pos = start
        return ESCAPE
    t.pos += 1
    if letter != c'u':
        return SOUND
    fault = hex_digits(t, &code)
    if not fault and 0xD800 <= code < 0xDC00:
        if t.pos == t.end or (t.pos[0] == c'\\' and t.end - t.pos == 1):
            t.pos = t.end
            return TRUNCATED
        if t.pos[0] != c'\\' or t.pos[1] != c'u':
            fault = ESCAPE
        else:
            t.pos += 2
            fault = hex_digits(t, &low)
            if not fault and not 0xDC00 <= low < 0xE000:
                fault = ESCAPE
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
    elif not fault and 0xDC00 <= code < 0xE000:
        fault = ESCAPE
    if fault:
        if fault == ESCAPE:
            t.pos = start
        return fault
    if code < 0x80:
        to[0] = <uint8_t>code
    elif code < 0x800:
        to[0] = <uint8_t>(0xC0 | code >> 6)
        to[1] = <uint8_t>(0x80 | code & 0x3F)
        size[0] = 2
    elif code < 0x10000:
        to[0] = <uint8_t>(0xE0 | code >> 12)
        to[1] = <uint8_t>(0x80 | code >> 6 & 0x3F)
        to[2] = <uint8_t>(0x80 | code & 0x3F)
        size[0] = 3
    else:
        to[0] = <uint8_t>(0xF0 | code >> 18)
        to[1] = <uint8_t>(0x80 | code >> 12 & 0x3F)
        to[2] = <uint8_t>(0x80 | code >> 6 & 0x3F)
        to[3] = <uint8_t>(0x80 | code & 0x3F)
        size[0] = 4
    return SOUND


cdef Reason read_string(Record* t, uint8_t* to, int64_t room, int64_t* size) noexcept nogil:
    """Read a string from the quote at ``pos`` on, without its escapes, into ``to``. A string longer than ``room`` is
    checked, and only its size is returned.
    """
    cdef const uint8_t* begin
    cdef uint8_t[4] character
    cdef int high
    cdef int length = 0
    cdef Reason fault
    size[0] = 0
    t.pos += 1
    while True:
        begin = t.pos
        high = 0
        t.pos = plain(begin, t.end, t.edge, &high)
        if t.pos == t.end:
            return TRUNCATED
        if high and not is_utf8(begin, t.pos - begin):
            t.pos = begin
            return UTF8
        if t.pos - begin <= room - size[0] and t.pos > begin:
            memcpy(to + size[0], begin, <size_t>(t.pos - begin))
        size[0] += t.pos - begin
        if t.pos[0] == c'"':
            t.pos += 1
            return SOUND
        if t.pos[0] != c'\\':
            return SYNTAX
        t.pos += 1
        fault = read_escape(t, character, &length)
        if fault:
            return fault
        if length <= room - size[0]:
            memcpy(to + size[0], character, <size_t>length)
        size[0] += length


cdef Reason read_rest(Record* t, Number* n) noexcept nogil:
    """Read the fraction and the exponent of a number, whose integer ends at ``pos``."""
    cdef const uint8_t* p = t.pos
    cdef const uint8_t* first
    cdef int64_t exponent = 0
    cdef bint negative
    n.whole = False
    if p[0] == c'.':
        p += 1
        first = p
        t.pos = p = read_digits(p, t.end, &n.digits)
        if p == t.end or p == first:
            return TRUNCATED if p == t.end else SYNTAX
        n.exponent = first - p
        n.many = p - n.start - n.negative - 1 > 19
    if p[0] | 0x20 == c'e':
        p += 1
        t.pos = p
        if p == t.end:
            return TRUNCATED
        negative = p[0] == c'-'
        if p[0] in b'+-':
            p += 1
        first = p
        while p < t.end and <uint8_t>(p[0] - c'0') <= 9:
            if exponent < MOST_EXPONENT:
                exponent = exponent * 10 + <uint8_t>(p[0] - c'0')
            p += 1
        t.pos = p
        if p == t.end:
            return TRUNCATED
        if p == first:
            return SYNTAX
        n.exponent += -exponent if negative else exponent
    n.end = p
    return SOUND


cdef Reason skip_value(Record* t, int depth) noexcept nogil:
    """Check the grammar of a value of any type, and step over it."""
    cdef Number number
    cdef int64_t size = 0
    cdef uint8_t first
    cdef bint more
    cdef Reason fault
    if t.pos == t.end:
        return TRUNCATED
    first = t.pos[0]
    if first == c'"':
        return read_string(t, NULL, -1, &size)
    if first == c't':
        return read_word(t, b"true", 4)
    if first == c'f':
        return read_word(t, b"false", 5)
    if first == c'n':
        return read_word(t, b"null", 4)
    if first not in b'{[':
        return read_number(t, &number)
    if depth == MOST_SKIPPED:
        return DEEP
    more = enter(t)
    while more:
        fault = SOUND
        if first == c'{':
            fault = key_start(t)
            if not fault:
                fault = read_string(t, NULL, -1, &size)
            if not fault:
                fault = want(t, c':')
        if not fault:
            fault = skip_value(t, depth + 1)
        if not fault:
            fault = proceed(t, first + 2, &more)
        if fault:
            return fault
    return SOUND
