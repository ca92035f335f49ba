from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from fastwire.columns.builder cimport Columns
from fastwire.pulsar.format.metadata cimport Metadata
from fastwire.wire.reader cimport Reader


cdef struct EntryPlace:          # what all rows of an entry share
    int64_t ledger
    int64_t entry
    int32_t topic
    int32_t partition
    int32_t redelivery_count
    const uint64_t* ack_set      # NULL = deliver every element
    int32_t ack_words

cdef enum:
    DECODED = 0
    DAMAGED = -1                 # the reader tells where
    NO_MEMORY = -2
    NOT_UTF8 = -3

cdef int decode_entry(
    Columns* c, const Metadata* m, const EntryPlace* place, Reader* r
) noexcept nogil
