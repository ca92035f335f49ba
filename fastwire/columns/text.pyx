"""Rows as lines of JSON, straight from Arrow columns and without the interpreter lock.

The columns come through the Arrow C data interface, so a ``Chunk`` and a pyarrow ``RecordBatch`` are read alike and
neither pyarrow nor a Python object per value is needed. What is written, column by column:

* binary: a JSON string when the bytes are UTF-8, else ``{"base64": "..."}`` (RFC 4648, padded). A text that merely
  looks like that object stays a string, so the two cannot be taken for each other.
* string: a JSON string. ``"``, ``\\`` and control characters are escaped, everything else is left as it is.
* integers: all their digits, however large. Booleans: ``true``, ``false``.
* timestamps: RFC 3339 in UTC with microseconds, ``"2026-08-01T12:34:56.000123Z"``; a zone other than UTC and no zone
  are written the same way. Years outside 0-9999 have a sign and at least six digits (ISO 8601, expanded).
* structs: objects. Lists: arrays. Null: ``null``. Every row has every column, in the order of the schema.

Escaped text takes up to six times its bytes, so no line is held whole: when the output buffer is full, its content is
handed over, in the middle of a value if need be.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, strcmp

from fastwire.columns.arrow cimport ArrowArray, ArrowSchema
from fastwire.columns.builder cimport is_utf8

__all__ = ["LineFormatter"]

cdef extern from *:
    """
    #define fw_ctz64(x) __builtin_ctzll(x)
    #if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define fw_low_first(x) __builtin_bswap64(x)
    #else
    #define fw_low_first(x) (x)
    #endif
    """
    int ctz "fw_ctz64"(uint64_t) noexcept nogil
    uint64_t low_first "fw_low_first"(uint64_t) noexcept nogil

cdef enum:
    STEP = 3 << 12               # bytes of a value between two checks for room; base64 takes three at a time
    MOST_STEP = 6 * STEP + 8     # their largest output
    MAX_INTEGER = 21             # characters of the longest integer, with sign
    MAX_TIMESTAMP = 48           # characters of the longest timestamp, with quotes

cdef enum Kind:
    KIND_INT8, KIND_INT16, KIND_INT32, KIND_INT64, KIND_UINT8, KIND_UINT16, KIND_UINT32, KIND_UINT64, KIND_BOOL
    KIND_TIMESTAMP, KIND_BINARY, KIND_LARGE_BINARY, KIND_TEXT, KIND_LARGE_TEXT, KIND_LIST, KIND_LARGE_LIST, KIND_STRUCT
    KIND_NULL

cdef struct Node:                # one column, and its parts in ``children``
    Kind kind
    int64_t offset
    const uint8_t* validity      # NULL: no nulls
    const void* data             # values; offsets of binary, text and list
    const uint8_t* bytes         # of binary and text
    int64_t per_second           # of a timestamp
    char* label                  # '"name":' of a struct's child, in its parent's order
    int64_t label_size
    int64_t n_children
    Node* children
    Node* dictionary             # values of a dictionary column; ``kind`` is then that of the index

cdef struct Out:
    char* data
    int64_t size
    int64_t capacity
    int64_t most                 # size at which the content is passed on; 0: it grows instead
    PyObject* take               # the callable that takes the content


cdef int hand_over(Out* out) except -1 with gil:
    (<object>out.take)(PyBytes_FromStringAndSize(out.data, out.size))
    out.size = 0
    return 0


cdef int make_room(Out* out, int64_t extra) except -1 nogil:
    cdef int64_t capacity
    cdef void* data
    if out.most and out.size and out.size + extra > out.most:
        hand_over(out)
    if out.capacity - out.size >= extra:
        return 0
    # At full size at once: unwritten pages take no memory, but blocks that a growing heap leaves behind do.
    capacity = max(out.most, out.capacity * 2, out.size + extra)
    data = realloc(out.data, <size_t>capacity)
    if data is NULL:
        with gil:
            raise MemoryError()
    out.data = <char*>data
    out.capacity = capacity
    return 0


cdef inline int reserve(Out* out, int64_t extra) except -1 nogil:
    """Make room for ``extra`` bytes. Raises MemoryError, and any error of the callable that takes the content."""
    return 0 if out.capacity - out.size >= extra else make_room(out, extra)


cdef inline void put(Out* out, const char* text, int64_t size) noexcept nogil:
    """Append ``text``; the caller has reserved room."""
    memcpy(out.data + out.size, text, <size_t>size)
    out.size += size


# Text

cdef char[16] HEX = b"0123456789abcdef"
cdef char[64] BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef uint8_t[256] ESCAPE         # the letter after the backslash; 0: no escape


cdef char[200] PAIRS             # "00" to "99"


cdef void fill_tables() noexcept:
    cdef int i
    for i in range(100):
        PAIRS[2 * i] = <char>(c'0' + i // 10)
        PAIRS[2 * i + 1] = <char>(c'0' + i % 10)
    for i in range(256):
        ESCAPE[i] = c'u' if i < 0x20 else 0
    ESCAPE[c'"'] = c'"'
    ESCAPE[c'\\'] = c'\\'
    ESCAPE[c'\n'] = c'n'
    ESCAPE[c'\r'] = c'r'
    ESCAPE[c'\t'] = c't'
    ESCAPE[c'\b'] = c'b'
    ESCAPE[c'\f'] = c'f'


fill_tables()


cdef inline void load_eight(uint64_t* eight, const uint8_t* at) noexcept nogil:
    """Load eight bytes, the first one lowest."""
    memcpy(eight, at, 8)
    eight[0] = low_first(eight[0])


cdef inline int64_t plain_bytes(uint64_t eight) noexcept nogil:
    """Return how many of eight bytes, from the lowest, precede one that needs an escape."""
    cdef uint64_t ones = <uint64_t>0x0101010101010101
    cdef uint64_t quote = eight ^ (ones * 0x22)
    cdef uint64_t slash = eight ^ (ones * 0x5C)
    # A borrow can only mark bytes above a true hit, so the lowest mark is exact.
    cdef uint64_t marks = ((eight - ones * 0x20) & ~eight) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)
    marks &= ones * 0x80
    return ctz(marks) >> 3 if marks else 8


cdef inline char* put_escape(char* at, uint8_t byte) noexcept nogil:
    cdef uint8_t letter = ESCAPE[byte]
    at[0] = c'\\'
    at[1] = <char>letter
    if letter != c'u':
        return at + 2
    at[2] = at[3] = c'0'
    at[4] = HEX[byte >> 4]
    at[5] = HEX[byte & 15]
    return at + 6


cdef int put_text(Out* out, const uint8_t* text, int64_t size) except -1 nogil:
    """Write a JSON string."""
    cdef int64_t i = 0
    cdef int64_t stop, plain
    cdef uint64_t eight
    cdef char* at
    reserve(out, 1)
    put(out, b'"', 1)
    while i < size:
        stop = min(size, i + STEP)
        reserve(out, (stop - i) * 6 + 8)                 # 6 for \u00XX; 8 for the last store of eight
        at = out.data + out.size
        while stop - i >= 8:
            load_eight(&eight, text + i)
            memcpy(at, text + i, 8)
            plain = plain_bytes(eight)
            at += plain
            i += plain
            if plain < 8:
                at = put_escape(at, text[i])
                i += 1
        while i < stop:
            if ESCAPE[text[i]]:
                at = put_escape(at, text[i])
            else:
                at[0] = <char>text[i]
                at += 1
            i += 1
        out.size = at - out.data
    reserve(out, 1)
    put(out, b'"', 1)
    return 0


cdef int put_base64(Out* out, const uint8_t* data, int64_t size) except -1 nogil:
    cdef int64_t i = 0
    cdef int64_t stop
    cdef uint32_t three
    cdef char* at
    reserve(out, 11)
    put(out, b'{"base64":"', 11)
    while i < size:
        stop = min(size, i + STEP)
        reserve(out, (stop - i) // 3 * 4 + 4)
        at = out.data + out.size
        while i < stop:
            three = <uint32_t>data[i] << 16
            if i + 1 < size:
                three |= <uint32_t>data[i + 1] << 8
            if i + 2 < size:
                three |= data[i + 2]
            at[0] = BASE64[three >> 18]
            at[1] = BASE64[(three >> 12) & 63]
            at[2] = BASE64[(three >> 6) & 63] if i + 1 < size else c'='
            at[3] = BASE64[three & 63] if i + 2 < size else c'='
            at += 4
            i += 3
        out.size = at - out.data
    reserve(out, 2)
    put(out, b'"}', 2)
    return 0


# Numbers and times

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


cdef int put_integer(Out* out, uint64_t magnitude, bint negative) except -1 nogil:
    cdef char[MAX_INTEGER] room
    cdef char* first = digits(room + MAX_INTEGER, magnitude)
    if negative:
        first -= 1
        first[0] = c'-'
    reserve(out, MAX_INTEGER)
    put(out, first, room + MAX_INTEGER - first)
    return 0


cdef inline void two(char* at, int64_t value) noexcept nogil:
    memcpy(at, &PAIRS[value * 2], 2)


@cython.cdivision(True)
cdef int put_timestamp(Out* out, int64_t value, int64_t per_second) except -1 nogil:
    cdef int64_t second = value / per_second
    cdef int64_t fraction = value % per_second
    cdef int64_t day, of_day, era, day_of_era, year_of_era, day_of_year, shifted, year, month
    cdef uint64_t distance
    cdef char[MAX_INTEGER] room
    cdef char* at
    cdef char* first
    cdef int _
    if fraction < 0:
        fraction += per_second
        second -= 1
    fraction = fraction / (per_second / 1_000_000) if per_second > 1_000_000 else fraction * (1_000_000 / per_second)
    day = second / 86_400
    of_day = second % 86_400
    if of_day < 0:
        of_day += 86_400
        day -= 1
    # Civil date of a day number: years start in March, so that the leap day comes last; an era is 400 years.
    day += 719_468
    era = (day if day >= 0 else day - 146_096) / 146_097
    day_of_era = day - era * 146_097
    year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100)
    shifted = (5 * day_of_year + 2) / 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    reserve(out, MAX_TIMESTAMP)
    at = out.data + out.size
    at[0] = c'"'
    at += 1
    if 0 <= year <= 9999:
        two(at, year / 100)
        two(at + 2, year % 100)
        at += 4
    else:
        at[0] = c'-' if year < 0 else c'+'
        at += 1
        distance = <uint64_t>(-year if year < 0 else year)
        first = digits(room + MAX_INTEGER, distance)
        for _ in range(6 - <int>(room + MAX_INTEGER - first)):
            at[0] = c'0'
            at += 1
        memcpy(at, first, <size_t>(room + MAX_INTEGER - first))
        at += room + MAX_INTEGER - first
    at[0] = c'-'
    two(at + 1, month)
    at[3] = c'-'
    two(at + 4, day_of_year - (153 * shifted + 2) / 5 + 1)
    at[6] = c'T'
    two(at + 7, of_day / 3_600)
    at[9] = c':'
    two(at + 10, of_day / 60 % 60)
    at[12] = c':'
    two(at + 13, of_day % 60)
    at[15] = c'.'
    two(at + 16, fraction / 10_000)
    two(at + 18, fraction / 100 % 100)
    two(at + 20, fraction % 100)
    at[22] = c'Z'
    at[23] = c'"'
    out.size = at + 24 - out.data
    return 0


# Cells

cdef inline bint is_set(const uint8_t* bits, int64_t i) noexcept nogil:
    return (bits[i >> 3] >> (i & 7)) & 1


cdef int64_t integer_at(const Node* node, int64_t i) noexcept nogil:
    """Return a signed integer, an unsigned one of up to 32 bits, or the bits of a longer one."""
    if node.kind == KIND_INT32:
        return (<const int32_t*>node.data)[i]
    if node.kind in (KIND_INT64, KIND_TIMESTAMP, KIND_UINT64):
        return (<const int64_t*>node.data)[i]
    if node.kind == KIND_INT8:
        return (<const int8_t*>node.data)[i]
    if node.kind == KIND_INT16:
        return (<const int16_t*>node.data)[i]
    if node.kind == KIND_UINT8:
        return (<const uint8_t*>node.data)[i]
    if node.kind == KIND_UINT16:
        return (<const uint16_t*>node.data)[i]
    return (<const uint32_t*>node.data)[i]


cdef int put_struct(Out* out, const Node* node, int64_t i) except -1 nogil:
    """Write the object of row ``i``, which counts from the start of the children's own windows."""
    cdef int64_t child
    reserve(out, 2)
    put(out, b"{", 1)
    for child in range(node.n_children):
        reserve(out, node.children[child].label_size + 1)
        if child:
            put(out, b",", 1)
        put(out, node.children[child].label, node.children[child].label_size)
        put_cell(out, &node.children[child], i)
    reserve(out, 2)
    put(out, b"}", 1)
    return 0


cdef int put_list(Out* out, const Node* node, int64_t first, int64_t last) except -1 nogil:
    cdef int64_t i
    reserve(out, 2)
    put(out, b"[", 1)
    for i in range(first, last):
        if i > first:
            reserve(out, 1)
            put(out, b",", 1)
        put_cell(out, &node.children[0], i)
    reserve(out, 2)
    put(out, b"]", 1)
    return 0


cdef int put_cell(Out* out, const Node* node, int64_t row) except -1 nogil:
    cdef int64_t i = node.offset + row
    cdef int64_t first, last, value
    if node.kind == KIND_NULL or (node.validity is not NULL and not is_set(node.validity, i)):
        reserve(out, 4)
        put(out, b"null", 4)
        return 0
    if node.dictionary is not NULL:
        return put_cell(out, node.dictionary, integer_at(node, i))
    if node.kind <= KIND_UINT64:
        value = integer_at(node, i)
        if value < 0 and node.kind != KIND_UINT64:
            return put_integer(out, <uint64_t>0 - <uint64_t>value, True)
        return put_integer(out, <uint64_t>value, False)
    if node.kind == KIND_BOOL:
        reserve(out, 5)
        if is_set(<const uint8_t*>node.data, i):
            put(out, b"true", 4)
        else:
            put(out, b"false", 5)
        return 0
    if node.kind == KIND_TIMESTAMP:
        return put_timestamp(out, (<const int64_t*>node.data)[i], node.per_second)
    if node.kind == KIND_STRUCT:
        return put_struct(out, node, i)
    if node.kind in (KIND_LARGE_BINARY, KIND_LARGE_TEXT, KIND_LARGE_LIST):
        first = (<const int64_t*>node.data)[i]
        last = (<const int64_t*>node.data)[i + 1]
    else:
        first = (<const int32_t*>node.data)[i]
        last = (<const int32_t*>node.data)[i + 1]
    if node.kind in (KIND_LIST, KIND_LARGE_LIST):
        return put_list(out, node, first, last)
    if node.kind in (KIND_BINARY, KIND_LARGE_BINARY) and not is_utf8(node.bytes + first, last - first):
        return put_base64(out, node.bytes + first, last - first)
    return put_text(out, node.bytes + first, last - first)


# The columns

cdef dict KINDS = {
    b"c": KIND_INT8, b"s": KIND_INT16, b"i": KIND_INT32, b"l": KIND_INT64,
    b"C": KIND_UINT8, b"S": KIND_UINT16, b"I": KIND_UINT32, b"L": KIND_UINT64,
    b"b": KIND_BOOL, b"n": KIND_NULL,
    b"z": KIND_BINARY, b"Z": KIND_LARGE_BINARY, b"u": KIND_TEXT, b"U": KIND_LARGE_TEXT,
    b"+l": KIND_LIST, b"+L": KIND_LARGE_LIST, b"+s": KIND_STRUCT,
    b"tss": KIND_TIMESTAMP, b"tsm": KIND_TIMESTAMP, b"tsu": KIND_TIMESTAMP, b"tsn": KIND_TIMESTAMP,
}
cdef dict PER_SECOND = {b"tss": 1, b"tsm": 1_000, b"tsu": 1_000_000, b"tsn": 1_000_000_000}


cdef void free_node(Node* node) noexcept:
    cdef int64_t i
    free(node.label)
    for i in range(node.n_children):
        free_node(&node.children[i])
    free(node.children)
    if node.dictionary is not NULL:
        free_node(node.dictionary)
        free(node.dictionary)


cdef int fill_node(Node* node, const ArrowSchema* schema, const ArrowArray* array, str path) except -1:
    """Describe ``array`` in ``node``, which is all zeros; the owner of the root frees it after an error."""
    cdef int64_t i
    cdef bytes label, name
    cdef bytes form = schema.format
    form = form.partition(b":")[0]               # a timestamp's zone does not matter
    if form not in KINDS:
        raise TypeError(f"column {path!r} has the Arrow format {form.decode()!r}, which has no JSON form here")
    node.kind = <Kind><int>KINDS[form]
    node.per_second = PER_SECOND.get(form, 0)
    node.offset = array.offset
    if array.n_buffers:
        node.validity = <const uint8_t*>array.buffers[0]
    if array.n_buffers > 1:
        node.data = array.buffers[1]
    if array.n_buffers > 2:
        node.bytes = <const uint8_t*>array.buffers[2]
    if schema.dictionary is not NULL:
        node.dictionary = <Node*>calloc(1, sizeof(Node))
        if node.dictionary is NULL:
            raise MemoryError
        fill_node(node.dictionary, schema.dictionary, array.dictionary, path)
    if not schema.n_children:
        return 0
    node.children = <Node*>calloc(<size_t>schema.n_children, sizeof(Node))
    if node.children is NULL:
        raise MemoryError
    node.n_children = schema.n_children
    for i in range(schema.n_children):
        name = schema.children[i].name
        child_path = f"{path}.{name.decode()}" if path else name.decode()
        fill_node(&node.children[i], schema.children[i], array.children[i], child_path)
        label = json_string(name) + b":"
        node.children[i].label = <char*>calloc(1, <size_t>len(label))
        if node.children[i].label is NULL:
            raise MemoryError
        memcpy(node.children[i].label, <const char*>label, <size_t>len(label))
        node.children[i].label_size = len(label)
    return 0


cdef bytes json_string(bytes text):
    cdef Out out = Out(NULL, 0, 0, 0, NULL)
    try:
        put_text(&out, <const uint8_t*><const char*>text, len(text))
        return PyBytes_FromStringAndSize(out.data, out.size)
    finally:
        free(out.data)


@cython.final
cdef class LineFormatter:
    """Formats the rows of one batch as lines of JSON.

    ``batch`` is any object with ``__arrow_c_array__`` for a struct, such as a ``Chunk`` or a pyarrow ``RecordBatch``.
    It is kept alive by the formatter. Raises TypeError for a column type without a JSON form (the module lists those
    with one).
    """

    cdef object _schema_capsule
    cdef object _array_capsule
    cdef Node _root
    cdef readonly int64_t rows
    """Rows of the batch."""

    def __cinit__(self, batch):
        cdef ArrowSchema* schema
        cdef ArrowArray* array
        self._schema_capsule, self._array_capsule = batch.__arrow_c_array__()
        schema = <ArrowSchema*>PyCapsule_GetPointer(self._schema_capsule, b"arrow_schema")
        array = <ArrowArray*>PyCapsule_GetPointer(self._array_capsule, b"arrow_array")
        if strcmp(schema.format, b"+s") != 0:
            raise TypeError("the lines of a batch need a struct array, one field a column")
        fill_node(&self._root, schema, array, "")
        self.rows = array.length

    def __dealloc__(self):
        free_node(&self._root)

    def write(self, take, int64_t piece_bytes=1 << 20):
        """Call ``take`` with the text of all lines in pieces, as bytes; each line ends with a newline.

        A piece ends with the first line that reaches ``piece_bytes``. Only a longer line is split, so that no piece
        exceeds twice that size (and 72 KiB). The interpreter lock is held only while a piece is copied and taken. An
        error of ``take`` ends the call.
        """
        cdef Out out = Out(NULL, 0, 0, 2 * piece_bytes + MOST_STEP, <PyObject*>take)
        cdef int64_t row
        try:
            with nogil:
                for row in range(self.rows):
                    put_struct(&out, &self._root, self._root.offset + row)
                    reserve(&out, 1)
                    put(&out, b"\n", 1)
                    if out.size >= piece_bytes:
                        hand_over(&out)
                if out.size:
                    hand_over(&out)
        finally:
            free(out.data)
