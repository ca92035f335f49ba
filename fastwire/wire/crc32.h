/* CRC-32 of IEEE: calling zlib from Python costs more than the sum of a small message.
 *
 * Where the processor has a multiplication without carries, 16 bytes are folded into the 16 that follow, or into those
 * that begin 64 bytes later: the product with x to the power of the distance in bits, modulo the polynomial, leaves the
 * remainder of the whole as it is. A last fold takes the bytes that are no 16, and Barrett's reduction makes 32 bits of
 * the 128 that remain. Other processors, and the shortest inputs, use tables.
 */
#ifndef FASTWIRE_CRC32_H
#define FASTWIRE_CRC32_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define FW_FOLD_FROM 16

static uint32_t fw_crc32_table[8][256];
static int fw_crc32_folds;

static uint32_t fw_crc32_on(uint32_t sum, const uint8_t *p, int64_t size)
{
    const uint32_t(*table)[256] = fw_crc32_table;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word = le64toh(word) ^ sum;
        sum = table[7][word & 0xFF] ^ table[6][word >> 8 & 0xFF] ^ table[5][word >> 16 & 0xFF]
            ^ table[4][word >> 24 & 0xFF] ^ table[3][word >> 32 & 0xFF] ^ table[2][word >> 40 & 0xFF]
            ^ table[1][word >> 48 & 0xFF] ^ table[0][word >> 56];
    }
    for (; size > 0; p++, size--)
        sum = sum >> 8 ^ table[0][(sum ^ *p) & 0xFF];
    return sum;
}

#if defined(__x86_64__) && !defined(FW_PORTABLE)
#include <immintrin.h>

static int fw_crc32_can_fold(void)
{
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("ssse3");
}

#define FW_FOLDING static inline __attribute__((target("pclmul,ssse3")))

/* A window of 16 of these, as the places of a shuffle, moves bytes: up by n from 16 - n on, down by n from 16 + n on.
 * A place of 0x80 and more gives 0. */
static const uint8_t fw_crc32_moves[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

FW_FOLDING __m128i fw_crc32_load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

FW_FOLDING __m128i fw_crc32_fold(__m128i front, __m128i by, __m128i next)
{
    const __m128i low = _mm_clmulepi64_si128(front, by, 0x00);
    const __m128i high = _mm_clmulepi64_si128(front, by, 0x11);
    return _mm_xor_si128(next, _mm_xor_si128(low, high));
}

/* The 32 bits that 128 come to. */
FW_FOLDING uint32_t fw_crc32_reduce(__m128i front, __m128i by_128)
{
    const __m128i by_64 = _mm_set_epi64x(0, 0x163CD6124);
    const __m128i barrett = _mm_set_epi64x(0x1F7011641, 0x1DB710641); /* the quotient of x^64, and the polynomial */
    const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
    __m128i part = _mm_clmulepi64_si128(front, by_128, 0x10);
    front = _mm_xor_si128(_mm_srli_si128(front, 8), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(front, low_32), by_64, 0x00);
    front = _mm_xor_si128(_mm_srli_si128(front, 4), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(front, low_32), barrett, 0x10);
    part = _mm_clmulepi64_si128(_mm_and_si128(part, low_32), barrett, 0x00);
    return (uint32_t)_mm_cvtsi128_si32(_mm_srli_si128(_mm_xor_si128(front, part), 4));
}

/* At least 16 bytes. The factors are x^(bits + 32) and x^(bits - 32) modulo the polynomial, reflected. */
FW_FOLDING uint32_t fw_crc32_folded(const uint8_t *p, int64_t size)
{
    const __m128i by_128 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    const __m128i by_512 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
    __m128i front = _mm_xor_si128(fw_crc32_load(p), _mm_cvtsi32_si128(-1));
    p += 16;
    size -= 16;
    if (size >= 112) { /* four at a time do not wait for each other */
        __m128i second = fw_crc32_load(p), third = fw_crc32_load(p + 16), fourth = fw_crc32_load(p + 32);
        for (p += 48, size -= 48; size >= 64; p += 64, size -= 64) {
            front = fw_crc32_fold(front, by_512, fw_crc32_load(p));
            second = fw_crc32_fold(second, by_512, fw_crc32_load(p + 16));
            third = fw_crc32_fold(third, by_512, fw_crc32_load(p + 32));
            fourth = fw_crc32_fold(fourth, by_512, fw_crc32_load(p + 48));
        }
        front = fw_crc32_fold(fw_crc32_fold(fw_crc32_fold(front, by_128, second), by_128, third), by_128, fourth);
    }
    for (; size >= 16; p += 16, size -= 16)
        front = fw_crc32_fold(front, by_128, fw_crc32_load(p));
    if (size) { /* fold as many bytes of the front into the rest of it and the last bytes */
        const __m128i up = fw_crc32_load(fw_crc32_moves + size);
        const __m128i down = fw_crc32_load(fw_crc32_moves + 16 + size);
        const __m128i behind = fw_crc32_load(p + size - 16); /* the last bytes, behind some that were summed up */
        const __m128i kept = _mm_shuffle_epi8(front, down);
        const __m128i last = _mm_and_si128(behind, _mm_cmplt_epi8(down, _mm_setzero_si128()));
        front = fw_crc32_fold(_mm_shuffle_epi8(front, up), by_128, _mm_or_si128(kept, last));
    }
    return fw_crc32_reduce(front, by_128);
}

#else

static int fw_crc32_can_fold(void)
{
    return 0;
}

static uint32_t fw_crc32_folded(const uint8_t *p, int64_t size)
{
    return fw_crc32_on(0xFFFFFFFFu, p, size);
}

#endif

/* To be called before the first sum. Calling it again does no harm. */
static void fw_crc32_prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t sum = i;
        for (int bit = 0; bit < 8; bit++)
            sum = sum & 1 ? sum >> 1 ^ 0xEDB88320u : sum >> 1;
        fw_crc32_table[0][i] = sum;
    }
    for (int step = 1; step < 8; step++)
        for (int i = 0; i < 256; i++) {
            uint32_t before = fw_crc32_table[step - 1][i];
            fw_crc32_table[step][i] = before >> 8 ^ fw_crc32_table[0][before & 0xFF];
        }
    fw_crc32_folds = fw_crc32_can_fold();
}

static uint32_t fw_crc32(const uint8_t *p, int64_t size)
{
    if (size >= FW_FOLD_FROM && fw_crc32_folds)
        return ~fw_crc32_folded(p, size);
    return ~fw_crc32_on(0xFFFFFFFFu, p, size);
}

#endif
