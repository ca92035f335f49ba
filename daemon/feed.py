"""``fastwire-consume produce``: records from standard input, or generated, into a topic."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from fastwire.errors import FastwireError
from fastwire.pulsar.producer import ProducerSettings
from fastwire.pulsar.routing import Hashing, Router

from .input import InputError, Put, lines_of
from .load import Load
from .logs import console
from .produce import open_topic
from .progress import Progress, ProgressFacts, format_bytes
from .pulsar.producer import Produced, TopicProducer
from .pulsar.settings import ClientSettings

__all__ = ["Aborted", "feed"]

AHEAD_S = 0.02  # a pace is kept by waiting now and then, not for each record
SHOW_S = 0.2


class Aborted(FastwireError):  # noqa: N818 - what has happened
    """Stopped by force: what was not confirmed may be stored or not."""


async def feed(
    client: ClientSettings,
    topic: str,
    settings: ProducerSettings,
    what: "Load | Callable[[bytes], Put]",
    *,
    hashing: Hashing = Hashing.JAVA,
    rate: int | None = None,
    descriptor: int = 0,
) -> None:
    """Produce a load, or the lines of ``descriptor`` as ``what`` reads them, at most ``rate`` records a second.

    The first SIGINT or SIGTERM sends what was read and ends, a second one aborts. Says at the end on stderr what was
    confirmed, whatever the end was like. Raises ProduceError, InputError, Aborted, OSError.
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
        async with open_topic(client, topic, settings, router=Router(1, hashing=hashing)) as producer:
            pace = _Pace(rate)
            if isinstance(what, Load):
                feeding = asyncio.create_task(_generate(producer, what, pace))
            else:
                feeding = asyncio.create_task(_read(producer, descriptor, what, pace))
            await _until_confirmed(producer, feeding)
    except asyncio.CancelledError:
        if not aborted:
            raise
        raise Aborted("aborted: what is not confirmed may be stored or not") from None


async def _until_confirmed(producer: TopicProducer, feeding: "asyncio.Task[None]") -> None:
    started = time.monotonic()
    showing = asyncio.create_task(_show(producer.produced))
    try:
        await asyncio.wait((feeding,))
        await producer.flush()
        if not feeding.cancelled():
            feeding.result()
    finally:
        feeding.cancel()
        showing.cancel()
        await asyncio.wait((feeding, showing))
        _sum_up(producer, time.monotonic() - started)


async def _generate(producer: TopicProducer, load: Load, pace: "_Pace") -> None:
    load = replace(load, partitions=producer.partitions)
    for partition, entry in load.entries(lambda: time.time_ns() // 1_000_000):
        await producer.put_entry(entry, partition=partition)
        await pace.keep(entry.messages)


async def _read(producer: TopicProducer, descriptor: int, parse: Callable[[bytes], Put], pace: "_Pace") -> None:
    number = 0
    async for lines in lines_of(descriptor):
        for line in lines:
            number += 1
            try:
                record, partition = parse(line)
            except ValueError as exc:
                raise InputError(f"line {number}: {exc}") from None
            await producer.put(record, partition=partition)
            await pace.keep(1)


class _Pace:
    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._started = time.monotonic()
        self._sent = 0

    async def keep(self, records: int) -> None:
        """Wait until it is time for more than ``records`` more."""
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
            progress.show(ProgressFacts(produced.records, produced.bytes))
            await asyncio.sleep(SHOW_S)
    finally:
        progress.close()


def _sum_up(producer: TopicProducer, seconds: float) -> None:
    produced = producer.produced
    rate = produced.records / seconds if seconds > 0 else 0.0
    print(
        f"{produced.records:,} record{'' if produced.records == 1 else 's'} confirmed in {producer.topic},"
        f" {format_bytes(produced.bytes)} in {produced.entries:,} entr{'y' if produced.entries == 1 else 'ies'};"
        f" {seconds:.1f} s, {rate:,.0f} records/s",
        file=sys.stderr,
    )
