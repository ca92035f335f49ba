"""Dictionaries of column chunks, and the indexes of values in them (parquet-format, "Dictionary Encoding")."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from fastwire.columns.arrow cimport ArrowArray
from fastwire.parquet.buffer cimport Bytes, bit_length, bytes_drop, bytes_reserve, put_byte
from fastwire.parquet.hybrid cimport put_hybrid, put_run
from fastwire.parquet.nested cimport pick, word_at
from fastwire.parquet.schema cimport BYTE_ARRAY, READ_BINARY, READ_PLAIN, Node
from fastwire.parquet.values cimport place, put_values, word_of, words_drop, words_of

from fastwire.parquet.errors import UnwritableError

cdef enum:
    MOST_WORDS = 1 << 16
    MOST_TEXT = 1 << 20          # bytes of all words
    MOST_NUMBERS = 4 << 20       # bytes of all runs, or numbers
    LONG_RUNS = 16               # values a run, on average, from which on all of them are written as runs

cdef struct Run:
    int64_t count
    int32_t word

ctypedef fused Number:
    uint32_t
    uint64_t


@cython.final
cdef class Dictionary:

    def __dealloc__(self):
        words_drop(&self.words)
        bytes_drop(&self.runs)
        bytes_drop(&self.index)
        bytes_drop(&self.numbers)
        bytes_drop(&self.one)

    cdef bint full(self) noexcept nogil:
        if self.words.count > MOST_WORDS or self.words.text.size > MOST_TEXT:
            return True
        return self.numbers.size > MOST_NUMBERS if self.each else self.runs.size > MOST_NUMBERS

    cdef bint worth(self, int times) noexcept:
        """Return whether there are at least ``times`` values for a word."""
        return not self.full() and self.words.count <= self.taken // times

    cdef bint add(self, Node node, Part part, int64_t first, int64_t end) except -1:
        """Add the values of some entries; return False where there are too many different ones."""
        cdef Picked picked
        pick(part, first, end, &self.index, &picked)
        if not picked.count:
            return True
        self.words.prefix = 4 if node.physical == BYTE_ARRAY else 0
        self.taken += picked.count
        if node.index:
            return self.add_indexes(node, &picked)
        return self.add_values(node, &picked)

    cdef bint add_indexes(self, Node node, const Picked* picked) except -1:
        """Add the values of an array that is a dictionary: its words become numbers once each."""
        cdef ArrowArray* words = picked.array.dictionary
        cdef const uint8_t* data = <const uint8_t*>picked.array.buffers[1]
        cdef Picked one
        cdef int64_t i = 0, run, now = 0
        cdef int32_t* numbers
        cdef int failed = 0
        one.array = words
        one.count = 1
        one.index = NULL
        self.numbers.size = 0
        if bytes_reserve(&self.numbers, words.length * 4 + 4):
            raise MemoryError()
        numbers = <int32_t*>self.numbers.data
        memset(numbers, 0xFF, <size_t>(words.length * 4))
        while i < picked.count:
            with nogil:
                while i < picked.count and not failed:
                    now = word_at(node.index, node.index_signed, data, place(picked, i))
                    if now < 0 or now >= words.length or numbers[now] < 0:
                        break
                    run = i + 1
                    if picked.index is NULL and node.index == 4:
                        run = i + same[uint32_t](<const uint32_t*>data + picked.first + i, picked.count - i)
                    else:
                        while run < picked.count and now == word_at(
                            node.index, node.index_signed, data, place(picked, run)
                        ):
                            run += 1
                    failed = self.add_run(run - i, numbers[now])
                    i = run
            if failed:
                raise MemoryError()
            if i < picked.count:
                if not 0 <= now < words.length:
                    raise UnwritableError(f"the column {'.'.join(node.path)} has an index beyond its dictionary")
                one.first = words.offset + now
                numbers[now] = self.number(node, &one)
                if self.full():
                    return False
        return True

    cdef bint add_values(self, Node node, const Picked* picked) except -1:
        cdef Picked one
        cdef int64_t i = 0, run, at
        cdef int64_t width = node.width
        cdef int32_t word = 0
        cdef int failed = 0
        cdef const uint8_t* data = <const uint8_t*>picked.array.buffers[1]
        one.array = picked.array
        one.count = 1
        one.index = NULL
        if node.read == READ_PLAIN:
            with nogil:
                while i < picked.count and not failed and not self.full():
                    at = place(picked, i)
                    run = 1
                    if width == 8:
                        run = repeated[uint64_t](<const uint64_t*>data, picked, i)
                    elif width == 4:
                        run = repeated[uint32_t](<const uint32_t*>data, picked, i)
                    word = word_of(&self.words, data + at * width, width)
                    failed = -1 if word < 0 else self.add_run(run, word)
                    i += run
            if failed:
                raise MemoryError()
            return not self.full()
        if self.each:
            failed = bytes_reserve(&self.numbers, picked.count * 4)
            if not failed:
                with nogil:
                    failed = words_of(
                        &self.words, <const int32_t*>data, <const uint8_t*>picked.array.buffers[2], picked,
                        <int32_t*>(self.numbers.data + self.numbers.size),
                    )
                self.numbers.size += picked.count * 4
            if failed:
                raise MemoryError()
            return not self.full()
        if node.read == READ_BINARY:
            with nogil:
                failed = self.add_texts(<const int32_t*>data, <const uint8_t*>picked.array.buffers[2], picked)
            if failed:
                raise MemoryError()
            return not self.full()
        while i < picked.count:
            one.first = place(picked, i)
            word = self.number(node, &one)
            if self.add_run(1, word):
                raise MemoryError()
            i += 1
            if self.full():
                return False
        return True

    cdef int add_texts(self, const int32_t* offsets, const uint8_t* data, const Picked* picked) noexcept nogil:
        """Add values with offsets, up to the one that fills the dictionary."""
        cdef int64_t i = 0, run, at
        cdef int32_t word
        while i < picked.count and not self.full():
            at = place(picked, i)
            run = repeated_text(offsets, data, picked, i)
            word = word_of(&self.words, data + offsets[at], offsets[at + 1] - offsets[at])
            if word < 0 or self.add_run(run, word):
                return -1
            i += run
        return 0

    cdef int32_t number(self, Node node, const Picked* one) except -1:
        """Return the number of a value that is encoded first."""
        cdef int32_t found
        self.one.size = 0
        put_values(&self.one, node, one)
        found = word_of(&self.words, self.one.data + self.words.prefix, self.one.size - self.words.prefix)
        if found < 0:
            raise MemoryError()
        return found

    cdef int add_run(self, int64_t count, int32_t word) noexcept nogil:
        cdef int64_t have = self.runs.size // <int64_t>sizeof(Run)
        cdef Run* runs = <Run*>self.runs.data
        if have and runs[have - 1].word == word:
            runs[have - 1].count += count
            return 0
        if bytes_reserve(&self.runs, sizeof(Run)):
            return -1
        runs = <Run*>self.runs.data
        runs[have].count = count
        runs[have].word = word
        self.runs.size += sizeof(Run)
        return 0

    cdef int put_words(self, Bytes* page, Ends ends) except -1:
        """Append the words, as PLAIN."""
        cdef Bytes* text = &self.words.text
        if ends is not None:
            ends.take(text.data, text.size, self.words.count)
        if bytes_reserve(page, text.size + 8):
            raise MemoryError()
        memcpy(page.data + page.size, text.data, <size_t>text.size)
        page.size += text.size
        return 0

    cdef int put_numbers(self, Bytes* page) except -1:
        """Append the width of the numbers, and the number of each value."""
        cdef Run* runs = <Run*>self.runs.data
        cdef int64_t count = self.runs.size // <int64_t>sizeof(Run), i, to = 0
        cdef int width = max(1, bit_length(<uint64_t>(self.words.count - 1)))
        cdef int failed = 0
        cdef int32_t* numbers
        if bytes_reserve(page, 16):
            raise MemoryError()
        put_byte(page, width)
        if self.each:
            with nogil:
                failed = put_hybrid[int32_t](page, <int32_t*>self.numbers.data, self.taken, width)
        elif self.taken >= count * LONG_RUNS:
            with nogil:
                for i in range(count):
                    failed |= put_run(page, runs[i].count, <uint32_t>runs[i].word, width)
        else:
            self.numbers.size = 0
            if bytes_reserve(&self.numbers, self.taken * 4):
                raise MemoryError()
            numbers = <int32_t*>self.numbers.data
            with nogil:
                for i in range(count):
                    for _ in range(runs[i].count):
                        numbers[to] = runs[i].word
                        to += 1
                failed = put_hybrid[int32_t](page, numbers, to, width)
        if failed:
            raise MemoryError()
        return 0


cdef int64_t same(const Number* values, int64_t count) noexcept nogil:
    """Return how many values at the beginning are equal."""
    cdef int64_t at = 1, i
    cdef Number first = values[0], other
    while at + 64 <= count:
        other = 0
        for i in range(64):
            other |= values[at + i] ^ first
        if other:
            break
        at += 64
    while at < count and values[at] == first:
        at += 1
    return at


cdef int64_t repeated(const Number* values, const Picked* picked, int64_t first) noexcept nogil:
    """Return how many picked values from ``first`` on are equal."""
    cdef int64_t found = 1
    cdef Number value
    if picked.index is NULL:
        return same[Number](values + picked.first + first, picked.count - first)
    value = values[picked.index[first]]
    while first + found < picked.count and values[picked.index[first + found]] == value:
        found += 1
    return found


cdef int64_t repeated_text(
    const int32_t* offsets, const uint8_t* data, const Picked* picked, int64_t first
) noexcept nogil:
    """The same for values with offsets."""
    cdef int64_t found = 1, a = place(picked, first), b
    cdef int32_t size = offsets[a + 1] - offsets[a]
    while first + found < picked.count:
        b = place(picked, first + found)
        if offsets[b + 1] - offsets[b] != size or memcmp(data + offsets[a], data + offsets[b], <size_t>size):
            break
        found += 1
    return found
