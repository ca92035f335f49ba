"""A connection to PostgreSQL whose calls have deadlines, and the errors of its server.

The driver's calls block in C. They run on a thread of their own, so that a server that hangs holds neither a shutdown
nor the next attempt: the thread is left behind with its connection, and ends when the network gives it up.
"""

import atexit
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from queue import SimpleQueue
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import adbc_driver_postgresql.dbapi as driver
import pyarrow as pa

from ...config.sql.rowwise import quoted as quoted_name
from ...runtime.errors import DiskFullError, SinkFailedError
from ...runtime.outside import waits_for

__all__ = ["Refused", "Server", "Session", "failing", "quoted"]

T = TypeVar("T")

CONNECT_S = 30.0
GRACE_S = 5.0  # the server ends a statement itself; this is for its answer
LEAVE_S = 2.0
LOOK_S = 0.1  # between two looks at an interrupt
MOST_LEFT_BEHIND = 8  # threads, two a call, whose calls have not ended

_DATA = ("22", "23", "44", "P0")  # classes of SQLSTATE that are about the rows
_DATA_CODES = ("54000",)  # a row that is too large for an index
_DISK_FULL = "53100"
_NO_RIGHT = "42501"
_TRANSACTION_FAILED = "25P02"
# libpq reports a refused login in words alone, without an SQLSTATE.
_NO_LOGIN = re.compile(
    r'(?:role|database) "[^"]*" does not exist|authentication failed|password supplied|pg_hba\.conf'
    "|not permitted to log in|permission denied for database"
)
_UNWRITTEN, _COPYING = ("INVALID_ARGUMENT", "INVALID_DATA"), "writing COPY data"

_left_behind: list[threading.Thread] = []


class Server(NamedTuple):
    """The address of a database, and the limits of its use."""

    uri: str
    """Connection URI of libpq, with the password."""
    name: str
    """The name in messages, without secrets."""
    timeout_s: float
    """The longest time of one statement, in seconds."""


class Refused(Exception):  # noqa: N818 - the server's answer
    """An error that the server or the driver reports. ``sqlstate`` is "" without an answer of the server."""

    def __init__(self, sqlstate: str, message: str, *, of_rows: bool = False) -> None:
        self.sqlstate = sqlstate
        self.message = message
        self.of_rows = of_rows or sqlstate[:2] in _DATA or sqlstate in _DATA_CODES
        """True if other rows would be taken."""
        super().__init__(f"{sqlstate}: {message}" if sqlstate else message)


def failing(server: Server, exc: Refused) -> SinkFailedError:
    """Return the failure of a sink for an error that is not about its rows: it may pass, so it is tried again."""
    kind = DiskFullError if exc.sqlstate == _DISK_FULL else SinkFailedError
    advice = ""
    if exc.sqlstate == _NO_RIGHT:
        advice = ". check --connect says which rights the user lacks"
    elif not exc.sqlstate and _NO_LOGIN.search(exc.message):
        advice = (
            ". Let the user in there, which needs no restart, or correct url and password of the sink. check --connect "
            "tries it"
        )
    return kind(f"{server.name}: {exc}{advice}")


def quoted(*names: str) -> str:
    """Return a qualified SQL identifier."""
    return ".".join(map(quoted_name, names))


class _Job:
    """One call of the driver."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.over = threading.Event()
        self.result: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = self._call()
        except Exception as exc:
            self.error = exc
        self.over.set()


class Session:
    """One connection, in autocommit mode. ``stop`` ends any wait for it.

    Methods raise Refused for an error of the server, and SinkFailedError if there is no answer in time; the session
    cannot be used after the latter.
    """

    def __init__(self, server: Server, stop: threading.Event) -> None:
        self.server = server
        self._stop = stop
        _left_behind[:] = [thread for thread in _left_behind if thread.is_alive()]
        if len(_left_behind) >= MOST_LEFT_BEHIND:
            raise SinkFailedError(f"{server.name}: {len(_left_behind)} earlier calls have not ended yet")
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=_serve, args=(self._jobs,), name="postgresql", daemon=True)
        self._thread.start()
        self._left = False
        self._connection: Any = None
        self._cursor: Any = None
        try:
            self._run("connect", self._connect, CONNECT_S)
        except Refused:
            self.close()
            raise

    def _connect(self) -> None:
        self._connection = driver.connect(self.server.uri, autocommit=True)
        self._cursor = self._connection.cursor()
        # COPY would be faster for large results; not every statement with a result can be copied.
        self._cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})

    def run(self, statement: str, *values: str) -> None:
        """Execute a statement whose result does not matter."""
        self.rows(statement, *values)

    def rows(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        """Execute a statement with text parameters and return its rows."""

        def call() -> list[tuple[Any, ...]]:
            self._cursor.execute(statement, list(values) or None)
            return self._cursor.fetchall() if self._cursor.description else []

        return self._run("run a statement", call, self.server.timeout_s)

    def copy(self, schema: str | None, table: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Copy rows into a table of ``schema``, or (None) into a temporary one, in the binary format.

        The columns must have exactly the types of the table: the server takes the bytes for what they are.
        """
        reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)

        def call() -> None:
            if schema is None:
                self._cursor.adbc_ingest(table, reader, mode="append", temporary=True)
            else:
                self._cursor.adbc_ingest(table, reader, mode="append", db_schema_name=schema)

        try:
            self._run("take rows", call, self.server.timeout_s)
        except Refused as exc:
            if exc.of_rows and not exc.sqlstate and not self.answers():
                exc.of_rows = False
            raise

    @cached_property
    def has_all_text(self) -> bool:
        """True if the database can have any text, by its encoding."""
        return self.rows("SELECT current_setting('server_encoding')")[0][0] in ("UTF8", "SQL_ASCII")

    def answers(self) -> bool:
        """Return True if the connection works, also within a failed transaction."""
        try:
            self.run("SELECT 1")
        except Refused as exc:
            return exc.sqlstate == _TRANSACTION_FAILED
        return True

    def begin(self) -> None:
        """Begin a transaction whose commit is durable, and which the server ends if this process goes away."""
        self.run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        ms = str(int(self.server.timeout_s * 1000))
        # For the transaction only: a pooler may give the next one another session.
        self.rows(
            "SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true),"
            " set_config('idle_in_transaction_session_timeout', $1, true),"
            " set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'"
            " ELSE current_setting('synchronous_commit') END, true)",
            ms,
        )

    def commit(self) -> None:
        """Commit. SinkFailedError, and Refused without a class of the rows, leave the outcome unknown."""
        self.run("COMMIT")

    def rollback(self) -> None:
        """Roll back; errors are ignored, because the connection is then of no use to anybody."""
        with suppress(Refused, SinkFailedError):
            self.run("ROLLBACK")

    def close(self) -> None:
        """Close the connection, unless a call of it was left behind."""
        if self._left:
            return
        self._end()
        # The interpreter must not end while a thread is in the driver's C++, which would abort the process.
        self._thread.join(GRACE_S)

    def _end(self) -> None:
        """Let the thread end when its call has."""
        self._jobs.put(_Job(self._disconnect))
        self._jobs.put(None)

    def _disconnect(self) -> None:
        with suppress(Exception):
            if self._cursor is not None:
                self._cursor.close()
        with suppress(Exception):
            if self._connection is not None:
                self._connection.close()

    def _run(self, what: str, call: Callable[[], T], most_s: float) -> T:
        job = _Job(call)
        self._jobs.put(job)
        until = monotonic() + most_s + GRACE_S
        with waits_for(f"{self.server.name} to {what}", most_s + GRACE_S):
            while not job.over.wait(LOOK_S):
                if self._stop.is_set():
                    self._abandon()
                    raise SinkFailedError(f"the sink was stopped while it waited for {self.server.name} to {what}")
                if monotonic() >= until:
                    self._abandon()
                    raise SinkFailedError(f"{self.server.name} has not answered within {most_s + GRACE_S:.0f} s")
        if job.error is not None:
            raise _refused(job.error) from job.error
        result: T = job.result
        return result

    def _abandon(self) -> None:
        """Leave the call behind, and ask the server to end it, which may take as long as the network does."""
        self._left = True
        _left_behind.append(self._thread)
        cursor = self._cursor

        def cancel() -> None:
            with suppress(Exception):
                if cursor is not None:
                    cursor.adbc_cancel()

        canceller = threading.Thread(target=cancel, name="postgresql-cancel", daemon=True)
        canceller.start()
        _left_behind.append(canceller)
        self._end()


@atexit.register
def _leave() -> None:
    """Give threads that are left behind a moment: see ``Session.close``."""
    until = monotonic() + LEAVE_S
    for thread in _left_behind:
        thread.join(max(0.0, until - monotonic()))


def _serve(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # with the rows that it holds


def _refused(exc: Exception) -> Refused:
    """Return the server's answer in an exception of the driver; re-raises one that is not of the driver."""
    if not isinstance(exc, driver.Error):
        raise exc
    details = dict(_pairs(getattr(exc, "details", None)))
    sqlstate = str(getattr(exc, "sqlstate", None) or "").strip("\0")
    # Without an answer of the server a line may be about each host of the URL.
    message = details.get("PG_DIAG_MESSAGE_PRIMARY") or "; ".join(filter(None, map(str.strip, str(exc).split("\n"))))
    where = details.get("PG_DIAG_COLUMN_NAME") or details.get("PG_DIAG_CONSTRAINT_NAME")
    if where and where not in message:
        message += f" ({where})"
    elif " column " in (context := details.get("PG_DIAG_CONTEXT", "")):
        message += f" (column {context.rpartition(' column ')[2].partition(':')[0]})"
    # Without an answer of the server: the driver cannot write one of the rows, or the connection is gone.
    unwritten = not sqlstate and (getattr(exc.status_code, "name", "") in _UNWRITTEN or _COPYING in str(exc))
    return Refused(sqlstate, message, of_rows=unwritten)


def _pairs(details: Iterable[tuple[Any, bytes]] | None) -> Iterable[tuple[str, str]]:
    for key, value in details or ():
        yield (key.decode(errors="replace") if isinstance(key, bytes) else str(key)), value.decode(errors="replace")
