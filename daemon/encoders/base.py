"""What an encoder must do. A third-party encoder needs nothing but this file (entry point ``fastwire.encoders``)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from fastwire.columns.schema import Column

__all__ = ["Compression", "Encoder", "EncoderOptions", "Outlet", "WritableFile", "parse_compression"]

_LEVELS = {"zstd": range(1, 23), "gzip": range(1, 10)}


class WritableFile(Protocol):
    """A file that is written front to back."""

    def write(self, data: Any, /) -> int:
        """Take bytes, anything with the buffer protocol; return how many were taken."""


class Compression(NamedTuple):
    """A codec and its level; None leaves the level to the codec."""

    codec: str
    level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOptions:
    """How one file is written.

    ``compression`` is what :func:`parse_compression` made of the configured text. ``columns`` says how the columns of
    this system behave; a column that is not listed is anything. A row group (or whatever the format has of that kind)
    ends at ``row_group_rows`` rows or ``row_group_bytes`` gathered bytes, whichever comes first; the latter is what
    keeps memory bounded. Small writes may be put together up to ``buffer_bytes``.
    """

    compression: Compression
    columns: tuple[Column, ...] = ()
    row_group_rows: int = 131_072
    row_group_bytes: int = 32 << 20
    buffer_bytes: int = 1 << 20


@runtime_checkable
class Encoder(Protocol):
    """Turns record batches into one file. One instance writes one file, on one thread.

    ``file`` is written through ``write`` alone, front to back; it is neither closed nor synced here. Its ``write`` may
    wait for a long time (a full disk) and may raise: then the file is lost, and the encoder is dropped without another
    call. Memory of a batch must be let go of once it is encoded.
    """

    extension: ClassVar[str]
    """Of the file name, without the dot."""

    compressions: ClassVar[Mapping[str, str]]
    """The codecs it takes, each with what it adds to the extension ("" or, say, ".gz"); the first is the default."""

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        """``schema`` is that of every batch that will come."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of ``batch``, in order; dictionaries may differ from batch to batch."""

    def flush(self) -> None:
        """Write out what is gathered, so that ``pending_bytes`` is 0: memory is short, or the roll ends."""

    def finish(self) -> None:
        """Flush and write what ends the file. Nothing is called afterwards."""

    @property
    def rows(self) -> int:
        """Rows taken so far."""

    @property
    def pending_bytes(self) -> int:
        """Bytes held in memory and not written yet."""


class Outlet:
    """The file as pyarrow sees it: never closed from there, and deaf once it is cut.

    The native writers write what ends a file, and close it, when they are garbage collected. For a file whose roll is
    void that would be a write into a deleted or foreign place, so :meth:`cut` makes everything that still comes vanish.
    """

    closed = False  # asked by pyarrow before each use

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
        """Let go of the file: later writes are dropped without a word."""
        self._file = None

    @contextmanager
    def cut_on_error(self) -> Iterator[None]:
        """Cut the file if the block raises: the writer must not try again from its finalizer."""
        try:
            yield
        except BaseException:
            self.cut()
            raise

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """The file is not ours to close."""


def parse_compression(text: str | None, compressions: Mapping[str, str]) -> Compression:
    """Read "zstd", "zstd:3", "none" …; None is the encoder's default (zstd: level 1).

    Raises ValueError with a text for the person who wrote the configuration.
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
