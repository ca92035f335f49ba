"""Base64 of keys (spec: pulsar 10): decoding for both alphabets and without padding too, encoding as in RFC 4648."""

from libc.stdint cimport int32_t, uint8_t, uint32_t


cdef inline int32_t sextet(uint8_t byte) noexcept nogil:
    if 65 <= byte <= 90:
        return byte - 65
    if 97 <= byte <= 122:
        return byte - 71
    if 48 <= byte <= 57:
        return byte + 4
    if byte == 43 or byte == 45:
        return 62
    if byte == 47 or byte == 95:
        return 63
    return -1


cdef inline Py_ssize_t base64_size(const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Return the number of bytes that ``text`` decodes to, or -1 if it is not base64; padding is optional."""
    cdef Py_ssize_t i, n = size
    while n and text[n - 1] == 61:
        n -= 1
    if n & 3 == 1 or size - n > 2:
        return -1
    for i in range(n):
        if sextet(text[i]) < 0:
            return -1
    return n // 4 * 3 + (n & 3) * 3 // 4


cdef inline void decode_base64(const uint8_t* text, uint8_t* out, Py_ssize_t size) noexcept nogil:
    """Write the ``size`` decoded bytes, after ``base64_size``."""
    cdef uint32_t bits = 0
    cdef int held = 0
    cdef uint8_t* end = out + size
    while out < end:
        bits = bits << 6 | <uint32_t>sextet(text[0])
        text += 1
        held += 6
        if held >= 8:
            held -= 8
            out[0] = <uint8_t>(bits >> held & 0xFF)
            out += 1


cdef inline Py_ssize_t encoded_size(Py_ssize_t size) noexcept nogil:
    """Return the size of the text of so many bytes, with padding."""
    return (size + 2) // 3 * 4


cdef inline uint8_t letter(uint32_t six) noexcept nogil:
    if six < 26:
        return <uint8_t>(65 + six)
    if six < 52:
        return <uint8_t>(71 + six)
    if six < 62:
        return <uint8_t>(six - 4)
    return 43 if six == 62 else 47


cdef inline void encode_base64(const uint8_t* data, uint8_t* out, Py_ssize_t size) noexcept nogil:
    """Write ``encoded_size`` bytes of text."""
    cdef uint32_t bits
    cdef Py_ssize_t i
    for i in range(0, size, 3):
        bits = <uint32_t>data[i] << 16
        if i + 1 < size:
            bits |= <uint32_t>data[i + 1] << 8
        if i + 2 < size:
            bits |= data[i + 2]
        out[0] = letter(bits >> 18)
        out[1] = letter(bits >> 12 & 63)
        out[2] = letter(bits >> 6 & 63) if i + 1 < size else 61
        out[3] = letter(bits & 63) if i + 2 < size else 61
        out += 4
