"""Messages of magic 0 and 1, as brokers before 0.11 stored them (spec: kafka 7).

::

    i64 offset | i32 size of what follows | u32 crc | i8 magic | i8 attributes | i64 timestamp, magic 1 only
    i32 key size, key | i32 value size, value                    -1 = null

A compressed one is a wrapper: its value is a set of messages, and its offset that of the last of them.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.builder cimport Columns
from fastwire.kafka.reading.records cimport CODEC_MASK, LOG_APPEND_TIME, NO_MEMORY, Known, RowPlace, put_row
from fastwire.wire.codecs cimport (
    CODEC_GZIP,
    CODEC_LZ4_FRAME,
    CODEC_SNAPPY_RAW,
    CODEC_SNAPPY_XERIAL,
    Codec,
    Decompressor,
    is_xerial,
)
from fastwire.wire.lz4 cimport lz4_descriptor_sum
from fastwire.wire.varint cimport fw_i64be, fw_u32be

from fastwire.errors import CorruptEntryError
from fastwire.reason import Reason

cdef enum:
    SET_HEAD = 12                # offset and size, which checksum and size do not cover


cdef struct Message:
    int64_t offset
    int64_t size                 # whole, with the head
    uint8_t magic
    uint8_t attributes
    int64_t milli
    const uint8_t* key
    int64_t key_size
    const uint8_t* value
    int64_t value_size


cdef bint read_message(const uint8_t* p, int64_t size, Message* m) noexcept nogil:
    """Read the message at ``p``; return False if it is truncated or inconsistent."""
    cdef const uint8_t* end
    if size < 26:
        return False
    m.offset = fw_i64be(p)
    m.size = SET_HEAD + <int64_t><int32_t>fw_u32be(p + 8)
    m.magic = p[16]
    m.attributes = p[17]
    if m.size > size or m.magic > 1 or m.size < (34 if m.magic else 26):
        return False
    end = p + m.size
    m.milli = fw_i64be(p + 18) if m.magic else -1
    p += 26 if m.magic else 18
    m.key_size = <int32_t>fw_u32be(p)
    p += 4
    if m.key_size < -1 or m.key_size > end - p - 4:
        return False
    m.key = p
    p += m.key_size if m.key_size > 0 else 0
    m.value_size = <int32_t>fw_u32be(p)
    p += 4
    m.value = p
    return -1 <= m.value_size <= end - p


cdef bytes corrected(const uint8_t* p, int64_t size):
    """Return a copy of an LZ4 frame with a correct header checksum: old clients included the magic in it."""
    cdef bytes copy = PyBytes_FromStringAndSize(<const char*>p, size)
    cdef uint8_t* at = <uint8_t*><char*>copy
    cdef int64_t descriptor
    if size >= 7:
        descriptor = 2 + (8 if at[4] & 0x08 else 0) + (4 if at[4] & 0x01 else 0)
        if size > 4 + descriptor:
            at[4 + descriptor] = <uint8_t>lz4_descriptor_sum(at + 4, descriptor)
    return copy


cdef int put_inner(
    Columns* c, const RowPlace* place, const Message* outer, const uint8_t* p, int64_t size, int64_t* offsets,
    Known* known,
) except -1:
    """The messages of a wrapper. Their offsets are absolute in magic 0, relative to the first one in magic 1.

    ``offsets`` gets the first one and the one behind the last.
    """
    cdef Message m
    cdef int64_t at = 0
    cdef int64_t last = -1
    cdef int64_t base = 0
    cdef int64_t offset
    cdef int64_t milli
    while at < size:
        if not read_message(p + at, size - at, &m) or m.attributes & CODEC_MASK or m.magic != outer.magic:
            raise CorruptEntryError(Reason.MESSAGE, "a message inside a compressed one cannot be read")
        last = m.offset
        at += m.size
    if at == 0:
        raise CorruptEntryError(Reason.MESSAGE, "a compressed message holds none")
    if outer.magic and outer.offset:
        if last < 0 or last > outer.offset:
            raise CorruptEntryError(Reason.MESSAGE, f"message {last} of a compressed one at offset {outer.offset}")
        base = outer.offset - last
    last = -1
    at = 0
    while at < size:
        read_message(p + at, size - at, &m)
        at += m.size
        if m.offset <= last or m.offset > 0x7FFFFFFFFFFFFFFF - base - 1:
            raise CorruptEntryError(Reason.MESSAGE, "offsets of a compressed message do not ascend")
        last = m.offset
        offset = base + m.offset
        if at == m.size:
            offsets[0] = offset
        offsets[1] = offset + 1
        milli = outer.milli if outer.attributes & LOG_APPEND_TIME else m.milli
        know(known, &m, milli)
        if offset < place.offset or offset >= place.until:
            continue
        if put_row(
            c, place, offset, milli, time_type(outer), m.key, m.key_size, m.value, m.value_size, p + size
        ) == NO_MEMORY:
            raise no_room(c)
    return 0


cdef void know(Known* known, const Message* m, int64_t milli) noexcept nogil:
    known.milli = milli
    known.key = m.key if m.key_size >= 0 else NULL
    known.key_size = m.key_size
    known.value = m.value if m.value_size >= 0 else NULL
    known.value_size = m.value_size


cdef object no_room(const Columns* c):
    """Return the error of a row without room; the scanner, which knows the limit, replaces its text."""
    return CorruptEntryError(Reason.TOO_LARGE, "") if c.over else MemoryError()


cdef int32_t time_type(const Message* m) noexcept nogil:
    return 1 if m.magic and m.attributes & LOG_APPEND_TIME else 0


cdef bint is_sound(Decompressor codecs, const uint8_t* p, int64_t size) except -1:
    """Return whether the checksum of a stored message of ``size`` bytes is right."""
    cdef Message m
    if not read_message(p, size, &m) or m.offset < 0 or m.offset == 0x7FFFFFFFFFFFFFFF:
        return False
    return codecs.crc32(p + 16, m.size - 16) == fw_u32be(p + 12)


cdef int put_message(
    Columns* c, const RowPlace* place, Decompressor codecs, const uint8_t* p, int64_t size, int64_t* offsets,
    Known* known,
) except -1:
    """The rows of one stored message, which ``is_sound``. CorruptEntryError: the caller rewinds the columns.

    ``offsets`` gets the first one and the one behind the last. ``known`` becomes what the last one is known by; its
    bytes are gone with ``codecs.shrink``.
    """
    cdef Message m
    cdef int64_t made = 0
    cdef const uint8_t* data
    cdef const uint8_t* held
    cdef Codec codec
    cdef bytes copy
    read_message(p, size, &m)
    offsets[0] = m.offset
    offsets[1] = m.offset + 1
    if not m.attributes & CODEC_MASK:
        know(known, &m, m.milli)
        if place.offset <= m.offset < place.until and put_row(
            c, place, m.offset, m.milli, time_type(&m), m.key, m.key_size, m.value, m.value_size, p + m.size
        ) == NO_MEMORY:
            raise no_room(c)
        return 0
    if m.value_size < 0:
        raise CorruptEntryError(Reason.MESSAGE, "a compressed message without a value")
    data = m.value
    copy = None
    if m.attributes & CODEC_MASK == 1:
        codec = CODEC_GZIP
    elif m.attributes & CODEC_MASK == 2:
        codec = CODEC_SNAPPY_XERIAL if is_xerial(data, m.value_size) else CODEC_SNAPPY_RAW
    elif m.attributes & CODEC_MASK == 3:
        codec = CODEC_LZ4_FRAME
        if m.magic == 0:
            copy = corrected(data, m.value_size)
            data = <const uint8_t*><const char*>copy
    else:
        raise CorruptEntryError(Reason.MESSAGE, f"codec {m.attributes & CODEC_MASK} in an older format")
    held = codecs.inflate(codec, data, m.value_size, &made)
    put_inner(c, place, &m, held, made, offsets, known)
    return 0
