"""``fastwire-consume produce``: writes records from standard input, or generated ones, to a topic."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from fastwire.errors import FastwireError

from ...runtime.amounts import counted, format_bytes
from ...runtime.logs import console
from ...service.progress import Progress, ProgressFacts
from ...systems.load import Load
from ...systems.produced import Produced
from ...systems.writer import Put, Writer
from ..retry import open_when_up
from ..say import say
from .input import InputError, lines_of

AHEAD_S = 0.02  # the pace waits only when it is ahead by more than this, not for each record
SHOW_S = 0.2


class Aborted(FastwireError):  # noqa: N818 - named for the event
    """A signal stopped the command before all records were confirmed."""


async def feed(
    make_writer: Callable[[], AbstractAsyncContextManager[Writer]],
    what: "Load | Callable[[bytes], Put]",
    *,
    rate: int | None = None,
    descriptor: int = 0,
) -> None:
    """Produce a load, or the lines of ``descriptor`` as ``what`` parses them, at most ``rate`` records per second.

    ``make_writer`` is called for each attempt to open the topic: a broker that is starting is waited for. The first
    SIGINT or SIGTERM sends the records that were read and ends, a second one aborts. A summary of the confirmed
    records goes to stderr once the topic is open. Raises ProduceError, InputError, Aborted, OSError.
    """
    loop = asyncio.get_running_loop()
    working = asyncio.current_task()
    feeding: asyncio.Task[None] | None = None
    aborted = False

    def stop() -> None:
        nonlocal aborted
        if feeding is not None and not feeding.done() and not feeding.cancelling():
            feeding.cancel()
        elif working is not None:
            aborted = True
            working.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with AsyncExitStack() as stack:
            writer = await open_when_up(lambda: stack.enter_async_context(make_writer()))
            pace = _Pace(rate)
            if isinstance(what, Load):
                feeding = asyncio.create_task(_generate(writer, what, pace))
            else:
                feeding = asyncio.create_task(_read(writer, descriptor, what, pace))
            await _until_confirmed(writer, feeding)
    except asyncio.CancelledError:
        if not aborted:
            raise
        outcome = "no record was sent" if feeding is None else "unconfirmed records may be stored or not"
        raise Aborted(f"aborted: {outcome}") from None


async def _until_confirmed(writer: Writer, feeding: "asyncio.Task[None]") -> None:
    started = time.monotonic()
    showing = asyncio.create_task(_show(writer.produced))
    try:
        await asyncio.wait((feeding,))
        await writer.flush()
        if not feeding.cancelled():
            feeding.result()
    finally:
        feeding.cancel()
        showing.cancel()
        await asyncio.wait((feeding, showing))
        _sum_up(writer, time.monotonic() - started)


async def _generate(writer: Writer, load: Load, pace: "_Pace") -> None:
    async for records in writer.generate(load):
        await pace.keep(records)


async def _read(writer: Writer, descriptor: int, parse: Callable[[bytes], Put], pace: "_Pace") -> None:
    number = 0
    async for lines in lines_of(descriptor):
        for line in lines:
            number += 1
            try:
                await writer.write(parse(line))
            except ValueError as exc:
                raise InputError(f"line {number}: {exc}") from None
            await pace.keep(1)


class _Pace:
    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._started = time.monotonic()
        self._sent = 0

    async def keep(self, records: int) -> None:
        """Count ``records`` as sent, and wait until the rate allows more."""
        if self._rate is None:
            return
        self._sent += records
        ahead = self._started + self._sent / self._rate - time.monotonic()
        if ahead > AHEAD_S:
            await asyncio.sleep(ahead)


async def _show(produced: Produced) -> None:
    progress = Progress(console())
    try:
        while True:
            progress.show(lambda: ProgressFacts(produced.records, produced.bytes))
            await asyncio.sleep(SHOW_S)
    finally:
        progress.close()


def _sum_up(writer: Writer, seconds: float) -> None:
    produced = writer.produced
    rate = produced.records / seconds if seconds > 0 else 0.0
    say(
        f"{counted(produced.records, 'record')} confirmed in {writer.topic},"
        f" {format_bytes(produced.bytes)} in {counted(produced.entries, 'entry', 'entries')};"
        f" {seconds:.1f} s, {rate:,.0f} records/s",
        err=True,
    )
