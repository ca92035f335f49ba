"""The writer of a topic on an event loop of its own, for a sink whose calls block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Any, TypeVar

from fastwire.errors import FastwireError, causes

from ..net.backoff import Backoff
from ..net.endpoint import LinkLost, RequestTimeout, UnreachableError
from ..runtime.errors import DatasetError, SinkFailedError
from ..runtime.logs import get_logger
from ..runtime.outside import waiting
from ..systems.writer import ConfirmedWriter

FIRST_PAUSE_S, MOST_PAUSE_S = 0.5, 30.0
STALLED_S = 5.0  # without a receipt; a shorter wait is back-pressure

_T = TypeVar("_T")

_log = get_logger("sink")


class TopicOutlet:
    """Opens a writer and runs coroutines with it; ``what`` names the topic in messages.

    The writer runs on an event loop of its own, so that receipts are read between the calls. :attr:`waiting` and
    :meth:`interrupt` are for any thread, the other methods for the thread of the sink.
    """

    def __init__(self, make_writer: Callable[[], AbstractAsyncContextManager[ConfirmedWriter]], what: str) -> None:
        self.what = what
        self._make_writer = make_writer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._writer: ConfirmedWriter | None = None
        self._held: asyncio.Task[None] | None = None
        self._call: asyncio.Task[Any] | None = None
        self._interrupted = False
        self._away: str | None = None
        self._progress = (0, 0.0)  # confirmed records, and when the number was seen to change
        self._began: float | None = None

    @property
    def writer(self) -> ConfirmedWriter:
        """The open writer. Raises SinkFailedError if there is none."""
        if self._writer is None:
            raise SinkFailedError("the sink is not open")
        return self._writer

    @property
    def is_open(self) -> bool:
        """True while there is a writer."""
        return self._writer is not None

    @property
    def thread(self) -> int | None:
        """The number of the thread of the loop."""
        return None if self._thread is None else self._thread.ident

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
        if (declared := waiting((self.thread,))) is not None:
            return declared
        why = writer.produced.trouble
        return f"{self.what} has confirmed no record for {waited:.0f} s{why and f': {why}'}"

    def interrupt(self) -> None:
        """End the call that waits, which raises SinkFailedError. Lasts until ``open``."""
        self._interrupted = True
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel_call)

    def _cancel_call(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def open(self) -> None:
        """Open the writer anew, and wait for brokers that are away."""
        self._interrupted = False
        if self._thread is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="topic-writer", daemon=True)
            self._thread.start()
        self.run(self._reopen)

    def close(self) -> None:
        """Close the writer; unconfirmed records are dropped, or stored without being acknowledged."""
        loop, thread, self._thread = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._leave(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = None

    def run(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run a coroutine on the loop of the writer. Raises SinkFailedError, and the DatasetError that it raises."""
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
        except (SinkFailedError, DatasetError):
            raise
        except FastwireError as exc:
            raise SinkFailedError(f"{self.what}: {exc}") from exc
        except CancelledError as exc:
            raise SinkFailedError(f"the sink was stopped while it waited: {self._away or self.what}") from exc
        finally:
            self._began = self._call = None

    # --- on the loop

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
                    again_s = backoff.failed(_log, "the topic cannot be opened", exc, topic=self.what)
                    self._away = f"{self.what} cannot be reached: {exc}"
                await asyncio.sleep(again_s)
        finally:
            self._away = None

    async def _enter(self) -> None:
        """Open the writer in a task of its own, which also closes it."""
        opened: asyncio.Future[ConfirmedWriter] = asyncio.get_running_loop().create_future()

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
        self._progress = (self._writer.produced.records, monotonic())

    async def _leave(self) -> None:
        held, self._held, self._writer = self._held, None, None
        if held is not None:
            held.cancel()
            await asyncio.wait([held])
            if not held.cancelled():
                held.exception()  # the failure of closing; the connection is gone either way


def _is_away(error: BaseException) -> bool:
    """Return True if ``error`` was caused by a broker that does not answer."""
    return any(isinstance(each, UnreachableError | LinkLost | RequestTimeout) for each in causes(error))
