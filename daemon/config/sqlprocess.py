"""A process for the query of a transform, in which memory has a limit.

The first request starts it, and the next one after its death. (Lists of DuckDB are memory that DuckDB does not limit.)
"""

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl
from struct import Struct
from typing import IO, TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SIZES", "NoMemoryError", "QueryError", "RowsError", "SqlProcess", "room_for"]

_MAIN = "from fastwire_daemon.config.sqlworker import main; main()"
SIZES = Struct("<IQ")
"""Bytes of the JSON and of the Arrow stream of a request or an answer, which stand before both."""
_END_S = 5.0
_PIPE = 1 << 20  # bytes that go to and fro at once
_ROOM, _SHARE = 128 << 20, 6


def room_for(nbytes: int) -> int:
    """Return the memory that a query over ``nbytes`` of rows may take, in bytes. It depends on the rows alone."""
    return _ROOM + _SHARE * nbytes


class RowsError(Exception):
    """A query has failed for some of its rows."""


class NoMemoryError(RowsError):
    """A query has taken more memory than it may."""


class QueryError(Exception):
    """A query does not fit the columns."""


_ERRORS: dict[str, type[Exception]] = {"value": RowsError, "memory": NoMemoryError, "query": QueryError}


class SqlProcess:
    """Runs queries over rows. For one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def select(self, sql: str, source: "pa.RecordBatch") -> "pa.Table":
        """Return the rows of ``sql`` over the table ``batch``, which are those of ``source``.

        Raises RowsError, also where the memory of :func:`room_for` is not enough; QueryError; OSError if no process can
        be started.
        """
        import pyarrow as pa

        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, source.schema) as stream:
            stream.write_batch(source)
        rows, head = out.getvalue(), orjson.dumps({"sql": sql})
        message = (SIZES.pack(len(head), rows.size), head, rows)
        answer = self._asked(message) or self._asked(message)  # something else may have ended the process
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

    def _asked(self, message: Sequence[Any]) -> tuple[dict[str, str], bytes] | None:
        """Return what went wrong and the rows; None if the process has ended meanwhile, or had while it was idle."""
        idle = self._process is not None
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            for part in message:
                process.stdin.write(part)
            process.stdin.flush()
            return _answer(process.stdout)
        except (BrokenPipeError, EOFError):
            killed = process.wait(_END_S) == -signal.SIGKILL
            self.end()
            if killed and not idle:
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
