# cython: boundscheck=True, cdivision=True
"""Hashes of 128 bits of the keys of rows, a column after the other: SipHash-2-4, whose secret lets none be forged."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

__all__ = ["chain_cells", "chain_words"]

cdef extern from *:
    """
    #include <endian.h>
    #include <stdint.h>
    #include <string.h>

    #define FW_ROTATED(x, b) ((x) << (b) | (x) >> (64 - (b)))
    #define FW_ROUND \\
        v0 += v1; v1 = FW_ROTATED(v1, 13) ^ v0; v0 = FW_ROTATED(v0, 32); \\
        v2 += v3; v3 = FW_ROTATED(v3, 16) ^ v2; \\
        v0 += v3; v3 = FW_ROTATED(v3, 21) ^ v0; \\
        v2 += v1; v1 = FW_ROTATED(v1, 17) ^ v2; v2 = FW_ROTATED(v2, 32)
    #define FW_WORD(m) v3 ^= (m); FW_ROUND; FW_ROUND; v0 ^= (m)

    /* SipHash-2-4 of 128 bits of the 16 bytes of the hash and of those at p; replaces the hash. */
    static inline void fw_keyhash(uint64_t *hash, uint64_t k0, uint64_t k1, const uint8_t *p, uint64_t size)
    {
        uint64_t v0 = 0x736f6d6570736575u ^ k0, v1 = 0x646f72616e646f6du ^ k1 ^ 0xee;
        uint64_t v2 = 0x6c7967656e657261u ^ k0, v3 = 0x7465646279746573u ^ k1;
        uint64_t word, last = (size + 16) << 56, rest = size;
        FW_WORD(hash[0]);
        FW_WORD(hash[1]);
        for (; rest >= 8; rest -= 8, p += 8) {
            memcpy(&word, p, 8);
            word = le64toh(word);
            FW_WORD(word);
        }
        word = 0;
        memcpy(&word, p, rest);
        last |= le64toh(word);
        FW_WORD(last);
        v2 ^= 0xee;
        FW_ROUND; FW_ROUND; FW_ROUND; FW_ROUND;
        hash[0] = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        FW_ROUND; FW_ROUND; FW_ROUND; FW_ROUND;
        hash[1] = v0 ^ v1 ^ v2 ^ v3;
    }
    """
    void fw_keyhash(uint64_t* hash, uint64_t k0, uint64_t k1, const uint8_t* p, uint64_t size) noexcept nogil


cdef int read_secret(bytes secret, uint64_t* k) except -1:
    cdef const uint8_t* at = secret
    cdef int i
    if len(secret) != 16:
        raise ValueError("a secret has 16 bytes")
    k[0] = k[1] = 0
    for i in range(16):
        k[i // 8] |= <uint64_t>at[i] << 8 * (i % 8)
    return 0


def chain_words(uint64_t[:, ::1] hashes not None, bytes secret not None, const int64_t[::1] words not None):
    """Replace each row of ``hashes``, two words, by the hash of itself and the word of the row, in little endian."""
    cdef uint64_t k[2]
    cdef uint8_t cell[8]
    cdef int64_t row
    cdef int i
    read_secret(secret, k)
    if hashes.shape[1] != 2 or hashes.shape[0] != words.shape[0]:
        raise ValueError("hashes are two words for each row")
    for row in range(words.shape[0]):
        for i in range(8):
            cell[i] = <uint8_t>(<uint64_t>words[row] >> 8 * i)
        fw_keyhash(&hashes[row, 0], k[0], k[1], cell, 8)


def chain_cells(
    uint64_t[:, ::1] hashes not None,
    bytes secret not None,
    const int32_t[::1] offsets not None,
    const uint8_t[::1] data not None,
):
    """Replace each row of ``hashes``, two words, by the hash of itself and the bytes of the row.

    The bytes of row i are ``data[offsets[i]:offsets[i + 1]]``. Raises ValueError for offsets that do not fit.
    """
    cdef uint64_t k[2]
    cdef int64_t row, rows = hashes.shape[0]
    cdef const uint8_t* first = &data[0] if data.shape[0] else <const uint8_t*>k
    read_secret(secret, k)
    if hashes.shape[1] != 2 or offsets.shape[0] != rows + 1:
        raise ValueError("hashes are two words for each row, and there is an offset more than rows")
    for row in range(rows):
        if not 0 <= offsets[row] <= offsets[row + 1] <= data.shape[0]:
            raise ValueError(f"row {row} is not within the data")
        fw_keyhash(&hashes[row, 0], k[0], k[1], first + offsets[row], <uint64_t>(offsets[row + 1] - offsets[row]))
