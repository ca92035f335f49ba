"""A pipeline on a test bed: real chunks, a source and a sink that only take notes, and a clock that is told."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from fastwire.columns.chunk import Chunk
from fastwire.columns.scan import Stop
from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire.pulsar.format.payload import Record, encode_batch_entry
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.pipeline.pipeline import Pipeline
from fastwire_daemon.pipeline.roll import RollPolicy
from fastwire_daemon.runtime.budget import Budget
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.systems.source import Assignment, First, LogStopped, SourceEvents
from tests.support.pulsar.frames import message_frame, put

LOG = Log("pulsar", "c", "persistent://public/default/t", "0", "0")


class Chunks:
    """Makes real chunks of consecutive entries with ten rows each."""

    def __init__(self, pool: Pool) -> None:
        slots = SlotTable([LOG])
        slots.add(0, 0, ordered=True)
        slots.attach(0, 1)
        self._scanner = Scanner(slots, pool, 1)
        self._entry = 0

    def next(self, entries: int = 1) -> Chunk:
        for _ in range(entries):
            self._feed()
        chunk = self._scanner.take_chunk()
        assert chunk is not None
        return chunk

    def _feed(self) -> None:
        records = [Record(value=b"v%d" % i) for i in range(10)]
        entry = encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=1)
        put(self._scanner, message_frame(entry.body, consumer=0, ledger=1, entry=self._entry))
        self._entry += 1
        assert self._scanner.scan() == Stop.NEED_BYTES


class NotingSource:
    """Does nothing but write down what the pipeline asks of it."""

    system = "pulsar"
    cluster_id = ""

    def __init__(self, notes: list[str], events: SourceEvents, cluster: str | None) -> None:
        self.notes = notes
        self.events = events
        self.cluster = cluster
        self.logs = [LOG]
        self.landed_at: Position | None = None
        self.received: Position | None = None
        self.head: Position | None = None
        self.peer_is_done = True
        self.unreachable_since: float | None = None
        self.standing_by = False
        self.offering = False
        self.confirms = True
        self.stage_ns = {"decode": 1_000_000_000}
        self.unreachable_because = ""
        self.backlog: int | None = None
        self.start_error: Exception | None = None
        self.firsts = True
        self.assign = True
        self.progress = False

    async def start(self, coverage: Coverage) -> None:
        self.notes.append("start")
        if self.start_error is not None:
            raise self.start_error
        if self.assign:
            self.events.on_assigned([self.assignment()])

    def assignment(self) -> Assignment:
        return Assignment(0, LOG, self.head, Position(1, 5) if self.progress else None, self.progress)

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        self.notes.append("resolve")
        known = coverage.start(LOG) is not None
        return [] if known or not self.firsts else [First(0, Span(LOG, PULSAR_EARLIEST, PULSAR_EARLIEST, 0))]

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        self.notes.append(f"grant {len(list(assignments))}")

    def landed(self, coverage: Coverage) -> None:
        self.landed_at = coverage.end(LOG)
        self.notes.append("landed")

    def void(self) -> None:
        self.notes.append("void")
        self.events.on_assigned([self.assignment()])

    def resume(self) -> None: ...
    def on_budget(self, level: object) -> None: ...

    def position(self, index: int) -> Position | None:
        return self.received

    async def heads(self) -> Mapping[int, Position]:
        return {} if self.head is None else {0: self.head}

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        end = coverage.end(LOG) or self.landed_at
        return [index for index, head in heads.items() if (end is None or end < head) and not self.peer_is_done]

    def waiting(self) -> Mapping[int, str]:
        return {}

    def stop(self, index: int, why: str) -> None:
        self.notes.append(f"stop {index}")
        self.events.on_stopped(index, LogStopped(why))

    def status(self) -> dict[str, Any]:
        return {}

    async def close(self, timeout: float) -> None:
        self.notes.append("source closed")


class NotingSink:
    """A sink with a log in memory; ``fail`` holds errors to raise, by method."""

    exists = True
    cluster = "c"
    needed_columns = frozenset[str]()
    staged_bytes = 0
    unpooled_bytes = 0
    too_many_files = False
    stage_ns: ClassVar[dict[str, int]] = {"encode": 3_000_000_000}
    committed_files = 0
    committed_bytes = 0
    waiting: str | None = None

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes
        self.coverage = Coverage()
        self.open_spans: list[Span] = []
        self.rows = 0
        self.fail: dict[str, list[Exception]] = {}

    def _maybe_fail(self, what: str) -> None:
        if self.fail.get(what):
            raise self.fail[what].pop(0)

    def open(self) -> Coverage:
        self.notes.append("open")
        self._maybe_fail("open")
        self.open_spans = []
        return self.coverage.copy()

    def write(self, chunk: Chunk) -> None:
        self.notes.append(f"write {chunk.rows}")
        self._maybe_fail("write")
        self.open_spans += chunk.spans()

    def commit(self) -> Coverage:
        self.notes.append("commit")
        self._maybe_fail("commit")
        for span in self.open_spans:
            self.coverage.add(span)
            self.rows += span.rows
        self.open_spans = []
        return self.coverage.copy()

    def refresh(self) -> Coverage:
        self.notes.append("refresh")
        return self.coverage.copy()

    def create_dataset(self) -> None:
        self.notes.append("create")
        self.exists = True

    def raise_floors(self, floors: Mapping[Log, Position]) -> None:
        self.notes.append(f"floors {len(floors)}")

    def interrupt(self) -> None: ...

    def close(self) -> None:
        self.notes.append("sink closed")


class UnloggedNotes:
    """The same without a log."""

    def __init__(self, notes: list[str]) -> None:
        inner = NotingSink(notes)
        self.open, self.write, self.commit, self.close = inner.open, inner.write, inner.commit, inner.close


class Bed:
    """A pipeline under test, running."""

    def __init__(self, sink: Callable[[list[str]], Any] = NotingSink, **options: Any) -> None:
        self.notes: list[str] = []
        self.sink = sink(self.notes)
        self.pool = Pool(64 << 20)
        self.chunks = Chunks(self.pool)
        self.now = 100.0
        self.metrics = DaemonMetrics("0")
        self.made: list[NotingSource] = []
        self.prepare: Callable[[NotingSource], None] = lambda source: None
        policy = options.pop("policy", RollPolicy())
        self.pipeline = Pipeline(
            "p",
            self._make,
            self.sink,
            Budget(self.pool),
            self.metrics.pipeline("p"),
            policy,
            clock=lambda: self.now,
            **options,
        )
        self.task: asyncio.Task[None] | None = None

    def _make(self, events: SourceEvents, cluster: str | None) -> NotingSource:
        source = NotingSource(self.notes, events, cluster)
        self.prepare(source)
        self.made.append(source)
        return source

    @property
    def source(self) -> NotingSource:
        return self.made[-1]

    async def running(self) -> None:
        self.task = asyncio.create_task(self.pipeline.run())
        await self.until(lambda: any(note.startswith("grant") for note in self.notes) or bool(self.done))

    @property
    def waiting(self) -> bool:
        """Return whether the pipeline has no work until the next event."""
        wake = self.pipeline._wake
        return bool(wake._waiters) and not wake.is_set()

    @property
    def done(self) -> bool:
        return self.task is not None and self.task.done()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.001)

    async def give(self, entries: int = 1) -> bool:
        def written() -> int:
            return sum(note.startswith("write") for note in self.notes)

        before = written()
        room = self.pipeline.on_chunk(self.chunks.next(entries))
        await self.until(lambda: written() > before and (self.done or self.waiting))
        return room

    async def end(self) -> None:
        self.pipeline.drain("test")
        assert self.task is not None
        await self.task
