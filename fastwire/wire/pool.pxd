cdef extern from "pool.h" nogil:
    ctypedef struct fw_pool:
        pass
    ctypedef struct fw_memory:
        int count
        void* block[16]
        int klass[16]
    const int FW_BLOCKS
    fw_pool* fw_pool_new(long long limit)
    void fw_pool_unref(fw_pool*)
    void fw_pool_trim(fw_pool*, long long keep)
    void* fw_take(fw_pool*, size_t size, int* klass)
    void fw_give(fw_pool*, void* memory, int klass)
    void fw_count(fw_pool*, long long size)
    void fw_pool_charge(fw_pool*, long long size)
    long long fw_pool_charged(fw_pool*)
    void fw_pool_receive(fw_pool*, long long size)
    long long fw_pool_receiving(fw_pool*)
    long long fw_pool_used(fw_pool*)
    long long fw_pool_peak(fw_pool*)
    long long fw_pool_limit(fw_pool*)
    long long fw_pool_kept(fw_pool*)
    fw_memory* fw_memory_new(fw_pool*)
    void fw_memory_ref(fw_memory*)
    void fw_memory_unref(fw_memory*)
    long long fw_memory_bytes(const fw_memory*)

cdef enum:                       # parts of the budget, for one entry of any system
    PAYLOAD_SHARE = 8            # its payload, as received and decompressed
    COLUMNS_SHARE = 4            # its rows in columns, headers included
    FRAME_SHARE = 4              # its bytes in a receive buffer, and any other frame
    OUTPUT_SHARE = 16            # what one connection decodes before the budget is checked
    LEAST_FRAME = 8 << 20        # independent of the budget: systems allow messages of 5 MiB by default
    MOST_PAYLOAD = 1 << 30       # independent of the budget: offsets of a column have 32 bits

cdef inline long long fw_most_payload(fw_pool* pool) noexcept nogil:
    return min(fw_pool_limit(pool) // PAYLOAD_SHARE, <long long>MOST_PAYLOAD)

cdef inline long long fw_most_frame(fw_pool* pool) noexcept nogil:
    return max(fw_pool_limit(pool) // FRAME_SHARE, <long long>LEAST_FRAME)


cdef class Pool:
    cdef fw_pool* pool


cdef class Charge:
    cdef Pool _pool
    cdef readonly long long size
    cdef void add(self, long long size) noexcept
