from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from fastwire.kafka.reading.aborted cimport AbortedTransactions
from fastwire.kafka.reading.slot cimport SlotTable
from fastwire.wire.reader cimport Reader
from fastwire.wire.receive cimport ReceiveBuffer

cdef enum Phase:
    FRAME
    TOPIC
    PARTITION
    RECORDS
    PARTITION_END
    TOPIC_END
    BODY_END
    REST


cdef class ResponseWalk:
    cdef SlotTable slots
    cdef ReceiveBuffer buffer
    cdef Phase phase
    cdef int64_t frame_left
    cdef object planned
    cdef int version
    cdef bint flexible
    cdef bint committed
    cdef int32_t correlation
    cdef int32_t throttle
    cdef int16_t error
    cdef int32_t session_id
    cdef int64_t topics_left     # -1: the head of the response is next
    cdef int64_t partitions_left
    cdef dict partitions         # of the topic that is being read: partition -> (slot, session); None = not asked for
    cdef int64_t slot_index      # -1: not requested
    cdef int32_t session         # the session of the request
    cdef bint skip               # discard the rest of these records
    cdef bint batch_seen         # whole or not; the next batch is not the first of these records
    cdef bint sound_seen
    cdef object evidence         # Evidence of the batches since the last one that was taken; None = no doubt
    cdef int64_t records_left
    cdef AbortedTransactions aborted     # of this partition, where its records are read committed
    cdef int64_t received        # bytes of all records
    cdef int64_t unknown
    cdef list nodes
    cdef list answered           # slots
    cdef void begin(self, planned, int32_t correlation, int64_t size) noexcept
    cdef bint piece(self) except -1
    cdef object rest(self)
    cdef void pass_by(self, int64_t size) noexcept
    cdef int64_t read_count(self, Reader* r, int64_t least) noexcept
    cdef int read_aborted(self, Reader* r, int64_t count, bint keep) except -1
    cdef int skip_tags(self, Reader* r) noexcept
    cdef bint next_tag(self, Reader* r, uint64_t* left, uint64_t* tag, Reader* field) noexcept
    cdef int read_head(self, Reader* r) except -1
    cdef int read_topic(self, Reader* r) except -1
    cdef int read_partition(self, Reader* r) except -1
    cdef int read_partition_end(self, Reader* r) except -1
    cdef int read_body_end(self, Reader* r) except -1
