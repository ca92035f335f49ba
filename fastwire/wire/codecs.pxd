from libc.stdint cimport int64_t, uint8_t, uint32_t

from fastwire.wire.pool cimport Charge, Pool


cdef enum Codec:                 # numbers of fastwire; each system maps its own to them
    CODEC_NONE = 0
    CODEC_LZ4_BLOCK = 1
    CODEC_ZLIB = 2
    CODEC_ZSTD = 3
    CODEC_SNAPPY_RAW = 4
    CODEC_GZIP = 5
    CODEC_LZ4_FRAME = 6
    CODEC_SNAPPY_XERIAL = 7


cdef bint is_xerial(const uint8_t* data, Py_ssize_t size) noexcept nogil   # the framing of Java's snappy streams


cdef class Window:
    cdef uint8_t* at
    cdef Py_ssize_t size
    cdef bint readonly_


cdef class Decompressor:
    cdef Pool _pool
    cdef Window _input
    cdef Window _output
    cdef object _zstd
    cdef bint _crc_here          # this processor can do small sums itself
    cdef bytes _held             # what a codec returned as bytes, alive until the next call
    cdef Charge _held_charge     # of a large one, until ``shrink``
    cdef readonly int64_t most   # bytes that an entry may become
    cdef uint8_t* _scratch
    cdef int _scratch_class
    cdef int64_t _scratch_size
    cdef uint32_t crc32c(self, const uint8_t* data, Py_ssize_t size) except? 0xFFFFFFFE
    cdef const uint8_t* decompress(
        self, Codec codec, const uint8_t* data, Py_ssize_t size, int64_t out_size
    ) except NULL
    cdef const uint8_t* inflate(self, Codec codec, const uint8_t* data, Py_ssize_t size, int64_t* out_size) except NULL
    cdef uint32_t crc32(self, const uint8_t* data, Py_ssize_t size) except? 0xFFFFFFFE
    cdef const uint8_t* gzip_members(
        self, const uint8_t* data, Py_ssize_t size, int64_t most, int64_t* out_size
    ) except NULL
    cdef int64_t lz4_blocks(self, const uint8_t* data, Py_ssize_t size) except -2
    cdef object lz4_misfit(self, str detail, int64_t end)
    cdef int64_t snappy_size(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef int snappy_block(self, const uint8_t* data, Py_ssize_t size, int64_t at, int64_t announced) except -1
    cdef int64_t xerial(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef object too_large(self, int64_t size)
    cdef int reserve(self, int64_t size) except -1
    cdef void shrink(self) noexcept
    cdef void release(self) noexcept
