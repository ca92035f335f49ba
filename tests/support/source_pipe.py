"""A pipeline as a source sees it, for tests: takes chunks, keeps Coverage, commits on request, counts rows."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter, SpanAccumulator
from fastwire.coverage import Coverage
from fastwire.position import Log, Position
from fastwire.pulsar.format.payload import Compression, Entry, Record, encode_batch_entry
from fastwire.pulsar.grammar import GRAMMAR as PULSAR
from fastwire.pulsar.names.pattern import parse_pattern
from fastwire.pulsar.names.topic import parse_service_url, parse_topic
from fastwire.wire.pool import Pool
from fastwire_daemon.config import parse_start
from fastwire_daemon.devbroker.base import DevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.systems.pulsar.source import PulsarSettings, PulsarSource
from fastwire_daemon.systems.pulsar.system import beside
from fastwire_daemon.systems.source import Assignment, First, LogStopped, SourceFailed
from tests.support.waiting import until

__all__ = ["AnyPipe", "Pipe", "entries", "entry", "playing", "serving", "until"]


def entry(number: int, rows: int = 10, size: int = 0, compression: Compression = Compression.NONE) -> Entry:
    """Entry ``number`` of a topic: row ``i`` of it has the value ``number:i``, published at second ``number``."""
    records = [Record(value=b"%d:%d" % (number, row) + b"." * size) for row in range(rows)]
    return encode_batch_entry(
        records,
        producer_name="p",
        sequence_id=number * rows,
        publish_time=1_700_000_000_000 + number * 1000,
        compression=compression,
    )


def entries(first: int, count: int, rows: int = 10, size: int = 0) -> list[Entry]:
    return [entry(number, rows, size) for number in range(first, first + count)]


B = TypeVar("B", bound=DevBroker)
P = TypeVar("P", bound="AnyPipe")


class AnyPipe:
    """Plays the pipeline of a source that whoever inherits makes, of any system.

    ``auto``: resolve and grant without being told; ``eager``: commit what is revoked; ``room``: what ``on_chunk`` says.
    """

    source: Any

    def __init__(self, coverage: Coverage | None = None, pool: Pool | None = None) -> None:
        self.coverage = coverage or Coverage()
        self.auto = True
        self.eager = False
        self.room = True
        self.values: Counter[tuple[str, str, bytes]] = Counter()  # (topic, partition, value) of all rows that came
        self.landed: Counter[tuple[str, str, bytes]] = Counter()  # what of it was committed
        self.rows = 0
        self.dead_letters: list[DeadLetter] = []
        self.firsts: list[First] = []
        self.assigned: list[Assignment] = []
        self.told: list[tuple[Any, ...]] = []  # everything else, in order
        self.failure: SourceFailed | None = None
        self._spans = SpanAccumulator()
        self._staged: Counter[tuple[str, str, bytes]] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self.pool = pool or Pool(1 << 28)

    async def waits_for(self, text: str) -> None:
        """Start, until the source says that it waits because of ``text``; then close."""
        starting = asyncio.ensure_future(self.start())
        await until(lambda: text in self.source.unreachable_because, text, lambda: self.source.unreachable_because)
        assert self.source.unreachable_since is not None
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await self.close()

    # --- SourceEvents

    def on_chunk(self, chunk: Chunk) -> bool:
        if chunk.rows:  # there may be dead letters only
            rows = pa.record_batch(chunk)
            columns = (rows[name].cast(pa.string()).to_pylist() for name in ("topic", "partition"))
            came = list(zip(*columns, rows["value"].to_pylist(), strict=True))
            self.values.update(came)
            self._staged.update(came)
            self.rows += chunk.rows
            del rows
        self.dead_letters += chunk.dead_letters
        self._spans.add(chunk)
        chunk.release()
        return self.room

    def on_grown(self) -> None:
        """See ``SourceEvents.on_grown``: nothing limits the memory here."""

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        self.told.append(("assigned", *(one.index for one in assignments)))
        self.assigned += assignments
        if self.auto:
            self.spawn(self.take(assignments))

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        self.told.append(("revoked", *indexes))
        if self.eager:
            self.commit()

    def on_diverged(self, index: int, reason: str) -> None:
        self.told.append(("diverged", index, reason))
        self.drop_roll()
        self.source.void()

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        self.told.append(("stalled", index, reason))

    def on_floor(self, index: int, floor: Position) -> None:
        self.told.append(("settled", index, floor))
        self.coverage.raise_floor(self.source.logs[index], floor)

    def on_unconfirmed(self, reason: str) -> None:
        self.told.append(("unconfirmed", reason))
        if self.eager:
            self.commit()

    def on_stopped(self, index: int, error: LogStopped) -> None:
        self.told.append(("stopped", index, str(error)))

    def on_failed(self, error: SourceFailed) -> None:
        self.failure = error

    # --- what a pipeline does

    def spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()

    async def take(self, assignments: Sequence[Assignment]) -> None:
        firsts = await self.source.resolve(assignments, self.coverage)
        self.firsts += firsts
        for first in firsts:
            self.coverage.add(first.span)
        self.source.grant(assignments, self.coverage)

    def commit(self) -> None:
        for span in self._spans.take():
            self.coverage.add(span)
        self.landed += self._staged
        self._staged.clear()
        self.source.landed(self.coverage)

    def drop_roll(self) -> None:
        self._staged.clear()
        self._spans.take()

    async def start(self) -> Self:
        await self.source.start(self.coverage)
        return self

    async def got(self, rows: int) -> None:
        await until(lambda: self.rows >= rows, f"{rows} rows", lambda: (self.rows, self.told))

    async def granted(self) -> None:
        """Wait until every partition is read."""
        await until(lambda: all(one.granted for one in self.source.partitions), "all partitions granted")

    def count(self, kind: str) -> int:
        return sum(one[0] == kind for one in self.told)

    def once(self) -> bool:
        """Return whether no row has come twice."""
        return max(self.values.values(), default=1) == 1

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self.source.close(5.0)


@asynccontextmanager
async def serving(broker: B, partitions: int) -> AsyncIterator[B]:
    """Serve ``broker`` with the topic ``t``; in the end nobody may have broken a rule."""
    await broker.start()
    broker.create_topic("t", partitions)
    try:
        yield broker
        assert broker.violations == [], broker.violations
    finally:
        await broker.stop()


@asynccontextmanager
async def playing(pipe: P, *, started: bool) -> AsyncIterator[P]:
    """Close ``pipe`` at the end, and start it before unless the test does."""
    try:
        yield await pipe.start() if started else pipe
    finally:
        await pipe.close()


class Pipe(AnyPipe):
    """Plays the pipeline of a Pulsar source."""

    source: PulsarSource

    def __init__(
        self,
        broker: PulsarDevBroker,
        *topics: str,
        coverage: Coverage | None = None,
        pool: Pool | None = None,
        **more: Any,
    ) -> None:
        super().__init__(coverage, pool)
        self.broker = broker
        pattern = more.pop("pattern", None)
        settings: dict[str, Any] = {
            "url": parse_service_url(more.pop("url", broker.url)),
            "topics": () if pattern else tuple(parse_topic(topic) for topic in topics or ("t",)),
            "pattern": parse_pattern(pattern) if pattern else None,
            "subscription": "s",
            "subscription_type": "failover",
            "start": parse_start(more.pop("start", "earliest"), PULSAR),
            "cluster": "c",
        }
        metrics = more.pop("metrics", None)
        self.source = PulsarSource(PulsarSettings(**settings | more), self, self.pool, metrics=metrics, beside=beside)

    async def drained(self, subscription: str = "s") -> None:
        """Commit, and wait until the broker has it all confirmed."""
        self.commit()
        await until(lambda: self.backlog(subscription) == 0, "an empty backlog")

    def backlog(self, subscription: str = "s") -> int:
        topics = self.source.settings.topics or {parse_topic(log.topic) for log in self.source.logs}
        return sum(self.broker.backlog(str(topic), subscription) for topic in topics)

    def log(self, partition: int = -1) -> Log:
        return next(one for one in self.source.logs if one.partition == str(partition))
