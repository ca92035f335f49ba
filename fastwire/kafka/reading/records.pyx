"""Decoding of the records of a batch into rows (spec: kafka 6).

A batch of magic 2 is a head of 61 bytes and its records, which may be compressed as one block. A record::

    varint length | i8 attributes | varint timestamp delta | varint offset delta
    varint key size, key | varint value size, value        -1 = null
    varint headers, each: varint size, key | varint size, value
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from fastwire.columns.builder cimport (
    COL_HEADERS,
    COL_KEY,
    COL_OFFSET,
    COL_PARTITION,
    COL_TIMESTAMP,
    COL_TIMESTAMP_TYPE,
    COL_TOPIC,
    COL_VALUE,
    NO_TIME,
    VAR_KEY,
    VAR_VALUE,
    Columns,
    Lane,
    Mark,
    cells_put,
    columns_mark,
    columns_reserve,
    columns_rewind,
    fill,
    has,
    header_put,
    headers_close,
    int32s,
    int64s,
    lane_close,
    lane_open,
    lane_put,
    time_of_millis,
)
from fastwire.wire.codecs cimport (
    CODEC_GZIP,
    CODEC_LZ4_FRAME,
    CODEC_SNAPPY_RAW,
    CODEC_SNAPPY_XERIAL,
    CODEC_ZSTD,
    Codec,
    is_xerial,
)
from fastwire.wire.reader cimport FAULT_LENGTH, FAULT_TRUNCATED, Reader, reader_fail
from fastwire.wire.varint cimport FW_STEP, fw_i64be, fw_u32be, fw_varint, fw_varint_near

from fastwire.errors import CorruptEntryError
from fastwire.reason import Reason

cdef enum:
    PLAIN_TRIES = 8              # per batch: where every other record differs, a search for plain ones does not pay
    PLAIN_HEAD = 8               # with FW_STEP more, the bytes that may be read of a record up to the size of its key
    SMALLEST_RECORD = 7          # a length and six fields of one byte: bounds what a count may claim


cdef inline int64_t micros(Columns* c, int64_t milli) noexcept nogil:
    if milli == -1:              # no timestamp (spec: kafka 6, 7)
        c.timeless = True
        return NO_TIME
    return time_of_millis(c, milli)


cdef inline int64_t zigzag(uint64_t raw) noexcept nogil:
    return <int64_t>((raw >> 1) ^ (0 - (raw & 1)))


cdef Codec codec_of(int attributes, const uint8_t* data, int64_t size) except? CODEC_GZIP:
    """Return the codec of a batch with these attributes and bytes. Raises CorruptEntryError."""
    cdef int number = attributes & CODEC_MASK
    if number == 1:
        return CODEC_GZIP
    if number == 2:
        return CODEC_SNAPPY_XERIAL if is_xerial(data, size) else CODEC_SNAPPY_RAW
    if number == 3:
        return CODEC_LZ4_FRAME
    if number == 4:
        return CODEC_ZSTD
    raise CorruptEntryError(Reason.MESSAGE, f"codec {number}")


cdef void read_batch_head(const uint8_t* p, BatchHead* head) noexcept nogil:
    """Read the head at ``p``, which has BATCH_HEAD bytes."""
    head.base_offset = fw_i64be(p)
    head.size = 12 + <int64_t><int32_t>fw_u32be(p + 8)
    head.leader_epoch = <int32_t>fw_u32be(p + 12)
    head.magic = p[MAGIC_AT]
    head.attributes = <int16_t>(p[21] << 8 | p[22])
    head.offsets = <int64_t><int32_t>fw_u32be(p + 23) + 1
    head.base_timestamp = fw_i64be(p + 27)
    head.max_timestamp = fw_i64be(p + 35)
    head.producer_id = fw_i64be(p + 43)
    head.count = <int32_t>fw_u32be(p + 57)


cdef int64_t announced(bytes payload):
    """Return the number of records by the head of a batch, 0 if there is none that its offsets allow."""
    cdef const uint8_t* p = <const uint8_t*><const char*>payload
    cdef BatchHead head
    if len(payload) < BATCH_HEAD or p[MAGIC_AT] != 2:
        return 0
    read_batch_head(p, &head)
    return head.count if 0 < head.count <= head.offsets else 0


cdef const uint8_t* put_headers(
    Columns* c, int64_t row, int64_t count, const uint8_t* p, const uint8_t* end, int* status
) noexcept nogil:
    """Write the headers at ``p``; return the byte after them, or NULL and a reason."""
    cdef int64_t first = c.headers
    cdef int64_t key_size, value_size
    cdef uint64_t raw = 0
    cdef const uint8_t* key
    cdef bint wanted = has(c.mask, COL_HEADERS)
    status[0] = DAMAGED
    for _ in range(count):
        p = fw_varint(p, end, &raw)
        key_size = zigzag(raw)
        if p is NULL or key_size < 0 or key_size > end - p:
            return NULL
        key = p
        p = fw_varint(p + key_size, end, &raw)
        value_size = zigzag(raw)
        if p is NULL or value_size < -1 or value_size > end - p:
            return NULL
        if wanted:
            if header_put(c, key, key_size, p if value_size >= 0 else NULL, value_size if value_size > 0 else 0):
                status[0] = NO_MEMORY
                return NULL
        if value_size > 0:
            p += value_size
    if wanted:
        headers_close(c, row, first)
    return p


cdef int put_record(Columns* c, const BatchHead* head, const RowPlace* place, const uint8_t* p, const uint8_t* end,
                    const uint8_t* edge, int64_t* last_delta) noexcept nogil:
    """Write one record, whose length was read; ``edge`` is the end of the block."""
    cdef uint64_t raw = 0
    cdef int64_t milli, delta, key_size, value_size, headers
    cdef int64_t row = c.rows
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int status = DAMAGED
    if end - p < 1:
        return DAMAGED
    p = fw_varint(p + 1, end, &raw)
    if p is NULL:
        return DAMAGED
    milli = <int64_t>(<uint64_t>head.base_timestamp + <uint64_t>zigzag(raw))      # untrusted, so it may wrap
    p = fw_varint(p, end, &raw)
    if p is NULL:
        return DAMAGED
    # Offsets ascend, and stay within the range of the head: otherwise a row would have another row's identity.
    delta = zigzag(raw)
    if delta <= last_delta[0] or delta >= head.offsets:
        return DAMAGED
    last_delta[0] = delta
    p = fw_varint(p, end, &raw)
    key_size = zigzag(raw)
    if p is NULL or key_size < -1 or key_size > end - p:
        return DAMAGED
    key = p
    p = fw_varint(p + (key_size if key_size > 0 else 0), end, &raw)
    value_size = zigzag(raw)
    if p is NULL or value_size < -1 or value_size > end - p:
        return DAMAGED
    value = p
    p = fw_varint(p + (value_size if value_size > 0 else 0), end, &raw)
    headers = zigzag(raw)
    if p is NULL or headers < 0 or headers * 2 > end - p:
        return DAMAGED
    if head.base_offset + delta < place.offset or head.base_offset + delta >= place.until:
        return DECODED
    if row >= c.capacity and columns_reserve(c, 1):
        return NO_MEMORY
    if value_size >= 0 and has(c.mask, COL_VALUE) and cells_put(c, VAR_VALUE, row, value, value_size, edge):
        return NO_MEMORY
    if key_size >= 0 and has(c.mask, COL_KEY) and cells_put(c, VAR_KEY, row, key, key_size, edge):
        return NO_MEMORY
    if headers:
        p = put_headers(c, row, headers, p, end, &status)
        if p is NULL:
            return status
    if p != end:
        return DAMAGED
    if has(c.mask, COL_OFFSET):
        int64s(c, COL_OFFSET)[row] = head.base_offset + delta
    if has(c.mask, COL_TIMESTAMP):
        int64s(c, COL_TIMESTAMP)[row] = micros(c, head.max_timestamp if head.attributes & LOG_APPEND_TIME else milli)
    c.payload += value_size if value_size > 0 else 0
    c.rows = row + 1
    return DECODED


cdef int32_t put_plain(
    Columns* c, const BatchHead* head, const RowPlace* place, int32_t i, Reader* r, int64_t* last_delta,
    const uint8_t** before,
) noexcept nogil:
    """Decode records from ``i`` on while they are plain: an optional short key, a value, no headers.

    Returns the index of the next record; ``r.pos`` is at its start. It is not plain, or near the end of block or
    column. ``before`` becomes the start of the one before it.
    """
    cdef Lane values, keys
    cdef int64_t first = c.rows
    cdef int64_t row = first
    cdef int64_t capacity = c.capacity
    cdef int32_t count = head.count
    cdef int64_t* offsets = int64s(c, COL_OFFSET) if has(c.mask, COL_OFFSET) else NULL
    cdef int64_t* timestamps = int64s(c, COL_TIMESTAMP) if has(c.mask, COL_TIMESTAMP) else NULL
    cdef int64_t keyed = 0                   # rows that have a key: the first ones, or none
    cdef bint with_keys = has(c.mask, COL_KEY)
    cdef bint appended = head.attributes & LOG_APPEND_TIME
    cdef int64_t base_offset = head.base_offset
    cdef uint64_t base_milli = <uint64_t>head.base_timestamp
    cdef int64_t most = head.offsets
    cdef int64_t last = last_delta[0]
    cdef const uint8_t* at = r.pos
    cdef const uint8_t* edge = r.end - FW_STEP   # whole steps and words may be read up to here
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const uint8_t* key
    cdef int64_t key_size, delta, size
    cdef uint64_t raw = 0
    cdef uint64_t milli = 0
    cdef int step
    lane_open(&values, &c.cells[VAR_VALUE], first)
    lane_open(&keys, &c.cells[VAR_KEY], first)
    if not has(c.mask, COL_VALUE) or values.room < 0 or base_offset + last + 1 < place.offset:
        return i
    if base_offset + most > place.until:
        return i
    while i < count and row < capacity and edge - at >= PLAIN_HEAD:
        step = fw_varint_near(at, &raw)
        p = at + step
        size = zigzag(raw)
        if step == 0 or size < 0 or size > edge - p:
            break
        end = p + size
        p += 1                               # attributes
        step = fw_varint_near(p, &milli)
        p += step
        if step == 0 or p > edge:
            break
        step = fw_varint_near(p, &raw)
        p += step
        delta = zigzag(raw)
        if step == 0 or p > edge or delta <= last or delta >= most:
            break
        key_size = p[0]
        p += 1
        key = NULL
        if key_size != 1:                    # -1 is null
            if key_size & 0x81:              # negative, or more than 63 bytes
                break
            key_size >>= 1
            key = p
            p += key_size
            if p > edge:
                break
        step = fw_varint_near(p, &raw)
        p += step
        size = zigzag(raw)
        # The value is followed by the header count 0.
        if step == 0 or size < 0 or size > values.room or end - p != size + 1 or end[-1] != 0:
            break
        if key is not NULL and with_keys:
            if keyed != row - first or key_size > keys.room:
                break
            lane_put(&keys, row, key, key_size)
            keyed += 1
        lane_put(&values, row, p, size)
        if offsets is not NULL:
            offsets[row] = base_offset + delta
        if timestamps is not NULL:
            timestamps[row] = micros(c, head.max_timestamp if appended else <int64_t>(
                base_milli + <uint64_t>zigzag(milli)
            ))
        last = delta
        row += 1
        i += 1
        before[0] = at
        at = end
    r.pos = at
    last_delta[0] = last
    c.rows = row
    c.payload += values.at - values.data - c.cells[VAR_VALUE].size
    lane_close(&values, &c.cells[VAR_VALUE], row - first)
    if keyed:
        lane_close(&keys, &c.cells[VAR_KEY], keyed)
    return i


cdef int put_records(
    Columns* c, const BatchHead* head, const RowPlace* place, Reader* r, const uint8_t** last
) noexcept nogil:
    """Append the rows of one batch; ``r`` spans its decompressed records. On failure no row is appended; returns a
    reason. ``last`` becomes the start of the last record, NULL without records.
    """
    cdef Mark mark
    cdef int64_t first = c.rows
    cdef int64_t most = (r.end - r.pos) // SMALLEST_RECORD + 1
    cdef int64_t size
    cdef int64_t last_delta = -1
    cdef uint64_t raw = 0
    cdef int status = DECODED
    cdef int tries = 0
    cdef int32_t i = 0
    cdef const uint8_t* p = r.pos
    cdef const uint8_t* end = r.end
    cdef const uint8_t* next_one
    last[0] = NULL
    if head.count < 0:
        reader_fail(r, FAULT_LENGTH, head.count)
        return DAMAGED
    if columns_reserve(c, head.count if head.count < most else most):
        return NO_MEMORY
    columns_mark(c, &mark)
    while i < head.count:
        if tries < PLAIN_TRIES:
            tries += 1
            r.pos = p
            i = put_plain(c, head, place, i, r, &last_delta, last)
            p = r.pos
            if i == head.count:
                break
        next_one = fw_varint(p, end, &raw)
        size = zigzag(raw)
        if next_one is NULL or size < 0 or size > end - next_one:
            status = DAMAGED
            break
        status = put_record(c, head, place, next_one, next_one + size, end, &last_delta)
        if status:
            break
        last[0] = p
        p = next_one + size
        i += 1
    r.pos = p
    if status == DECODED and p != end:
        status = DAMAGED
    if status:
        if status == DAMAGED:
            reader_fail(r, FAULT_LENGTH if p != end else FAULT_TRUNCATED, 1)
        columns_rewind(c, &mark)
        return status
    if has(c.mask, COL_TOPIC):
        fill(int32s(c, COL_TOPIC), first, c.rows, place.topic)
    if has(c.mask, COL_PARTITION):
        fill(int32s(c, COL_PARTITION), first, c.rows, place.partition)
    if has(c.mask, COL_TIMESTAMP_TYPE):
        fill(int32s(c, COL_TIMESTAMP_TYPE), first, c.rows, 1 if head.attributes & LOG_APPEND_TIME else 0)
    return DECODED


cdef bint find_record(
    const BatchHead* head, int64_t delta, const uint8_t* p, const uint8_t* end, Known* known
) noexcept nogil:
    """Find the record of this offset delta among the records at ``p``; False if it is missing, or behind damage."""
    cdef uint64_t raw = 0
    cdef uint64_t milli = 0
    cdef int64_t size
    cdef const uint8_t* after
    while True:
        p = fw_varint(p, end, &raw)          # length
        size = zigzag(raw)
        if p is NULL or size < 1 or size > end - p:
            return False
        after = p + size
        p = fw_varint(p + 1, after, &milli)
        if p is NULL:
            return False
        p = fw_varint(p, after, &raw)
        if p is NULL or zigzag(raw) > delta:
            return False
        if zigzag(raw) == delta:
            break
        p = after
    known.milli = head.max_timestamp if head.attributes & LOG_APPEND_TIME else <int64_t>(
        <uint64_t>head.base_timestamp + <uint64_t>zigzag(milli)
    )
    p = fw_varint(p, after, &raw)
    known.key_size = zigzag(raw)
    if p is NULL or known.key_size > after - p:
        return False
    known.key = p if known.key_size >= 0 else NULL
    p = fw_varint(p + (known.key_size if known.key_size > 0 else 0), after, &raw)
    known.value_size = zigzag(raw)
    if p is NULL or known.value_size > after - p:
        return False
    known.value = p if known.value_size >= 0 else NULL
    return True


cdef int put_row(
    Columns* c, const RowPlace* place, int64_t offset, int64_t milli, int32_t milli_type,
    const uint8_t* key, int64_t key_size, const uint8_t* value, int64_t value_size, const uint8_t* edge,
) noexcept nogil:
    """Write one message of the older formats, which have no headers; sizes of -1 are null."""
    cdef int64_t row = c.rows
    if columns_reserve(c, 1):
        return NO_MEMORY
    if value_size >= 0 and has(c.mask, COL_VALUE) and cells_put(c, VAR_VALUE, row, value, value_size, edge):
        return NO_MEMORY
    if key_size >= 0 and has(c.mask, COL_KEY) and cells_put(c, VAR_KEY, row, key, key_size, edge):
        return NO_MEMORY
    if has(c.mask, COL_OFFSET):
        int64s(c, COL_OFFSET)[row] = offset
    if has(c.mask, COL_TIMESTAMP):
        int64s(c, COL_TIMESTAMP)[row] = micros(c, milli)
    if has(c.mask, COL_TOPIC):
        int32s(c, COL_TOPIC)[row] = place.topic
    if has(c.mask, COL_PARTITION):
        int32s(c, COL_PARTITION)[row] = place.partition
    if has(c.mask, COL_TIMESTAMP_TYPE):
        int32s(c, COL_TIMESTAMP_TYPE)[row] = milli_type
    c.payload += value_size if value_size > 0 else 0
    c.rows = row + 1
    return DECODED


cdef int32_t control_type(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return the type of a control batch's record (spec: kafka 6.1): 0 abort, 1 commit; -1 if it is unreadable."""
    cdef uint64_t raw = 0
    p = fw_varint(p, end, &raw)      # length
    if p is NULL or end - p < 1:
        return -1
    p += 1                           # attributes
    for _ in range(3):               # timestamp delta, offset delta, key size
        p = fw_varint(p, end, &raw)
        if p is NULL:
            return -1
    if zigzag(raw) < 4 or end - p < 4:
        return -1
    return <int32_t><int16_t>(p[2] << 8 | p[3])
