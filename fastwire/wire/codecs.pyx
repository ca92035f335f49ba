"""CRC and decompression of entries, with limits on the memory that a peer can make this process allocate.

The decompressed size is checked against the announced size, and the announced size against the most that the compressed
bytes can expand to: nothing is allocated on the word of a peer alone.
"""

import zlib

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from fastwire.wire.lz4 cimport lz4_end, lz4_independent, u32le
from fastwire.wire.pool cimport Charge, Pool, fw_give, fw_most_payload, fw_take
from fastwire.wire.varint cimport fw_u32be, fw_varint

from cramjam import DecompressionError
from cramjam import gzip as _gzip
from cramjam import lz4 as _lz4
from cramjam import snappy as _snappy
from cramjam import zstd as _zstd
from crc32c import crc32c as _crc32c
from zstandard import ZstdDecompressor, ZstdError

from fastwire.errors import CorruptEntryError
from fastwire.reason import Reason

cdef extern from "crc.h" nogil:
    const int FW_CRC_SMALL
    bint fw_crc32c_here()
    uint32_t fw_crc32c(const uint8_t* data, int64_t size)

cdef enum:
    LZ4_RATIO = 255              # a run of 255 bytes for every length byte
    ZLIB_RATIO = 1032            # 258 bytes from 2 bits
    SNAPPY_RATIO = 32            # a copy of 64 bytes takes 2 to 3 bytes
    ZSTD_RATIO = 32_768          # a block of 128 KiB that repeats one byte takes 4
    FIRST_RATIO = 6              # the first guess without an announced size
    FIRST_SCRATCH = 65_536
    XERIAL_HEAD = 16             # magic, version and compatible version
    SCRATCH_KEPT = 4 << 20       # a larger scratch is released after the entry

cdef const char* XERIAL = b"\x82SNAPPY\0"


cdef int64_t zstd_content_size(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Return the content size in a zstd frame header (RFC 8878, 3.1.1.1): -1 = absent, -2 = not a valid header."""
    cdef int flag, width, at, i
    cdef uint64_t value = 0
    if size < 6 or data[0] != 0x28 or data[1] != 0xB5 or data[2] != 0x2F or data[3] != 0xFD:
        return -2
    flag = data[4] >> 6
    width = 1 << flag if flag else (1 if data[4] & 0x20 else 0)
    if width == 0:
        return -1
    at = 5 + (0 if data[4] & 0x20 else 1) + ((1 << (data[4] & 3)) >> 1)
    if size < at + width:
        return -2
    for i in range(width):
        value |= <uint64_t>data[at + i] << (8 * i)
    return <int64_t>(value + 256 if width == 2 else value)


cdef bint is_xerial(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    return size >= XERIAL_HEAD and memcmp(data, XERIAL, 8) == 0


@cython.final
cdef class Window:
    """A buffer over borrowed memory; it moves from call to call, so that no view is created per entry."""

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.readonly_ and flags & PyBUF_WRITABLE:
            raise BufferError("this window is read-only")
        PyBuffer_FillInfo(view, self, self.at, self.size, self.readonly_, flags)

    def __releasebuffer__(self, Py_buffer* view):
        pass


@cython.final
@cython.no_gc                    # __dealloc__ needs the pool, which a collector could clear first; no cycle is possible
cdef class Decompressor:
    """Checks CRC-32C and decompresses whole entries into a scratch buffer that is reused.

    Brokers limit the compressed size only; the decompressed size is limited here, to a part of the pool's budget.
    """

    def __cinit__(self, Pool pool not None):
        self._pool = pool
        self.most = fw_most_payload(pool.pool)
        self._input = Window()
        self._input.readonly_ = True
        self._output = Window()
        self._crc_here = fw_crc32c_here()
        # A new context costs four times the decompression of a small frame.
        self._zstd = ZstdDecompressor()

    def __dealloc__(self):
        self.release()

    cdef uint32_t crc32c(self, const uint8_t* data, Py_ssize_t size) except? 0xFFFFFFFE:
        if size <= FW_CRC_SMALL and self._crc_here:
            return fw_crc32c(data, size)
        self._input.at = <uint8_t*>data
        self._input.size = size
        # 0: keep the interpreter lock; to reacquire it costs more than the CRC of any entry.
        return _crc32c(self._input, 0, 0)

    cdef object too_large(self, int64_t size):
        """Return the error for an entry that expands to ``size`` bytes; 0 = unknown."""
        return CorruptEntryError(
            Reason.TOO_LARGE,
            f"decompresses to {size if size else 'more'} bytes, and one entry may to {self.most}, "
            "an eighth of the memory budget: more memory (daemon.memory) lets it pass",
        )

    cdef int reserve(self, int64_t size) except -1:
        """Make the scratch hold ``size`` bytes; its content is lost."""
        cdef int klass = 0
        cdef void* at
        if size <= self._scratch_size:
            return 0
        self.release()
        at = fw_take(self._pool.pool, <size_t>size, &klass)
        if at is NULL:
            raise MemoryError()
        self._scratch = <uint8_t*>at
        self._scratch_class = klass
        self._scratch_size = <int64_t>1 << klass
        return 0

    cdef void shrink(self) noexcept:
        """Release the memory that one large entry needed."""
        self._held = None
        self._held_charge = None
        if self._scratch_size > SCRATCH_KEPT:
            self.release()

    cdef void release(self) noexcept:
        """Release the scratch; the next entry takes it again."""
        if self._scratch is not NULL:
            fw_give(self._pool.pool, self._scratch, self._scratch_class)
            self._scratch = NULL
            self._scratch_size = 0

    cdef const uint8_t* decompress(
        self, Codec codec, const uint8_t* data, Py_ssize_t size, int64_t out_size
    ) except NULL:
        """Return ``out_size`` decompressed bytes, valid until the next call. Raises CorruptEntryError with Pulsar's
        reasons.
        """
        cdef int64_t ratio = 0
        cdef int64_t said
        cdef Py_ssize_t got
        if codec == CODEC_LZ4_BLOCK:
            ratio = LZ4_RATIO
        elif codec == CODEC_ZLIB:
            ratio = ZLIB_RATIO
        elif codec == CODEC_SNAPPY_RAW:
            ratio = SNAPPY_RATIO
        elif codec == CODEC_ZSTD:
            ratio = ZSTD_RATIO
        if ratio and out_size > (size + 16) * ratio:
            raise CorruptEntryError(
                Reason.SIZE, f"announces {out_size} bytes, {size} compressed ones cannot become that"
            )
        if ratio and out_size > self.most:
            raise self.too_large(out_size)
        self._input.at = <uint8_t*>data
        self._input.size = size
        try:
            if codec == CODEC_LZ4_BLOCK or codec == CODEC_SNAPPY_RAW:
                self.reserve(out_size if out_size else 1)
                self._output.at = self._scratch
                self._output.size = out_size
                if codec == CODEC_LZ4_BLOCK:
                    got = _lz4.decompress_block_into(self._input, self._output, output_len=out_size)
                else:
                    got = _snappy.decompress_raw_into(self._input, self._output)
                if got != out_size:
                    raise CorruptEntryError(Reason.DECOMPRESSION, f"gave {got} bytes, {out_size} were announced")
                return self._scratch
            if out_size > SCRATCH_KEPT:
                self._held_charge = Charge(self._pool)
                self._held_charge.add(out_size)
            if codec == CODEC_ZSTD:
                # The package allocates the size in the frame header, even above the limit it is given.
                said = zstd_content_size(data, size)
                if said != -1 and said != out_size:
                    raise CorruptEntryError(Reason.DECOMPRESSION, f"no zstd frame of {out_size} bytes")
                self._held = self._zstd.decompress(
                    self._input, max_output_size=out_size, allow_extra_data=False, read_across_frames=False
                )
            elif codec == CODEC_ZLIB:
                # Java ends its streams with a sync flush: no final block, no Adler-32 (spec: pulsar 9).
                stream = zlib.decompressobj()
                self._held = stream.decompress(self._input, out_size + 1)
                if stream.unused_data:
                    raise CorruptEntryError(
                        Reason.DECOMPRESSION, f"{len(stream.unused_data)} bytes behind the end of the zlib stream"
                    )
            else:
                raise CorruptEntryError(Reason.DECOMPRESSION, f"unknown codec {codec}")
        except CorruptEntryError:
            raise
        except (DecompressionError, ZstdError, zlib.error) as exc:
            raise CorruptEntryError(Reason.DECOMPRESSION, str(exc)) from None
        if len(self._held) != out_size:
            raise CorruptEntryError(Reason.DECOMPRESSION, f"gave {len(self._held)} bytes, {out_size} were announced")
        return <const uint8_t*><char*>self._held

    cdef uint32_t crc32(self, const uint8_t* data, Py_ssize_t size) except? 0xFFFFFFFE:
        """Return CRC-32 of IEEE, the checksum of older formats."""
        self._input.at = <uint8_t*>data
        self._input.size = size
        return zlib.crc32(self._input)

    cdef const uint8_t* inflate(
        self, Codec codec, const uint8_t* data, Py_ssize_t size, int64_t* out_size
    ) except NULL:
        """Decompress ``data`` of unknown decompressed size; the result is valid until the next call.

        The scratch grows up to ``most`` and to the greatest expansion of the codec. Raises CorruptEntryError as
        ``decompress`` does.
        """
        cdef int64_t most, room
        cdef object module
        if codec == CODEC_SNAPPY_RAW or codec == CODEC_SNAPPY_XERIAL:
            if codec == CODEC_SNAPPY_XERIAL:
                out_size[0] = self.xerial(data, size)
            else:
                out_size[0] = self.snappy_size(data, size)
                self.reserve(max(out_size[0], FIRST_SCRATCH))
                self.snappy_block(data, size, 0, out_size[0])
            return self._scratch
        if codec == CODEC_LZ4_FRAME:
            size = lz4_end(data, size)       # Java's clients read no further than the end mark (spec: kafka 8)
            out_size[0] = self.lz4_blocks(data, size)
            if out_size[0] >= 0:
                return self._scratch
        if codec == CODEC_GZIP:
            module, most = _gzip, ZLIB_RATIO
        elif codec == CODEC_LZ4_FRAME:
            module, most = _lz4, LZ4_RATIO
        elif codec == CODEC_ZSTD:
            module, most = _zstd, ZSTD_RATIO
        else:
            raise CorruptEntryError(Reason.DECOMPRESSION, f"unknown codec {codec}")
        most = min((size + 16) * most, self.most)
        room = max(size * FIRST_RATIO, FIRST_SCRATCH, self._scratch_size)
        while True:
            room = min(room, most)
            self.reserve(room)
            self._input.at = <uint8_t*>data
            self._input.size = size
            self._output.at = self._scratch
            self._output.size = min(self._scratch_size, most)
            try:
                out_size[0] = module.decompress_into(self._input, self._output)
                return self._scratch
            except DecompressionError as exc:
                if "write whole buffer" not in str(exc):
                    if codec == CODEC_GZIP:
                        return self.gzip_members(data, size, most, out_size)
                    raise CorruptEntryError(Reason.DECOMPRESSION, str(exc)) from None
            if self._output.size >= most:
                if most == self.most:
                    raise self.too_large(0)
                raise CorruptEntryError(Reason.SIZE, f"becomes more than {most} bytes")
            room = self._output.size * 4

    cdef const uint8_t* gzip_members(
        self, const uint8_t* data, Py_ssize_t size, int64_t most, int64_t* out_size
    ) except NULL:
        """Decompress the members of a gzip stream that other bytes follow: Java's clients read it to their end
        (spec: kafka 8).
        """
        cdef list parts = []
        cdef int64_t made = 0
        cdef Py_ssize_t at = 0
        self._held_charge = Charge(self._pool)
        while at == 0 or (size - at >= 2 and data[at] == 0x1F and data[at + 1] == 0x8B):
            self._input.at = <uint8_t*>data + at
            self._input.size = size - at
            stream = zlib.decompressobj(wbits=31)
            try:
                part = stream.decompress(self._input, most - made + 1)
            except zlib.error as exc:
                raise CorruptEntryError(Reason.DECOMPRESSION, str(exc)) from None
            parts.append(part)
            made += len(part)
            self._held_charge.add(len(part))
            if made > most:
                raise self.too_large(0)
            if not stream.eof:
                raise CorruptEntryError(Reason.DECOMPRESSION, "a gzip stream ends early")
            at = size - len(stream.unused_data)
        self._held = parts[0] if len(parts) == 1 else b"".join(parts)
        out_size[0] = made
        return <const uint8_t*><char*>self._held

    cdef int64_t lz4_blocks(self, const uint8_t* data, Py_ssize_t size) except -2:
        """Decompress the blocks of a frame as Kafka's own clients write it, each straight to its place; return the
        size.

        Returns -1 for any other frame: the package decodes all kinds, with one more copy and in twice the time.
        """
        cdef int64_t made = 0
        cdef int64_t block = 0
        cdef int64_t most = 0
        cdef int64_t stored
        cdef Py_ssize_t head = lz4_independent(data, size, &block)
        cdef Py_ssize_t at = head
        if head == 0:
            return -1
        while True:
            if size - at < 4:
                raise CorruptEntryError(Reason.DECOMPRESSION, "an LZ4 frame ends inside a block's size")
            stored = u32le(data + at) & 0x7FFFFFFF
            at += 4
            if stored > size - at:
                raise CorruptEntryError(Reason.DECOMPRESSION, f"an LZ4 block of {stored} bytes, {size - at} present")
            if u32le(data + at - 4) == 0:
                break
            at += stored
            most += block
        if at != size:
            return -1                        # another frame follows
        most = min(most, (size + 16) * LZ4_RATIO, self.most)
        self.reserve(most if most else 1)
        at = head
        while at < size - 4:
            stored = u32le(data + at) & 0x7FFFFFFF
            block = min(block, most - made)
            if data[at + 3] & 0x80:
                if stored > block:
                    raise self.lz4_misfit(f"an LZ4 block of {stored} bytes", made + block)
                memcpy(self._scratch + made, data + at + 4, <size_t>stored)
                made += stored
            else:
                self._input.at = <uint8_t*>data + at + 4
                self._input.size = stored
                self._output.at = self._scratch + made
                self._output.size = block
                try:
                    made += _lz4.decompress_block_into(self._input, self._output, output_len=block)
                except DecompressionError as exc:
                    raise self.lz4_misfit(str(exc), made + block) from None
            at += 4 + stored
        return made

    cdef object lz4_misfit(self, str detail, int64_t end):
        """Return the error for a block after which fewer than ``end`` bytes are there: damaged, or truncated by the
        limit.
        """
        return self.too_large(0) if end == self.most else CorruptEntryError(Reason.DECOMPRESSION, detail)

    cdef int64_t snappy_size(self, const uint8_t* data, Py_ssize_t size) except -1:
        """Return the decompressed size that a raw block announces."""
        cdef uint64_t announced = 0
        if fw_varint(data, data + size, &announced) is NULL or announced > <uint64_t>(size + 16) * SNAPPY_RATIO:
            raise CorruptEntryError(
                Reason.SIZE, f"announces {announced} bytes, {size} compressed ones cannot become that"
            )
        if announced > <uint64_t>self.most:
            raise self.too_large(announced)
        return <int64_t>announced

    cdef int snappy_block(self, const uint8_t* data, Py_ssize_t size, int64_t at, int64_t announced) except -1:
        """Decompress a raw block to the scratch after ``at`` bytes; the caller has reserved the announced size."""
        self._input.at = <uint8_t*>data
        self._input.size = size
        self._output.at = self._scratch + at
        self._output.size = <Py_ssize_t>announced
        try:
            if announced and <int64_t>_snappy.decompress_raw_into(self._input, self._output) != announced:
                raise CorruptEntryError(Reason.DECOMPRESSION, f"gave not the {announced} bytes that were announced")
        except DecompressionError as exc:
            raise CorruptEntryError(Reason.DECOMPRESSION, str(exc)) from None
        return 0

    cdef int64_t xerial(self, const uint8_t* data, Py_ssize_t size) except -1:
        """Decompress raw blocks with a size before each, the framing of Java's streams (spec: kafka 8)."""
        cdef int64_t made = 0
        cdef int64_t total = 0
        cdef int64_t announced
        cdef Py_ssize_t at = XERIAL_HEAD
        cdef Py_ssize_t block
        while at < size:
            if is_xerial(data + at, size - at):
                at += XERIAL_HEAD                # another stream follows
                continue
            if size - at < 4:
                raise CorruptEntryError(Reason.DECOMPRESSION, "a snappy stream ends inside a block's size")
            block = fw_u32be(data + at)
            at += 4
            if block > size - at:
                raise CorruptEntryError(Reason.DECOMPRESSION, f"a snappy block of {block} bytes, {size - at} present")
            total += self.snappy_size(data + at, block)
            if total > self.most:
                raise self.too_large(0)
            at += block
        self.reserve(max(total, FIRST_SCRATCH))
        at = XERIAL_HEAD
        while at < size:
            if is_xerial(data + at, size - at):
                at += XERIAL_HEAD
                continue
            block = fw_u32be(data + at)
            at += 4
            announced = self.snappy_size(data + at, block)
            self.snappy_block(data + at, block, made, announced)
            made += announced
            at += block
        return made
