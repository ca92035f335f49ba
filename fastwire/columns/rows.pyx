# cython: boundscheck=True, cdivision=True
"""Records that are written, as Arrow columns by the Arrow C data interface, without an object for each record."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.string cimport memset

from fastwire.columns.arrow cimport ArrowArray, ArrowSchema
from fastwire.columns.builder cimport is_utf8

__all__ = ["Rows"]

# Cells without a byte may have no buffer, and are not null.
cdef const uint8_t* _NOTHING = <const uint8_t*>b""


cdef int set_blobs(Blobs* to, const ArrowSchema* schema, const ArrowArray* array, int64_t shift) except -1:
    if schema.format[0] not in b"zuZU" or schema.format[1] != 0:
        name, kind = (<bytes>schema.name).decode(), (<bytes>schema.format).decode()
        raise ValueError(f'the column "{name}" has the Arrow format {kind}, and must be text or bytes')
    to.validity = <const uint8_t*>array.buffers[0] if array.null_count else NULL
    if schema.format[0] in b"zu":
        to.offsets = <const int32_t*>array.buffers[1]
    else:
        to.wide = <const int64_t*>array.buffers[1]
    to.data = <const uint8_t*>array.buffers[2] if array.buffers[2] is not NULL else _NOTHING
    to.shift = shift + array.offset
    return 0


cdef int set_headers(Headers* to, const ArrowSchema* schema, const ArrowArray* array, int64_t shift) except -1:
    cdef const ArrowSchema* pair
    cdef const ArrowArray* pairs
    if schema.format != b"+l" or schema.children[0].format != b"+s" or schema.children[0].n_children != 2:
        raise ValueError('the column "headers" must be lists of pairs of key and value')
    pair = schema.children[0]
    pairs = array.children[0]
    to.validity = <const uint8_t*>array.buffers[0] if array.null_count else NULL
    to.offsets = <const int32_t*>array.buffers[1]
    to.shift = shift + array.offset
    to.pair_validity = <const uint8_t*>pairs.buffers[0] if pairs.null_count else NULL
    to.pair_shift = pairs.offset
    set_blobs(&to.names, pair.children[0], pairs.children[0], 0)
    set_blobs(&to.values, pair.children[1], pairs.children[1], 0)
    return 0


cdef int set_numbers(Numbers* to, const ArrowSchema* schema, const ArrowArray* array, int64_t shift) except -1:
    to.validity = <const uint8_t*>array.buffers[0] if array.null_count else NULL
    if schema.format == b"i":
        to.narrow = <const int32_t*>array.buffers[1]
    else:
        to.wide = <const int64_t*>array.buffers[1]
    to.shift = shift + array.offset
    return 0


cdef bint has_text_key(Rows rows, int64_t row) noexcept nogil:
    """Return True if the key of a row is text, not bytes."""
    cdef int64_t size
    cdef const uint8_t* key
    if rows.key_is_text:
        return True
    if not rows.text_keys:
        return False
    key = blob(&rows.key, row, &size)
    return key is NULL or is_utf8(key, size)


@cython.final
cdef class Rows:
    """Records of a batch of the Arrow PyCapsule interface, in its columns of these names; others are ignored.

    ``value``, ``key`` and ``orderingKey`` are bytes or text, ``headers`` lists of pairs of text and bytes,
    ``partition`` is the requested one (int32), ``eventTime`` in microseconds. All but ``value`` may be missing, and
    each cell null. A key is text if its column is; with ``text_keys`` also one of bytes that are UTF-8. Raises
    ValueError for other types. ``origin`` numbers the first row, so that a refused one can be found again: see
    ``Block.origin_numbers``. ``changed_times`` counts the event times that a system stores differently: rounded
    down, or not at all.
    """

    def __cinit__(self, batch, *, bint text_keys=False, int64_t origin=-1):
        memset(&self.value, 0, sizeof(Blobs))
        memset(&self.key, 0, sizeof(Blobs))
        memset(&self.ordering_key, 0, sizeof(Blobs))
        memset(&self.headers, 0, sizeof(Headers))
        memset(&self.partition, 0, sizeof(Numbers))
        memset(&self.event_time, 0, sizeof(Numbers))
        self.text_keys = text_keys
        self.origin = origin
        self._alive = batch.__arrow_c_array__()
        self.fill(
            PyCapsule_GetPointer(self._alive[0], "arrow_schema"), PyCapsule_GetPointer(self._alive[1], "arrow_array")
        )

    cdef int fill(self, const void* schema_, const void* array_) except -1:
        cdef const ArrowSchema* schema = <const ArrowSchema*>schema_
        cdef const ArrowArray* array = <const ArrowArray*>array_
        cdef const ArrowSchema* kind
        cdef const ArrowArray* column
        cdef int64_t i
        if schema.format != b"+s":
            raise ValueError("the rows are not a batch of columns")
        self.count = array.length
        for i in range(schema.n_children):
            kind, column = schema.children[i], array.children[i]
            name = <bytes>kind.name
            if name == b"value":
                set_blobs(&self.value, kind, column, array.offset)
            elif name == b"key":
                set_blobs(&self.key, kind, column, array.offset)
                self.key_is_text = kind.format[0] in b"uU"
            elif name == b"orderingKey":
                set_blobs(&self.ordering_key, kind, column, array.offset)
            elif name == b"headers":
                set_headers(&self.headers, kind, column, array.offset)
            elif name == b"partition":
                if kind.format != b"i":
                    raise ValueError('the column "partition" must be of 32-bit numbers')
                set_numbers(&self.partition, kind, column, array.offset)
            elif name == b"eventTime":
                if not (<bytes>kind.format).startswith(b"tsu:"):
                    raise ValueError('the column "eventTime" must be of microseconds')
                set_numbers(&self.event_time, kind, column, array.offset)
        if self.value.offsets is NULL and self.value.wide is NULL:
            raise ValueError('there is no column "value"')
        return 0

    def __len__(self):
        """Return the number of rows."""
        return self.count

    def record(self, int64_t row):
        """Return a row: value, key (text or bytes), headers, event time in ms or None, ordering key, partition.

        Raises IndexError, and ValueError for a header without a name or text that is not UTF-8.
        """
        cdef int64_t first, count, i, wanted = 0, micros = 0
        if not 0 <= row < self.count:
            raise IndexError(f"row {row} of {self.count}")
        value = bytes_at(&self.value, row)
        key = bytes_at(&self.key, row)
        if key is not None and has_text_key(self, row):
            key = (<bytes>key).decode()
        count = headers_of(&self.headers, row, &first)
        headers = []
        for i in range(first, first + count):
            name = bytes_at(&self.headers.names, i)
            if name is None or not is_valid(self.headers.pair_validity, i):
                raise ValueError("a header has no key")
            headers.append(((<bytes>name).decode(), bytes_at(&self.headers.values, i)))
        requested = wanted if number(&self.partition, row, &wanted) else None
        time = None
        if number(&self.event_time, row, &micros):
            time = millis(micros)
            self.changed_times += micros % 1000 != 0
        return value, key, tuple(headers), time, bytes_at(&self.ordering_key, row), requested


cdef object bytes_at(const Blobs* column, int64_t row):
    cdef int64_t size
    cdef const uint8_t* data = blob(column, row, &size)
    return None if data is NULL else PyBytes_FromStringAndSize(<const char*>data, size)
