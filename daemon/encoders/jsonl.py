"""JSON lines: one object per row, with every column in every row.

``fastwire.columns.text`` defines the form of each type. In binary columns (``key``, ``value``, header values) valid
UTF-8 is a string, anything else is ``{"base64": "..."}``. Bytes in columns of decoded values are base64 always.
"""

import zlib
from collections.abc import Mapping
from typing import ClassVar, Protocol

import pyarrow as pa
import zstandard

from fastwire.columns.text import LineFormatter

from .base import Compression, EncoderOptions, Outlet, WritableFile

# Formatting and compressing release the interpreter lock, copying the result holds it: 1 MiB takes about 0.1 ms.
_PIECE_BYTES = 1 << 20
_GZIP_BYTES = 268 << 10  # the memory of the largest window, according to zlib.h


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


class _Plain:
    """A compressor that does not compress."""

    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


def _compressor(compression: Compression) -> _Compressor:
    codec, level = compression
    if codec == "gzip":
        return zlib.compressobj(6 if level is None else level, zlib.DEFLATED, 31)  # 31: with a gzip header
    if codec == "zstd":
        return zstandard.ZstdCompressor(level=level or 1).compressobj()
    return _Plain()


class JsonlEncoder:
    """One file of JSON lines. Rows are written at once; only the compressor buffers."""

    extension: ClassVar[str] = "jsonl"
    compressions: ClassVar[Mapping[str, str]] = {"none": "", "gzip": ".gz", "zstd": ".zst"}
    pending_bytes = 0

    @staticmethod
    def state_bytes(options: EncoderOptions) -> int:
        """Return the memory of one file's compressor in bytes."""
        codec, level = options.compression
        if codec == "zstd":
            return zstandard.ZstdCompressionParameters.from_level(level or 1).estimated_compression_context_size()
        return _GZIP_BYTES if codec == "gzip" else 0

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        known = [column.name for column in options.columns]
        self._base64 = [name for name in schema.names if name not in known] if options.decoded else ()
        LineFormatter(pa.RecordBatch.from_pylist([], schema=schema))  # raises at once for a type without a JSON form
        self._outlet = Outlet(file)
        self._compressor = _compressor(options.compression)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the lines of ``batch``."""
        LineFormatter(batch, base64=self._base64).write(self._write, _PIECE_BYTES)
        self.rows += batch.num_rows

    def _write(self, text: bytes) -> None:
        if data := self._compressor.compress(text):
            self._outlet.write(data)

    def flush(self) -> None:
        """Do nothing: no rows are buffered."""

    def finish(self) -> None:
        """End the compressed stream."""
        if data := self._compressor.flush():
            self._outlet.write(data)
