"""The process that runs the query of a transform, with limits of the kernel for all its memory and its processor time.

A query that takes more fails, or ends this process (by SIGPROF for the time), and never the daemon. It answers requests
on stdin until that ends: see ``process.py``.
"""

import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

import duckdb
import orjson
import pyarrow as pa

from .process import SIZES, room_for
from .rowwise import TABLE, engine, first_line, landing_sql

# Errors of a query, or of its columns. Other errors come of the rows.
_OF_A_QUERY = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
_OF_A_ROW = (duckdb.DataError, duckdb.InvalidInputException, duckdb.ConstraintException)
_NO_MEMORY = (MemoryError, pa.ArrowMemoryError, duckdb.OutOfMemoryException)


def main() -> None:
    """Answer requests until stdin ends. The process that asks decides when that is, also after a signal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else writes between answers
    queries = _Queries()
    limit = _Limit(queries)
    _put(answers, {}, b"")  # it has started
    while head := given.read(SIZES.size):
        size, nbytes = SIZES.unpack(head)
        request = orjson.loads(given.read(size))
        limit.set(nbytes)
        rows = given.read(nbytes)
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        answer = _answered(queries, request["sql"], rows)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _put(answers, *answer)


def _put(answers: BinaryIO, fault: Mapping[str, str], body: Any) -> None:
    text = orjson.dumps(fault)
    for part in (SIZES.pack(len(text), len(body)), text, body):
        answers.write(part)
    answers.flush()


def _answered(queries: "_Queries", sql: str, rows: bytes) -> tuple[dict[str, str], Any]:
    """Return what went wrong ({} if nothing did), and the rows of the result."""
    try:
        with pa.ipc.open_stream(rows) as stream:
            source = stream.read_all()
        return {}, _encoded(queries.select(sql, source))
    except _NO_MEMORY as exc:
        return {"kind": "memory", "text": first_line(exc) or "Out of Memory Error"}, b""
    except _OF_A_QUERY as exc:
        return {"kind": "query", "text": first_line(exc)}, b""
    except duckdb.Error as exc:
        if not isinstance(exc, _OF_A_ROW):
            queries.reset()  # it may have ended the database
        return {"kind": "value", "text": first_line(exc)}, b""
    except ValueError as exc:
        return {"kind": "query", "text": str(exc)}, b""


def _encoded(table: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue()


class _Queries:
    """An engine, and the query of each schema as it lands."""

    def __init__(self) -> None:
        self._landing: dict[tuple[str, bytes], str] = {}
        self.reset()

    def reset(self) -> None:
        self._engine = engine()

    def select(self, sql: str, source: pa.Table) -> pa.Table:
        self._engine.register(TABLE, source)
        try:
            key = sql, source.schema.serialize().to_pybytes()
            if key not in self._landing:
                self._landing[key] = landing_sql(self._engine, sql)
            return self._engine.sql(self._landing[key]).to_arrow_table()
        finally:
            self._engine.unregister(TABLE)  # else it keeps the memory of the rows


class _Limit:
    """The limit for the data of this process: what it has now, and the room of a request."""

    def __init__(self, queries: _Queries) -> None:
        queries.select(f"SELECT one FROM {TABLE}", pa.table({"one": [1]}))  # the libraries have their threads then
        self._own = _data_bytes()

    def set(self, nbytes: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (self._own + room_for(nbytes), hard))


def _data_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmData:"))
