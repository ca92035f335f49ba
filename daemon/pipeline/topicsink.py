"""A sink that writes records to a topic of any system, at least once."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import pyarrow as pa

from fastwire.columns.chunk import Chunk, SpanAccumulator
from fastwire.columns.rows import Rows
from fastwire.errors import FastwireError
from fastwire.position import Coverage, Log
from fastwire.systems import row_of

from ..config import ConfigError, PipelineConfig, Problem
from ..net.backoff import Backoff
from ..net.endpoint import LinkLost, RequestTimeout, UnreachableError
from ..runtime.errors import LogRefusedError, SinkFailedError
from ..runtime.logs import get_logger
from ..sinks.unlogged import UnloggedSink
from ..systems.registry import system_named
from ..systems.writer import WriteOptions, Writer

__all__ = ["TopicSink", "topic_sink"]

FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 30.0
STALLED_S = 5.0  # without a receipt; a shorter wait is back-pressure
_BATCH_RECORDS = 1000

_T = TypeVar("_T")

_log = get_logger("sink")


def topic_sink(config: PipelineConfig) -> "TopicSink":
    """Return the sink of a pipeline that writes to a topic; it is not opened yet. Raises ConfigError."""
    sink = config.sink
    assert sink.connection is not None, "the configuration was checked"
    assert sink.topic is not None
    system = sink.connection.system
    options = WriteOptions(
        compression=None if sink.compression is None else sink.compression.upper(),
        batch=_BATCH_RECORDS,
        batching=sink.batching,
        hashing=sink.key_hash,
    )
    make_writer = partial(system_named(system).open_writer, sink.connection, sink.topic, options)
    try:
        make_writer()  # raises now what is wrong with the options; it connects only when it is entered
    except ValueError as exc:
        raise ConfigError([Problem("", "sink.compression", str(exc))]) from None
    ordering_keys = "orderingKey" in row_of(system).names
    return TopicSink(make_writer, f"{sink.topic} at {sink.connection.url}", ordering_keys=ordering_keys)


class TopicSink(UnloggedSink):
    """Writes the rows of chunks to a topic with their keys, headers and event times; ``what`` names it in messages.

    A commit returns when the brokers have confirmed all records. Records that were written and not committed are
    written again after a failure or a restart. Entries that cannot be decoded are logged and not written. The writer
    runs on an event loop of its own, so that receipts are read between the calls. :attr:`waiting` and
    :meth:`interrupt` are for any thread.
    """

    def __init__(
        self, make_writer: Callable[[], AbstractAsyncContextManager[Writer]], what: str, *, ordering_keys: bool = False
    ) -> None:
        super().__init__()
        self._make_writer = make_writer
        self._what = what
        self._ordering_keys = ordering_keys
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._writer: Writer | None = None
        self._held: asyncio.Task[None] | None = None
        self._call: asyncio.Task[Any] | None = None
        self._interrupted = False
        self._away: str | None = None
        self._unconfirmed = 0  # records since the last flush
        self._confirmed = 0  # records of the writer until then
        self._progress = (0, 0.0)  # confirmed records, and when the number was seen to change
        self._began: float | None = None
        self.changed_times = 0
        """Event times that the topic does not have as they are, of all records written."""

    # --- state, for any thread

    @property
    def waiting(self) -> str | None:
        """The reason why a call waits, for the status; None if none waits for longer than a few seconds."""
        began, writer = self._began, self._writer
        if self._away is not None or began is None or writer is None:
            return self._away
        now, confirmed = monotonic(), writer.produced.records
        if confirmed != self._progress[0]:
            self._progress = (confirmed, now)
        waited = now - max(began, self._progress[1])
        if waited < STALLED_S:
            return None
        return f"{self._what} has confirmed no record for {waited:.0f} s"

    def interrupt(self) -> None:
        """End the call that waits, which raises SinkFailedError. Lasts until ``open``."""
        self._interrupted = True
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel_call)

    def _cancel_call(self) -> None:
        if self._call is not None:
            self._call.cancel()

    # --- the sink

    def open(self) -> Coverage:
        """Open the topic, and wait for brokers that are away; return the Coverage of the commits so far."""
        self._interrupted = False
        self._spans = SpanAccumulator()
        if self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="topic-writer", daemon=True)
            self._thread.start()
        self._run(self._reopen)
        return self._coverage.copy()

    def write(self, chunk: Chunk) -> None:
        """Pass the rows of ``chunk`` to the producer; waits while it has too many unconfirmed bytes."""
        for letter in chunk.dead_letters:
            _log.warning("an entry cannot be decoded and was not written", log=str(letter.log), reason=letter.reason)
        self._spans.add(chunk)
        self.rows += chunk.rows
        if not chunk.rows:
            chunk.release()
            return
        runs = [(chunk.log(index), first, rows) for index, first, rows in chunk.runs()]
        batch = pa.record_batch(chunk)
        chunk.release()  # Arrow holds its memory from here on
        self._run(partial(self._write, batch, runs))

    def commit(self) -> Coverage:
        """Wait until the brokers have confirmed all records; return the Coverage with them."""
        if self._writer is not None:
            self._run(self._flush)
        return super().commit()

    def close(self) -> None:
        """Close the producer; unconfirmed records are dropped, or stored without being acknowledged."""
        loop, thread, self._thread = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._leave(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = None

    # --- inside

    def _run(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on the loop of the writer. Raises SinkFailedError."""
        loop = self._loop
        if loop is None:
            raise SinkFailedError("the sink is not open")

        async def calling() -> _T:
            self._call = asyncio.current_task()
            if self._interrupted:
                raise asyncio.CancelledError
            return await call()

        self._began = monotonic()
        try:
            return asyncio.run_coroutine_threadsafe(calling(), loop).result()
        except SinkFailedError:
            raise
        except FastwireError as exc:
            raise SinkFailedError(f"{self._what}: {exc}") from exc
        except CancelledError as exc:
            raise SinkFailedError(f"the sink was stopped while it waited: {self._away or self._what}") from exc
        finally:
            self._began = self._call = None

    async def _reopen(self) -> None:
        await self._leave()
        backoff = Backoff(first_s=FIRST_PAUSE_S, most_s=MOST_PAUSE_S)
        try:
            while True:
                try:
                    await self._enter()
                    return
                except FastwireError as exc:
                    if not _is_away(exc):
                        raise
                    again_s = backoff.failed(_log, "the topic cannot be opened", exc, topic=self._what)
                    self._away = f"{self._what} cannot be reached: {exc}"
                await asyncio.sleep(again_s)
        finally:
            self._away = None

    async def _enter(self) -> None:
        """Open the writer in a task of its own, which also closes it."""
        opened: asyncio.Future[Writer] = asyncio.get_running_loop().create_future()

        async def hold() -> None:
            try:
                async with self._make_writer() as writer:
                    opened.set_result(writer)
                    await asyncio.Event().wait()
            except Exception as exc:  # whatever it is: ``opened`` is waited for
                if opened.done():
                    raise
                opened.set_exception(exc)

        self._held = asyncio.create_task(hold())
        self._writer = await opened
        self._unconfirmed, self._confirmed = 0, self._writer.produced.records
        self._progress = (self._confirmed, monotonic())

    async def _leave(self) -> None:
        held, self._held, self._writer = self._held, None, None
        if held is not None:
            held.cancel()
            await asyncio.wait([held])
            if not held.cancelled():
                held.exception()  # the failure of closing; the connection is gone either way

    async def _flush(self) -> None:
        writer = self._writer
        assert writer is not None
        await writer.flush()
        confirmed, self._confirmed = writer.produced.records - self._confirmed, writer.produced.records
        expected, self._unconfirmed = self._unconfirmed, 0
        if confirmed != expected:
            raise SinkFailedError(f"{self._what} has confirmed {confirmed:,} of {expected:,} records")

    async def _write(self, batch: pa.RecordBatch, runs: list[tuple[Log, int, int]]) -> None:
        writer = self._writer
        if writer is None:
            raise SinkFailedError("the sink is not open")
        batch = _outgoing(batch, self._ordering_keys)
        for log, first, rows in runs:
            given = Rows(batch.slice(first, rows), text_keys=True)
            try:
                await writer.write_rows(given)
                self._unconfirmed += rows
            except ValueError as exc:
                raise LogRefusedError(
                    f"a record of {log} cannot be written to {self._what}: {exc}", log.__eq__
                ) from exc
            if given.changed_times and not self.changed_times:
                _log.warning(
                    "the topic cannot hold some event times as they are: they are written in whole milliseconds, or "
                    "without the time if the system has no number for it",
                    topic=self._what,
                    times=given.changed_times,
                )
            self.changed_times += given.changed_times


def _is_away(error: BaseException | None) -> bool:
    """Return True if ``error`` was caused by a broker that does not answer."""
    while error is not None and not isinstance(error, UnreachableError | LinkLost | RequestTimeout):
        error = error.__cause__
    return error is not None


def _outgoing(batch: pa.RecordBatch, ordering_keys: bool) -> pa.RecordBatch:
    """Return the columns that are written. A system with event times has them in a column of their own."""
    names = batch.schema.names
    columns = {name: batch.column(name) for name in ("value", "key", "headers") if name in names}
    columns["eventTime"] = batch.column("eventTime" if "eventTime" in names else "timestamp")
    if ordering_keys and "orderingKey" in names:
        columns["orderingKey"] = batch.column("orderingKey")
    return pa.record_batch(columns)
