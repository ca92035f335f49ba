/* CRC-32 of IEEE, eight bytes a step: calling zlib from Python costs more than the sum of a small message. */
#ifndef FASTWIRE_CRC32_H
#define FASTWIRE_CRC32_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static uint32_t fw_crc32_table[8][256];

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
}

static uint32_t fw_crc32(const uint8_t *p, int64_t size)
{
    const uint32_t(*table)[256] = fw_crc32_table;
    uint32_t sum = 0xFFFFFFFFu;
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
    return ~sum;
}

#endif
