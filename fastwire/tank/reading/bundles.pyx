"""Bundles to rows (spec: tank 6): the header, and the message set after decompression."""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t

from fastwire.columns.builder cimport (
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
    int32s,
    int64s,
    lane_close,
    lane_open,
    lane_put,
    time_of_millis,
)
from fastwire.wire.reader cimport FAULT_LENGTH, Reader, reader_fail
from fastwire.wire.varint cimport FW_STEP, fw_u64le, fw_varint32, fw_varint_near

cdef enum:                       # flags of a message
    WITH_KEY = 1
    SAME_TIME = 2
    NEXT_SEQUENCE = 4

cdef enum:
    COUNT_MASK = 0x3C
    SPARSE = 0x40
    PLAIN_TRIES = 8              # per bundle: where keys come and go, a search for plain messages does not pay
    SMALLEST_MESSAGE = 2         # flags and a length: bounds what a count may claim
    MOST_MILLIS = 253402300799999    # the end of the year 9999: a larger number is in microseconds


cdef inline int64_t micros(Columns* c, uint64_t time) noexcept nogil:
    """Return a timestamp in microseconds.

    It is in milliseconds by convention; some producers write microseconds, which as milliseconds are all beyond the
    year 9999. Numbers that are negative with 64 bits are milliseconds before 1970 (spec: tank 6).
    """
    if time <= MOST_MILLIS:
        return <int64_t>time * 1000
    if time == <uint64_t>-1:
        c.timeless = True
        return NO_TIME
    return <int64_t>time if <int64_t>time > 0 else time_of_millis(c, <int64_t>time)


cdef bint read_bundle_head(const uint8_t* p, int64_t size, int64_t base, BundleHead* head) noexcept nogil:
    """Read the header of a bundle of ``size`` bytes, of which up to MOST_HEAD are present.

    ``base`` is the first sequence of a bundle that is not sparse, -1 if it is unknown. Returns False for a header that
    says nothing of the sequences.
    """
    cdef const uint8_t* start = p
    cdef const uint8_t* end = p + (size if size < MOST_HEAD else <int64_t>MOST_HEAD)
    cdef uint64_t raw
    if size < 1:
        return False
    head.flags = p[0]
    head.sparse = head.flags & SPARSE != 0
    head.count = (head.flags & COUNT_MASK) >> 2
    p += 1
    if head.count == 0:
        p = fw_varint32(p, end, &raw)
        if p is NULL or raw == 0:
            return False
        head.count = <int64_t>raw
    if head.sparse:
        if end - p < 8:
            return False
        raw = fw_u64le(p)
        p += 8
        if raw > <uint64_t>INT64_MAX:
            return False
        head.first = head.last = <int64_t>raw
        if head.count != 1:
            p = fw_varint32(p, end, &raw)
            if p is NULL or head.first > INT64_MAX - <int64_t>raw - 2:
                return False
            head.last = head.first + <int64_t>raw + 1
    else:
        if base < 0 or base > INT64_MAX - head.count:
            return False
        head.first = base
        head.last = base + head.count - 1
    head.size = <int>(p - start)
    return head.last < INT64_MAX


cdef int put_message(
    Columns* c, const BundleHead* head, const RowPlace* place, Walk* walk, const uint8_t* end
) noexcept nogil:
    """Write the next message, if it is wanted."""
    cdef const uint8_t* p = walk.at
    cdef const uint8_t* key = NULL
    cdef int64_t key_size = 0
    cdef int64_t row = c.rows
    cdef uint64_t raw = 0
    cdef uint8_t flags
    if p >= end:
        return DAMAGED
    flags = p[0]
    p += 1
    if not head.sparse or flags & NEXT_SEQUENCE or walk.index == 0:
        walk.sequence += 1
    elif walk.index == head.count - 1:
        if head.last <= walk.sequence:
            return DAMAGED
        walk.sequence = head.last
    else:
        p = fw_varint32(p, end, &raw)
        if p is NULL or <int64_t>raw >= head.last - walk.sequence:
            return DAMAGED
        walk.sequence += <int64_t>raw + 1
    if walk.sequence > head.last:
        return DAMAGED
    if not flags & SAME_TIME:
        if end - p < 8:
            return DAMAGED
        walk.time = fw_u64le(p)
        walk.micro = micros(c, walk.time)
        p += 8
    if flags & WITH_KEY:
        if end - p < 1 or end - p - 1 < p[0]:
            return DAMAGED
        key_size = p[0]
        key = p + 1
        p += 1 + key_size
    p = fw_varint32(p, end, &raw)
    if p is NULL or <int64_t>raw > end - p:
        return DAMAGED
    walk.at = p + raw
    walk.index += 1
    if walk.sequence <= place.highest:
        walk.known, walk.known_time = walk.sequence, walk.time
        walk.key, walk.key_size, walk.value, walk.value_size = key, key_size, p, <int64_t>raw
    if walk.sequence < place.wanted or walk.sequence > place.highest:
        return DECODED
    if row >= c.capacity and columns_reserve(c, 1):
        return NO_MEMORY
    if has(c.mask, COL_VALUE) and cells_put(c, VAR_VALUE, row, p, <int64_t>raw, end):
        return NO_MEMORY
    if key is not NULL and has(c.mask, COL_KEY) and cells_put(c, VAR_KEY, row, key, key_size, end):
        return NO_MEMORY
    if has(c.mask, COL_OFFSET):
        int64s(c, COL_OFFSET)[row] = walk.sequence
    if has(c.mask, COL_TIMESTAMP):
        int64s(c, COL_TIMESTAMP)[row] = walk.micro
    c.payload += <int64_t>raw
    c.rows = row + 1
    return DECODED


cdef bint find_message(
    Columns* c, const BundleHead* head, int64_t sequence, Walk* walk, const uint8_t* p, const uint8_t* end
) noexcept nogil:
    """Walk to the message with ``sequence`` without a row; return False if it is not there, or cannot be read."""
    cdef RowPlace place
    place.wanted = place.highest = INT64_MAX
    begin_walk(walk, head, p)
    while walk.index < head.count and walk.sequence < sequence:
        if put_message(c, head, &place, walk, end):
            return False
    return walk.known == sequence


cdef void begin_walk(Walk* walk, const BundleHead* head, const uint8_t* p) noexcept nogil:
    walk.at = p
    walk.index = 0
    walk.sequence = head.first - 1
    walk.micro = 0
    walk.time = 0
    walk.known = -1


cdef void put_plain(Columns* c, const BundleHead* head, Walk* walk, const uint8_t* end) noexcept nogil:
    """Write messages of a bundle that is not sparse while they all have keys or all have none.

    Stops before the last one, which ``put_message`` notes, before a message that is not like that, and near the end of
    block or column. ``put_message`` must read the message after these: its time may be noted in ``walk`` already.
    """
    cdef Lane values, keys
    cdef int64_t first = c.rows
    cdef int64_t row = first
    cdef int64_t left = head.count - walk.index - 1
    cdef int64_t most = c.capacity if c.capacity - first < left else first + left
    cdef int64_t* offsets = int64s(c, COL_OFFSET) if has(c.mask, COL_OFFSET) else NULL
    cdef int64_t* timestamps = int64s(c, COL_TIMESTAMP) if has(c.mask, COL_TIMESTAMP) else NULL
    cdef int64_t keyed = 0                   # rows that have a key: the first ones, or none
    cdef bint with_keys = has(c.mask, COL_KEY)
    cdef const uint8_t* edge = end - FW_STEP     # whole steps and words may be read up to here
    cdef const uint8_t* at = walk.at
    cdef const uint8_t* p
    cdef uint64_t time = walk.time
    cdef const uint8_t* key
    cdef int64_t micro = walk.micro
    cdef int64_t size, key_size, i
    cdef uint64_t raw = 0
    cdef uint8_t flags
    cdef int step
    lane_open(&values, &c.cells[VAR_VALUE], first)
    lane_open(&keys, &c.cells[VAR_KEY], first)
    if not has(c.mask, COL_VALUE) or values.room < 0 or end - at < FW_STEP:
        return
    while row < most and at <= edge:
        flags = at[0]
        p = at + 1
        if not flags & SAME_TIME:
            time = fw_u64le(p)
            micro = micros(c, time)
            p += 8
        key = NULL
        key_size = 0
        if flags & WITH_KEY:
            key_size = p[0]
            key = p + 1
            p = key + key_size
            if p > edge:
                break
        step = fw_varint_near(p, &raw)
        p += step
        if step == 0 or step > 5 or p > edge or raw > <uint64_t>(edge - p) or <int64_t>raw > values.room:
            break
        size = <int64_t>raw
        if key is not NULL and with_keys:
            if keyed != row - first or key_size > keys.room:
                break
            lane_put(&keys, row, key, key_size)
            keyed += 1
        lane_put(&values, row, p, size)
        if timestamps is not NULL:
            timestamps[row] = micro
        row += 1
        at = p + size
    if offsets is not NULL:
        for i in range(row - first):
            offsets[first + i] = walk.sequence + 1 + i
    walk.at = at
    walk.index += row - first
    walk.sequence += row - first
    walk.micro = micro
    walk.time = time
    c.rows = row
    c.payload += values.at - values.data - c.cells[VAR_VALUE].size
    lane_close(&values, &c.cells[VAR_VALUE], row - first)
    if keyed:
        lane_close(&keys, &c.cells[VAR_KEY], keyed)


cdef int put_messages(Columns* c, const BundleHead* head, const RowPlace* place, Walk* walk, Reader* r) noexcept nogil:
    """Append the rows of one bundle; ``r`` spans its decompressed messages. On failure no row is appended; returns a
    reason. Afterwards ``walk`` is at the last message.
    """
    cdef Mark mark
    cdef int64_t first = c.rows
    cdef int64_t most = (r.end - r.pos) // SMALLEST_MESSAGE + 1
    cdef int status = DECODED
    cdef int tries = 0 if not head.sparse and head.last <= place.highest else <int>PLAIN_TRIES
    if columns_reserve(c, head.count if head.count < most else most):
        return NO_MEMORY
    columns_mark(c, &mark)
    begin_walk(walk, head, r.pos)
    while walk.index < head.count:
        if tries < PLAIN_TRIES and walk.sequence + 1 >= place.wanted:
            tries += 1
            put_plain(c, head, walk, r.end)
        status = put_message(c, head, place, walk, r.end)
        if status:
            break
    r.pos = walk.at
    if status == DECODED and walk.at != r.end:
        status = DAMAGED
    if status:
        if status == DAMAGED:
            reader_fail(r, FAULT_LENGTH, walk.index)
        columns_rewind(c, &mark)
        return status
    if has(c.mask, COL_TOPIC):
        fill(int32s(c, COL_TOPIC), first, c.rows, place.topic)
    if has(c.mask, COL_PARTITION):
        fill(int32s(c, COL_PARTITION), first, c.rows, place.partition)
    if has(c.mask, COL_TIMESTAMP_TYPE):
        fill(int32s(c, COL_TIMESTAMP_TYPE), first, c.rows, 0)
    return DECODED
