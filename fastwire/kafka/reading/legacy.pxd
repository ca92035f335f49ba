from libc.stdint cimport int64_t, uint8_t

from fastwire.columns.builder cimport Columns
from fastwire.kafka.reading.records cimport Known, RowPlace
from fastwire.wire.codecs cimport Decompressor

cdef bint is_sound(Decompressor codecs, const uint8_t* p, int64_t size) except -1
cdef int put_message(
    Columns* c, const RowPlace* place, Decompressor codecs, const uint8_t* p, int64_t size, int64_t* offsets,
    Known* known,
) except -1
