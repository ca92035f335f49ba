"""A process for the query of a transform, in which memory and processor time have a limit.

The first request starts it, and the next one after its death. (Lists of DuckDB are memory that DuckDB does not limit,
and DuckDB has no limit of time.)
"""

import os
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl
from struct import Struct
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import pyarrow as pa

_MAIN = "from fastwire_daemon.config.sql.worker import main; main()"
SIZES = Struct("<IQ")
"""Bytes of the JSON and of the Arrow stream of a request or an answer, which stand before both."""
_END_S = 5.0
_PIPE = 1 << 20  # bytes that go to and fro at once
_ROOM, _SHARE = 128 << 20, 6
_TIME_S, _TIME_ROW_S, _TIME_MIB_S = 2.0, 0.001, 1.0
_QUIET_S, _LOOK_S = 1.0, 0.1
_WALL = 10  # times the processor time: a busy machine is no fault of the rows, and a stopped process ends


def room_for(nbytes: int) -> int:
    """Return the memory that a query over ``nbytes`` of rows may take, in bytes. It depends on the rows alone."""
    return _ROOM + _SHARE * nbytes


def time_for(rows: int, nbytes: int) -> float:
    """Return the seconds of processor time that a query over ``rows`` of ``nbytes`` may take."""
    return _TIME_S + _TIME_ROW_S * rows + _TIME_MIB_S * (nbytes / (1 << 20))


class RowsError(Exception):
    """A query has failed for some of its rows."""


class NoMemoryError(RowsError):
    """A query has taken more memory than it may."""


class NoTimeError(RowsError):
    """A query has taken more processor time than it may."""


class QueryError(Exception):
    """A query does not fit the columns."""


_ERRORS: dict[str, type[Exception]] = {"value": RowsError, "memory": NoMemoryError, "query": QueryError}


class SqlProcess:
    """Runs queries over rows. For one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def select(
        self, sql: str, source: "pa.RecordBatch", pause: Callable[[str, float], None] | None = None
    ) -> "pa.Table":
        """Return the rows of ``sql`` over the table ``batch``, which are those of ``source``.

        Calls ``pause`` with the reason and seconds while a query lasts longer than a second; what it raises ends the
        query. Raises RowsError, also where the memory of :func:`room_for` or the time of :func:`time_for` is not
        enough; QueryError; OSError if no process can be started, or it does not answer.
        """
        import pyarrow as pa

        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, source.schema) as stream:
            stream.write_batch(source)
        rows = out.getvalue()
        most_s = time_for(source.num_rows, rows.size)
        head = orjson.dumps({"sql": sql, "seconds": most_s})
        message = (SIZES.pack(len(head), rows.size), head, rows)
        wait = _Wait(source.num_rows, most_s, pause)
        answer = self._asked(message, wait) or self._asked(message, wait)  # something else may have ended the process
        if answer is None:
            raise NoMemoryError(
                f"the process of the query has ended: more than {room_for(rows.size) >> 20} MiB of memory?"
            )
        fault, body = answer
        if fault:
            raise _ERRORS[fault["kind"]](fault["text"])
        with pa.ipc.open_stream(body) as stream:
            return stream.read_all()

    def end(self) -> None:
        """End the process, which the next request starts again."""
        process, self._process = self._process, None
        if process is not None:
            self._finalizer.detach()
            _end(process)

    def _asked(self, message: Sequence[Any], wait: "_Wait") -> tuple[dict[str, str], bytes] | None:
        """Return what went wrong and the rows; None if the process has ended meanwhile, or had while it was idle.

        Raises NoTimeError.
        """
        idle = self._process is not None
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            for part in message:
                process.stdin.write(part)
            process.stdin.flush()
            wait.until_ready(process.stdout)
            return _answer(process.stdout)
        except (BrokenPipeError, EOFError):
            code = process.wait(_END_S)
            self.end()
            if code == -signal.SIGPROF:
                raise NoTimeError(f"the query takes more than {wait.most_s:.1f} s of processor time") from None
            if code == -signal.SIGKILL and not idle:
                raise OSError("the system has killed it: has it no memory left?") from None
            return None
        except BaseException:
            self.end()
            raise

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            # In a group of its own, a Ctrl-C reaches only this process, which lets it end its work.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _MAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
                env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},  # others reserve a GiB at once
            )
            self._finalizer = weakref.finalize(self, _end, self._process)
            assert self._process.stdin is not None and self._process.stdout is not None
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):  # beyond the user's limit it stays smaller
                    fcntl(pipe, F_SETPIPE_SZ, _PIPE)
            try:
                _answer(self._process.stdout)
            except BaseException as exc:
                self.end()
                if isinstance(exc, EOFError):
                    raise OSError("it does not start") from None
                raise
        return self._process


class _Wait:
    """Waits for the answer to one query."""

    def __init__(self, rows: int, most_s: float, pause: Callable[[str, float], None] | None) -> None:
        self.most_s = most_s
        self._rows = rows
        self._pause = pause

    def until_ready(self, file: IO[bytes]) -> None:
        """Return as soon as there is something to read. Raises TimeoutError if the process does not run."""
        poll, began = select.poll(), monotonic()
        poll.register(file, select.POLLIN)
        at_most = 1_000 * _QUIET_S
        while not poll.poll(at_most):
            for_s = monotonic() - began
            if for_s > _WALL * self.most_s:
                raise TimeoutError(
                    f"it has not answered for {for_s:.0f} s, and used less than {self.most_s:.1f} s of them"
                )
            why = f"the query of the transform has run for {for_s:.0f} s over {self._rows} rows"
            (self._pause or _sleep)(why, _LOOK_S)
            at_most = 0


def _sleep(_: str, seconds: float) -> None:
    sleep(seconds)


def _answer(file: IO[bytes]) -> tuple[dict[str, str], bytes]:
    size, nbytes = SIZES.unpack(_read(file, SIZES.size))
    return orjson.loads(_read(file, size)), _read(file, nbytes)


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()  # it has nothing that would be lost
    process.wait()
    assert process.stdin is not None and process.stdout is not None
    process.stdout.close()
    try:
        process.stdin.close()
    except OSError:
        pass
