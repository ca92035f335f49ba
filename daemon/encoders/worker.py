"""The encoder thread: it turns the rows of each folder into files of one roll."""

import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from .base import Encoder, EncoderOptions, Outlet, WritableFile
from .gather import Piece, memory_of


class StagedLike(Protocol):
    """A staged file, which another thread may drop while it is written."""

    rows: int
    """Rows of the finished file; the encoder thread sets it."""

    @property
    def file(self) -> WritableFile:
        """The file that the encoder writes to."""


Staged = TypeVar("Staged", bound=StagedLike)


_PIECES = 16  # the most pieces of a folder that waits for a file; more are merged
_FEWEST_OPEN = 8


class _Load(NamedTuple):
    """Rows and bytes of what is queued or taken."""

    rows: int
    nbytes: int


def _load(pieces: Iterable[Piece]) -> list[_Load]:
    """Measure ``pieces``, once each: it takes as long as some hundred records."""
    return [_Load(batch.num_rows, memory_of(batch)) for _, batch in pieces]


@dataclass(slots=True)
class _OpenFile(Generic[Staged]):
    staged: Staged
    outlet: Outlet
    encoder: Encoder


@dataclass(slots=True)
class _Waiting:
    """The rows of a folder without an open file."""

    pieces: list[pa.RecordBatch]
    nbytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.pieces.append(batch)
        self.nbytes += memory_of(batch)
        if len(self.pieces) >= _PIECES:
            self.pieces = [pa.concat_batches(self.pieces)]
            self.nbytes = memory_of(self.pieces[0])


class EncoderThread(Generic[Staged]):
    """Encodes on its own thread, one file per folder; :meth:`put` waits when the thread cannot keep up.

    It waits while a whole row group is queued behind the one that is being encoded, or ``limit_bytes`` are buffered:
    so the thread always has its next rows, and the caller does not wait for each row group.

    ``stage`` opens a file and is called on the thread. At most ``most_open`` files are open: rows of other folders wait
    in memory. When all rows and open files (but one, ``file_bytes`` each) exceed ``limit_bytes``, the folder with most
    rows is written. If it has no file, the least recently used file is ended first, and the roll should end soon
    (``crowded``). Ended files are passed in groups to ``settle``, which closes them. After a failure all files of this
    roll are dropped, ``on_failure`` is called on the thread with the reason, and later rows are ignored until
    :meth:`drop`.
    """

    def __init__(
        self,
        name: str,
        encoder: type[Encoder],
        options: EncoderOptions,
        stage: Callable[[str], Staged],
        limit_bytes: int,
        on_failure: Callable[[BaseException], None],
        settle: Callable[[Sequence[Staged]], None] = lambda files: None,
        most_open: int = 64,
        file_bytes: int = 128 << 10,
    ) -> None:
        self._encoder = encoder
        self._options = options
        self._stage = stage
        self._limit_bytes = limit_bytes
        self._working: Callable[[int, int], int] = getattr(encoder, "working_bytes", lambda rows, nbytes: 0)
        self._most_working = 0  # for any of the rows that are held
        self._jobs: SimpleQueue[tuple[list[Piece], list[_Load]] | Future[list[Staged]] | None] = SimpleQueue()
        self._room = threading.Condition()  # guards what is queued
        self._queued_rows = 0
        self._queued_bytes = 0
        self._offered_bytes = 0  # by a caller that waits for room
        self._settle = settle
        # Half of the memory is for rows, for any number of folders.
        self._file_bytes = file_bytes
        self._most_open = min(most_open, max(_FEWEST_OPEN, limit_bytes // 2 // max(1, file_bytes)))
        self._files: dict[str, _OpenFile[Staged]] = {}  # the least recently used one first
        self._waiting: dict[str, _Waiting] = {}
        self._ended: list[Staged] = []
        self._settled = 0  # the number of these that are closed
        self.crowded = False
        """True once this roll has more folders than files may be open, and has used up its memory."""
        self._dropping = False
        self._gathered_bytes = 0  # by all encoders
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self.written_bytes = 0
        """Size of the files of this roll so far, in bytes."""
        self.encode_ns = 0
        self.write_ns = 0
        """Nanoseconds that this thread has spent in encoders and in file writes, over all rolls."""
        self._thread = self._begin(name)

    def _begin(self, name: str) -> threading.Thread | None:
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        thread.start()
        return thread

    @property
    def open_files(self) -> int:
        """The number of open files."""
        return len(self._files)

    @property
    def pending_bytes(self) -> int:
        """Bytes of rows that wait to be queued, are queued, or are buffered, and are not written yet."""
        return self._offered_bytes + self._queued_bytes + self._gathered_bytes

    @property
    def working_bytes(self) -> int:
        """An estimate of the bytes that the encoder takes beside the buffered rows while it writes them."""
        return self._most_working if self.pending_bytes else 0

    @property
    def ident(self) -> int | None:
        """The thread's number."""
        return None if self._thread is None else self._thread.ident

    # --- on the caller's thread

    def put(self, pieces: list[Piece]) -> None:
        """Queue ``pieces``, waiting for room; the list is emptied when they are encoded."""
        loads = _load(pieces)
        with self._room:
            self._offered_bytes = sum(load.nbytes for load in loads)
            self._room.wait_for(self._has_room)
            self._expect(loads)
            self._offered_bytes = 0
        self._jobs.put((pieces, loads))

    def _expect(self, loads: list[_Load]) -> None:
        """Count what is queued."""
        needed = max((self._working(*load) for load in loads), default=0)
        self._most_working = max(self.working_bytes, needed)
        self._count(loads, 1)

    def _has_room(self) -> bool:
        options = self._options
        full = self._queued_rows >= options.row_group_rows or self._queued_bytes >= options.row_group_bytes
        buffered = self._queued_bytes + self._gathered_bytes
        return not self._queued_rows or not (full or buffered >= self._limit_bytes)

    def _count(self, loads: Iterable[_Load], sign: int) -> None:
        for rows, nbytes in loads:
            self._queued_rows += sign * rows
            self._queued_bytes += sign * nbytes

    def finish(self) -> "Future[list[Staged]]":
        """End all files; the future returns the staged files with their rows. The next roll may begin.

        After a failure the future raises that failure.
        """
        done: Future[list[Staged]] = Future()
        self._jobs.put(done)
        return done

    def drop(self) -> None:
        """Drop this roll and any failure, without another write to its files. Waits for a running write."""
        self._dropping = True
        done: Future[list[Staged]] = Future()
        self._jobs.put(done)
        done.exception()
        self._dropping = False
        self._failure = None

    def stop(self) -> None:
        """Drop the roll and end the thread."""
        self.drop()
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join()

    # --- on the encoder thread

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            if isinstance(job, tuple):
                self._guarded(*job)
            else:
                self._finish_job(job)

    def _guarded(self, pieces: list[Piece], loads: list[_Load]) -> None:
        try:
            while pieces and self._failure is None and not self._dropping:
                self._encode(*pieces.pop(0), loads.pop(0))
        except BaseException as exc:
            self._fail(exc)
        finally:
            self._take(loads)
            # The loop refers to this list until its next job, and each batch keeps a whole chunk in memory.
            pieces.clear()

    def _take(self, loads: Iterable[_Load]) -> None:
        """Remove what was queued from the count."""
        with self._room:
            self._count(loads, -1)
            self._room.notify()

    def _finish_job(self, done: "Future[list[Staged]]") -> None:
        staged: list[Staged] = []
        try:
            if self._failure is None and not self._dropping:
                while self._files:
                    self._end_file(next(iter(self._files)))
                while self._waiting:
                    folder = next(iter(self._waiting))
                    self._open(folder)
                    self._end_file(folder)
                staged = self._ended
        except BaseException as exc:
            self._fail(exc)
        self._forget()
        if self._failure is not None:
            done.set_exception(self._failure)
        else:
            done.set_result(staged)

    def _encode(self, folder: str, batch: pa.RecordBatch, load: _Load) -> None:
        size = load.nbytes
        self._gathered_bytes += size  # before it leaves the queue, so that the sum is never too small
        self._take((load,))
        file = self._files.pop(folder, None)
        if file is not None:
            self._files[folder] = file
            self._account(file, lambda: file.encoder.write(batch))
            self._gathered_bytes -= size
        else:
            waiting = self._waiting.setdefault(folder, _Waiting([]))
            self._gathered_bytes -= size + waiting.nbytes
            waiting.add(batch)
            self._gathered_bytes += waiting.nbytes
            if len(self._files) < self._most_open:
                self._open(folder)
        while self._gathered_bytes > self._rows_limit and self._make_room():
            pass

    @property
    def _rows_limit(self) -> int:
        """Bytes that rows may take now: the limit less ``file_bytes`` for each open file after the first."""
        return max(self._limit_bytes // 2, self._limit_bytes - (len(self._files) - 1) * self._file_bytes)

    def _make_room(self) -> bool:
        """Write the rows of the folder with most bytes in memory; return False if there are none."""
        largest = max(self._files.values(), key=lambda each: each.encoder.pending_bytes)
        folder = max(self._waiting, key=lambda name: self._waiting[name].nbytes, default="")
        waiting = self._waiting.get(folder)
        if waiting is not None and waiting.nbytes > largest.encoder.pending_bytes:
            self.crowded = True
            self._end_file(next(iter(self._files)))
            self._open(folder)
            return True
        if not largest.encoder.pending_bytes:
            return False
        self._account(largest, largest.encoder.flush)
        return True

    def _open(self, folder: str) -> None:
        """Open a file for the folder and write the rows that wait for it."""
        waiting = self._waiting.pop(folder)
        staged = self._stage(folder)
        outlet = Outlet(staged.file)
        file = _OpenFile(staged, outlet, self._encoder(outlet, waiting.pieces[0].schema, self._options))
        self._files[folder] = file
        for batch in waiting.pieces:
            self._account(file, lambda rows=batch: file.encoder.write(rows))  # type: ignore[misc]
        self._gathered_bytes -= waiting.nbytes

    def _end_file(self, folder: str) -> None:
        file = self._files[folder]
        self._account(file, file.encoder.finish)
        file.outlet.cut()
        del self._files[folder]
        file.staged.rows = file.encoder.rows
        self._ended.append(file.staged)
        if len(self._ended) - self._settled >= self._most_open and (self._waiting or self._files):
            self._settle(self._ended[self._settled :])
            self._settled = len(self._ended)

    def _account(self, file: _OpenFile[Staged], action: Callable[[], None]) -> None:
        pending, written, write_ns = file.encoder.pending_bytes, file.outlet.written, file.outlet.write_ns
        began = perf_counter_ns()
        action()
        write_ns = file.outlet.write_ns - write_ns
        self.write_ns += write_ns
        self.encode_ns += perf_counter_ns() - began - write_ns
        self._gathered_bytes += file.encoder.pending_bytes - pending
        self.written_bytes += file.outlet.written - written

    def _fail(self, exc: BaseException) -> None:
        # The frames of a traceback hold batches.
        each: BaseException | None = exc
        while each is not None:
            traceback.clear_frames(each.__traceback__)
            each = each.with_traceback(None).__context__
        self._failure = exc
        self._forget()
        self._on_failure(exc)

    def _forget(self) -> None:
        for each in self._files.values():
            each.outlet.cut()
        self._files.clear()
        self._waiting.clear()
        self._ended = []
        self._settled = 0
        self.crowded = False
        self._gathered_bytes = self.written_bytes = 0


class CallerEncoder(EncoderThread[Staged]):
    """An encoder without a thread: ``put`` and ``finish`` encode on that of the caller, and never wait for room.

    For sinks of which there are many, whose calls run on a few threads.
    """

    def _begin(self, name: str) -> threading.Thread | None:
        return None

    def put(self, pieces: list[Piece]) -> None:
        """Encode ``pieces``; the list is empty afterwards."""
        loads = _load(pieces)
        self._expect(loads)
        self._guarded(pieces, loads)

    def finish(self) -> "Future[list[Staged]]":
        """See :meth:`EncoderThread.finish`; the future is done."""
        done: Future[list[Staged]] = Future()
        self._finish_job(done)
        return done

    def drop(self) -> None:
        """Drop this roll and any failure, without another write to its files."""
        self._forget()
        self._failure = None

    def stop(self) -> None:
        """Drop the roll."""
        self.drop()
