"""The contract of encoders: all that a third-party encoder needs (entry point group ``fastwire.encoders``)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from fastwire.columns.schema import Column

_LEVELS = {"zstd": range(1, 23), "gzip": range(1, 10)}


class WritableFile(Protocol):
    """A file that is written sequentially."""

    def write(self, data: Any, /) -> int:
        """Write an object with the buffer protocol; return the number of bytes taken."""


class Compression(NamedTuple):
    """A codec and its level; None leaves the level to the codec."""

    codec: str
    level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOptions:
    """Options for one file.

    ``compression`` is the result of :func:`parse_compression`. ``columns`` describes the system's columns; a column
    that is not listed has no known properties, and if ``decoded`` it is one of decoded values. A row group (or the
    format's equivalent) ends at ``row_group_rows`` rows or ``row_group_bytes`` buffered bytes, whichever comes first;
    the latter bounds memory. Small writes may be merged up to ``buffer_bytes``.
    """

    compression: Compression
    columns: tuple[Column, ...] = ()
    decoded: bool = False
    row_group_rows: int = 131_072
    row_group_bytes: int = 32 << 20
    buffer_bytes: int = 1 << 20


@runtime_checkable
class Encoder(Protocol):
    """Turns record batches into one file. One instance writes one file, on one thread.

    ``file`` is written sequentially through ``write`` alone; the encoder neither closes nor syncs it. Its ``write`` may
    wait for a long time (a full disk) and may raise: then the file is void, and the encoder is dropped without another
    call. The memory of a batch must be released once it is encoded.
    """

    extension: ClassVar[str]
    """Extension of the file name, without the dot."""

    compressions: ClassVar[Mapping[str, str]]
    """The supported codecs, each with its addition to the extension ("" or ".gz", say); the first is the default."""

    # An encoder may have a static method ``state_bytes(options) -> int``: the bytes that one open file takes beside its
    # rows and 64 KiB. They determine how many files are open at once.
    # It may have a static method ``working_bytes(rows, nbytes) -> int``: the bytes that it takes beside the rows while
    # it writes a batch of this size. They count in the memory budget for as long as such rows are held.

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        """Begin a file; every batch will have ``schema``."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of ``batch``, in order; dictionaries may differ from batch to batch."""

    def flush(self) -> None:
        """Write all buffered rows, so that ``pending_bytes`` is 0: memory is short, or the roll ends."""

    def finish(self) -> None:
        """Flush, and write the end of the file. No call follows."""

    @property
    def rows(self) -> int:
        """Rows taken so far."""

    @property
    def pending_bytes(self) -> int:
        """Bytes buffered in memory and not written yet."""


class Outlet:
    """The file object for pyarrow's writers: it ignores ``close``, and ignores writes after :meth:`cut`.

    The native writers write the end of a file, and close it, when they are garbage collected. If the roll is void, this
    would write to a file that is deleted or belongs to another roll, so :meth:`cut` discards all later writes.
    """

    closed = False  # pyarrow reads it before each use

    def __init__(self, file: WritableFile) -> None:
        self._file: WritableFile | None = file
        self.written = 0
        self.write_ns = 0

    def write(self, data: Any) -> int:
        """Write all of ``data`` (anything with the buffer protocol)."""
        size = memoryview(data).nbytes
        if self._file is not None:
            view = memoryview(data).cast("B")
            began = perf_counter_ns()
            while view:
                view = view[self._file.write(view) :]
            self.write_ns += perf_counter_ns() - began
            self.written += size
        return size

    def cut(self) -> None:
        """Detach the file: later writes are discarded."""
        self._file = None

    @contextmanager
    def cut_on_error(self) -> Iterator[None]:
        """Cut the file if the block raises: the writer must not retry the write in its finalizer."""
        try:
            yield
        except BaseException:
            self.cut()
            raise

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: the file belongs to the caller."""


def parse_compression(text: str | None, compressions: Mapping[str, str]) -> Compression:
    """Parse "zstd", "zstd:3", "none" …; None is the encoder's default codec (zstd: level 1).

    Raises ValueError with a message for the author of the configuration.
    """
    codec, colon, level_text = (text if text is not None else next(iter(compressions))).partition(":")
    if codec not in compressions:
        raise ValueError(f"unknown compression {codec!r}; this encoder takes {', '.join(compressions)}")
    if not colon:
        return Compression(codec, 1 if codec == "zstd" else None)
    levels = _LEVELS.get(codec)
    if levels is None:
        raise ValueError(f"compression {codec!r} has no levels")
    if not level_text.isascii() or not level_text.isdigit() or int(level_text) not in levels:
        raise ValueError(f"{codec} has levels {levels[0]} to {levels[-1]}, not {level_text!r}")
    return Compression(codec, int(level_text))
