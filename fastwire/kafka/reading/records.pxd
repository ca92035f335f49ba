from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from fastwire.columns.builder cimport Columns
from fastwire.wire.codecs cimport CODEC_GZIP, Codec
from fastwire.wire.reader cimport Reader

cdef enum:
    BATCH_HEAD = 61              # bytes of a batch up to its records
    MAGIC_AT = 16
    SMALLEST_BATCH = 49          # what the length field of an empty batch says

cdef enum:                       # attributes of a batch
    CODEC_MASK = 7
    LOG_APPEND_TIME = 8
    TRANSACTIONAL = 16
    CONTROL = 32

cdef enum:                       # what a decoder says of a batch
    DECODED = 0
    DAMAGED = 1
    NO_MEMORY = 2

cdef struct BatchHead:
    int64_t base_offset
    int64_t size                 # of the whole batch
    int32_t leader_epoch
    uint8_t magic
    int16_t attributes
    int64_t offsets              # from the first to behind the last one, also where compaction took that one away
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t count

cdef struct RowPlace:            # where the rows of a batch belong
    int64_t offset               # records before this one are not wanted
    int64_t until                # nor this one and those behind it
    int32_t topic
    int32_t partition

cdef struct Known:               # what tells a record from another one of its offset
    int64_t milli                # its timestamp, -1 without
    const uint8_t* key           # NULL = null
    int64_t key_size
    const uint8_t* value         # NULL = null
    int64_t value_size

cdef Codec codec_of(int attributes, const uint8_t* data, int64_t size) except? CODEC_GZIP
cdef int64_t announced(bytes payload)
cdef void read_batch_head(const uint8_t* p, BatchHead* head) noexcept nogil
cdef int put_records(
    Columns* c, const BatchHead* head, const RowPlace* place, Reader* r, const uint8_t** last
) noexcept nogil
cdef bint find_record(
    const BatchHead* head, int64_t delta, const uint8_t* p, const uint8_t* end, Known* known
) noexcept nogil
cdef int put_row(
    Columns* c, const RowPlace* place, int64_t offset, int64_t milli, int32_t milli_type,
    const uint8_t* key, int64_t key_size, const uint8_t* value, int64_t value_size, const uint8_t* edge,
) noexcept nogil
cdef int32_t control_type(const uint8_t* p, const uint8_t* end) noexcept nogil
