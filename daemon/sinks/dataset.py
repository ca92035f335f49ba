"""The sink that lands files exactly once: encoders in front, the commit protocol of ``dataset`` behind."""

import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, cast
from zlib import crc32

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter, SpanAccumulator
from fastwire.columns.schema import COLUMNS
from fastwire.errors import FastwireError
from fastwire.position import Coverage, Log, OverlapError, Position, UndeclaredGapError

from ..dataset.description import DatasetOptions
from ..dataset.disk import Disk
from ..dataset.level import level_directory
from ..dataset.staging import StagedFile
from ..dataset.writer import DatasetWriter
from ..encoders.base import Encoder, EncoderOptions, parse_compression
from ..encoders.gather import Gatherer, Piece
from ..encoders.worker import EncoderThread
from ..errors import SinkFailedError

__all__ = ["DatasetSink", "file_extension"]

# What one unit of memory becomes on disk, until a roll has shown it.
_FIRST_RATIO = 0.25
# No calendar has this time: its folder is that of rows without a time.
_NO_TIME = (1 << 63) - 1
# With one file per folder there can be many, and each has a buffer of its own.
_SMALL_BUFFER, _LARGE_BUFFER = 64 << 10, 1 << 20


def file_extension(encoder: type[Encoder], compression: str | None) -> str:
    """The extension of files by ``encoder``, without the first dot: "parquet", "jsonl.gz".

    Raises ValueError for a compression that the encoder does not have.
    """
    return encoder.extension + encoder.compressions[parse_compression(compression, encoder.compressions).codec]


class DatasetSink:
    """A ``LoggedSink`` over a dataset and encoder threads.

    ``write`` may raise what ``commit`` may: a failure of an encoder's thread surfaces at the next call. After any
    exception the roll is gone and ``open`` must follow. Only properties and :meth:`interrupt` are for other threads.

    ``gather_bytes`` bounds what is held in memory until it is worth writing, all files together. ``disk`` and
    ``reached`` are those of ``DatasetWriter``.
    """

    def __init__(
        self,
        path: Path,
        options: DatasetOptions,
        encoder: type[Encoder],
        *,
        compression: str | None = None,
        writers: int = 1,
        gather_bytes: int = 128 << 20,
        row_group_rows: int = 131_072,
        row_group_bytes: int = 32 << 20,
        disk: Disk | None = None,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._options = options
        self._by_log = options.split != "none"
        self._stop = threading.Event()
        self._full: dict[int, str] = {}
        self._writer = DatasetWriter(path, options, disk, reached, on_full=self._on_full, stop=self._stop)
        self._by_folder = self._by_log or options.partition_by != "none"
        # A quarter goes to what is gathered before the encoders, if there are folders to deal rows out to.
        self._encoder_bytes = (gather_bytes * 3 // 4 if self._by_folder else gather_bytes) // writers
        self._gatherer = Gatherer(
            self._folder,
            min(gather_bytes // 4, row_group_bytes),
            by_log=self._by_log,
            by_time=None if options.partition_by == "none" else cast(Literal["day", "hour"], options.partition_by),
        )
        self._writers = writers
        self._encoder = encoder
        self._encoder_options = EncoderOptions(
            compression=parse_compression(compression, encoder.compressions),
            columns=COLUMNS[options.system],
            row_group_rows=row_group_rows,
            row_group_bytes=min(row_group_bytes, self._encoder_bytes),
            buffer_bytes=_SMALL_BUFFER if self._by_folder else _LARGE_BUFFER,
        )
        self._threads: list[EncoderThread[StagedFile]] = []
        self._failure: BaseException | None = None  # the first one of a thread in this roll
        self._failure_guard = threading.Lock()
        self._turn = 0
        self._void = True  # until open, and after a failure
        self._forget()
        self._ratio = _FIRST_RATIO
        self.committed_files = 0
        self.committed_bytes = 0

    def _forget(self) -> None:
        self._gatherer.clear()
        self._spans = SpanAccumulator()
        self._diverted: list[DeadLetter] = []
        self._floors: dict[Log, Position] = {}
        self._rows = 0
        self._raw_bytes = 0

    # --- what others may ask, from any thread

    @property
    def exists(self) -> bool:
        """Whether there is a dataset, as far as seen by ``open``."""
        return self._writer.exists

    @property
    def cluster(self) -> str:
        """What the cluster of all logs must be: after ``open`` the one that the dataset was created with."""
        return self._writer.cluster

    @property
    def needed_columns(self) -> frozenset[str]:
        """The columns that chunks must have: those of the files, and what the folders are made from."""
        by_time = self._options.partition_by != "none"
        return frozenset(self._options.columns) | (frozenset({"timestamp"}) if by_time else frozenset())

    @property
    def staged_rows(self) -> int:
        """Rows of the open roll."""
        return self._rows

    @property
    def staged_bytes(self) -> int:
        """Size of the open roll on disk: what is written, and an estimate for what is not yet."""
        pending = self._gatherer.pending_bytes + sum(thread.pending_bytes for thread in self._threads)
        return sum(thread.written_bytes for thread in self._threads) + int(pending * self._ratio)

    @property
    def unpooled_bytes(self) -> int:
        """An estimate of the memory that is held beside the chunks' own: copies of rows, and buffers of open files."""
        copied = self._gatherer.pending_bytes
        if self._by_folder:
            copied += sum(thread.pending_bytes for thread in self._threads)
        return copied + sum(thread.open_files for thread in self._threads) * self._encoder_options.buffer_bytes

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """Nanoseconds of encoding and writing, on all threads together, and of syncing."""
        return {
            "encode": sum(thread.encode_ns for thread in self._threads),
            "write": sum(thread.write_ns for thread in self._threads),
            "fsync": self._writer.sync_ns,
        }

    @property
    def too_many_files(self) -> bool:
        """Whether the roll should be committed early: half of all files that the process may open are in it."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return sum(thread.open_files for thread in self._threads) * 2 > allowed > 0

    @property
    def waiting(self) -> str | None:
        """Why nothing moves, in words for the status, or None: the disk is full."""
        return next(iter(list(self._full.values())), None)

    def interrupt(self) -> None:
        """End every wait for space: the calls that wait raise SinkFailedError. Lasts until ``open``."""
        self._stop.set()

    # --- the sink

    def open(self) -> Coverage:
        """Read the log of the dataset; drop what an earlier roll of ours has left."""
        self._drop_roll()
        self._stop.clear()
        coverage = self._writer.open()
        if not self._threads:
            self._threads = [self._new_thread(i) for i in range(self._writers)]
        self._void = False
        return coverage

    def create_dataset(self) -> None:
        """Create the dataset if there is none, before anything is read for it: see ``sources.base``.

        May raise like ``commit``; Superseded if somebody else was quicker.
        """
        with self._rolling():
            if not self._writer.exists:
                # A file that no commit names is deleted with the roll.
                self._writer.stage(self._folder(Log("", "", "-", "-"), 0)).close()

    def write(self, chunk: Chunk) -> None:
        """Take the rows, spans and diverted entries of ``chunk``, and release it."""
        try:
            with self._rolling():
                self._spans.add(chunk)
                self._diverted.extend(chunk.diverted)
                if chunk.rows:
                    self._write_rows(chunk)
        finally:
            chunk.release()

    def refresh(self) -> Coverage:
        """Read what others have landed; the open roll stays open."""
        with self._rolling():
            return self._writer.refresh()

    def settle(self, floors: Mapping[Log, Position]) -> None:
        """Note with the next commit that a broker has confirmed all our acks up to these positions."""
        self._floors.update(floors)

    def commit(self) -> Coverage:
        """Land the roll; with nothing written, read what others have landed."""
        with self._rolling():
            self._deal(self._gatherer.flush())
            results = [thread.finish() for thread in self._threads]
            wait(results)
            if self._failure is not None:
                raise self._failure
            files = [staged for result in results for staged in result.result()]
            coverage = self._writer.commit(files, self._spans.take(), diverted=self._diverted, floors=self._floors)
        written = sum(staged.nbytes for staged in files)
        if self._raw_bytes:
            self._ratio = written / self._raw_bytes
        self.committed_files += len(files)
        self.committed_bytes += written
        self._forget()
        return coverage

    def close(self) -> None:
        """Drop what is not committed, end the threads, let go of the dataset."""
        self._drop_roll()
        for thread in self._threads:
            thread.stop()
        self._threads.clear()
        self._writer.close()

    # --- inside

    def _new_thread(self, number: int) -> EncoderThread[StagedFile]:
        return EncoderThread(
            f"encoder-{number}",
            self._encoder,
            self._encoder_options,
            self._writer.stage,
            self._encoder_bytes,
            self._on_failure,
        )

    def _write_rows(self, chunk: Chunk) -> None:
        held_bytes = chunk.nbytes
        runs = [(chunk.log(index), first, rows) for index, first, rows in chunk.runs()] if self._by_log else []
        batch = pa.record_batch(chunk)
        # From here on Arrow alone holds the memory: it goes back as soon as the encoder is done with it.
        chunk.release()
        self._rows += batch.num_rows
        self._raw_bytes += batch.get_total_buffer_size()
        self._deal(self._gatherer.add(batch, held_bytes, runs))

    def _deal(self, pieces: list[Piece]) -> None:
        """Hand rows to the threads: a lone piece to the next in turn, several by folder, so that each has one file."""
        shares: list[list[Piece]] = [[] for _ in self._threads]
        for folder, batch in pieces:
            if len(pieces) == 1:
                self._turn = (self._turn + 1) % len(shares)
                share = self._turn
            else:
                share = crc32(folder.encode()) % len(shares)
            shares[share].append((folder, self._cut(batch)))
        pieces.clear()
        for thread, mine in zip(self._threads, shares, strict=True):
            if mine:
                thread.put(mine)

    def _cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without the columns that only the folders needed."""
        columns = self._options.columns
        names = batch.schema.names
        return batch if len(names) == len(columns) else batch.select([name for name in names if name in columns])

    def _folder(self, log: Log | None, micros: int | None) -> str:
        return level_directory(
            self._options.split,
            self._options.partition_by,
            topic="" if log is None else log.topic,
            partition="" if log is None else log.partition,
            timestamp_us=_NO_TIME if micros is None else micros,
        )

    def _on_full(self, message: str | None) -> None:
        if message is None:
            self._full.pop(threading.get_ident(), None)
        else:
            self._full[threading.get_ident()] = message

    def _on_failure(self, exc: BaseException) -> None:
        """On a thread: the roll is lost, so nobody needs to wait for space any more."""
        with self._failure_guard:
            if self._failure is None:
                self._failure = exc
        self._stop.set()

    @contextmanager
    def _rolling(self) -> Iterator[None]:
        """Whatever goes wrong in the block, or has gone wrong on a thread: the roll is void, until open."""
        try:
            if self._void:
                raise SinkFailedError("the roll is void: open the sink again")
            if self._failure is not None:
                raise self._failure
            yield
        except (FastwireError, UndeclaredGapError, OverlapError):
            self._drop_roll()
            raise
        except Exception as exc:
            self._drop_roll()
            raise SinkFailedError(f"{type(exc).__name__}: {exc}") from exc

    def _drop_roll(self) -> None:
        self._void = True
        # A thread may be waiting for space, and nobody else would make it stop.
        self._stop.set()
        for thread in self._threads:
            thread.drop()
        self._full.clear()
        self._failure = None
        self._forget()
