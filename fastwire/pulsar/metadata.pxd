"""Hand-written walkers of the hot protobuf messages: CommandMessage, MessageMetadata, SingleMessageMetadata.

They accept fields in any order, repeated (the last one wins), packed or not, and skip what they do not know, as every
conforming parser does (specs: pulsar-fields 4 and 6). Nothing is copied: pointers are into the frame.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

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

cdef enum:
    MOST_MESSAGES = 524_288      # in one entry: more than any broker's limits let through
    ACK_SET_WORDS = 8192         # one bit a message

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
    Py_ssize_t size
    const uint8_t* producer
    Py_ssize_t producer_size
    uint64_t sequence_id
    uint64_t publish_time
    int32_t properties           # how many
    const uint8_t* key
    Py_ssize_t key_size
    bint key_is_base64
    bint null_key
    const uint8_t* ordering_key
    Py_ssize_t ordering_key_size
    const uint8_t* schema_version
    Py_ssize_t schema_version_size
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

cdef struct Single:              # SingleMessageMetadata
    int32_t properties
    const uint8_t* key
    Py_ssize_t key_size
    bint key_is_base64
    bint null_key
    const uint8_t* ordering_key
    Py_ssize_t ordering_key_size
    int64_t payload_size         # -1 = absent
    bint compacted_out
    bint has_sequence_id
    uint64_t sequence_id
    uint64_t event_time
    bint null_value


cdef inline void skip_field(Reader* r, uint64_t tag) noexcept nogil:
    cdef uint64_t size
    cdef int depth
    if tag & 7 == 0:
        read_uvarint(r)
    elif tag & 7 == 1:
        read_span(r, 8)
    elif tag & 7 == 2:
        size = read_uvarint(r)
        if size > <uint64_t>(r.end - r.pos):
            reader_fail(r, FAULT_LENGTH, <Py_ssize_t>(size & 0x7FFFFFFF))
        else:
            read_span(r, <Py_ssize_t>size)
    elif tag & 7 == 5:
        read_span(r, 4)
    elif tag & 7 == 3:           # a group: obsolete, still legal as an unknown field
        depth = 1
        while depth and not r.fault:
            tag = read_uvarint(r)
            if r.fault:
                return
            if tag & 7 == 3:
                depth += 1
            elif tag & 7 == 4:
                depth -= 1
            else:
                skip_scalar(r, tag)
    else:
        reader_fail(r, FAULT_WIRE_TYPE, <Py_ssize_t>(tag & 7))


cdef inline void skip_scalar(Reader* r, uint64_t tag) noexcept nogil:
    cdef uint64_t size
    if tag & 7 == 0:
        read_uvarint(r)
    elif tag & 7 == 1:
        read_span(r, 8)
    elif tag & 7 == 2:
        size = read_uvarint(r)
        if size > <uint64_t>(r.end - r.pos):
            reader_fail(r, FAULT_LENGTH, <Py_ssize_t>(size & 0x7FFFFFFF))
        else:
            read_span(r, <Py_ssize_t>size)
    elif tag & 7 == 5:
        read_span(r, 4)
    else:
        reader_fail(r, FAULT_WIRE_TYPE, <Py_ssize_t>(tag & 7))


cdef inline const uint8_t* read_bytes(Reader* r, Py_ssize_t* size) noexcept nogil:
    """A length-delimited field; NULL and size 0 after a fault."""
    cdef uint64_t n = read_uvarint(r)
    if n > <uint64_t>(r.end - r.pos):
        reader_fail(r, FAULT_LENGTH, <Py_ssize_t>(n & 0x7FFFFFFF))
        size[0] = 0
        return NULL
    size[0] = <Py_ssize_t>n
    r.pos += n
    return r.pos - n


cdef inline void read_message_id(Reader* r, MessageHead* h) noexcept nogil:
    cdef Py_ssize_t size
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
    """``r`` spans a CommandMessage."""
    cdef uint64_t tag
    cdef Py_ssize_t size
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
    """The words of ack_set in a CommandMessage that was walked before; at most ACK_SET_WORDS."""
    cdef Reader r
    cdef Reader inner
    cdef uint64_t tag
    cdef Py_ssize_t n
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
    """``r`` spans a MessageMetadata; a fault or a missing required field is left in ``r``."""
    cdef uint64_t tag
    cdef Py_ssize_t size
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


cdef inline void read_single(Reader* r, const uint8_t* end, Single* s) noexcept nogil:
    """A SingleMessageMetadata from ``r.pos`` to ``end``, which the caller has checked."""
    cdef uint64_t tag
    cdef Py_ssize_t size
    cdef const uint8_t* block_end = r.end
    r.end = end
    s.properties = 0
    s.key = s.ordering_key = NULL
    s.key_size = s.ordering_key_size = 0
    s.key_is_base64 = s.null_key = s.compacted_out = s.has_sequence_id = s.null_value = False
    s.payload_size = -1
    s.event_time = s.sequence_id = 0
    while r.pos < end:
        tag = read_uvarint(r)
        if tag == 0x18:
            s.payload_size = <int32_t>read_uvarint(r)
        elif tag == 0x12:
            s.key = read_bytes(r, &s.key_size)
        elif tag == 0x40:
            s.sequence_id = read_uvarint(r)
            s.has_sequence_id = True
        elif tag == 0x28:
            s.event_time = read_uvarint(r)
        elif tag == 0x0A:
            read_bytes(r, &size)
            s.properties += 1
        elif tag == 0x20:
            s.compacted_out = read_uvarint(r) != 0
        elif tag == 0x30:
            s.key_is_base64 = read_uvarint(r) != 0
        elif tag == 0x3A:
            s.ordering_key = read_bytes(r, &s.ordering_key_size)
        elif tag == 0x48:
            s.null_value = read_uvarint(r) != 0
        elif tag == 0x50:
            s.null_key = read_uvarint(r) != 0
        else:
            skip_field(r, tag)
    if not r.fault:
        r.end = block_end
        if s.payload_size < 0:
            reader_fail(r, FAULT_MISSING, 3)
