"""The exactly-once file sink: encoder threads in front of the commit protocol of ``dataset``."""

import os
import resource
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, cast
from zlib import crc32

import pyarrow as pa

from fastwire.columns.chunk import Chunk, SpanAccumulator
from fastwire.coverage import Coverage, OverlapError, UndeclaredGapError
from fastwire.decode.evolution import Column
from fastwire.decode.program import SchemaError
from fastwire.errors import FastwireError
from fastwire.position import Log, Position
from fastwire.systems import row_of

from ..dataset.deadletters.sums import DeadLetterSums
from ..dataset.description import DatasetOptions
from ..dataset.level import hive_directory, level_directory, time_level
from ..dataset.staging import StagedFile
from ..dataset.storage.bucket import Bucket
from ..dataset.storage.disk import Disk
from ..dataset.tableformat import EMPTY_TEXTS
from ..dataset.writer import DatasetWriter
from ..encoders.base import Encoder, EncoderOptions, parse_compression
from ..encoders.gather import Gatherer, Piece, by_values, memory_of
from ..encoders.worker import CallerEncoder, EncoderThread
from ..runtime.errors import DatasetMismatchError, FolderRefusedError, LogRefusedError, SinkFailedError
from ..runtime.logs import get_logger
from .base import Decoded

if TYPE_CHECKING:
    from .transform import TransformedValues
    from .valuedecoder import ValueDecoder

_log = get_logger("sink")

# The estimated ratio of size on disk to size in memory, until the first roll has shown the real one.
_FIRST_RATIO = 0.25
# No calendar has this time: it selects the folder of rows without a time.
_NO_TIME = (1 << 63) - 1
# With one file per folder there can be many, each with its own buffer.
_SMALL_BUFFER, _LARGE_BUFFER = 64 << 10, 1 << 20
# An estimate of what an open file takes besides: unwritten data, and the state of its encoder.
_FILE_BYTES = 64 << 10
_MOST_OPEN = 256  # by one thread
_IN_TURN = 4  # syncs of one of many sinks, which are called by several threads: more threads cost more than they gain
_DEALT_AT_ONCE = 256  # pieces; each takes some KiB, however few rows it has


def file_extension(encoder: type[Encoder], compression: str | None) -> str:
    """Return the extension of files by ``encoder``, without the first dot: "parquet", "jsonl.gz".

    Raises ValueError for a compression that the encoder does not support.
    """
    return encoder.extension + encoder.compressions[parse_compression(compression, encoder.compressions).codec]


class DatasetSink:
    """A ``LoggedSink`` over a dataset and encoder threads.

    ``write`` raises the same errors as ``commit``: a failure of an encoder thread surfaces at the next call. After any
    exception the roll is void and ``open`` must follow. Only properties and :meth:`interrupt` are for other threads.

    ``gather_bytes`` bounds the memory of rows that are not written yet, over all files. ``medium`` and ``reached`` are
    those of ``DatasetWriter``. With a ``decoder`` the files have its columns. One of ``many`` sinks has no threads: it
    encodes in its calls, and keeps rows in memory until they are worth an open file. ``first`` has the columns of a
    dataset that does not exist yet, if the decoder infers them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: DatasetOptions,
        encoder: type[Encoder],
        *,
        compression: str | None = None,
        writers: int = 1,
        gather_bytes: int = 128 << 20,
        row_group_rows: int = 131_072,
        row_group_bytes: int = 32 << 20,
        decoder: "ValueDecoder | TransformedValues | None" = None,
        medium: Disk | Bucket | None = None,
        reached: Callable[[str], None] = lambda step: None,
        many: bool = False,
        first: Callable[[threading.Event], None] | None = None,
    ) -> None:
        self._options = options
        self._many = many
        self._by_log = options.split != "none"
        self._in_table = bool(options.table)
        self._stop = threading.Event()
        self._full: dict[int, str] = {}
        medium = medium or Disk(_IN_TURN if many else 1)
        self._writer = DatasetWriter(path, options, medium, reached, on_full=self._on_full, stop=self._stop, hasty=True)
        self._decoder = decoder
        self._first = first
        prefix = "" if decoder is None else decoder.prefix
        unit, time = time_level(options.partition_by)
        self._of_records = unit != "none" and not time
        self._by_folder = bool(options.level_keys)
        # With folders, a quarter is for rows that are gathered before they are split among the encoders.
        self._encoder_bytes = (gather_bytes * 3 // 4 if self._by_folder else gather_bytes) // writers
        self._gatherer = Gatherer(
            self._folder,
            min(gather_bytes // 4, row_group_bytes),
            by_log=self._by_log,
            by_time=None if unit == "none" else cast(Literal["day", "hour"], unit),
            time=time or f"{prefix}timestamp",
            levels=options.levels,
            patient=many,
        )
        self._writers = writers
        self._encoder = encoder
        self._encoder_options = EncoderOptions(
            compression=parse_compression(compression, encoder.compressions),
            columns=tuple(
                replace(column, name=f"{prefix}{column.name}") if prefix else column
                for column in row_of(options.system).columns
                if decoder is None or f"{prefix}{column.name}" not in decoder.texts  # decoded keys
            ),
            decoded=decoder is not None,
            row_group_rows=row_group_rows,
            row_group_bytes=min(row_group_bytes, self._encoder_bytes),
            buffer_bytes=_SMALL_BUFFER if self._by_folder or many else _LARGE_BUFFER,
        )
        state_bytes: Callable[[EncoderOptions], int] = getattr(encoder, "state_bytes", lambda options: 0)
        self._file_bytes = self._encoder_options.buffer_bytes + _FILE_BYTES + state_bytes(self._encoder_options)
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # As many again may be finished and not yet closed; brokers have connections, too.
        self._most_open = _MOST_OPEN if allowed < 0 else max(1, min(_MOST_OPEN, allowed // 4 // writers))
        self._threads: list[EncoderThread[StagedFile]] = []  # of ``many`` sinks without a thread
        self._failure: BaseException | None = None  # the first one of a thread in this roll
        self._failure_guard = threading.Lock()
        self._turn = 0
        self._unpublished = ""
        self._void = True  # until open, and after a failure
        self.dead_letter_sums = DeadLetterSums()
        """Values of the roll that became dead letters; the pipeline takes them after a commit."""
        self._forget()
        self._ratio = _FIRST_RATIO
        self.committed_files = 0
        self.committed_bytes = 0
        self.decoded = None if decoder is None else Decoded()

    def _forget(self) -> None:
        self._gatherer.clear()
        self._spans = SpanAccumulator()
        self._floors: dict[Log, Position] = {}
        self._raw_bytes = 0
        self._copied_bytes = 0  # of the rows that threads have or had, and that are no longer in the memory of chunks
        self._dead_letters = 0  # rows whose values could not be decoded
        self._unselected = 0  # rows that the transform has left out
        self._schema: pa.Schema | None = None  # of the open files of decoded values
        self._ended: list[StagedFile] = []  # files of the roll with other columns
        if self._decoder is not None:
            self._decoder.trim()

    # --- state, for any thread

    @property
    def exists(self) -> bool:
        """True if the dataset existed when it was last looked at."""
        return self._writer.exists

    @property
    def cluster(self) -> str:
        """The cluster name of all logs: after ``open`` the one that the dataset was created with."""
        return self._writer.cluster

    @property
    def types(self) -> tuple[Column, ...]:
        """The columns of decoded values of the dataset, of all schemas together."""
        return self._writer.types

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the files that it has now."""
        return self._options.columns if self._decoder is None else self._decoder.columns

    @property
    def needed_columns(self) -> frozenset[str]:
        """The columns that chunks must have: those of the files, those that determine the folder, and the time of the
        records, for the lag.
        """
        if self._decoder is not None:
            return self._decoder.needed | {"timestamp"}
        return frozenset(self._options.columns) | (frozenset({"timestamp"}) if self._of_records else frozenset())

    @property
    def staged_bytes(self) -> int:
        """Size of the open roll on disk in bytes, with dead letters and an estimate of unwritten rows."""
        pending = self._gatherer.pending_bytes + self._unwritten_bytes
        written = self._writer.dead_letter_bytes + sum(thread.written_bytes for thread in self._threads)
        written += sum(staged.nbytes for staged in self._ended)
        return written + int(pending * self._ratio)

    @property
    def unpooled_bytes(self) -> int:
        """An estimate of the memory beside that of the chunks, in bytes: copied rows and buffers of open files."""
        copied = self._gatherer.pending_bytes + sum(thread.working_bytes for thread in self._threads)
        copied += self._unwritten_bytes if self._by_folder else min(self._copied_bytes, self._unwritten_bytes)
        if self._decoder is not None:
            copied += self._decoder.nbytes
        return copied + sum(thread.open_files for thread in self._threads) * self._file_bytes

    @property
    def _unwritten_bytes(self) -> int:
        return sum(thread.pending_bytes for thread in self._threads)

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """Nanoseconds of encoding and writing (the sum of all threads) and of syncing."""
        return {
            "encode": sum(thread.encode_ns for thread in self._threads),
            "write": sum(thread.write_ns for thread in self._threads),
            "fsync": self._writer.sync_ns,
        }

    @property
    def too_many_files(self) -> bool:
        """True if the roll should be committed early: it spans more folders than open files and memory allow."""
        return any(thread.crowded for thread in self._threads)

    @property
    def waiting(self) -> str | None:
        """The reason why a write waits (the disk is full, a registry is away), for the status; None if none waits."""
        return next(iter(list(self._full.values())), None) if self._full else None

    @property
    def threads(self) -> list[int | None]:
        """The numbers of the threads that calls wait for."""
        return [thread.ident for thread in self._threads]

    @property
    def unpublished(self) -> str:
        """The reason why committed files are not in the table for now; "" without one."""
        return self._unpublished

    @property
    def publishing(self) -> bool:
        """True while the catalog of a table has not answered yet; a refresh looks for its answer."""
        return self._writer.publishing

    def interrupt(self) -> None:
        """End every wait: the calls that wait raise SinkFailedError. Lasts until ``open``."""
        self._stop.set()

    # --- the sink

    def open(self) -> Coverage:
        """Read the commit log, and drop the files of an earlier roll of this sink.

        Raises as ``FirstColumns`` as long as a new dataset has no columns.
        """
        self._drop_roll()
        self._stop.clear()
        coverage = self._writer.open()
        self._note_publishing()
        self._adopt()
        if self._first is not None and self._decoder is not None and not self._writer.exists:
            self._first(self._stop)
            self._writer.begin_with(self._decoder.columns, self._decoder.types)
        if not self._threads:
            self._threads = [self._new_thread(i) for i in range(self._writers)]
        self._void = False
        return coverage

    def create_dataset(self) -> None:
        """Create the dataset if it does not exist, before its first records are read: see ``systems.source``.

        Raises like ``commit``; Superseded if another process has created it meanwhile.
        """
        with self._rolling():
            if not self._writer.exists:
                self._writer.create()
                self._adopt()  # another writer may have been first

    def identify(self, cluster_id: str) -> None:
        """Compare the cluster's id with that of the dataset: see ``DatasetWriter.identify``."""
        with self._rolling():
            self._writer.identify(cluster_id)

    def write(self, chunk: Chunk) -> None:
        """Take the rows, spans and dead letters of ``chunk``, and release it."""
        try:
            with self._rolling():
                self._spans.add(chunk)
                if chunk.dead_letters:
                    self._writer.add_dead_letters(chunk.dead_letters)
                if chunk.rows:
                    self._write_rows(chunk)
        finally:
            chunk.release()

    def refresh(self) -> Coverage:
        """Read the commits of other writers and return the whole Coverage; the open roll stays open."""
        with self._rolling():
            coverage = self._writer.refresh()
            self._note_publishing()
            return coverage

    def raise_floors(self, floors: Mapping[Log, Position]) -> None:
        """Record with the next commit that a broker has confirmed all acks up to these positions."""
        self._floors.update(floors)

    def commit(self) -> Coverage:
        """Commit the roll and return the whole Coverage; without written chunks this is a refresh."""
        with self._rolling():
            files = [*self._ended, *self._finished()]
            types = () if self._decoder is None else self._decoder.types
            before = len(self._writer.types)
            coverage = self._writer.commit(
                files,
                self._spans.take(),
                filtered=self._dead_letters + self._unselected,
                unselected=self._unselected,
                floors=self._floors,
                types=types,
            )
            self._note_publishing()
            self._adopt()
        if self.decoded is not None:
            values, dead_letters, columns, filtered = self.decoded
            rows, added = sum(staged.rows for staged in files), len(self._writer.types) - before
            self.decoded = Decoded(
                values + rows, dead_letters + self._dead_letters, columns + added, filtered + self._unselected
            )
        written = sum(staged.nbytes for staged in files)
        if self._raw_bytes:
            self._ratio = min(1.0, written / self._raw_bytes)  # a file of one row says nothing
        self.committed_files += len(files)
        self.committed_bytes += written
        self._forget()
        return coverage

    def close(self) -> None:
        """Drop uncommitted rows, end the threads, and close the dataset."""
        self._drop_roll()
        for thread in self._threads:
            thread.stop()
        self._threads.clear()
        self._writer.close()

    # --- inside

    def _note_publishing(self) -> None:
        """Log that files cannot be published, once, and that they can again."""
        before, self._unpublished = self._unpublished, self._writer.stopped
        if self._unpublished and self._unpublished != before:
            _log.error(
                "the table takes no files: records land, and are published by a later commit or run",
                why=self._unpublished,
            )
        elif before and not self._unpublished:
            _log.info("the table takes files again, and has all that has landed")

    def _new_thread(self, number: int) -> EncoderThread[StagedFile]:
        encoder: type[EncoderThread[StagedFile]] = CallerEncoder if self._many else EncoderThread
        return encoder(
            f"encoder-{number}",
            self._encoder,
            self._encoder_options,
            self._writer.stage,
            self._encoder_bytes,
            self._on_failure,
            self._writer.settle,
            self._most_open,
            self._file_bytes,
        )

    def _finished(self) -> list[StagedFile]:
        """End the open files, with the rows that were gathered for them."""
        self._deal(self._gatherer.flush())
        results = [thread.finish() for thread in self._threads]
        wait(results)
        if self._failure is not None:
            raise self._failure
        return [staged for result in results for staged in result.result()]

    def _adopt(self) -> None:
        """Give the decoder the columns of the dataset. Raises DatasetMismatchError if they conflict with its own."""
        if self._decoder is None:
            return
        try:
            self._decoder.adopt(self._writer.types)
        except SchemaError as exc:
            raise DatasetMismatchError(
                f'{exc}. Use a new path, or evolve = "add" where columns are only added'
            ) from exc

    def _change_columns(self, schema: pa.Schema) -> None:
        """End the open files if they have other columns than the next rows."""
        if self._schema is not None and schema != self._schema:
            files = self._finished()
            self._writer.settle(files)  # there may be many
            self._ended += files
        self._schema = schema

    def _write_rows(self, chunk: Chunk) -> None:
        held_bytes, apart = chunk.nbytes, chunk.apart
        logged = self._by_log or self._decoder is not None
        runs = [(chunk.log(index), first, rows) for index, first, rows in chunk.runs()] if logged else []
        batch = pa.record_batch(chunk)
        # From here on Arrow alone holds the memory: it is released as soon as the encoder is done with it.
        chunk.release()
        self._raw_bytes += batch.get_total_buffer_size()
        if self._decoder is None:
            self._add(batch, held_bytes, runs, apart=apart)
            return
        for rows in self._decoder.decode(batch, runs, self._pause):
            if rows.dead_letters:
                self._writer.add_dead_letters(rows.dead_letters)
                self._dead_letters += len(rows.dead_letters)
                self.dead_letter_sums.add(rows.dead_letters)
            self._unselected += rows.filtered
            if not rows.batch.num_rows:
                continue
            self._change_columns(rows.batch.schema)
            held = rows.nbytes if rows.apart else held_bytes + rows.nbytes
            self._add(rows.batch, held, rows.runs, apart=apart or rows.apart)

    def _add(
        self, batch: pa.RecordBatch, held_bytes: int, runs: Sequence[tuple[Log, int, int]], *, apart: bool = False
    ) -> None:
        """Give rows to the gatherer, and to the threads what it returns. Memory ``apart`` is not that of a pool."""
        pieces = self._gatherer.add(batch, held_bytes, runs)
        if not self._unwritten_bytes:
            self._copied_bytes = 0
        if not self._by_folder:
            self._copied_bytes += sum(memory_of(rows) for _, rows in pieces if apart or rows is not batch)
        self._deal(pieces)

    def _pause(self, why: str, seconds: float) -> None:
        """Wait for a part that the decoder needs. Raises SinkFailedError if :meth:`interrupt` ends the wait."""
        self._on_full(why)
        try:
            if self._stop.wait(seconds):
                raise SinkFailedError(f"the sink was stopped while it waited: {why}")
        finally:
            self._on_full(None)

    def _deal(self, pieces: Sequence[Piece]) -> None:
        """Give rows to the threads."""
        if not self._options.levels:
            self._deal_files(pieces)
            return
        for folder, batch in pieces:
            named = partial(hive_directory, table=self._in_table)
            empty = self._options.table in EMPTY_TEXTS
            self._deal_files(by_values(folder, batch, self._options.levels, named, empty=empty))

    def _deal_files(self, pieces: Sequence[Piece]) -> None:
        """Give rows to the threads: a single piece round-robin, several by folder, so that each folder has one file."""
        if len(pieces) == 1:
            self._turn = (self._turn + 1) % len(self._threads)
        for first in range(0, len(pieces), _DEALT_AT_ONCE):
            shares: list[list[Piece]] = [[] for _ in self._threads]
            for folder, batch in pieces[first : first + _DEALT_AT_ONCE]:
                share = self._turn if len(pieces) == 1 else crc32(folder.encode()) % len(shares)
                shares[share].append((folder, self._cut(batch)))
            if len(pieces) <= _DEALT_AT_ONCE:
                pieces = ()  # the memory of a piece is released as soon as it is encoded
            for thread, mine in zip(self._threads, shares, strict=True):
                if mine:
                    thread.put(mine)

    def _cut(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the columns that only the choice of the folder needed."""
        columns = self.columns
        kept = [name for name in batch.schema.names if name in columns]
        return batch if len(kept) == batch.num_columns else batch.select(kept)

    def _folder(self, log: Log | None, micros: int | None) -> str:
        return level_directory(
            self._options.split,
            self._options.partition_by,
            topic="" if log is None else log.topic,
            partition="" if log is None else log.partition,
            timestamp_us=_NO_TIME if micros is None else micros,
            table=self._in_table,
        )

    def _lies_in(self, folders: tuple[str, ...], log: Log) -> bool:
        """Return True if the folder of ``log`` contains one of ``folders`` or lies within one."""
        mine = level_directory(
            self._options.split, "none", topic=log.topic, partition=log.partition, table=self._in_table
        )
        # "" is the root of the dataset, whose failure concerns no log in particular.
        return any(folder and (mine.startswith(f"{folder}/") or f"{folder}/".startswith(mine)) for folder in folders)

    def _on_full(self, message: str | None) -> None:
        if message is None:
            self._full.pop(threading.get_ident(), None)
        else:
            self._full[threading.get_ident()] = message

    def _on_failure(self, exc: BaseException) -> None:
        """Record the failure of an encoder thread: the roll is void, so waits for disk space end."""
        with self._failure_guard:
            if self._failure is None:
                self._failure = exc
        self._stop.set()

    @contextmanager
    def _rolling(self) -> Iterator[None]:
        """Void the roll until ``open`` if the block raises, or an encoder thread has failed."""
        try:
            if self._void:
                raise SinkFailedError("the roll is void: open the sink again")
            if self._failure is not None:
                raise self._failure
            yield
        except FolderRefusedError as exc:
            self._drop_roll()
            if self._by_log:
                raise LogRefusedError(str(exc), partial(self._lies_in, tuple(exc.reasons))) from exc
            raise
        except (FastwireError, UndeclaredGapError, OverlapError):
            self._drop_roll()
            raise
        except Exception as exc:
            self._drop_roll()
            raise SinkFailedError(f"{type(exc).__name__}: {exc}") from exc

    def _drop_roll(self) -> None:
        self._void = True
        # A thread may be waiting for disk space: this ends the wait.
        self._stop.set()
        for thread in self._threads:
            thread.drop()
        self._full.clear()
        self._failure = None
        self.dead_letter_sums.clear()
        self._forget()
