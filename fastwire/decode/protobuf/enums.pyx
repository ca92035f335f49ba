"""The texts of Protobuf's enums: the name of a value by its number, or the digits of a number without a name."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from fastwire.decode.protobuf.script cimport Step, Text


cdef int find_symbol(const Step* step, int64_t number) noexcept nogil:
    """Return the index of the symbol of a number, or -1 if the enum lacks it."""
    cdef int low = 0
    cdef int high = step.symbols_count
    cdef int middle = <int>min(<uint64_t>(number - step.numbers[0]), <uint64_t>(high - 1))
    if step.numbers[middle] == number:           # they are consecutive
        return middle
    while low < high:
        middle = (low + high) // 2
        if step.numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < step.symbols_count and step.numbers[low] == number else -1


cdef Text in_digits(int64_t number, uint8_t* digits) noexcept nogil:
    """Write a number of 32 bits into the end of ``digits``."""
    cdef uint8_t* p = digits + MOST_DIGITS
    cdef int64_t left = -number if number < 0 else number
    cdef Text text
    while left or p == digits + MOST_DIGITS:
        p -= 1
        p[0] = <uint8_t>(c'0' + left % 10)
        left //= 10
    if number < 0:
        p -= 1
        p[0] = c'-'
    text.data = p
    text.size = digits + MOST_DIGITS - p
    return text
