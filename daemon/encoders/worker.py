"""A thread that encodes: rows of folders in, files of one roll out."""

import threading
import traceback
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter_ns
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from .base import Encoder, EncoderOptions, Outlet, WritableFile
from .gather import Piece

__all__ = ["EncoderThread", "StagedLike"]


class StagedLike(Protocol):
    """A file that can be dropped by others while it is written."""

    rows: int

    @property
    def file(self) -> WritableFile:
        """Where the encoder writes."""


Staged = TypeVar("Staged", bound=StagedLike)


@dataclass(slots=True)
class _OpenFile(Generic[Staged]):
    staged: Staged
    outlet: Outlet
    encoder: Encoder


class EncoderThread(Generic[Staged]):
    """Encodes on a thread of its own, one file a folder; :meth:`put` waits when the thread cannot keep up.

    That is when a whole row group waits behind the one that is being encoded, or all that is held is ``limit_bytes``:
    so the thread finds its next rows gathered, and whoever puts is not held up by each row group.

    ``stage`` opens a file and is called on the thread. All encoders together gather at most ``limit_bytes``, or a
    little more: then the largest has to write. After a failure everything of this roll is dropped, ``on_failure`` is
    called with the reason (on the thread), and what still comes is ignored until :meth:`drop`.
    """

    def __init__(
        self,
        name: str,
        encoder: type[Encoder],
        options: EncoderOptions,
        stage: Callable[[str], Staged],
        limit_bytes: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._encoder = encoder
        self._options = options
        self._stage = stage
        self._limit_bytes = limit_bytes
        self._jobs: SimpleQueue[list[Piece] | Future[list[Staged]] | None] = SimpleQueue()
        self._room = threading.Condition()  # guards what is queued
        self._queued_rows = 0
        self._queued_bytes = 0
        self._files: dict[str, _OpenFile[Staged]] = {}
        self._dropping = False
        self._gathered_bytes = 0  # by all encoders
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self.written_bytes = 0
        """Size of the files of this roll so far."""
        self.encode_ns = 0
        self.write_ns = 0
        """Time of this thread in encoders and in files, ever."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def open_files(self) -> int:
        """Files of this roll so far."""
        return len(self._files)

    @property
    def pending_bytes(self) -> int:
        """What is held in memory, on its way into the files."""
        return self._queued_bytes + self._gathered_bytes

    # --- on the caller's thread

    def put(self, pieces: list[Piece]) -> None:
        """Take ``pieces``; the list is emptied when they are encoded."""
        with self._room:
            self._room.wait_for(self._has_room)
            self._count(pieces, 1)
        self._jobs.put(pieces)

    def _has_room(self) -> bool:
        options = self._options
        full = self._queued_rows >= options.row_group_rows or self._queued_bytes >= options.row_group_bytes
        return not self._queued_rows or not (full or self.pending_bytes >= self._limit_bytes)

    def _count(self, pieces: Collection[Piece], sign: int) -> None:
        self._queued_rows += sign * sum(batch.num_rows for _, batch in pieces)
        self._queued_bytes += sign * sum(batch.get_total_buffer_size() for _, batch in pieces)

    def finish(self) -> "Future[list[Staged]]":
        """End all files; the result is what was staged, with its rows. The next roll may begin.

        After a failure the result is that failure.
        """
        done: Future[list[Staged]] = Future()
        self._jobs.put(done)
        return done

    def drop(self) -> None:
        """Forget this roll and any failure, without touching its files again. Waits for a write that is under way."""
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
        self._thread.join()

    # --- on the thread itself

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            if isinstance(job, list):
                self._guarded(job)
            else:
                self._finish_job(job)

    def _guarded(self, pieces: list[Piece]) -> None:
        try:
            while pieces and self._failure is None and not self._dropping:
                self._encode(*pieces.pop(0))
        except BaseException as exc:
            self._fail(exc)
        finally:
            self._take(pieces)
            # The loop refers to this list until its next job comes, and each batch keeps a whole chunk in memory.
            pieces.clear()

    def _take(self, pieces: Collection[Piece]) -> None:
        """These are not queued any more."""
        with self._room:
            self._count(pieces, -1)
            self._room.notify()

    def _finish_job(self, done: "Future[list[Staged]]") -> None:
        staged: list[Staged] = []
        try:
            if self._failure is None and not self._dropping:
                for each in self._files.values():
                    self._account(each, each.encoder.finish)
                    each.staged.rows = each.encoder.rows
                    staged.append(each.staged)
        except BaseException as exc:
            self._fail(exc)
        self._forget()
        if self._failure is not None:
            done.set_exception(self._failure)
        else:
            done.set_result(staged)

    def _encode(self, folder: str, batch: pa.RecordBatch) -> None:
        size = batch.get_total_buffer_size()
        self._gathered_bytes += size  # before it is off the queue: what is held is counted at any time
        self._take(((folder, batch),))
        file = self._files.get(folder)
        if file is None:
            staged = self._stage(folder)
            outlet = Outlet(staged.file)
            file = _OpenFile(staged, outlet, self._encoder(outlet, batch.schema, self._options))
            self._files[folder] = file
        self._account(file, lambda: file.encoder.write(batch))
        self._gathered_bytes -= size
        if self._gathered_bytes > self._limit_bytes:
            largest = max(self._files.values(), key=lambda each: each.encoder.pending_bytes)
            self._account(largest, largest.encoder.flush)

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
        # Frames of tracebacks hold batches.
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
        self._gathered_bytes = self.written_bytes = 0
