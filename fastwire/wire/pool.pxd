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
    void fw_pool_charge(fw_pool*, long long size)
    long long fw_pool_charged(fw_pool*)
    long long fw_pool_used(fw_pool*)
    long long fw_pool_peak(fw_pool*)
    long long fw_pool_limit(fw_pool*)
    long long fw_pool_kept(fw_pool*)
    fw_memory* fw_memory_new(fw_pool*)
    void fw_memory_ref(fw_memory*)
    void fw_memory_unref(fw_memory*)
    long long fw_memory_bytes(const fw_memory*)


cdef class Pool:
    cdef fw_pool* pool
