"""Compression of pages: the codecs of parquet.thrift by the packages that have them."""

import zlib
from collections.abc import Callable
from typing import Any

import lz4.block
import snappy
from zstandard import ZstdCompressor

Compress = Callable[[Any], bytes]
"""Takes an object with the buffer protocol. The interpreter lock is free while it works."""

CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}
"""Numbers of the codecs. ``lz4`` is LZ4_RAW: a block without a frame."""

_GZIP_WINDOW = 31  # 15 bits, in the framing of gzip


def compressor(codec: str, level: int | None = None) -> Compress:
    """Return the function that compresses a page; None leaves the level to the codec.

    For one thread: it keeps its context. Raises ValueError for a codec that is not in :data:`CODECS`.
    """
    if codec == "zstd":
        return ZstdCompressor(level=3 if level is None else level).compress
    if codec == "lz4":
        return lambda page: lz4.block.compress(page, store_size=False)
    if codec == "snappy":
        return lambda page: bytes(snappy.compress(memoryview(page)))
    if codec == "gzip":
        return lambda page: _gzip(page, 6 if level is None else level)
    if codec == "none":
        return bytes
    raise ValueError(f"unknown codec {codec!r}: one of {', '.join(CODECS)}")


def context_size(compress: Compress) -> int:
    """Return the bytes that the function has occupied since its first page; 0 for codecs that keep nothing."""
    kept = getattr(compress, "__self__", None)
    return kept.memory_size() if isinstance(kept, ZstdCompressor) else 0


def _gzip(page: Any, level: int) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(page) + stream.flush()
