"""Rows as lines of JSON, straight from Arrow columns and without the interpreter lock.

The columns come through the Arrow C data interface, so a ``Chunk`` and a pyarrow ``RecordBatch`` are read alike and
neither pyarrow nor a Python object per value is needed. What is written, column by column:

* binary: a JSON string when the bytes are UTF-8, else ``{"base64": "..."}`` (RFC 4648, padded). A text that merely
  looks like that object stays a string, so the two cannot be taken for each other. Columns can have base64 always.
* string: a JSON string. ``"``, ``\\`` and control characters are escaped, everything else is left as it is.
* integers: all their digits, however large. Booleans: ``true``, ``false``.
* floats and doubles: a number that reads as the same one; ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
* decimals: a string with all decimal places, ``"12.50"``.
* timestamps: RFC 3339 with microseconds, nanoseconds where that is the unit, ``"2026-08-01T12:34:56.000123Z"``; any
  time zone is written in UTC, and a timestamp without one has no Z. Dates and times of day are the parts of this form.
  Years outside 0-9999 have a sign and at least six digits (ISO 8601, expanded).
* structs and maps: objects. Lists: arrays. Null: ``null``. Every row has every column, in the order of the schema.

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
from fastwire.columns.numerals cimport (
    MAX_NUMERAL,
    write_date,
    write_decimal,
    write_integer,
    write_real,
    write_time,
    write_timestamp,
)

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

cdef enum Kind:
    KIND_INT8, KIND_INT16, KIND_INT32, KIND_INT64, KIND_UINT8, KIND_UINT16, KIND_UINT32, KIND_UINT64, KIND_BOOL
    KIND_FLOAT, KIND_DOUBLE, KIND_DECIMAL, KIND_DATE, KIND_TIME32, KIND_TIME64, KIND_TIMESTAMP
    KIND_BINARY, KIND_LARGE_BINARY, KIND_FIXED, KIND_TEXT, KIND_LARGE_TEXT, KIND_LIST, KIND_LARGE_LIST, KIND_MAP
    KIND_STRUCT, KIND_NULL

cdef struct Node:                # one column, and its parts in ``children``
    Kind kind
    int64_t offset
    const uint8_t* validity      # NULL: no nulls
    const void* data             # values; offsets of binary, text and list
    const uint8_t* bytes         # of binary and text
    int64_t per_second           # of a timestamp or time
    bint zoned                   # a timestamp in a time zone
    int64_t size                 # bytes of a fixed, decimal places of a decimal
    bint base64                  # bytes are base64 always
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
cdef uint8_t[256] ESCAPE         # the character after the backslash; 0: no escape


cdef void fill_tables() noexcept:
    cdef int i
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


cdef int put_bytes(Out* out, const Node* node, const uint8_t* data, int64_t size) except -1 nogil:
    """Write bytes as text if they are UTF-8, else as base64 in an object; or always as base64."""
    if node.base64:
        return put_base64(out, data, size)
    if is_utf8(data, size):
        return put_text(out, data, size)
    reserve(out, 10)
    put(out, b'{"base64":', 10)
    put_base64(out, data, size)
    reserve(out, 1)
    put(out, b"}", 1)
    return 0


cdef int put_base64(Out* out, const uint8_t* data, int64_t size) except -1 nogil:
    cdef int64_t i = 0
    cdef int64_t stop
    cdef uint32_t three
    cdef char* at
    reserve(out, 1)
    put(out, b'"', 1)
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
    reserve(out, 1)
    put(out, b'"', 1)
    return 0


# Cells

cdef inline bint is_set(const uint8_t* bits, int64_t i) noexcept nogil:
    return (bits[i >> 3] >> (i & 7)) & 1


cdef int64_t integer_at(const Node* node, int64_t i) noexcept nogil:
    """Return a signed integer, an unsigned one of up to 32 bits, or the bits of a longer one."""
    if node.kind == KIND_INT32:
        return (<const int32_t*>node.data)[i]
    if node.kind in (KIND_INT64, KIND_UINT64):
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


cdef int put_map(Out* out, const Node* node, int64_t first, int64_t last) except -1 nogil:
    cdef const Node* entry = &node.children[0]
    cdef int64_t i
    reserve(out, 2)
    put(out, b"{", 1)
    for i in range(entry.offset + first, entry.offset + last):
        reserve(out, 3)
        if i > entry.offset + first:
            put(out, b",", 1)
        if entry.children[0].kind == KIND_TEXT:
            put_cell(out, &entry.children[0], i)
        else:                    # names in JSON are text
            put(out, b'"', 1)
            put_cell(out, &entry.children[0], i)
            reserve(out, 2)
            put(out, b'"', 1)
        reserve(out, 1)
        put(out, b":", 1)
        put_cell(out, &entry.children[1], i)
    reserve(out, 2)
    put(out, b"}", 1)
    return 0


cdef int put_numeral(Out* out, const Node* node, int64_t i) except -1 nogil:
    cdef int64_t value
    cdef char* at
    reserve(out, MAX_NUMERAL)
    at = out.data + out.size
    if node.kind <= KIND_UINT64:
        value = integer_at(node, i)
        if value < 0 and node.kind != KIND_UINT64:
            at = write_integer(at, <uint64_t>0 - <uint64_t>value, True)
        else:
            at = write_integer(at, <uint64_t>value, False)
    elif node.kind == KIND_TIMESTAMP:
        at = write_timestamp(at, (<const int64_t*>node.data)[i], node.per_second, node.zoned)
    elif node.kind == KIND_DOUBLE:
        at = write_real(at, (<const double*>node.data)[i], False)
    elif node.kind == KIND_FLOAT:
        at = write_real(at, (<const float*>node.data)[i], True)
    elif node.kind == KIND_DECIMAL:
        at = write_decimal(at, <const uint8_t*>node.data + 16 * i, node.size)
    elif node.kind == KIND_DATE:
        at = write_date(at, (<const int32_t*>node.data)[i])
    elif node.kind == KIND_TIME32:
        at = write_time(at, (<const int32_t*>node.data)[i], node.per_second)
    else:
        at = write_time(at, (<const int64_t*>node.data)[i], node.per_second)
    out.size = at - out.data
    return 0


cdef int put_cell(Out* out, const Node* node, int64_t row) except -1 nogil:
    cdef int64_t i = node.offset + row
    cdef int64_t first, last
    if node.kind == KIND_NULL or (node.validity is not NULL and not is_set(node.validity, i)):
        reserve(out, 4)
        put(out, b"null", 4)
        return 0
    if node.dictionary is not NULL:
        return put_cell(out, node.dictionary, integer_at(node, i))
    if node.kind == KIND_BOOL:
        reserve(out, 5)
        if is_set(<const uint8_t*>node.data, i):
            put(out, b"true", 4)
        else:
            put(out, b"false", 5)
        return 0
    if node.kind <= KIND_TIMESTAMP:
        return put_numeral(out, node, i)
    if node.kind == KIND_STRUCT:
        return put_struct(out, node, i)
    if node.kind == KIND_FIXED:
        return put_bytes(out, node, <const uint8_t*>node.data + node.size * i, node.size)
    if node.kind in (KIND_LARGE_BINARY, KIND_LARGE_TEXT, KIND_LARGE_LIST):
        first = (<const int64_t*>node.data)[i]
        last = (<const int64_t*>node.data)[i + 1]
    else:
        first = (<const int32_t*>node.data)[i]
        last = (<const int32_t*>node.data)[i + 1]
    if node.kind in (KIND_LIST, KIND_LARGE_LIST):
        return put_list(out, node, first, last)
    if node.kind == KIND_MAP:
        return put_map(out, node, first, last)
    if node.kind in (KIND_BINARY, KIND_LARGE_BINARY):
        return put_bytes(out, node, node.bytes + first, last - first)
    return put_text(out, node.bytes + first, last - first)


# The columns

cdef dict KINDS = {
    b"c": KIND_INT8, b"s": KIND_INT16, b"i": KIND_INT32, b"l": KIND_INT64,
    b"C": KIND_UINT8, b"S": KIND_UINT16, b"I": KIND_UINT32, b"L": KIND_UINT64,
    b"b": KIND_BOOL, b"n": KIND_NULL,
    b"z": KIND_BINARY, b"Z": KIND_LARGE_BINARY, b"u": KIND_TEXT, b"U": KIND_LARGE_TEXT,
    b"+l": KIND_LIST, b"+L": KIND_LARGE_LIST, b"+s": KIND_STRUCT, b"+m": KIND_MAP,
    b"f": KIND_FLOAT, b"g": KIND_DOUBLE, b"d": KIND_DECIMAL, b"w": KIND_FIXED,
    b"tdD": KIND_DATE, b"tts": KIND_TIME32, b"ttm": KIND_TIME32, b"ttu": KIND_TIME64, b"ttn": KIND_TIME64,
    b"tss": KIND_TIMESTAMP, b"tsm": KIND_TIMESTAMP, b"tsu": KIND_TIMESTAMP, b"tsn": KIND_TIMESTAMP,
}
cdef dict PER_SECOND = {b"s": 1, b"m": 1_000, b"u": 1_000_000, b"n": 1_000_000_000}
cdef tuple KEYS = (KIND_INT8, KIND_INT16, KIND_INT32, KIND_INT64, KIND_UINT8, KIND_UINT16, KIND_UINT32, KIND_UINT64,
                   KIND_BOOL, KIND_TEXT)


cdef void free_node(Node* node) noexcept:
    cdef int64_t i
    free(node.label)
    for i in range(node.n_children):
        free_node(&node.children[i])
    free(node.children)
    if node.dictionary is not NULL:
        free_node(node.dictionary)
        free(node.dictionary)


cdef int fill_type(Node* node, bytes form, str path) except -1:
    kind, _, rest = form.partition(b":")
    more = rest.split(b",")                      # digits, decimal places, and another width than 128 bits
    if kind not in KINDS or (kind == b"d" and (len(more) != 2 or not 0 <= int(more[1]) <= 38)):
        raise TypeError(f"column {path!r} has the Arrow format {form.decode()!r}, which has no JSON form here")
    node.kind = <Kind><int>KINDS[kind]
    if kind[:1] == b"t":
        node.per_second = PER_SECOND.get(kind[2:], 0)
        node.zoned = rest != b""
    elif rest:
        node.size = int(more[-1])
    return 0


cdef int fill_node(Node* node, const ArrowSchema* schema, const ArrowArray* array, str path, base64) except -1:
    """Describe ``array`` in ``node``, which is all zeros; the owner of the root frees it after an error.

    ``base64`` is True or False for what is below a column, the names of columns for the root.
    """
    cdef int64_t i
    cdef bytes label, name
    fill_type(node, schema.format, path)
    node.base64 = base64 is True
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
        fill_node(node.dictionary, schema.dictionary, array.dictionary, path, base64)
    if not schema.n_children:
        return 0
    node.children = <Node*>calloc(<size_t>schema.n_children, sizeof(Node))
    if node.children is NULL:
        raise MemoryError
    node.n_children = schema.n_children
    for i in range(schema.n_children):
        name = schema.children[i].name
        child_path = f"{path}.{name.decode()}" if path else name.decode()
        inner = base64 if isinstance(base64, bool) else name.decode() in base64
        fill_node(&node.children[i], schema.children[i], array.children[i], child_path, inner)
        label = json_string(name) + b":"
        node.children[i].label = <char*>calloc(1, <size_t>len(label))
        if node.children[i].label is NULL:
            raise MemoryError
        memcpy(node.children[i].label, <const char*>label, <size_t>len(label))
        node.children[i].label_size = len(label)
    if node.kind == KIND_MAP and (
        node.children[0].children[0].kind not in KEYS or node.children[0].children[0].dictionary is not NULL
    ):
        raise TypeError(f"column {path!r} is a map whose keys have no JSON form")
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
    It is kept alive by the formatter. Bytes in the columns ``base64`` are base64 text always. Raises TypeError for a
    column type without a JSON form (the module lists those with one).
    """

    cdef object _schema_capsule
    cdef object _array_capsule
    cdef Node _root
    cdef readonly int64_t rows
    """Rows of the batch."""

    def __cinit__(self, batch, *, base64=()):
        cdef ArrowSchema* schema
        cdef ArrowArray* array
        self._schema_capsule, self._array_capsule = batch.__arrow_c_array__()
        schema = <ArrowSchema*>PyCapsule_GetPointer(self._schema_capsule, b"arrow_schema")
        array = <ArrowArray*>PyCapsule_GetPointer(self._array_capsule, b"arrow_array")
        if strcmp(schema.format, b"+s") != 0:
            raise TypeError("the lines of a batch need a struct array, one field a column")
        fill_node(&self._root, schema, array, "", frozenset(base64))
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
