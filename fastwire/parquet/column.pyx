"""Column chunks: pages of levels and values, dictionaries, and the metadata of the chunk (parquet.thrift)."""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from fastwire.columns.arrow cimport ArrowArray
from fastwire.parquet.buffer cimport Buffer, Bytes, bit_length, bytes_drop, bytes_reserve, put_byte
from fastwire.parquet.delta cimport put_deltas
from fastwire.parquet.hybrid cimport append_bits, put_bitmap, put_hybrid, put_run
from fastwire.parquet.schema cimport (
    FIXED,
    INT32,
    INT64,
    READ_BINARY,
    READ_BITS,
    READ_LARGE,
    READ_PLAIN,
    Node,
)
from fastwire.parquet.values cimport Words, put_values, size_of, word_of, words_drop

from functools import partial

from fastwire.parquet.codec import CODECS, compressor
from fastwire.parquet.errors import UnwritableError
from fastwire.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, binary, integer, many, struct

cdef enum:
    PLAIN = 0                    # encodings
    RLE = 3
    DELTA_BINARY_PACKED = 5
    RLE_DICTIONARY = 8
    DATA_PAGE = 0                # kinds of pages
    DICTIONARY_PAGE = 2
    PAGE = 1 << 20               # bytes of values from which on a page ends
    LARGEST_PAGE = 0x7FFFFFFF
    KEPT = 4 << 20               # bytes of a buffer that stays for the next chunk
    MOST_WORDS = 1 << 16         # of a dictionary
    FEW = 1024                   # values that are too few to say that they do not repeat
    MOST_TEXT = 1 << 20          # bytes of a dictionary
    LONG_RUNS = 16               # rows a run, on average, from which on all of them are written as runs

cdef struct Run:
    int64_t count
    int32_t word


@cython.final
cdef class PageWriter:

    def __init__(self, write, str codec, level):
        """``write`` takes bytes. Raises ValueError for an unknown ``codec``."""
        self.new_compressor = partial(compressor, codec, level)
        self.new_compressor()
        self.codec = CODECS[codec]
        self.write = write
        self.page = Buffer()

    def __dealloc__(self):
        self.drop_buffers()

    cdef void rest(self) noexcept:
        """Give back all memory until the next chunk: many files may be open, and few are written at once."""
        self.compress = None
        self.page = Buffer()
        self.drop_buffers()

    cdef void drop_buffers(self) noexcept:
        bytes_drop(&self.plain)
        bytes_drop(&self.index)
        bytes_drop(&self.bits)
        bytes_drop(&self.levels)
        bytes_drop(&self.runs)
        bytes_drop(&self.codes)

    cdef int put(self, bytes data) except -1:
        self.write(data)
        self.position += len(data)
        return 0

    cdef bytes chunk(self, Node node, list parts, str role, bint stats):
        """Write the pages of a leaf; return the encoded ColumnChunk.

        Raises UnwritableError, and what ``write`` raises.
        """
        cdef int64_t count = 0, nulls = 0
        cdef Part part
        cdef Ends ends = Ends(node) if stats else None
        cdef bint number = node.physical == INT32 or node.physical == INT64
        if self.compress is None:
            self.compress = self.new_compressor()
        self.began = self.data_at = self.position
        self.dictionary_at = -1
        self.raw = self.packed = 0
        self.encodings = {}
        for part in parts:
            count += part.count
            nulls += part.nulls
        wanted = node.index or (role == "constant" and node.read != READ_BITS)
        if count == nulls:
            self.begin_page(node, [(part, 0, part.count) for part in parts])
            self.end_page(count, PLAIN, False)
        elif not wanted or not self.words_page(node, parts, count - nulls, ends):
            # What was to be a dictionary and repeats too little may still grow by small steps.
            self.plain_pages(node, parts, number and (role == "counter" or role == "constant"), ends)
        if self.page.bytes.capacity > KEPT:
            self.page = Buffer()
        if self.plain.capacity > KEPT:
            bytes_drop(&self.plain)
        return self.metadata(node, count, nulls, ends)

    def metadata(self, Node node, int64_t count, int64_t nulls, Ends ends):
        used = sorted({RLE, *(encoding for _, encoding in self.encodings)})
        fields = [
            (1, I32, integer(node.physical)),
            (2, LIST, many(I32, [integer(each) for each in used])),
            (3, LIST, many(BINARY, [binary(each.encode()) for each in node.path])),
            (4, I32, integer(self.codec)),
            (5, I64, integer(count)),
            (6, I64, integer(self.raw)),
            (7, I64, integer(self.packed)),
            (9, I64, integer(self.data_at)),
        ]
        if self.dictionary_at >= 0:
            fields.append((11, I64, integer(self.dictionary_at)))
        known = ends.fields() if ends is not None else []
        fields.append((12, STRUCT, struct((3, I64, integer(nulls)), *known)))
        fields.append((13, LIST, many(STRUCT, [
            struct((1, I32, integer(kind)), (2, I32, integer(encoding)), (3, I32, integer(pages)))
            for (kind, encoding), pages in self.encodings.items()
        ])))
        return struct((2, I64, integer(self.began)), (3, STRUCT, struct(*fields)))

    # --- pages

    cdef int end_page(self, int64_t values, int encoding, bint dictionary) except -1:
        """Compress and write the page that was laid out."""
        cdef int64_t size = self.page.bytes.size
        if size > LARGEST_PAGE:
            raise UnwritableError(f"a record needs {size} bytes in one column, more than a page of Parquet can have")
        packed = self.compress(self.page)
        kind = DICTIONARY_PAGE if dictionary else DATA_PAGE
        if dictionary:
            head = (7, STRUCT, struct((1, I32, integer(values)), (2, I32, integer(encoding))))
        else:
            levels = integer(RLE)
            counts = (1, I32, integer(values)), (2, I32, integer(encoding))
            head = (5, STRUCT, struct(*counts, (3, I32, levels), (4, I32, levels)))
        header = struct((1, I32, integer(kind)), (2, I32, integer(size)), (3, I32, integer(len(packed))), head)
        if dictionary:
            self.dictionary_at = self.position
        elif not any(kind == DATA_PAGE for kind, _ in self.encodings):
            self.data_at = self.position
        self.put(header)
        self.put(packed)
        self.raw += size + len(header)
        self.packed += len(packed) + len(header)
        self.encodings[kind, encoding] = self.encodings.get((kind, encoding), 0) + 1
        return 0

    cdef int begin_page(self, Node node, list pieces) except -1:
        """Begin a page with the levels of the entries of ``pieces``: (part, first, end)."""
        cdef Bytes* b = &self.page.bytes
        cdef Part part
        cdef int64_t first, end, count = 0, nulls = 0, at
        cdef int failed = 0
        cdef bint repeated = node.repetition > 0
        b.size = 0
        if self.page.views:
            raise BufferError("the page is still read")
        for _, first, end in pieces:
            count += end - first
        if repeated:
            failed = self.put_levels(pieces, count, True, bit_length(node.repetition))
        if failed or node.definition == 0:
            return failed
        part = pieces[0][0]
        if part.index is not NULL:
            return self.put_levels(pieces, count, False, bit_length(node.definition))
        # Fields of the record: bits, or none are needed.
        for part, first, end in pieces:
            nulls += (end - first) if part.nulls == part.count else 0
        if bytes_reserve(b, 64):
            raise MemoryError()
        at = b.size
        b.size += 4
        if nulls == count:
            failed = put_run(b, count, 0, 1)
        elif nulls == 0 and all([(<Part>each[0]).nulls == 0 for each in pieces]):
            failed = put_run(b, count, 1, 1)
        else:
            self.bits.size = 0
            if bytes_reserve(&self.bits, count // 8 + 16):
                raise MemoryError()
            memset(self.bits.data, 0, <size_t>(count // 8 + 16))
            count = 0
            for part, first, end in pieces:
                if part.bits is not NULL:
                    append_bits(self.bits.data, count, part.bits, part.bit + first, end - first)
                elif part.nulls == 0:
                    set_bits(self.bits.data, count, end - first)
                count += end - first
            failed = put_bitmap(b, self.bits.data, count)
        if failed:
            raise MemoryError()
        set_size(b, at)
        return 0

    cdef int put_levels(self, list pieces, int64_t count, bint repetitions, int width) except -1:
        """Append levels that lie in arrays, with their size before them."""
        cdef Bytes* b = &self.page.bytes
        cdef Part part
        cdef int64_t first, end, to = 0, at
        cdef int16_t* levels
        cdef int failed
        self.levels.size = 0
        if bytes_reserve(&self.levels, count * 2) or bytes_reserve(b, 16):
            raise MemoryError()
        for part, first, end in pieces:
            levels = part.repetitions if repetitions else part.definitions
            memcpy(self.levels.data + to * 2, levels + first, <size_t>((end - first) * 2))
            to += end - first
        at = b.size
        b.size += 4
        with nogil:
            failed = put_hybrid[int16_t](b, <const int16_t*>self.levels.data, count, width)
        if failed:
            raise MemoryError()
        set_size(b, at)
        return 0

    cdef int pick(self, Part part, int64_t first, int64_t end, Picked* picked) except -1:
        """Find the values among some entries. The result is valid until the next call."""
        cdef int64_t i, count = 0
        cdef int64_t* to
        picked.array = part.array
        picked.index = NULL
        picked.first = part.first + first
        picked.count = 0
        if part.nulls == part.count:
            return 0
        if part.index is NULL and part.bits is NULL:
            picked.count = end - first
            return 0
        self.index.size = 0
        if bytes_reserve(&self.index, (end - first) * 8):
            raise MemoryError()
        to = <int64_t*>self.index.data
        with nogil:
            if part.index is NULL:
                for i in range(first, end):
                    to[count] = part.first + i
                    count += (part.bits[(part.bit + i) >> 3] >> ((part.bit + i) & 7)) & 1
            else:
                for i in range(first, end):
                    to[count] = part.index[i]
                    count += part.index[i] >= 0
        picked.count = count
        if count and to[count - 1] - to[0] == count - 1:
            picked.first = to[0]                   # one after the other, as places only grow
        else:
            picked.index = to
        return 0

    cdef int plain_pages(self, Node node, list parts, bint deltas, Ends ends) except -1:
        """Write pages of about 1 MiB of values, PLAIN or as deltas."""
        cdef int at = 0
        cdef int64_t entry = 0, room, end
        cdef Part part
        cdef list pieces
        while at < len(parts):
            pieces = []
            room = PAGE
            while at < len(parts) and room > 0:
                part = parts[at]
                end = cut(node, part, entry, &room)
                if end > entry:
                    pieces.append((part, entry, end))
                entry = end
                if entry == part.count:
                    at += 1
                    entry = 0
                if node.read == READ_BITS and not node.index and pieces:
                    break                          # bits of two batches do not meet in a byte
            if pieces:
                self.plain_page(node, pieces, deltas, ends)
        return 0

    cdef int plain_page(self, Node node, list pieces, bint deltas, Ends ends) except -1:
        cdef Part part
        cdef Picked picked
        cdef int64_t first, end, entries = 0, values = 0
        cdef Bytes* page = &self.page.bytes
        # Values are copied straight into the page, but where they are computed or looked at: these lie aligned.
        cdef bint straight = ends is None and not deltas and (node.read == READ_BINARY or node.read == READ_LARGE)
        cdef int failed = 0
        self.begin_page(node, pieces)
        self.plain.size = 0
        for part, first, end in pieces:
            entries += end - first
            self.pick(part, first, end, &picked)
            values += picked.count
            if node.index and picked.count:
                self.look_up(node, part, &picked)
            if straight or (
                ends is None and not deltas and node.read == READ_PLAIN and picked.index is NULL and not self.plain.size
            ):
                put_values(page, node, &picked)
            else:
                put_values(&self.plain, node, &picked)
                straight = False
        if ends is not None:
            ends.take(self.plain.data, self.plain.size, values)
        if deltas:
            with nogil:
                if node.physical == INT32:
                    failed = put_deltas[int32_t](page, <const int32_t*>self.plain.data, values)
                else:
                    failed = put_deltas[int64_t](page, <const int64_t*>self.plain.data, values)
        elif self.plain.size:
            failed = bytes_reserve(page, self.plain.size)
            if not failed:
                memcpy(page.data + page.size, self.plain.data, <size_t>self.plain.size)
                page.size += self.plain.size
        if failed:
            raise MemoryError()
        self.end_page(entries, DELTA_BINARY_PACKED if deltas else PLAIN, False)
        return 0

    cdef int look_up(self, Node node, Part part, Picked* picked) except -1:
        """Make picked indexes of a dictionary places in the array of its words."""
        cdef int64_t i, at
        cdef int64_t* to
        cdef ArrowArray* words = part.array.dictionary
        cdef const uint8_t* indexes = <const uint8_t*>part.array.buffers[1]
        self.codes.size = 0
        if bytes_reserve(&self.codes, picked.count * 8):
            raise MemoryError()
        to = <int64_t*>self.codes.data
        for i in range(picked.count):
            at = picked.first + i if picked.index is NULL else picked.index[i]
            to[i] = word_at(node, indexes, at)
            if not 0 <= to[i] < words.length:
                raise UnwritableError(f"the column {'.'.join(node.path)} has an index beyond its dictionary")
            to[i] += words.offset
        picked.array = words
        picked.index = to
        return 0

    # --- dictionaries

    cdef bint words_page(self, Node node, list parts, int64_t values, Ends ends) except -1:
        """Write the chunk as a dictionary and one page of indexes; return False, having written nothing, where its
        values repeat too little.
        """
        cdef Words words
        cdef Part part
        cdef int64_t entries = 0
        cdef Bytes* page = &self.page.bytes
        memset(&words, 0, sizeof(Words))
        self.runs.size = 0
        try:
            for part in parts:
                entries += part.count
                if not self.collect(node, part, &words):
                    return False
            if words.count > MOST_WORDS or words.text.size > MOST_TEXT or (values > FEW and words.count > values // 2):
                return False
            if ends is not None:
                self.plain.size = 0
                if bytes_reserve(&self.plain, words.text.size + 8):
                    raise MemoryError()
                memcpy(self.plain.data, words.text.data, <size_t>words.text.size)
                ends.take(self.plain.data, words.text.size, words.count)
            page.size = 0
            if bytes_reserve(page, words.text.size + 8):
                raise MemoryError()
            memcpy(page.data, words.text.data, <size_t>words.text.size)
            page.size = words.text.size
            self.end_page(words.count, PLAIN, True)
            self.begin_page(node, [(part, 0, part.count) for part in parts])
            self.put_runs(values, words.count)
            self.end_page(entries, RLE_DICTIONARY, False)
            return True
        finally:
            words_drop(&words)

    cdef int put_runs(self, int64_t values, int32_t words) except -1:
        """Append the numbers of words: their width, and the runs."""
        cdef Bytes* page = &self.page.bytes
        cdef Run* runs = <Run*>self.runs.data
        cdef int64_t count = self.runs.size // <int64_t>sizeof(Run), i, to = 0
        cdef int width = max(1, bit_length(<uint64_t>(words - 1)))
        cdef int failed = 0
        cdef int32_t* codes
        if bytes_reserve(page, 16):
            raise MemoryError()
        put_byte(page, width)
        if values >= count * LONG_RUNS:
            with nogil:
                for i in range(count):
                    failed |= put_run(page, runs[i].count, <uint32_t>runs[i].word, width)
        else:
            self.codes.size = 0
            if bytes_reserve(&self.codes, values * 4):
                raise MemoryError()
            codes = <int32_t*>self.codes.data
            with nogil:
                for i in range(count):
                    for _ in range(runs[i].count):
                        codes[to] = runs[i].word
                        to += 1
                failed = put_hybrid[int32_t](page, codes, to, width)
        if failed:
            raise MemoryError()
        return 0

    cdef int collect(self, Node node, Part part, void* into) except -1:
        """Add the values of a part to words and runs; return 0 where they are too many words."""
        cdef Words* words = <Words*>into
        cdef Picked picked
        cdef Picked one
        cdef int64_t i, at, run
        cdef int64_t width = node.width
        cdef int32_t word
        cdef const uint8_t* data
        cdef const int32_t* offsets
        cdef const uint8_t* text
        cdef int64_t now
        self.pick(part, 0, part.count, &picked)
        if not picked.count:
            return 1
        data = <const uint8_t*>picked.array.buffers[1]
        i = 0
        if node.index:
            one.array = picked.array.dictionary
            one.count = 1
            one.index = NULL
            known = {}
            while i < picked.count:
                at = picked.first + i if picked.index is NULL else picked.index[i]
                now = word_at(node, data, at)
                run = i + 1
                if picked.index is NULL and node.index == 4:
                    run = i + same[uint32_t](<const uint32_t*>data + at, picked.count - i)
                else:
                    while run < picked.count and word_at(
                        node, data, picked.first + run if picked.index is NULL else picked.index[run]
                    ) == now:
                        run += 1
                found = known.get(now)
                if found is None:
                    if not 0 <= now < one.array.length:
                        raise UnwritableError(f"the column {'.'.join(node.path)} has an index beyond its dictionary")
                    one.first = one.array.offset + now
                    found = known[now] = self.word(node, words, &one)
                self.add_run(run - i, found)
                i = run
                if words.count > MOST_WORDS or words.text.size > MOST_TEXT:
                    return 0
            return 1
        one.array = picked.array
        one.count = 1
        one.index = NULL
        while i < picked.count:
            at = picked.first + i if picked.index is NULL else picked.index[i]
            run = i + 1
            if node.read == READ_PLAIN and width == 8:
                if picked.index is NULL:
                    run = i + same[uint64_t](<const uint64_t*>data + at, picked.count - i)
                else:
                    run += repeated[uint64_t](<const uint64_t*>data, at, picked.index + run, picked.count - run)
            elif node.read == READ_PLAIN and width == 4:
                if picked.index is NULL:
                    run = i + same[uint32_t](<const uint32_t*>data + at, picked.count - i)
                else:
                    run += repeated[uint32_t](<const uint32_t*>data, at, picked.index + run, picked.count - run)
            elif node.read == READ_BINARY:
                offsets = <const int32_t*>data
                text = <const uint8_t*>picked.array.buffers[2]
                while run < picked.count and same_text(
                    offsets, text, at, picked.first + run if picked.index is NULL else picked.index[run]
                ):
                    run += 1
            if node.read == READ_PLAIN:
                word = word_of(words, data + at * width, width)
                if word < 0:
                    raise MemoryError()
            else:
                one.first = at
                word = self.word(node, words, &one)
            self.add_run(run - i, word)
            i = run
            if words.count > MOST_WORDS or words.text.size > MOST_TEXT:
                return 0
        return 1

    cdef int word(self, Node node, Words* words, const Picked* one) except -1:
        """Return the number of a value that is encoded first."""
        cdef int32_t found
        self.plain.size = 0
        put_values(&self.plain, node, one)
        found = word_of(words, self.plain.data, self.plain.size)
        if found < 0:
            raise MemoryError()
        return found

    cdef int add_run(self, int64_t count, int32_t word) except -1:
        cdef int64_t have = self.runs.size // <int64_t>sizeof(Run)
        cdef Run* runs = <Run*>self.runs.data
        if have and runs[have - 1].word == word:
            runs[have - 1].count += count
            return 0
        if bytes_reserve(&self.runs, sizeof(Run)):
            raise MemoryError()
        runs = <Run*>self.runs.data
        runs[have].count = count
        runs[have].word = word
        self.runs.size += sizeof(Run)
        return 0


ctypedef fused Plain:
    uint32_t
    uint64_t


cdef int64_t same(const Plain* values, int64_t count) noexcept nogil:
    """Return how many values at the beginning are equal."""
    cdef int64_t at = 1, i
    cdef Plain first = values[0], other
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


cdef int64_t repeated(const Plain* values, int64_t at, const int64_t* index, int64_t count) noexcept nogil:
    """Return how many places of ``index``, from the first one on, have the value at ``at``."""
    cdef int64_t found = 0
    while found < count and values[index[found]] == values[at]:
        found += 1
    return found


cdef inline bint same_text(const int32_t* offsets, const uint8_t* data, int64_t a, int64_t b) noexcept nogil:
    cdef int32_t size = offsets[a + 1] - offsets[a]
    return offsets[b + 1] - offsets[b] == size and memcmp(data + offsets[a], data + offsets[b], <size_t>size) == 0


cdef inline int64_t word_at(Node node, const uint8_t* indexes, int64_t at) noexcept:
    """Return an index of a dictionary, of any width."""
    if node.index == 4:
        return (<const int32_t*>indexes)[at] if node.index_signed else <int64_t>(<const uint32_t*>indexes)[at]
    if node.index == 1:
        return (<const int8_t*>indexes)[at] if node.index_signed else indexes[at]
    if node.index == 2:
        return (<const int16_t*>indexes)[at] if node.index_signed else (<const uint16_t*>indexes)[at]
    return (<const int64_t*>indexes)[at]


cdef inline void set_size(Bytes* b, int64_t at) noexcept:
    """Write the number of bytes behind the four at ``at``."""
    cdef uint32_t size = <uint32_t>(b.size - at - 4)
    memcpy(b.data + at, &size, 4)


cdef void set_bits(uint8_t* to, int64_t at, int64_t count) noexcept nogil:
    cdef int64_t end = at + count
    while at < end and at & 7:
        to[at >> 3] |= <uint8_t>(1 << (at & 7))
        at += 1
    if end - at >= 8:
        memset(to + (at >> 3), 0xFF, <size_t>((end - at) >> 3))
        at += (end - at) & ~<int64_t>7
    while at < end:
        to[at >> 3] |= <uint8_t>(1 << (at & 7))
        at += 1


cdef int64_t cut(Node node, Part part, int64_t first, int64_t* room):
    """Return the end of the entries from ``first`` on that a page takes with ``room`` bytes, at least one record."""
    cdef int64_t end = first, low, high, middle, size
    cdef const int32_t* offsets
    cdef ArrowArray* values = part.array.dictionary if node.index else part.array
    if part.count == first:
        return first
    if part.index is NULL and not node.index and node.read == READ_BINARY and part.nulls != part.count:
        offsets = <const int32_t*>part.array.buffers[1] + part.first
        low, high = first + 1, part.count
        while low < high:
            middle = (low + high + 1) // 2
            if offsets[middle] - offsets[first] + 4 * (middle - first) <= room[0]:
                low = middle
            else:
                high = middle - 1
        room[0] -= offsets[low] - offsets[first] + 4 * (low - first)
        return low
    if part.index is NULL and not node.index and node.read != READ_LARGE:
        size = max(node.length if node.physical == FIXED else node.width, 1)
        end = min(part.count, first + max(room[0] // size, 1))
        room[0] -= (end - first) * size
        return end
    while end < part.count:
        if end > first and room[0] <= 0 and (part.repetitions is NULL or part.repetitions[end] == 0):
            break
        low = part.first + end if part.index is NULL else part.index[end]
        if low >= 0 and part.nulls != part.count and (
            part.bits is NULL or (part.bits[(part.bit + end) >> 3] >> ((part.bit + end) & 7)) & 1
        ):
            if node.index:
                low = word_at(node, <const uint8_t*>part.array.buffers[1], low)
                if 0 <= low < values.length:
                    room[0] -= size_of(node, values, values.offset + low)
            else:
                room[0] -= size_of(node, values, low)
        end += 1
    return end
