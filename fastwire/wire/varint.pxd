from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "varint.h" nogil:
    const int FW_STEP
    const uint8_t* fw_varint(const uint8_t* p, const uint8_t* end, uint64_t* value)
    const uint8_t* fw_varint32(const uint8_t* p, const uint8_t* end, uint64_t* value)
    int fw_varint_word(const uint8_t* p, uint64_t* value)
    int fw_varint_nine(const uint8_t* p, uint64_t* value)
    int fw_varint_near(const uint8_t* p, uint64_t* value)
    const uint8_t* fw_bytes(const uint8_t* p, const uint8_t* end, const uint8_t** at, int64_t* size)
    uint32_t fw_u32be(const uint8_t* p)
    int64_t fw_i64be(const uint8_t* p)
    uint32_t fw_u32le(const uint8_t* p)
    uint64_t fw_u64le(const uint8_t* p)
    void fw_copy_steps(uint8_t* to, const uint8_t* source, int64_t size)
