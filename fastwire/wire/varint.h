/* What the hot walkers are made of: always inlined, so that positions stay in registers.
 *
 * Unlike the sticky reader these give up on anything unusual without a word; the caller then walks again with the
 * reader, which knows every case and says what is wrong.
 */
#ifndef FASTWIRE_VARINT_H
#define FASTWIRE_VARINT_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define FW_ALWAYS static inline __attribute__((always_inline))
#define FW_LIKELY(x) __builtin_expect(!!(x), 1)

/* The 56 bits of eight bytes of a varint. */
FW_ALWAYS uint64_t fw_varint_pack(uint64_t word)
{
    word &= 0x7F7F7F7F7F7F7F7Fu;
    word = (word & 0x007F007F007F007Fu) | (word & 0x7F007F007F007F00u) >> 1;
    word = (word & 0x00003FFF00003FFFu) | (word & 0x3FFF00003FFF0000u) >> 2;
    return (word & 0x000000000FFFFFFFu) | (word & 0x0FFFFFFF00000000u) >> 4;
}

/* The varint of at most eight bytes at p, of which eight may be read; returns how many it has, 0 if it has more. */
FW_ALWAYS int fw_varint_word(const uint8_t *p, uint64_t *value)
{
    uint64_t word, stop;
    memcpy(&word, p, 8);
    word = le64toh(word);
    stop = ~word & 0x8080808080808080u;
    if (!stop)
        return 0;
    *value = fw_varint_pack(word & (stop ^ (stop - 1))); /* nothing behind the last byte */
    return (__builtin_ctzll(stop) >> 3) + 1;
}

/* The same for one of nine bytes too, such as ids that begin with the time; nine may be read. */
FW_ALWAYS int fw_varint_nine(const uint8_t *p, uint64_t *value)
{
    uint64_t word;
    int size = fw_varint_word(p, value);
    if (size || p[8] >= 0x80)
        return size;
    memcpy(&word, p, 8);
    *value = fw_varint_pack(le64toh(word)) | (uint64_t)p[8] << 56;
    return 9;
}

/* That of at most eight bytes, quicker where it has one byte or two. */
FW_ALWAYS int fw_varint_near(const uint8_t *p, uint64_t *value)
{
    if (FW_LIKELY(p[0] < 0x80)) {
        *value = p[0];
        return 1;
    }
    if (FW_LIKELY(p[1] < 0x80)) {
        *value = (uint64_t)(p[0] & 0x7F) | (uint64_t)p[1] << 7;
        return 2;
    }
    return fw_varint_word(p, value);
}

static __attribute__((noinline, unused)) const uint8_t *
fw_varint_long(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    uint64_t sum = 0;
    int size = end - p >= 9 ? fw_varint_nine(p, value) : end - p == 8 ? fw_varint_word(p, value) : 0;
    if (size)
        return p + size;
    for (int shift = 0; p < end; shift += 7) {
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1)
            return NULL;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = sum;
            return p;
        }
    }
    return NULL;
}

/* The varint at p; returns the byte behind it, or NULL if it is cut off or fits no 64-bit number. */
FW_ALWAYS const uint8_t *fw_varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    if (FW_LIKELY(end - p >= 2)) {
        if (p[0] < 0x80) {
            *value = p[0];
            return p + 1;
        }
        if (p[1] < 0x80) {
            *value = (uint64_t)(p[0] & 0x7F) | (uint64_t)p[1] << 7;
            return p + 2;
        }
    }
    return fw_varint_long(p, end, value);
}

/* The varint at p, of at most five bytes; returns the byte behind it, or NULL if it is cut off or fits no 32 bits. */
FW_ALWAYS const uint8_t *fw_varint32(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    const uint8_t *behind = fw_varint(p, end, value);
    return behind && behind - p <= 5 && *value >> 32 == 0 ? behind : NULL;
}

/* The length-delimited field at p; returns the byte behind it, or NULL if it is cut off. */
FW_ALWAYS const uint8_t *fw_bytes(const uint8_t *p, const uint8_t *end, const uint8_t **at, int64_t *size)
{
    uint64_t n;
    p = fw_varint(p, end, &n);
    if (!p || n > (uint64_t)(end - p))
        return NULL;
    *at = p;
    *size = (int64_t)n;
    return p + n;
}

FW_ALWAYS uint32_t fw_u32be(const uint8_t *p)
{
    uint32_t raw;
    memcpy(&raw, p, 4);
    return be32toh(raw);
}

FW_ALWAYS int64_t fw_i64be(const uint8_t *p)
{
    return (int64_t)((uint64_t)fw_u32be(p) << 32 | fw_u32be(p + 4));
}

FW_ALWAYS uint32_t fw_u32le(const uint8_t *p)
{
    uint32_t raw;
    memcpy(&raw, p, 4);
    return le32toh(raw);
}

FW_ALWAYS uint64_t fw_u64le(const uint8_t *p)
{
    return (uint64_t)fw_u32le(p + 4) << 32 | fw_u32le(p);
}

/* Copies in steps of FW_STEP bytes: both sides need FW_STEP - 1 bytes more than `size`. */
#define FW_STEP 32
FW_ALWAYS void fw_copy_steps(uint8_t *to, const uint8_t *from, int64_t size)
{
    do {
        memcpy(to, from, FW_STEP);
        to += FW_STEP;
        from += FW_STEP;
        size -= FW_STEP;
    } while (size > 0);
}

#endif
