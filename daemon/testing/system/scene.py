"""The scene of a system's conformance tests: its embedded broker, a sink in memory, and pipelines between them."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire.systems import grammar_of
from fastwire.wire.pool import Pool

from ...config import PipelineConfig, SourceConfig, SubscribedSource, parse_config
from ...config.brokers.source import source_model
from ...devbroker.base import DevBroker
from ...pipeline.pipeline import Pipeline
from ...pipeline.roll import RollPolicy
from ...runtime.budget import Budget
from ...runtime.metrics import DaemonMetrics
from ...sinks.base import Sink, Superseded
from ...systems.registry import source_factory
from ...systems.source import Source, SourceEvents

TOPIC = "conformance"
GROUP = "landing"
PARTITIONS = 2
PATIENCE_S = 60.0  # only a test that waits in vain waits so long
OPEN = RollPolicy(max_age_s=3600.0, max_idle_s=3600.0)  # the roll ends when the test says so
QUICK = RollPolicy(max_age_s=0.2, max_idle_s=0.05)


async def until(condition: Callable[[], object], what: str, say: Callable[[], object] = str) -> None:
    """Wait until ``condition`` holds. Raises AssertionError with ``what`` and the result of ``say`` after a minute."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - most conditions are those of another thread
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}; {say()}") from None


class Row(NamedTuple):
    """A landed record with its place."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class MemoryLog:
    """The commit log of a dataset in memory: all that has landed."""

    rows: list[Row] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    commits: int = 0


class MemorySink:
    """A writer to a log in memory, which outlives its pipelines like a dataset: each opens it again.

    Several writers may share a log. ``gate`` is clear while ``write`` shall wait. ``hoard`` lets the sink keep the
    memory of its chunks until the commit, as an encoder with a large row group does. ``before_commit`` is called with
    the number of rows that are about to be committed, before they are. ``failures`` are raised by the next commits.
    ``commit`` raises ValueError for records that this writer has landed before, and for a hole in a log that is read in
    order, and Superseded for records that another writer has landed.
    """

    cluster = "conformance"
    needed_columns: frozenset[str] | None = None
    staged_bytes = 0
    unpooled_bytes = 0
    too_many_files = False
    committed_files = 0
    committed_bytes = 0
    stage_ns: Mapping[str, int] = MappingProxyType({})
    waiting: str | None = None

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.hoard = False
        self.gate = threading.Event()
        self.gate.set()
        self.before_commit: Callable[[int], None] = lambda rows: None
        self.failures: list[Exception] = []
        self.opened = 0  # times
        self._seen = 0  # commits of the log, up to the last look
        self._staged: list[Row] = []
        self._spans: list[Span] = []
        self._kept: list[pa.RecordBatch] = []

    @property
    def staged(self) -> int:
        """Rows of the open roll."""
        return len(self._staged)

    @property
    def rows(self) -> list[Row]:
        """The committed records of all writers."""
        return self.log.rows

    @property
    def exists(self) -> bool:
        """See ``LoggedSink.exists``."""
        return self.log.commits > 0

    @property
    def values(self) -> list[bytes]:
        """The values of the committed records; null is written as empty."""
        return [row.value or b"" for row in self.rows]

    def open(self) -> Coverage:
        """See ``Sink.open``."""
        self._drop()
        self.opened += 1
        return self.refresh()

    def write(self, chunk: Chunk) -> None:
        """See ``Sink.write``; waits for ``gate`` if there are rows."""
        if chunk.rows and not self.gate.wait(PATIENCE_S):
            raise AssertionError("the gate of the sink was never opened")
        self._spans += chunk.spans()
        if chunk.rows:
            batch = pa.record_batch(chunk)
            self._staged += rows_of(batch)
            if self.hoard:
                self._kept.append(batch)

    def commit(self) -> Coverage:
        """See ``Sink.commit``."""
        if self.failures:
            raise self.failures.pop(0)
        self.before_commit(len(self._staged))
        log = self.log
        if self._seen != log.commits and any(map(log.coverage.overlaps, self._spans)):
            raise Superseded("another writer has landed these records")
        for span in self._spans:
            log.coverage.add(span)
        log.rows += self._staged
        log.commits += 1
        self._drop()
        return self.refresh()

    def refresh(self) -> Coverage:
        """See ``LoggedSink.refresh``."""
        self._seen = self.log.commits
        return self.log.coverage.copy()

    def create_dataset(self) -> None:
        """See ``LoggedSink.create_dataset``."""
        self.log.commits += 1

    def raise_floors(self, floors: Mapping[Log, Position]) -> None:
        """See ``LoggedSink.raise_floors``."""
        for log, floor in floors.items():
            self.log.coverage.raise_floor(log, floor)

    def interrupt(self) -> None:
        """See ``LoggedSink.interrupt``."""

    def close(self) -> None:
        """See ``Sink.close``."""
        self._drop()

    def _drop(self) -> None:
        self._staged, self._spans, self._kept = [], [], []


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the records of a chunk."""
    columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "key", "value", "headers")]
    return [
        Row(topic, partition, key, value, tuple((each["key"], each["value"]) for each in headers or ()))
        for topic, partition, key, value, headers in zip(*columns, strict=True)
    ]


class Run:
    """One run of a pipeline; ``ended`` is its task."""

    def __init__(self, pipeline: Pipeline, pool: Pool, budget: Budget) -> None:
        self.pipeline = pipeline
        self.pool = pool
        self.budget = budget
        self.ended = asyncio.create_task(pipeline.run())

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until ``condition`` holds. Raises the pipeline's error if it ends before, and AssertionError."""
        await until(lambda: condition() or self.ended.done(), what, self.pipeline.status)
        if not condition():
            self.ended.result()
            raise AssertionError(f"the pipeline ended before: {what}")

    async def assigned(self, sink: MemorySink) -> None:
        """Wait until the first positions of both partitions are committed, each of which may end a roll."""
        await self.until(lambda: len(sink.log.coverage) >= PARTITIONS, "the first positions of both partitions")

    async def stop(self) -> None:
        """Drain the pipeline, as SIGTERM does, and wait for its end. Raises its error."""
        self.pipeline.drain("stop")
        await self.end()

    async def end(self) -> None:
        """Wait for the end of the pipeline. Raises its error, and AssertionError if it does not end."""
        await until(self.ended.done, "the end of the pipeline", self.pipeline.status)
        self.ended.result()


class Scene:
    """A running embedded broker with the topic ``TOPIC`` of numbered records, which pipelines and readers read."""

    def __init__(self, broker: DevBroker, keys: Mapping[str, Any]) -> None:
        self.broker = broker
        self._keys = keys
        self.last_source: Source | None = None
        """The source of the pipeline that was started last."""
        self.produced: list[bytes] = []
        """The values of all records that were produced."""
        broker.create_topic(TOPIC, PARTITIONS)

    def produce(self, count: int, partition: int = 0, *, size: int = 0) -> list[bytes]:
        """Store ``count`` records of at least ``size`` bytes as one batch; return their values, which are unique."""
        first = len(self.produced)
        values = [b"%d:%d" % (partition, number) for number in range(first, first + count)]
        values = [value.ljust(size, b".") for value in values]
        self.broker.produce(TOPIC, values, partition, keys=[b"%d" % partition] * count if self.broker.keyed else None)
        self.produced += values
        return values

    async def away(self) -> None:
        """Restart the broker, which keeps its topics."""
        await asyncio.to_thread(self.broker.restart)

    def recreate(self) -> None:
        """Delete the topic and create it again, without records."""
        self.broker.delete_topic(TOPIC)
        self.broker.create_topic(TOPIC, PARTITIONS)

    def configured(self, dataset: Path | None = None, *, group: str = GROUP, **more: Any) -> PipelineConfig:
        """Return a configuration from the topic into ``dataset``, with ``more`` keys of the source.

        ``group`` is the subscription, which is left out for a system without groups.
        """
        keys = {"url": self.broker.url, "topics": [TOPIC], "start": "earliest"}
        grammar = grammar_of(self.broker.url)
        if grammar is not None and issubclass(source_model(grammar.name), SubscribedSource):
            keys["subscription"] = group
        return configured({**keys, **self._keys, **more}, dataset)

    def source(self, **more: Any) -> SourceConfig:
        """Return the configuration of a source that reads the topic."""
        return self.configured(**more).source

    @asynccontextmanager
    async def running(
        self,
        sink: Sink,
        *,
        policy: RollPolicy = QUICK,
        memory: int = 64 << 20,
        until_end: bool = False,
        **more: Any,
    ) -> AsyncIterator[Run]:
        """Run a pipeline into ``sink``; it is drained at the end of the block if it has not ended."""
        pool = Pool(memory)
        budget = Budget(pool)
        metrics = DaemonMetrics("0").pipeline("conformance")
        source = self.source(**more)
        factory = source_factory(source, pool, metrics)

        def make(events: SourceEvents, cluster: str | None) -> Source:
            self.last_source = factory(events, cluster)
            return self.last_source

        pipeline = Pipeline(
            "conformance",
            make,
            sink,
            budget,
            metrics,
            policy,
            until_end=until_end,
            bounded=source.end is not None,
            create=True,
            drain_timeout_s=10,
        )
        budget.start()
        run = Run(pipeline, pool, budget)
        try:
            yield run
            await run.stop()
        finally:
            if isinstance(sink, MemorySink):
                sink.gate.set()
            pipeline.drain("end of the test")
            await asyncio.wait([run.ended])
            budget.stop()

    async def land(self, sink: Sink, **more: Any) -> None:
        """Run a pipeline until the end of the topic."""
        async with self.running(sink, until_end=True, **more) as run:
            await run.end()


def configured(source: Mapping[str, Any], dataset: Path | None = None) -> PipelineConfig:
    """Return a configuration with the keys of ``source``, into ``dataset`` if it is given. Raises ConfigError."""
    sink = {"type": "discard"} if dataset is None else {"type": "parquet", "path": str(dataset)}
    text = f"[pipelines]\nconformance = {_toml({'source': source, 'sink': sink})}\n"
    return parse_config(text).pipelines["conformance"]


def _toml(value: Any) -> str:
    """Return a value in the syntax of a configuration file, a table on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)
