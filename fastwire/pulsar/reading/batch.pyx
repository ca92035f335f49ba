"""Decoding of entries: batch blocks and single messages into columns, and lazy views for Python code.

Layout of a batch block (spec: pulsar 10), N times::

    u32  size of SingleMessageMetadata
    ...  SingleMessageMetadata
    ...  payload, payload_size bytes
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from fastwire.columns.builder cimport (
    COL_HEADERS,
    COL_KEY,
    COL_OFFSET,
    COL_PARTITION,
    COL_TIMESTAMP,
    COL_TIMESTAMP_TYPE,
    COL_TOPIC,
    COL_VALUE,
    VAR_KEY,
    VAR_VALUE,
    Cells,
    Columns,
    Lane,
    Mark,
    cells_grow,
    cells_put,
    columns_mark,
    columns_reserve,
    columns_rewind,
    dictionary_add,
    fill,
    has,
    header_put,
    headers_close,
    int32s,
    int64s,
    lane_close,
    lane_open,
    lane_put,
    rare_time_put,
    time_of_millis,
)
from fastwire.pulsar.format.base64 cimport base64_size, decode_base64
from fastwire.pulsar.columns cimport (
    COL_BATCH_INDEX,
    COL_EVENT_TIME,
    COL_LEDGER,
    COL_ORDERING_KEY,
    COL_PRODUCER,
    COL_REDELIVERY_COUNT,
    COL_SCHEMA_VERSION,
    COL_SEQUENCE_ID,
    VAR_ORDERING_KEY,
    VAR_SCHEMA_VERSION,
)
from fastwire.pulsar.format.metadata cimport (
    ONE_COMPACTED_OUT,
    ONE_EVENT_TIME,
    ONE_KEY,
    ONE_KEY_IS_BASE64,
    ONE_NULL_KEY,
    ONE_NULL_VALUE,
    ONE_ORDERING_KEY,
    ONE_PROPERTIES,
    ONE_SEQUENCE_ID,
    Metadata,
    Single,
    read_single,
    read_single_plain,
)
from fastwire.wire.frame cimport Frame
from fastwire.wire.protobuf cimport read_bytes, skip_field
from fastwire.wire.reader cimport (
    FAULT_LENGTH,
    FAULT_TRUNCATED,
    Reader,
    read_span,
    read_u32be,
    read_uvarint,
    reader_error,
    reader_fail,
    reader_init,
)
from fastwire.wire.varint cimport FW_STEP, fw_u32be, fw_varint_word

__all__ = ["Message", "MessageBatch"]

cdef enum:
    SMALLEST_ELEMENT = 6          # 4 bytes of size and the required payload_size: bounds what a count may claim
    PLAIN_TRIES = 8               # per batch: where every other message differs, a search for plain ones does not pay
    MOST_SCHEMA_BYTES = 32 << 20  # of copies of one entry's schema version, which has 8 bytes unless it is forged


cdef int put_base64(Columns* c, int64_t row, const uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Write the decoded key, or the text itself if it is not base64."""
    cdef Cells* v = &c.cells[VAR_KEY]
    cdef Py_ssize_t decoded = base64_size(text, size)
    if decoded < 0:
        return cells_put(c, VAR_KEY, row, text, size, text + size)
    if v.capacity - v.size < decoded and cells_grow(c, VAR_KEY, decoded):
        return -1
    if cells_put(c, VAR_KEY, row, text, 0, text):
        return -1
    if decoded:
        decode_base64(text, v.data + v.size, decoded)
        v.size += decoded
    return 0


cdef int put_properties(
    Columns* c, int64_t row, const uint8_t* start, const uint8_t* end, uint64_t property_tag
) noexcept nogil:
    """Walk the message again for its properties; they are rare, so the first walk only notices their presence."""
    cdef Reader r
    cdef Reader pair
    cdef uint64_t tag
    cdef int64_t size
    cdef int64_t key_size
    cdef int64_t value_size
    cdef const uint8_t* at
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int64_t first = c.headers
    reader_init(&r, start, end - start)
    while r.pos < r.end:
        tag = read_uvarint(&r)
        if tag != property_tag:
            skip_field(&r, tag)
            continue
        at = read_bytes(&r, &size)
        reader_init(&pair, at, size)
        key = value = NULL
        key_size = value_size = 0
        while pair.pos < pair.end:
            tag = read_uvarint(&pair)
            if tag == 0x0A:
                key = read_bytes(&pair, &key_size)
            elif tag == 0x12:
                value = read_bytes(&pair, &value_size)
            else:
                skip_field(&pair, tag)
        if pair.fault or key is NULL or value is NULL:
            return DAMAGED
        if header_put(c, key, key_size, value, value_size):
            return NO_MEMORY
    headers_close(c, row, first)
    return DECODED


cdef int put_rare(Columns* c, int64_t row, const Single* s, const uint8_t* head, const uint8_t* end) noexcept nogil:
    """Write the cells of the current row that most messages lack."""
    cdef uint32_t mask = c.mask
    if s.seen & ONE_EVENT_TIME and s.event_time and has(mask, COL_EVENT_TIME):
        rare_time_put(c, COL_EVENT_TIME, row, time_of_millis(c, <int64_t>s.event_time))
    if s.seen & ONE_ORDERING_KEY and has(mask, COL_ORDERING_KEY):
        if cells_put(c, VAR_ORDERING_KEY, row, s.ordering_key, s.ordering_key_size, end):
            return NO_MEMORY
    if s.seen & ONE_PROPERTIES and has(mask, COL_HEADERS):
        return put_properties(c, row, head, end, 0x0A)
    return DECODED


cdef int32_t put_plain(Columns* c, int32_t i, int32_t count, uint64_t sequence, Reader* r) noexcept nogil:
    """Decode messages from ``i`` on while they are plain: an optional key, a value, a number, in this order.

    A compiler must assume that a write to a column changes ``c``, and would reload its pointers after each cell; so all
    state is in locals. The loop stops at a message that is not plain or has no room, or at ``count``. It returns the
    index of the next message; ``r`` is at its start. Message n has number ``sequence`` + n by default.
    """
    cdef Lane values, keys
    cdef int64_t first = c.rows
    cdef int64_t row = first
    cdef int64_t capacity = c.capacity
    cdef int32_t* batch_index = int32s(c, COL_BATCH_INDEX) if has(c.mask, COL_BATCH_INDEX) else NULL
    cdef int64_t* sequence_id = int64s(c, COL_SEQUENCE_ID) if has(c.mask, COL_SEQUENCE_ID) else NULL
    cdef int64_t keyed = 0                   # rows that have a key: the first ones, or none
    cdef bint with_keys = has(c.mask, COL_KEY)
    cdef const uint8_t* at = r.pos
    cdef const uint8_t* edge = r.end - FW_STEP   # whole steps and words may be read up to here
    cdef const uint8_t* p
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int64_t key_size, size
    cdef uint64_t payload = 0
    cdef uint64_t number = 0
    cdef int step
    lane_open(&values, &c.cells[VAR_VALUE], first)
    lane_open(&keys, &c.cells[VAR_KEY], first)
    if not has(c.mask, COL_VALUE) or values.room < 0:
        return i
    while i < count and row < capacity and edge - at >= 6:
        p = at + 4
        size = fw_u32be(at)
        if size > edge - p or size < 2:
            break
        value = p + size
        key = NULL
        key_size = 0
        if p[0] == 0x12:
            key = p + 2
            key_size = p[1]                  # above 127 it is the first of two size bytes, and does not fit
            if key_size >= 0x80 or value - key < key_size + 2:
                break
            p = key + key_size
        if p[0] != 0x18:
            break
        payload = p[1]
        p += 2
        if payload >= 0x80:
            step = fw_varint_word(p - 1, &payload)
            if step == 0:
                break
            p += step - 1
        number = sequence + <uint64_t>i
        if p != value:
            if p[0] != 0x40:
                break
            step = fw_varint_word(p + 1, &number)
            if step == 0 or p + 1 + step != value:
                break
        if payload > <uint64_t>(edge - value) or <int64_t>payload > values.room:
            break
        if key is not NULL and with_keys:
            if keyed != row - first or key_size > keys.room:
                break
            lane_put(&keys, row, key, key_size)
            keyed += 1
        lane_put(&values, row, value, <int64_t>payload)
        if batch_index is not NULL:
            batch_index[row] = i
        if sequence_id is not NULL:
            sequence_id[row] = <int64_t>number
        row += 1
        i += 1
        at = value + payload
    r.pos = at
    c.rows = row
    c.payload += values.at - values.data - c.cells[VAR_VALUE].size
    lane_close(&values, &c.cells[VAR_VALUE], row - first)
    if keyed:
        lane_close(&keys, &c.cells[VAR_KEY], keyed)
    return i


cdef int put_batch(Columns* c, const Metadata* m, const EntryPlace* place, Reader* r) noexcept nogil:
    cdef Single s
    cdef int32_t i = 0
    cdef int tries = 0 if place.ack_set is NULL else PLAIN_TRIES
    cdef int64_t row = c.rows
    cdef int64_t size
    cdef int status
    cdef uint32_t mask = c.mask
    cdef const uint8_t* at = r.pos           # of this message
    cdef const uint8_t* edge = r.end         # of the block
    cdef const uint8_t* value
    while i < m.messages:
        r.pos = at
        if tries < PLAIN_TRIES:
            tries += 1
            i = put_plain(c, i, m.messages, m.sequence_id, r)
            at = r.pos
            row = c.rows
            if i == m.messages:
                break
        if edge - at < 4:
            reader_fail(r, FAULT_TRUNCATED, 4)
            return DAMAGED
        at += 4
        size = fw_u32be(at - 4)
        if size > edge - at:
            r.pos = at
            reader_fail(r, FAULT_LENGTH, <Py_ssize_t>size)
            return DAMAGED
        value = at + size
        if not read_single_plain(at, value, &s):
            r.pos = at
            read_single(r, value, &s)
            if r.fault:
                return DAMAGED
        if s.payload_size > edge - value:
            r.pos = value
            reader_fail(r, FAULT_TRUNCATED, <Py_ssize_t>s.payload_size)
            return DAMAGED
        # A set bit means not acknowledged; bits beyond the words are acknowledged (spec: pulsar 15.3).
        if s.seen & ONE_COMPACTED_OUT or (place.ack_set is not NULL and not (
            i >> 6 < place.ack_words and place.ack_set[i >> 6] >> (i & 63) & 1
        )):
            at = value + s.payload_size
            i += 1
            continue
        if row >= c.capacity and columns_reserve(c, 1):
            return NO_MEMORY
        if has(mask, COL_VALUE) and not s.seen & ONE_NULL_VALUE:
            if cells_put(c, VAR_VALUE, row, value, s.payload_size, edge):
                return NO_MEMORY
        if s.seen & ONE_KEY and has(mask, COL_KEY):
            if s.seen & (ONE_KEY_IS_BASE64 | ONE_NULL_KEY):
                if not s.seen & ONE_NULL_KEY and put_base64(c, row, s.key, s.key_size):
                    return NO_MEMORY
            elif cells_put(c, VAR_KEY, row, s.key, s.key_size, edge):
                return NO_MEMORY
        if has(mask, COL_BATCH_INDEX):
            int32s(c, COL_BATCH_INDEX)[row] = i
        if has(mask, COL_SEQUENCE_ID):
            int64s(c, COL_SEQUENCE_ID)[row] = <int64_t>(
                s.sequence_id if s.seen & ONE_SEQUENCE_ID else m.sequence_id + <uint64_t>i
            )
        if s.seen & (ONE_EVENT_TIME | ONE_ORDERING_KEY | ONE_PROPERTIES):
            status = put_rare(c, row, &s, at, value)
            if status:
                return status
        c.payload += s.payload_size
        row += 1
        c.rows = row
        at = value + s.payload_size
        i += 1
    r.pos = at
    if at != edge:                           # messages that the metadata does not announce
        reader_fail(r, FAULT_LENGTH, <Py_ssize_t>m.messages)
        return DAMAGED
    return DECODED


cdef int put_single(Columns* c, const Metadata* m, const EntryPlace* place, Reader* r) noexcept nogil:
    cdef int64_t row = c.rows
    cdef int64_t size = r.end - r.pos
    cdef uint32_t mask = c.mask
    cdef const uint8_t* edge = m.start + m.size
    cdef int status
    if place.ack_set is not NULL and not (place.ack_words and place.ack_set[0] & 1):
        return DECODED
    if row >= c.capacity and columns_reserve(c, 1):
        return NO_MEMORY
    if has(mask, COL_VALUE) and not m.null_value:
        if cells_put(c, VAR_VALUE, row, r.pos, size, r.end):
            return NO_MEMORY
    if m.key is not NULL and has(mask, COL_KEY) and not m.null_key:
        if m.key_is_base64:
            if put_base64(c, row, m.key, m.key_size):
                return NO_MEMORY
        elif cells_put(c, VAR_KEY, row, m.key, m.key_size, edge):
            return NO_MEMORY
    if has(mask, COL_BATCH_INDEX):
        int32s(c, COL_BATCH_INDEX)[row] = -1
    if has(mask, COL_SEQUENCE_ID):
        int64s(c, COL_SEQUENCE_ID)[row] = <int64_t>m.sequence_id
    if m.event_time and has(mask, COL_EVENT_TIME):
        rare_time_put(c, COL_EVENT_TIME, row, time_of_millis(c, <int64_t>m.event_time))
    if m.ordering_key is not NULL and has(mask, COL_ORDERING_KEY):
        if cells_put(c, VAR_ORDERING_KEY, row, m.ordering_key, m.ordering_key_size, edge):
            return NO_MEMORY
    if m.properties and has(mask, COL_HEADERS):
        status = put_properties(c, row, m.start, edge, 0x22)
        if status:
            return status
    c.payload += size
    c.rows = row + 1
    return DECODED


cdef int decode_entry(Columns* c, const Metadata* m, const EntryPlace* place, Reader* r) noexcept nogil:
    """Append the rows of one entry; ``r`` spans its decompressed payload. On failure no row is appended; returns a
    reason.
    """
    cdef Mark mark
    cdef int status
    cdef int64_t first = c.rows
    cdef int64_t last, row, most
    cdef int32_t producer = 0
    cdef uint32_t mask = c.mask
    if m.batched:
        if m.messages < 0:
            reader_fail(r, FAULT_LENGTH, m.messages)
            return DAMAGED
        most = (r.end - r.pos) // SMALLEST_ELEMENT + 1
        if columns_reserve(c, m.messages if m.messages < most else most):
            return NO_MEMORY
    columns_mark(c, &mark)
    if has(mask, COL_PRODUCER):
        producer = dictionary_add(c, COL_PRODUCER, m.producer, m.producer_size)
        if producer < 0:
            return NO_MEMORY if producer == -1 else NOT_UTF8
    status = put_batch(c, m, place, r) if m.batched else put_single(c, m, place, r)
    last = c.rows
    if not status and m.schema_version_size * (last - first) > MOST_SCHEMA_BYTES and has(mask, COL_SCHEMA_VERSION):
        reader_fail(r, FAULT_LENGTH, m.schema_version_size)
        status = DAMAGED
    if not status and m.schema_version_size and has(mask, COL_SCHEMA_VERSION):
        for row in range(first, last):
            if cells_put(
                c, VAR_SCHEMA_VERSION, row, m.schema_version, m.schema_version_size, m.start + m.size
            ):
                status = NO_MEMORY
                break
    if status:
        columns_rewind(c, &mark)
        return status
    if has(mask, COL_TOPIC):
        fill(int32s(c, COL_TOPIC), first, last, place.topic)
    if has(mask, COL_PARTITION):
        fill(int32s(c, COL_PARTITION), first, last, place.partition)
    if has(mask, COL_OFFSET):
        fill(int64s(c, COL_OFFSET), first, last, place.entry)
    if has(mask, COL_TIMESTAMP):
        fill(int64s(c, COL_TIMESTAMP), first, last, time_of_millis(c, <int64_t>m.publish_time))
    if has(mask, COL_TIMESTAMP_TYPE):
        fill(int32s(c, COL_TIMESTAMP_TYPE), first, last, 0)
    if has(mask, COL_LEDGER):
        fill(int64s(c, COL_LEDGER), first, last, place.ledger)
    if has(mask, COL_PRODUCER):
        fill(int32s(c, COL_PRODUCER), first, last, producer)
    if has(mask, COL_REDELIVERY_COUNT):
        fill(int32s(c, COL_REDELIVERY_COUNT), first, last, place.redelivery_count)
    return DECODED


# --- lazy views

@cython.final
@cython.no_gc                    # holds a Frame only: no cycle is possible
@cython.freelist(256)
cdef class Message:
    """One message of a pinned frame; key, value and properties are copied when they are read."""
    cdef Frame _frame
    cdef Single _single
    cdef const uint8_t* _head
    cdef Py_ssize_t _head_size
    cdef const uint8_t* _value
    cdef readonly int batch_index

    @property
    def value(self):
        """Value as bytes; None for a tombstone."""
        if self._single.seen & ONE_NULL_VALUE:
            return None
        return PyBytes_FromStringAndSize(<const char*>self._value, self._single.payload_size)

    @property
    def key(self):
        """Key as bytes, decoded if the producer marked it as base64 and it is valid; or None."""
        if self._single.seen & (ONE_KEY | ONE_NULL_KEY) != ONE_KEY:
            return None
        cdef Py_ssize_t decoded = -1
        cdef bytes key
        if self._single.seen & ONE_KEY_IS_BASE64:
            decoded = base64_size(self._single.key, self._single.key_size)
        if decoded < 0:
            return PyBytes_FromStringAndSize(<const char*>self._single.key, self._single.key_size)
        key = PyBytes_FromStringAndSize(NULL, decoded)
        decode_base64(self._single.key, <uint8_t*><char*>key, decoded)
        return key

    @property
    def ordering_key(self):
        """Ordering key as bytes, or None."""
        if not self._single.seen & ONE_ORDERING_KEY:
            return None
        return PyBytes_FromStringAndSize(<const char*>self._single.ordering_key, self._single.ordering_key_size)

    @property
    def sequence_id(self):
        """Sequence id; None if the element has none."""
        return self._single.sequence_id if self._single.seen & ONE_SEQUENCE_ID else None

    @property
    def event_time(self):
        """Event time in milliseconds since 1970; 0 if unset."""
        return self._single.event_time if self._single.seen & ONE_EVENT_TIME else 0

    @property
    def compacted_out(self):
        """True for an element that compaction removed; its value is empty."""
        return bool(self._single.seen & ONE_COMPACTED_OUT)

    @property
    def properties(self):
        """Properties as a list of (str, str), in wire order."""
        cdef Reader r
        cdef Reader pair
        cdef uint64_t tag
        cdef int64_t size
        cdef const uint8_t* at
        found = []
        reader_init(&r, self._head, self._head_size)
        while r.pos < r.end:
            tag = read_uvarint(&r)
            if tag != 0x0A:
                skip_field(&r, tag)
                continue
            at = read_bytes(&r, &size)
            reader_init(&pair, at, size)
            key = value = ""
            while pair.pos < pair.end:
                tag = read_uvarint(&pair)
                if tag == 0x0A:
                    at = read_bytes(&pair, &size)
                    key = PyBytes_FromStringAndSize(<const char*>at, size).decode("utf-8", "replace")
                elif tag == 0x12:
                    at = read_bytes(&pair, &size)
                    value = PyBytes_FromStringAndSize(<const char*>at, size).decode("utf-8", "replace")
                else:
                    skip_field(&pair, tag)
            if pair.fault:
                raise reader_error(&pair, "KeyValue")
            found.append((key, value))
        return found


@cython.final
cdef class MessageBatch:
    """The messages of a decompressed batch block, as views of its buffer.

    ``data`` is any buffer; it stays pinned while a message of it is alive. Iteration may be repeated and creates each
    message on demand. It raises ProtocolError at damage.
    """
    cdef Frame _frame
    cdef readonly int count

    def __init__(self, data, int count):
        if count < 0:
            raise ValueError("count is negative")
        self._frame = data if isinstance(data, Frame) else Frame(data)
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        cdef Py_ssize_t at = 0
        cdef int i
        cdef Message message
        for i in range(self.count):
            message = Message.__new__(Message)
            at = self.read(at, i, message)
            yield message

    cdef Py_ssize_t read(self, Py_ssize_t at, int index, Message message) except -1:
        cdef Reader r
        cdef uint32_t size
        reader_init(&r, self._frame.data, self._frame.size)
        r.pos += at
        size = read_u32be(&r)
        if <int64_t>size > r.end - r.pos:
            reader_fail(&r, FAULT_LENGTH, <Py_ssize_t>size)
        else:
            message._head = r.pos
            message._head_size = size
            read_single(&r, r.pos + size, &message._single)
            message._value = read_span(&r, <Py_ssize_t>message._single.payload_size)
        if r.fault:
            raise reader_error(&r, f"message {index} of the batch")
        message._frame = self._frame
        message.batch_index = index
        return r.pos - r.start
