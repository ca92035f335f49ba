/* CRC-32C of small entries by the processor's own instruction: calling the package costs ten times the sum of 100 bytes.
 *
 * One stream of 8 bytes a step; above FW_CRC_SMALL the package, which runs three at once, is as fast, call included.
 * Where the processor has no such instruction fw_crc32c_here is 0 and the package does everything.
 */
#ifndef FASTWIRE_CRC_H
#define FASTWIRE_CRC_H

#include <stdint.h>
#include <string.h>

#define FW_CRC_SMALL 1280

#if defined(__x86_64__) && !defined(FW_PORTABLE)
#include <nmmintrin.h>

static int fw_crc32c_here(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

static __attribute__((target("sse4.2"))) uint32_t fw_crc32c(const uint8_t *p, int64_t size)
{
    uint64_t sum = 0xFFFFFFFFu;
    uint64_t word;
    for (; size >= 8; p += 8, size -= 8) {
        memcpy(&word, p, 8);
        sum = _mm_crc32_u64(sum, word);
    }
    for (; size > 0; p++, size--)
        sum = _mm_crc32_u8((uint32_t)sum, *p);
    return ~(uint32_t)sum;
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32) && !defined(FW_PORTABLE)
#include <arm_acle.h>

static int fw_crc32c_here(void)
{
    return 1;
}

static uint32_t fw_crc32c(const uint8_t *p, int64_t size)
{
    uint32_t sum = 0xFFFFFFFFu;
    uint64_t word;
    for (; size >= 8; p += 8, size -= 8) {
        memcpy(&word, p, 8);
        sum = __crc32cd(sum, word);
    }
    for (; size > 0; p++, size--)
        sum = __crc32cb(sum, *p);
    return ~sum;
}

#else

static int fw_crc32c_here(void)
{
    return 0;
}

static uint32_t fw_crc32c(const uint8_t *p, int64_t size)
{
    (void)p;
    (void)size;
    return 0;
}

#endif
#endif
