"""Column chunks: pages of levels and values, dictionaries, and the metadata of the chunk (parquet.thrift)."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from fastwire.columns.arrow cimport ArrowArray
from fastwire.parquet.buffer cimport (
    Bytes,
    Scratch,
    bit_length,
    bytes_reserve,
    give_scratch,
    put_byte,
    put_varint,
    take_scratch,
    zigzag,
)
from fastwire.parquet.delta cimport put_deltas
from fastwire.parquet.dictionary cimport Dictionary
from fastwire.parquet.hybrid cimport append_bits, put_bitmap, put_hybrid, put_run
from fastwire.parquet.nested cimport pick, word_at
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
from fastwire.parquet.values cimport place, put_values, size_of

from fastwire.parquet.codec import CODECS, compressor
from fastwire.parquet.errors import UnwritableError
from fastwire.parquet.pageindex import PageIndex
from fastwire.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, binary, integer, many, struct

cdef enum:
    PLAIN = 0                    # encodings
    RLE = 3
    DELTA_BINARY_PACKED = 5
    RLE_DICTIONARY = 8
    DATA_PAGE = 0                # kinds of pages
    DICTIONARY_PAGE = 2
    PAGE = 1 << 20               # bytes of values from which on a page ends
    PAGE_ROWS = 20_000           # narrow values are compressed faster in smaller pages, and to nearly the same size
    LARGEST_PAGE = 0x7FFFFFFF
    LARGE_PIECE = 64 << 10       # bytes that are written without being merged with others
    FEW = 1024                   # values that are too few to say that they do not repeat
    TRIED_TEXT = 64 << 10        # the same as bytes of words, for texts that may repeat or not
    STEP = 64                    # values between two looks at these


@cython.final
cdef class PageWriter:

    def __init__(self, write, str codec, level, int64_t most_waiting):
        """``write`` takes bytes; small pieces are merged up to ``most_waiting``. Raises ValueError for an unknown
        ``codec``.
        """
        compressor(codec, level)
        self.codec = codec
        self.level = level
        self.number = CODECS[codec]
        self.write = write
        self.waiting = []
        self.most_waiting = most_waiting

    cdef int rest(self) except -1:
        """Give back all memory until the next chunk: many files may be open, and few are written at once."""
        if self.scratch is not None:
            give_scratch(self.scratch)
        self.scratch = None
        return 0

    cdef int put(self, bytes data) except -1:
        cdef int64_t size = len(data)
        self.position += size
        if size >= min(LARGE_PIECE, self.most_waiting):
            self.flush()
            self.write(data)
            return 0
        self.waiting.append(data)    # most pages are some tens of bytes
        self.waiting_bytes += size
        if self.waiting_bytes >= self.most_waiting:
            self.flush()
        return 0

    cdef int flush(self) except -1:
        """Write what waits."""
        if self.waiting:
            self.write(b"".join(self.waiting))
            self.waiting.clear()
            self.waiting_bytes = 0
        return 0

    cdef tuple chunk(self, Node node, list parts, str role, bint stats):
        """Write the pages of a leaf; return where they begin, the encoded ColumnMetaData, and their index.

        Raises UnwritableError, and what ``write`` raises.
        """
        cdef int64_t count = 0, nulls = 0
        cdef Part part
        cdef Ends ends = Ends(node) if stats else None
        cdef bint number = node.physical == INT32 or node.physical == INT64
        if self.scratch is None:
            self.scratch = take_scratch(self.codec, self.level)
        self.began = self.data_at = self.position
        self.dictionary_at = -1
        self.raw = self.packed = 0
        self.pages = PageIndex()
        self.encodings = {}
        for part in parts:
            count += part.count
            nulls += part.nulls
        expected = node.index or (role == "constant" and node.read != READ_BITS)
        wanted = expected or (role == "plain" and node.read == READ_BINARY)
        if count == nulls:
            self.begin_page(node, [(part, 0, part.count) for part in parts])
            self.end_page(count, 0, PLAIN, None)
        elif not wanted or not self.words_page(node, parts, expected, ends):
            # What was to be a dictionary and repeats too little may still grow by small steps.
            self.plain_pages(node, parts, number and (role == "counter" or role == "constant"), ends)
        self.scratch.shrink()
        return self.began, self.metadata(node, count, nulls, ends), self.pages

    def metadata(self, Node node, int64_t count, int64_t nulls, Ends ends):
        used = sorted({RLE, *(encoding for _, encoding in self.encodings)})
        fields = [
            (1, I32, integer(node.physical)),
            (2, LIST, many(I32, [integer(each) for each in used])),
            (3, LIST, many(BINARY, [binary(each.encode()) for each in node.path])),
            (4, I32, integer(self.number)),
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
        return struct(*fields)

    # --- pages

    cdef int end_page(self, int64_t entries, int64_t values, int encoding, Ends ends) except -1:
        """Compress and write the data page that was laid out; ``ends`` are those of its ``values``."""
        if not len(self.pages):
            self.data_at = self.position
        cdef int64_t at = self.position
        self.put_page(DATA_PAGE, entries, encoding)
        self.pages.add(at, self.position - at, self.rows, values, entries - values, ends)
        return 0

    cdef int put_page(self, int kind, int64_t values, int encoding) except -1:
        cdef Scratch scratch = self.scratch
        cdef int64_t size = scratch.page.bytes.size
        if size > LARGEST_PAGE:
            raise UnwritableError(f"a record needs {size} bytes in one column, more than a page of Parquet can have")
        cdef bytes packed = scratch.compress(scratch.page)
        cdef bytes header = page_header(kind == DICTIONARY_PAGE, size, len(packed), values, encoding)
        self.put(header)
        self.put(packed)
        self.raw += size + len(header)
        self.packed += len(packed) + len(header)
        self.encodings[kind, encoding] = self.encodings.get((kind, encoding), 0) + 1
        return 0

    cdef int begin_page(self, Node node, list pieces) except -1:
        """Begin a page with the levels of the entries of ``pieces``: (part, first, end)."""
        cdef Scratch scratch = self.scratch
        cdef Bytes* b = &scratch.page.bytes
        cdef Part part
        cdef int64_t first, end, count = 0, nulls = 0, at
        cdef int failed = 0
        cdef bint repeated = node.repetition > 0
        b.size = 0
        self.rows = 0
        if scratch.page.views:
            raise BufferError("the page is still read")
        for part, first, end in pieces:
            count += end - first
            self.rows += end - first if part.repetitions is NULL else records(part.repetitions, first, end)
        if repeated:
            failed = self.put_levels(pieces, count, True, bit_length(node.repetition))
        if failed or node.definition == 0:
            return failed
        if len(node.path) > 1:
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
            scratch.bits.size = 0
            if bytes_reserve(&scratch.bits, count // 8 + 16):
                raise MemoryError()
            memset(scratch.bits.data, 0, <size_t>(count // 8 + 16))
            count = 0
            for part, first, end in pieces:
                if part.bits is not NULL:
                    append_bits(scratch.bits.data, count, part.bits, part.bit + first, end - first)
                elif part.nulls == 0:
                    set_bits(scratch.bits.data, count, end - first)
                count += end - first
            failed = put_bitmap(b, scratch.bits.data, count)
        if failed:
            raise MemoryError()
        set_size(b, at)
        return 0

    cdef int put_levels(self, list pieces, int64_t count, bint repetitions, int width) except -1:
        """Append the levels of leaves that are parts of others, with their size before them."""
        cdef Scratch scratch = self.scratch
        cdef Bytes* b = &scratch.page.bytes
        cdef Part part = pieces[0][0]
        cdef int64_t first, end, to = 0, at
        cdef const uint8_t* levels
        cdef uint8_t level = 0 if repetitions else part.level
        cdef bint same = True
        cdef int failed
        if bytes_reserve(b, 16):
            raise MemoryError()
        at = b.size
        b.size += 4
        for part, _, _ in pieces:
            same = same and part.definitions is NULL and (repetitions or part.level == level)
        if same:
            failed = put_run(b, count, level, width)
        else:
            scratch.levels.size = 0
            if bytes_reserve(&scratch.levels, count):
                raise MemoryError()
            for part, first, end in pieces:
                levels = part.repetitions if repetitions else part.definitions
                if levels is not NULL:
                    memcpy(scratch.levels.data + to, levels + first, <size_t>(end - first))
                else:
                    memset(scratch.levels.data + to, 0 if repetitions else part.level, <size_t>(end - first))
                to += end - first
            with nogil:
                failed = put_hybrid[uint8_t](b, scratch.levels.data, count, width)
        if failed:
            raise MemoryError()
        set_size(b, at)
        return 0

    cdef int plain_pages(self, Node node, list parts, bint deltas, Ends ends) except -1:
        """Write pages of about 1 MiB of values, PLAIN or as deltas."""
        cdef int at = 0
        cdef int64_t entry = 0, room, end, rows
        cdef Part part
        cdef list pieces
        while at < len(parts):
            pieces = []
            room = PAGE
            rows = PAGE_ROWS
            while at < len(parts) and room > 0 and rows > 0:
                part = parts[at]
                end = cut(node, part, entry, rows, &room)
                rows -= end - entry
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
        cdef Scratch scratch = self.scratch
        cdef Part part
        cdef Picked picked
        cdef int64_t first, end, entries = 0, values = 0
        cdef Bytes* page = &scratch.page.bytes
        # Values are copied straight into the page, but where they are computed or looked at: these lie aligned.
        cdef bint straight = ends is None and not deltas and (node.read == READ_BINARY or node.read == READ_LARGE)
        cdef Ends own = None
        cdef int failed = 0
        self.begin_page(node, pieces)
        scratch.plain.size = 0
        for part, first, end in pieces:
            entries += end - first
            pick(part, first, end, &scratch.index, &picked)
            values += picked.count
            if node.index and picked.count:
                self.look_up(node, part, &picked)
            if straight or (
                ends is None and not deltas and node.read == READ_PLAIN and picked.index is NULL
                and not scratch.plain.size
            ):
                put_values(page, node, &picked)
            else:
                put_values(&scratch.plain, node, &picked)
                straight = False
        if ends is not None:
            own = Ends(node)
            own.take(scratch.plain.data, scratch.plain.size, values)
            ends.join(own)
        if deltas:
            with nogil:
                if node.physical == INT32:
                    failed = put_deltas[int32_t](page, <const int32_t*>scratch.plain.data, values)
                else:
                    failed = put_deltas[int64_t](page, <const int64_t*>scratch.plain.data, values)
        elif scratch.plain.size:
            failed = bytes_reserve(page, scratch.plain.size)
            if not failed:
                memcpy(page.data + page.size, scratch.plain.data, <size_t>scratch.plain.size)
                page.size += scratch.plain.size
        if failed:
            raise MemoryError()
        self.end_page(entries, values, DELTA_BINARY_PACKED if deltas else PLAIN, own)
        return 0

    cdef int look_up(self, Node node, Part part, Picked* picked) except -1:
        """Make picked indexes of a dictionary places in the array of its words."""
        cdef Scratch scratch = self.scratch
        cdef int64_t i
        cdef int64_t* to
        cdef ArrowArray* words = part.array.dictionary
        cdef const uint8_t* indexes = <const uint8_t*>part.array.buffers[1]
        scratch.codes.size = 0
        if bytes_reserve(&scratch.codes, picked.count * 8):
            raise MemoryError()
        to = <int64_t*>scratch.codes.data
        for i in range(picked.count):
            to[i] = word_at(node.index, node.index_signed, indexes, place(picked, i))
            if not 0 <= to[i] < words.length:
                raise UnwritableError(f"the column {'.'.join(node.path)} has an index beyond its dictionary")
            to[i] += words.offset
        picked.array = words
        picked.index = to
        return 0

    cdef bint words_page(self, Node node, list parts, bint expected, Ends ends) except -1:
        """Write the chunk as a dictionary and one page of indexes; return False, having written nothing, where its
        values repeat too little. Unless that is ``expected``, the first of them must do so.
        """
        cdef Dictionary dictionary = Dictionary()
        cdef Part part
        cdef int64_t entries = 0, first, end
        cdef bint tried = expected
        cdef Bytes* page = &self.scratch.page.bytes
        dictionary.each = not expected
        for part in parts:
            entries += part.count
            first = 0
            while first < part.count:
                end = part.count if tried else min(part.count, first + STEP)
                if not dictionary.add(node, part, first, end):
                    return False
                if not tried and (dictionary.taken >= FEW or dictionary.words.text.size >= TRIED_TEXT):
                    tried = True
                    if not dictionary.worth(2):
                        return False
                first = end
        if not (dictionary.worth(2 if expected else 4) or (expected and dictionary.taken <= FEW)):
            return False
        page.size = 0
        dictionary.put_words(page, ends)
        self.dictionary_at = self.position
        self.put_page(DICTIONARY_PAGE, dictionary.words.count, PLAIN)
        self.begin_page(node, [(part, 0, part.count) for part in parts])
        dictionary.put_numbers(page)
        self.end_page(entries, dictionary.taken, RLE_DICTIONARY, ends)
        return True


cdef int64_t records(const uint8_t* repetitions, int64_t first, int64_t end) noexcept nogil:
    """Return the number of records that begin among the entries from ``first`` to ``end``."""
    cdef int64_t count = 0
    for i in range(first, end):
        count += repetitions[i] == 0
    return count


cdef bytes page_header(bint dictionary, int64_t size, int64_t packed, int64_t values, int encoding):
    """Encode a PageHeader in Thrift's compact protocol; each field follows the one with the next lower number."""
    cdef uint8_t[64] room
    cdef Bytes b
    b.data = room
    b.size = 0
    b.capacity = sizeof(room)
    put_i32(&b, 1, DICTIONARY_PAGE if dictionary else DATA_PAGE)
    put_i32(&b, 1, size)
    put_i32(&b, 1, packed)
    put_byte(&b, (4 if dictionary else 2) << 4 | STRUCT)  # the field 7 or 5
    put_i32(&b, 1, values)
    put_i32(&b, 1, encoding)
    if not dictionary:
        put_i32(&b, 1, RLE)                  # of both levels
        put_i32(&b, 1, RLE)
    put_byte(&b, 0)
    put_byte(&b, 0)
    return room[:b.size]


cdef inline void put_i32(Bytes* b, int step, int64_t value) noexcept:
    put_byte(b, step << 4 | I32)
    put_varint(b, zigzag(value))


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


cdef int64_t cut(Node node, Part part, int64_t first, int64_t rows, int64_t* room):
    """Return the end of the entries from ``first`` on that a page takes with ``room`` bytes, at least one record.

    ``rows`` is the most of entries, where each is a row.
    """
    cdef int64_t end = first, low, high, middle, size
    cdef int64_t last = part.count if part.repetitions is not NULL else min(part.count, first + rows)
    cdef const int32_t* offsets
    cdef ArrowArray* values = part.array.dictionary if node.index else part.array
    if part.count == first:
        return first
    if part.index is NULL and not node.index and node.read == READ_BINARY and part.nulls != part.count:
        offsets = <const int32_t*>part.array.buffers[1] + part.first
        low, high = first + 1, last
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
        end = min(last, first + max(room[0] // size, 1))
        room[0] -= (end - first) * size
        return end
    while end < last:
        if end > first and room[0] <= 0 and (part.repetitions is NULL or part.repetitions[end] == 0):
            break
        low = part.first + end if part.index is NULL else part.index[end]
        if low >= 0 and part.nulls != part.count and (
            part.bits is NULL or (part.bits[(part.bit + end) >> 3] >> ((part.bit + end) & 7)) & 1
        ):
            if node.index:
                low = word_at(node.index, node.index_signed, <const uint8_t*>part.array.buffers[1], low)
                if 0 <= low < values.length:
                    room[0] -= size_of(node, values, values.offset + low)
            else:
                room[0] -= size_of(node, values, low)
        end += 1
    return end
