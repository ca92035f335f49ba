"""Messages of a GET response, decoded in place into columns (spec: tubemq 11.2, 12)."""

from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from fastwire.columns.builder cimport (
    COL_HEADERS,
    COL_OFFSET,
    COL_PARTITION,
    COL_TIMESTAMP,
    COL_TIMESTAMP_TYPE,
    COL_TOPIC,
    COL_VALUE,
    NO_TIME,
    VAR_VALUE,
    Columns,
    Lane,
    cells_put,
    columns_reserve,
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
)
from fastwire.tubemq.columns cimport COL_BROKER, COL_EVENT_TIME, COL_MESSAGE_ID, COL_MSG_TYPE, COL_ROW
from fastwire.tubemq.reading.slot cimport Slot
from fastwire.wire.protobuf cimport read_bytes, skip_field
from fastwire.wire.reader cimport (
    FAULT_MISSING,
    FAULT_WIRE_TYPE,
    Reader,
    read_uvarint,
    reader_fail,
    reader_init,
)
from fastwire.wire.varint cimport FW_STEP, fw_bytes, fw_u32be, fw_varint, fw_varint_near, fw_varint_nine, fw_varint_word

__all__ = []

cdef extern from "crc32.h" nogil:
    void fw_crc32_prepare()
    uint32_t fw_crc32(const uint8_t* p, int64_t size)

fw_crc32_prepare()

cdef enum:
    HAS_ATTRIBUTES = 1           # bit of the flag of a message
    TIME_DIGITS = 12             # yyyyMMddHHmm
    TYPE_KEY = 9                 # bytes of the reserved keys
    PLAIN_HEAD = 48              # more than the fields before a payload, with what is read behind each
    FIELD_ID = 8                 # tags of the fields of a message
    FIELD_CHECKSUM = 16
    FIELD_PAYLOAD = 26
    FIELD_FLAG = 32

cdef const char* MSG_TYPE = "$msgType$"
cdef const char* MSG_TIME = "$msgTime$"

cdef struct Message:             # TransferedMessage
    int64_t id
    int32_t checksum
    int32_t flag
    const uint8_t* payload
    int64_t size


cdef void read_get(Reader* r, Get* g) noexcept nogil:
    """Read a GetMessageResponseB2C without its messages. ``r`` has a fault if it is malformed."""
    cdef uint64_t tag, raw
    cdef int64_t size, at
    cdef int seen = 0
    g.code = 0
    g.text = NULL
    g.text_size = g.first = g.messages = 0
    g.offset = g.lag_bytes = g.max_offset = -1
    g.min_limit_ms = -1
    g.escaped = g.require_slow = False
    while r.pos < r.end:
        at = r.pos - r.start
        tag = read_uvarint(r)
        if tag >> 3 in (3, 4):
            if tag & 7 != 2:
                reader_fail(r, FAULT_WIRE_TYPE, <Py_ssize_t>(tag & 7))
            elif tag >> 3 == 3:
                g.text = read_bytes(r, &g.text_size)
            else:
                read_bytes(r, &size)
                if g.messages == 0:
                    g.first = at
                g.messages += 1
        elif 1 <= tag >> 3 <= 10:
            if tag & 7:
                reader_fail(r, FAULT_WIRE_TYPE, <Py_ssize_t>(tag & 7))
                return
            raw = read_uvarint(r)
            if tag >> 3 <= 2:
                seen |= <int>(tag >> 3)
            if tag >> 3 == 2:
                g.code = <int32_t>raw
            elif tag >> 3 == 5:
                g.offset = <int64_t>raw
            elif tag >> 3 == 6:
                g.min_limit_ms = <int32_t>raw
            elif tag >> 3 == 7:
                g.escaped = raw != 0
            elif tag >> 3 == 8:
                g.lag_bytes = <int64_t>raw
            elif tag >> 3 == 9:
                g.require_slow = raw != 0
            elif tag >> 3 == 10:
                g.max_offset = <int64_t>raw
        else:
            skip_field(r, tag)
    if seen != 3 and not r.fault:
        reader_fail(r, FAULT_MISSING, 2 if seen & 1 else 1)


cdef bint read_message(const uint8_t* p, const uint8_t* end, Message* m) noexcept nogil:
    """Read a TransferedMessage; return False if it is malformed."""
    cdef uint64_t tag = 0, raw = 0
    cdef int seen = 0
    cdef Reader r
    m.id = m.size = 0
    m.checksum = m.flag = 0
    m.payload = NULL
    while p < end:
        p = fw_varint(p, end, &tag)
        if p is NULL or tag >> 3 == 0:
            return False
        if tag == FIELD_PAYLOAD:
            p = fw_bytes(p, end, &m.payload, &m.size)
            seen |= 4
        elif tag in (FIELD_ID, FIELD_CHECKSUM, FIELD_FLAG):
            p = fw_varint(p, end, &raw)
            if tag == FIELD_ID:
                m.id = <int64_t>raw
                seen |= 1
            elif tag == FIELD_CHECKSUM:
                m.checksum = <int32_t>raw
                seen |= 2
            else:
                m.flag = <int32_t>raw
                seen |= 8
        elif tag >> 3 <= 4:
            return False
        else:
            reader_init(&r, p, end - p)
            skip_field(&r, tag)
            if r.fault:
                return False
            p = r.pos
        if p is NULL:
            return False
    return seen == 15


cdef inline int digits(const uint8_t* p, int count) noexcept nogil:
    """Return the number that ``count`` digits are, -1 if one is not a digit."""
    cdef int value = 0
    cdef int i
    for i in range(count):
        if not 48 <= p[i] <= 57:
            return -1
        value = value * 10 + p[i] - 48
    return value


cdef int64_t event_time(const uint8_t* p, int64_t size, int64_t zone_us) noexcept nogil:
    """Return the microseconds since 1970 of a ``$msgTime$``, INT64_MIN if it is not a time."""
    cdef int year, month, day, hour, minute, last, of_era
    cdef int64_t days, era
    if size != TIME_DIGITS:
        return INT64_MIN
    year = digits(p, 4)
    month = digits(p + 4, 2)
    day = digits(p + 6, 2)
    hour = digits(p + 8, 2)
    minute = digits(p + 10, 2)
    if year < 1 or not 1 <= month <= 12 or not 0 <= hour < 24 or not 0 <= minute < 60:
        return INT64_MIN
    last = 31
    if month == 2:
        last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    elif month in (4, 6, 9, 11):
        last = 30
    if not 1 <= day <= last:
        return INT64_MIN
    # Days since 1970 of the civil calendar, with years that begin in March.
    if month <= 2:
        year -= 1
        month += 12
    era = year // 400
    of_era = year - <int>era * 400
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + (153 * (month - 3) + 2) // 5 + day - 1 - 719468
    return ((days * 24 + hour) * 60 + minute) * 60_000_000 - zone_us


cdef bint kept(const Slot* slot, const uint8_t* text, int64_t size) noexcept nogil:
    """Return whether a type is among the slot's filters; NULL is none."""
    cdef const uint8_t* p = slot.filters
    cdef const uint8_t* end = p + slot.filter_bytes
    cdef int64_t each
    if p is NULL:
        return True
    while text is not NULL and p < end:
        memcpy(&each, p, sizeof(each))
        p += sizeof(each)
        if each == size and memcmp(p, text, <size_t>size) == 0:
            return True
        p += each
    return False


cdef int put_attributes(Columns* c, int64_t row, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Write the items of the attributes as headers of ``row``; return 0, or -1 without memory."""
    cdef int64_t first = c.headers
    cdef const uint8_t* stop
    cdef const uint8_t* mark
    while p < end:
        stop = <const uint8_t*>memchr(p, 44, <size_t>(end - p))
        if stop is NULL:
            stop = end
        if stop > p:
            mark = <const uint8_t*>memchr(p, 61, <size_t>(stop - p))
            if mark is NULL:
                if header_put(c, p, stop - p, NULL, 0):
                    return -1
            elif header_put(c, p, mark - p, mark + 1, stop - mark - 1):
                return -1
        p = stop + 1
    if c.headers > first:
        headers_close(c, row, first)
    return 0


cdef void find_reserved(
    const uint8_t* p, const uint8_t* end, const uint8_t** type_at, int64_t* type_size, const uint8_t** time_at,
    int64_t* time_size
) noexcept nogil:
    """Find the values of the reserved attributes; of several the first counts."""
    cdef const uint8_t* stop
    while p < end:
        stop = <const uint8_t*>memchr(p, 44, <size_t>(end - p))
        if stop is NULL:
            stop = end
        if stop - p > TYPE_KEY and p[0] == 36 and p[TYPE_KEY] == 61:
            if type_at[0] is NULL and memcmp(p, MSG_TYPE, TYPE_KEY) == 0:
                type_at[0] = p + TYPE_KEY + 1
                type_size[0] = stop - type_at[0]
            elif time_at[0] is NULL and memcmp(p, MSG_TIME, TYPE_KEY) == 0:
                time_at[0] = p + TYPE_KEY + 1
                time_size[0] = stop - time_at[0]
        p = stop + 1


cdef int64_t message_id(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return the id of a message; 0 for one that is malformed."""
    cdef Message m
    return m.id if read_message(p, end, &m) else 0


cdef void fill_constant(Columns* c, const Slot* slot, int64_t offset, int64_t first) noexcept nogil:
    """Write the cells that all rows from ``first`` on share."""
    if has(c.mask, COL_OFFSET):
        fill(int64s(c, COL_OFFSET), first, c.rows, offset)
    if has(c.mask, COL_TOPIC):
        fill(int32s(c, COL_TOPIC), first, c.rows, slot.head.topic)
    if has(c.mask, COL_PARTITION):
        fill(int32s(c, COL_PARTITION), first, c.rows, slot.head.partition)
    if has(c.mask, COL_BROKER):
        fill(int32s(c, COL_BROKER), first, c.rows, slot.broker)
    if has(c.mask, COL_TIMESTAMP):
        c.timeless = True
        fill(int64s(c, COL_TIMESTAMP), first, c.rows, NO_TIME)
    if has(c.mask, COL_TIMESTAMP_TYPE):
        fill(int32s(c, COL_TIMESTAMP_TYPE), first, c.rows, <int32_t>-1)


cdef int put_message(
    Columns* c, const Slot* slot, int64_t offset, int64_t index, int64_t zone_us, const uint8_t* p, const uint8_t* end,
    const uint8_t* edge
) noexcept nogil:
    """Write message ``index`` of a GET that began at ``offset``; ``edge`` is the end of what can be read.

    After NO_MEMORY the caller rewinds the columns; other results but DECODED leave them as they were.
    """
    cdef Message m
    cdef int64_t row = c.rows
    cdef int64_t attributes, type_size = 0, time_size = 0, micros
    cdef const uint8_t* value
    cdef const uint8_t* type_at = NULL
    cdef const uint8_t* time_at = NULL
    cdef int32_t number
    if not read_message(p, end, &m):
        return DAMAGED
    if <int32_t>(fw_crc32(m.payload, m.size) & 0x7FFFFFFF) != m.checksum:
        return BAD_CHECKSUM
    value = m.payload
    attributes = 0
    if m.flag & HAS_ATTRIBUTES:
        if m.size < 4:
            return DAMAGED
        attributes = <int32_t>fw_u32be(value)
        if attributes < 0 or attributes > m.size - 4:
            return DAMAGED
        value += 4 + attributes
        find_reserved(m.payload + 4, value, &type_at, &type_size, &time_at, &time_size)
    if not kept(slot, type_at, type_size):
        return FILTERED
    if row >= c.capacity and columns_reserve(c, 1):
        return NO_MEMORY
    if has(c.mask, COL_VALUE) and cells_put(c, VAR_VALUE, row, value, m.payload + m.size - value, edge):
        return NO_MEMORY
    if attributes and has(c.mask, COL_HEADERS) and put_attributes(c, row, m.payload + 4, value):
        return NO_MEMORY
    if has(c.mask, COL_MSG_TYPE):
        number = dictionary_add(c, COL_MSG_TYPE, type_at if type_at is not NULL else p, type_size)
        if number == -2:         # not UTF-8: the header keeps it
            number = dictionary_add(c, COL_MSG_TYPE, p, 0)
        if number < 0:
            return NO_MEMORY
        int32s(c, COL_MSG_TYPE)[row] = number
    if time_at is not NULL and has(c.mask, COL_EVENT_TIME):
        micros = event_time(time_at, time_size, zone_us)
        if micros != INT64_MIN:
            rare_time_put(c, COL_EVENT_TIME, row, micros)
    if has(c.mask, COL_ROW):
        int32s(c, COL_ROW)[row] = <int32_t>index
    if has(c.mask, COL_MESSAGE_ID):
        int64s(c, COL_MESSAGE_ID)[row] = m.id
    c.payload += m.payload + m.size - value
    c.rows = row + 1
    fill_constant(c, slot, offset, row)
    return DECODED


cdef void put_plain(
    Columns* c, const Slot* slot, int64_t offset, int64_t index, const uint8_t* end, const uint8_t* edge, Run* run
) noexcept nogil:
    """Write messages from ``index`` on while they are plain: sound, without attributes, their fields in order.

    ``run`` says how many there may be, and then how many there were. The next one is not plain, or near the end of the
    response, the columns or the chunk.
    """
    cdef Lane values
    cdef int64_t first = c.rows
    cdef int64_t row = first
    cdef int64_t limit = c.capacity if c.capacity - first < run.rows else first + run.rows
    cdef int64_t* ids = int64s(c, COL_MESSAGE_ID) if has(c.mask, COL_MESSAGE_ID) else NULL
    cdef int32_t* indexes = int32s(c, COL_ROW) if has(c.mask, COL_ROW) else NULL
    cdef const uint8_t* at = run.at
    cdef const uint8_t* p
    cdef const uint8_t* message
    cdef const uint8_t* behind
    cdef int64_t nbytes = 0
    cdef int64_t room
    cdef uint64_t size = 0
    cdef uint64_t ident = 0
    cdef uint64_t checksum = 0
    cdef int step
    cdef int32_t none
    lane_open(&values, &c.cells[VAR_VALUE], first)
    room = values.room if values.room < run.room else run.room
    edge -= FW_STEP                          # whole steps may be read up to here
    run.rows = 0
    if room < 0 or slot.filters is not NULL or not has(c.mask, COL_VALUE):
        return
    while row < limit and nbytes < run.nbytes and edge - at >= PLAIN_HEAD and at[0] == FIELD_MESSAGE:
        step = fw_varint_near(at + 1, &size)
        message = at + 1 + step
        if step == 0 or message >= end or size > <uint64_t>(end - message) or size > <uint64_t>room:
            break
        behind = message + size
        step = fw_varint_nine(message + 1, &ident)
        p = message + 1 + step
        if step == 0 or message[0] != FIELD_ID or p[0] != FIELD_CHECKSUM:
            break
        step = fw_varint_word(p + 1, &checksum)
        p += 1 + step
        if step == 0 or p[0] != FIELD_PAYLOAD:
            break
        step = fw_varint_near(p + 1, &size)
        p += 1 + step
        # The flag 0 is behind the payload, and nothing else.
        if step == 0 or behind - p < 2 or size != <uint64_t>(behind - p - 2) or behind > edge:
            break
        if behind[-2] != FIELD_FLAG or behind[-1] != 0:
            break
        if (fw_crc32(p, <int64_t>size) & 0x7FFFFFFF) != checksum:
            break
        lane_put(&values, row, p, <int64_t>size)
        room -= <int64_t>size
        if ids is not NULL:
            ids[row] = <int64_t>ident
        if indexes is not NULL:
            indexes[row] = <int32_t>(index + row - first)
        nbytes += behind - message
        run.last = message
        run.last_size = behind - message
        row += 1
        at = behind
    if row == first:
        return
    if has(c.mask, COL_MSG_TYPE):
        none = dictionary_add(c, COL_MSG_TYPE, run.last, 0)
        if none < 0:
            return
        fill(int32s(c, COL_MSG_TYPE), first, row, none)
    c.payload += values.at - values.data - c.cells[VAR_VALUE].size
    lane_close(&values, &c.cells[VAR_VALUE], row - first)
    c.rows = row
    fill_constant(c, slot, offset, first)
    run.at = at
    run.rows = row - first
    run.nbytes = nbytes
