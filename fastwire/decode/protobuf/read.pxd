"""The walker of Protobuf's encoding. See ``protoread.pyx``."""

from libc.stdint cimport int64_t

from fastwire.decode.decoded cimport Reason, Records

cdef Reason run(void* context, Records* records, int64_t most) noexcept nogil
