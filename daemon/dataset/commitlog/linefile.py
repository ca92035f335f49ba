"""Files of JSON lines, plain or compressed."""

import gzip
import io
from collections.abc import Callable
from typing import Any, BinaryIO

import zstandard


def _unzstd(file: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))


OPENED: dict[str, Callable[[BinaryIO], Any]] = {"jsonl": lambda file: file, "jsonl.gz": gzip.open, "jsonl.zst": _unzstd}
"""The readers of their bytes, by the extension of the files."""
