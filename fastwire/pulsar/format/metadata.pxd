"""Hand-written walkers of the hot protobuf messages: BaseCommand, CommandMessage, MessageMetadata,
SingleMessageMetadata.

They accept fields in any order, repeated (the last one wins), packed or not, and skip what they do not know, as every
conforming parser does (spec: pulsar-fields 4, 6). Nothing is copied: pointers are into the frame.

Each message has two walkers. ``read_…_plain`` knows what nearly every producer and broker writes and is a third of the
cost; where it returns False, ``read_…`` walks the same bytes again, knows every case and says what is wrong.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from fastwire.wire.protobuf cimport read_bytes, skip_field
from fastwire.wire.reader cimport (
    FAULT_LENGTH,
    FAULT_MISSING,
    FAULT_NONE,
    FAULT_WIRE_TYPE,
    Reader,
    read_span,
    read_uvarint,
    reader_fail,
)
from fastwire.wire.varint cimport fw_bytes, fw_varint

cdef enum:
    MOST_MESSAGES = 524_288      # in one entry: more than any broker's limits let through
    ACK_SET_WORDS = 8192         # one bit a message
    TYPE_MESSAGE = 9             # of a BaseCommand

cdef struct MessageHead:         # CommandMessage
    uint64_t consumer_id
    int64_t ledger
    int64_t entry
    uint32_t redelivery_count
    bint has_epoch
    uint64_t epoch
    bint has_permits
    uint32_t permits
    const uint8_t* ack_set       # where the first element of ack_set is; NULL if there is none
    int32_t ack_words

cdef struct Metadata:            # MessageMetadata
    const uint8_t* start
    int64_t size
    const uint8_t* producer
    int64_t producer_size
    uint64_t sequence_id
    uint64_t publish_time
    int32_t properties           # how many
    const uint8_t* key
    int64_t key_size
    bint key_is_base64
    bint null_key
    const uint8_t* ordering_key
    int64_t ordering_key_size
    const uint8_t* schema_version
    int64_t schema_version_size
    uint32_t compression
    uint32_t uncompressed_size
    bint batched                 # num_messages_in_batch is present: presence selects the format, not the value
    int32_t messages
    uint64_t event_time
    bint encrypted
    bint marker
    bint null_value
    int32_t chunks
    bint compacted_indexes

cdef enum:                       # fields of a SingleMessageMetadata that were seen; booleans only where they are true
    ONE_PROPERTIES = 1 << 1
    ONE_KEY = 1 << 2
    ONE_PAYLOAD_SIZE = 1 << 3
    ONE_COMPACTED_OUT = 1 << 4
    ONE_EVENT_TIME = 1 << 5
    ONE_KEY_IS_BASE64 = 1 << 6
    ONE_ORDERING_KEY = 1 << 7
    ONE_SEQUENCE_ID = 1 << 8
    ONE_NULL_VALUE = 1 << 9
    ONE_NULL_KEY = 1 << 10

cdef struct Single:              # SingleMessageMetadata; what was not seen is undefined
    uint32_t seen
    const uint8_t* key
    int64_t key_size
    const uint8_t* ordering_key
    int64_t ordering_key_size
    int64_t payload_size
    uint64_t sequence_id
    uint64_t event_time


cdef inline uint64_t read_base_command(Reader* r, const uint8_t** message, int64_t* size) noexcept nogil:
    """Return the type of the BaseCommand that ``r`` spans, and of a MESSAGE its CommandMessage; NULL without one.

    Of other commands the type alone is read.
    """
    cdef uint64_t tag
    cdef uint64_t kind = 0
    message[0] = NULL
    size[0] = 0
    while r.pos < r.end:
        tag = read_uvarint(r)
        if tag == 0x08:
            kind = read_uvarint(r)
            if kind != TYPE_MESSAGE:
                break
        elif tag == 0x4A:
            message[0] = read_bytes(r, size)
        else:
            skip_field(r, tag)
    return kind


cdef inline void read_message_id(Reader* r, MessageHead* h) noexcept nogil:
    cdef int64_t size
    cdef const uint8_t* at = read_bytes(r, &size)
    cdef Reader inner
    cdef uint64_t tag
    cdef int seen = 0
    if at is NULL:
        return
    inner.start = r.start
    inner.pos = at
    inner.end = at + size
    inner.fault = FAULT_NONE
    while inner.pos < inner.end:
        tag = read_uvarint(&inner)
        if tag == 0x08:
            h.ledger = <int64_t>read_uvarint(&inner)
            seen |= 1
        elif tag == 0x10:
            h.entry = <int64_t>read_uvarint(&inner)
            seen |= 2
        else:
            skip_field(&inner, tag)
    if inner.fault:
        r.pos = r.start + inner.fault_at
        reader_fail(r, inner.fault, inner.wanted)
    elif seen != 3:
        reader_fail(r, FAULT_MISSING, 1 if not seen & 1 else 2)


cdef inline void read_command_message(Reader* r, MessageHead* h) noexcept nogil:
    """Parse the CommandMessage that ``r`` spans."""
    cdef uint64_t tag
    cdef int64_t size
    cdef const uint8_t* at
    cdef int seen = 0
    h.redelivery_count = h.permits = 0
    h.has_epoch = h.has_permits = False
    h.ack_set = NULL
    h.ack_words = 0
    while r.pos < r.end:
        at = r.pos
        tag = read_uvarint(r)
        if tag == 0x08:
            h.consumer_id = read_uvarint(r)
            seen |= 1
        elif tag == 0x12:
            read_message_id(r, h)
            seen |= 2
        elif tag == 0x18:
            h.redelivery_count = <uint32_t>read_uvarint(r)
        elif tag == 0x20:
            read_uvarint(r)
            if h.ack_set is NULL:
                h.ack_set = at
            h.ack_words += 1
        elif tag == 0x22:        # packed
            at = read_bytes(r, &size)
            if at is not NULL and size:
                if h.ack_set is NULL:
                    h.ack_set = r.pos - size - 2     # only its being there matters; read_ack_set walks again
                h.ack_words += 1
        elif tag == 0x28:
            h.epoch = read_uvarint(r)
            h.has_epoch = True
        elif tag == 0x30:
            h.permits = <uint32_t>read_uvarint(r)
            h.has_permits = True
        else:
            skip_field(r, tag)
    if not r.fault and seen != 3:
        reader_fail(r, FAULT_MISSING, 1 if not seen & 1 else 2)


cdef inline int32_t read_ack_set(const uint8_t* start, Py_ssize_t size, uint64_t* words) noexcept nogil:
    """Read ack_set, at most ACK_SET_WORDS words, of a CommandMessage that was parsed before; return their number."""
    cdef Reader r
    cdef Reader inner
    cdef uint64_t tag
    cdef int64_t n
    cdef const uint8_t* at
    cdef int32_t count = 0
    r.start = r.pos = start
    r.end = start + size
    r.fault = FAULT_NONE
    while r.pos < r.end:
        tag = read_uvarint(&r)
        if tag == 0x20:
            if count == ACK_SET_WORDS:
                return count
            words[count] = read_uvarint(&r)
            count += 1
        elif tag == 0x22:
            at = read_bytes(&r, &n)
            inner.start = inner.pos = at
            inner.end = at + n
            inner.fault = FAULT_NONE
            while inner.pos < inner.end and count < ACK_SET_WORDS:
                words[count] = read_uvarint(&inner)
                count += 1
        else:
            skip_field(&r, tag)
    return count


cdef inline void read_metadata(Reader* r, Metadata* m) noexcept nogil:
    """Parse the MessageMetadata that ``r`` spans; a fault or a missing required field is recorded in ``r``."""
    cdef uint64_t tag
    cdef int64_t size
    cdef int seen = 0
    m.start = r.pos
    m.size = r.end - r.pos
    m.properties = m.messages = m.chunks = 0
    m.key = m.ordering_key = m.schema_version = NULL
    m.key_size = m.ordering_key_size = m.schema_version_size = 0
    m.key_is_base64 = m.null_key = m.batched = m.encrypted = m.marker = m.null_value = m.compacted_indexes = False
    m.compression = m.uncompressed_size = 0
    m.event_time = 0
    while r.pos < r.end:
        tag = read_uvarint(r)
        if tag == 0x0A:
            m.producer = read_bytes(r, &m.producer_size)
            seen |= 1
        elif tag == 0x10:
            m.sequence_id = read_uvarint(r)
            seen |= 2
        elif tag == 0x18:
            m.publish_time = read_uvarint(r)
            seen |= 4
        elif tag == 0x22:
            read_bytes(r, &size)
            m.properties += 1
        elif tag == 0x32:
            m.key = read_bytes(r, &m.key_size)
        elif tag == 0x40:
            m.compression = <uint32_t>read_uvarint(r)
        elif tag == 0x48:
            m.uncompressed_size = <uint32_t>read_uvarint(r)
        elif tag == 0x58:
            m.messages = <int32_t>read_uvarint(r)
            m.batched = True
        elif tag == 0x60:
            m.event_time = read_uvarint(r)
        elif tag == 0x6A:
            read_bytes(r, &size)
            m.encrypted = True
        elif tag == 130:                         # 16
            m.schema_version = read_bytes(r, &m.schema_version_size)
        elif tag == 136:                         # 17
            m.key_is_base64 = read_uvarint(r) != 0
        elif tag == 146:                         # 18
            m.ordering_key = read_bytes(r, &m.ordering_key_size)
        elif tag == 160:                         # 20
            read_uvarint(r)
            m.marker = True
        elif tag == 200:                         # 25
            m.null_value = read_uvarint(r) != 0
        elif tag == 216:                         # 27
            m.chunks = <int32_t>read_uvarint(r)
        elif tag == 240:                         # 30
            m.null_key = read_uvarint(r) != 0
        elif tag == 248:                         # 31
            read_uvarint(r)
            m.compacted_indexes = True
        elif tag == 250:                         # 31, packed
            read_bytes(r, &size)
            m.compacted_indexes = True
        else:
            skip_field(r, tag)
    if not r.fault and seen != 7:
        reader_fail(r, FAULT_MISSING, 1 if not seen & 1 else (2 if not seen & 2 else 3))


cdef inline void set_seen(Single* s, uint32_t field, bint value) noexcept nogil:
    s.seen = s.seen | field if value else s.seen & ~field


cdef inline void read_single(Reader* r, const uint8_t* end, Single* s) noexcept nogil:
    """Parse a SingleMessageMetadata from ``r.pos`` to ``end``, which the caller has checked."""
    cdef uint64_t tag
    cdef int64_t size
    cdef const uint8_t* block_end = r.end
    r.end = end
    s.seen = 0
    s.payload_size = -1
    while r.pos < end:
        tag = read_uvarint(r)
        if tag == 0x18:
            s.payload_size = <int32_t>read_uvarint(r)
            s.seen |= ONE_PAYLOAD_SIZE
        elif tag == 0x12:
            s.key = read_bytes(r, &s.key_size)
            s.seen |= ONE_KEY
        elif tag == 0x40:
            s.sequence_id = read_uvarint(r)
            s.seen |= ONE_SEQUENCE_ID
        elif tag == 0x28:
            s.event_time = read_uvarint(r)
            s.seen |= ONE_EVENT_TIME
        elif tag == 0x0A:
            read_bytes(r, &size)
            s.seen |= ONE_PROPERTIES
        elif tag == 0x20:
            set_seen(s, ONE_COMPACTED_OUT, read_uvarint(r) != 0)
        elif tag == 0x30:
            set_seen(s, ONE_KEY_IS_BASE64, read_uvarint(r) != 0)
        elif tag == 0x3A:
            s.ordering_key = read_bytes(r, &s.ordering_key_size)
            s.seen |= ONE_ORDERING_KEY
        elif tag == 0x48:
            set_seen(s, ONE_NULL_VALUE, read_uvarint(r) != 0)
        elif tag == 0x50:
            set_seen(s, ONE_NULL_KEY, read_uvarint(r) != 0)
        else:
            skip_field(r, tag)
    if not r.fault:
        r.end = block_end
        if not s.seen & ONE_PAYLOAD_SIZE:
            reader_fail(r, FAULT_MISSING, 3)
        elif s.payload_size < 0:
            reader_fail(r, FAULT_LENGTH, <Py_ssize_t>s.payload_size)


# --- the plain walkers

cdef inline bint read_single_plain(const uint8_t* p, const uint8_t* end, Single* s) noexcept nogil:
    cdef uint32_t seen = 0
    cdef uint64_t value = 0
    cdef int64_t size
    cdef const uint8_t* at
    cdef uint8_t tag
    while p < end:
        tag = p[0]
        p += 1
        if tag == 0x18:
            p = fw_varint(p, end, &value)
            if value > 0x7FFFFFFF:
                return False
            s.payload_size = <int64_t>value
            seen |= ONE_PAYLOAD_SIZE
        elif tag == 0x12:
            p = fw_bytes(p, end, &s.key, &s.key_size)
            seen |= ONE_KEY
        elif tag == 0x40:
            p = fw_varint(p, end, &s.sequence_id)
            seen |= ONE_SEQUENCE_ID
        elif tag == 0x28:
            p = fw_varint(p, end, &s.event_time)
            seen |= ONE_EVENT_TIME
        elif tag == 0x0A:
            p = fw_bytes(p, end, &at, &size)
            seen |= ONE_PROPERTIES
        elif tag == 0x3A:
            p = fw_bytes(p, end, &s.ordering_key, &s.ordering_key_size)
            seen |= ONE_ORDERING_KEY
        else:
            return False
        if p is NULL:
            return False
    s.seen = seen
    return seen & ONE_PAYLOAD_SIZE != 0


cdef inline bint read_metadata_plain(const uint8_t* p, const uint8_t* end, Metadata* m) noexcept nogil:
    cdef uint64_t tag = 0
    cdef uint64_t value = 0
    cdef int64_t size
    cdef const uint8_t* at
    cdef int seen = 0
    m.start = p
    m.size = end - p
    m.properties = m.messages = m.chunks = 0
    m.key = m.ordering_key = m.schema_version = NULL
    m.key_size = m.ordering_key_size = m.schema_version_size = 0
    m.key_is_base64 = m.null_key = m.batched = m.encrypted = m.marker = m.null_value = m.compacted_indexes = False
    m.compression = m.uncompressed_size = 0
    m.event_time = 0
    while p < end:
        p = fw_varint(p, end, &tag)
        if p is NULL:
            return False
        if tag == 0x0A:
            p = fw_bytes(p, end, &m.producer, &m.producer_size)
            seen |= 1
        elif tag == 0x10:
            p = fw_varint(p, end, &m.sequence_id)
            seen |= 2
        elif tag == 0x18:
            p = fw_varint(p, end, &m.publish_time)
            seen |= 4
        elif tag == 0x22:
            p = fw_bytes(p, end, &at, &size)
            m.properties += 1
        elif tag == 0x32:
            p = fw_bytes(p, end, &m.key, &m.key_size)
        elif tag == 0x40 or tag == 0x48 or tag == 0x58:
            p = fw_varint(p, end, &value)
            if value > 0x7FFFFFFF:
                return False
            if tag == 0x40:
                m.compression = <uint32_t>value
            elif tag == 0x48:
                m.uncompressed_size = <uint32_t>value
            else:
                m.messages = <int32_t>value
                m.batched = True
        elif tag == 0x60:
            p = fw_varint(p, end, &m.event_time)
        elif tag == 130:                         # 16
            p = fw_bytes(p, end, &m.schema_version, &m.schema_version_size)
        elif tag == 146:                         # 18
            p = fw_bytes(p, end, &m.ordering_key, &m.ordering_key_size)
        elif tag == 192:                         # 24, highest_sequence_id
            p = fw_varint(p, end, &value)
        else:
            return False
        if p is NULL:
            return False
    return seen == 7


cdef inline bint read_message_id_plain(const uint8_t* p, const uint8_t* end, MessageHead* h) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint8_t tag
    cdef int seen = 0
    while p < end:
        tag = p[0]
        p = fw_varint(p + 1, end, &value)
        if p is NULL:
            return False
        if tag == 0x08:
            h.ledger = <int64_t>value
            seen |= 1
        elif tag == 0x10:
            h.entry = <int64_t>value
            seen |= 2
        elif tag != 0x18:                        # partition: the slot knows it
            return False
    return seen == 3


cdef inline bint read_message_plain(const uint8_t* p, const uint8_t* end, MessageHead* h) noexcept nogil:
    """Parse a whole BaseCommand if it is a MESSAGE without ack_set and message_permits."""
    cdef uint64_t value = 0
    cdef int64_t size
    cdef const uint8_t* at
    cdef const uint8_t* behind
    cdef uint8_t tag
    cdef int seen = 0
    if end - p < 4 or p[0] != 0x08 or p[1] != 9 or p[2] != 0x4A:
        return False
    behind = fw_bytes(p + 3, end, &at, &size)
    if behind != end:
        return False
    p = at
    h.redelivery_count = h.permits = 0
    h.has_epoch = h.has_permits = False
    h.ack_set = NULL
    h.ack_words = 0
    while p < end:
        tag = p[0]
        p += 1
        if tag == 0x08:
            p = fw_varint(p, end, &h.consumer_id)
            seen |= 1
        elif tag == 0x12:
            p = fw_bytes(p, end, &at, &size)
            if p is NULL or not read_message_id_plain(at, p, h):
                return False
            seen |= 2
        elif tag == 0x18:
            p = fw_varint(p, end, &value)
            h.redelivery_count = <uint32_t>value
        elif tag == 0x28:
            p = fw_varint(p, end, &h.epoch)
            h.has_epoch = True
        else:
            return False
        if p is NULL:
            return False
    return seen == 3


# --- sets of bits

cdef inline int64_t popcount(uint64_t word) noexcept nogil:
    cdef int64_t n = 0
    while word:
        word &= word - 1
        n += 1
    return n


cdef inline int64_t bits_below(const uint64_t* words, int32_t count, int64_t limit) noexcept nogil:
    """Return the number of set bits among the first ``limit``."""
    cdef int64_t n = 0
    cdef int64_t i
    cdef uint64_t word
    for i in range(count):
        if i * 64 >= limit:
            break
        word = words[i]
        if limit - i * 64 < 64:
            word &= ((<uint64_t>1) << (limit - i * 64)) - 1
        n += popcount(word)
    return n
