from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from fastwire.columns.builder cimport Columns
from fastwire.wire.reader cimport Reader

cdef enum:
    MOST_HEAD = 19               # bytes of a bundle's header: flags, count, first sequence, distance to the last one
    CODEC_MASK = 0x03
    SNAPPY = 1
    EXTRA_FLAGS = 0x80

cdef enum:                       # what a decoder says of a bundle
    DECODED = 0
    DAMAGED = 1
    NO_MEMORY = 2

cdef struct BundleHead:
    int size                     # bytes of the header
    uint8_t flags
    bint sparse
    int64_t count
    int64_t first
    int64_t last

cdef struct RowPlace:            # where the rows of a bundle belong
    int64_t wanted               # messages before this sequence
    int64_t highest              # and after this one are dropped
    int32_t topic
    int32_t partition

cdef bint read_bundle_head(const uint8_t* p, int64_t size, int64_t base, BundleHead* head) noexcept nogil
cdef struct Walk:                # the place in a message set
    const uint8_t* at
    int64_t index                # of the next message
    int64_t sequence             # of the message before it,
    int64_t micro                # its timestamp,
    uint64_t time                # as it was sent
    int64_t known                # sequence of the last message that may be read, -1 without one,
    uint64_t known_time          # its timestamp as it was sent, its key and its value
    const uint8_t* key
    int64_t key_size
    const uint8_t* value
    int64_t value_size

cdef int put_messages(Columns* c, const BundleHead* head, const RowPlace* place, Walk* walk, Reader* r) noexcept nogil
cdef bint find_message(
    Columns* c, const BundleHead* head, int64_t sequence, Walk* walk, const uint8_t* p, const uint8_t* end
) noexcept nogil
