from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.builder cimport Columns
from fastwire.tubemq.reading.slot cimport Slot
from fastwire.wire.reader cimport Reader

cdef enum:                       # results of put_message
    DECODED = 0
    NO_MEMORY = 1
    FILTERED = 2
    DAMAGED = 3                  # malformed
    BAD_CHECKSUM = 4

cdef enum:
    FIELD_MESSAGE = 34           # tag of a message in a GetMessageResponseB2C

cdef struct Get:                 # GetMessageResponseB2C without its messages
    int32_t code
    const uint8_t* text
    int64_t text_size
    int64_t first                # where the first field of a message is; 0 without any
    int64_t messages
    int64_t offset
    int32_t min_limit_ms
    bint escaped
    int64_t lag_bytes
    bint require_slow
    int64_t max_offset

cdef struct Run:                 # messages that ``put_plain`` takes
    const uint8_t* at            # the field of the next one
    int64_t rows                 # how many: at most so many when it is called
    int64_t nbytes               # of messages: no more once there are so many
    int64_t room                 # bytes of values that the chunk may still take
    const uint8_t* last          # the last one that was taken,
    int64_t last_size            # and its bytes

cdef void read_get(Reader* r, Get* g) noexcept nogil
cdef int64_t message_id(const uint8_t* p, const uint8_t* end) noexcept nogil
cdef int put_message(
    Columns* c, const Slot* slot, int64_t offset, int64_t index, int64_t zone_us, const uint8_t* p, const uint8_t* end,
    const uint8_t* edge
) noexcept nogil
cdef void put_plain(
    Columns* c, const Slot* slot, int64_t offset, int64_t index, const uint8_t* end, const uint8_t* edge, Run* run
) noexcept nogil
