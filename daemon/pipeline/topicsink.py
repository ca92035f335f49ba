"""Sinks that write records to a topic of any system, at least once."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter, SpanAccumulator
from fastwire.columns.rows import Rows
from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span, format_position

from ..dataset.deadletters.sums import DeadLetterSums
from ..dataset.writer import DatasetWriter
from ..runtime.errors import LogRefusedError, SinkFailedError
from ..runtime.logs import get_logger
from ..sinks.base import Decoded
from ..sinks.recordrows import Runs, taken
from ..sinks.unlogged import UnloggedSink
from ..systems.writer import Writer
from .topicoutlet import TopicOutlet
from .topicrows import HeldRows

MOST_HELD_BYTES = 16 << 20  # of rows that are not known to be confirmed; their dead letters need them

MakeMemory = Callable[[Callable[[str | None], None], threading.Event], DatasetWriter]
"""Makes the dataset of the positions; it is given ``on_full`` and ``stop`` of ``DatasetWriter``."""

_log = get_logger("sink")


class TopicSink(UnloggedSink):
    """Writes the rows of chunks to a topic with their keys, headers and event times.

    A commit returns when the brokers have confirmed all records. Records that were written and not committed are
    written again after a failure or a restart. Entries that cannot be decoded are logged and not written. A record that
    the topic never takes stops its log: the others are committed. :attr:`waiting` and :meth:`interrupt` are for any
    thread.
    """

    exactly_once = False

    def __init__(self, outlet: TopicOutlet, *, ordering_keys: bool = False) -> None:
        super().__init__()
        self._outlet = outlet
        self._ordering_keys = ordering_keys
        self._held = HeldRows()
        self._refused: dict[Log, str] = {}  # logs of the roll that stop, and why
        self._unconfirmed = 0  # records since the last flush
        self._confirmed = 0  # records of the writer until then
        self.changed_times = 0
        """Event times that the topic does not have as they are, of all records written."""

    # --- state, for any thread

    @property
    def waiting(self) -> str | None:
        """The reason why a call waits, for the status; None if none waits for longer than a few seconds."""
        return self._outlet.waiting

    def interrupt(self) -> None:
        """End the call that waits, which raises SinkFailedError. Lasts until ``open``."""
        self._outlet.interrupt()

    # --- the sink

    def open(self) -> Coverage:
        """Open the topic, and wait for brokers that are away; return the Coverage of the commits so far."""
        self._begin_roll()
        self._outlet.open()
        self._unconfirmed, self._confirmed = 0, self._outlet.writer.produced.records
        return self._coverage.copy()

    def write(self, chunk: Chunk) -> None:
        """Pass the rows of ``chunk`` to the producer; waits while it has too many unconfirmed bytes."""
        self._keep(chunk.dead_letters)
        self.written(chunk)
        if not chunk.rows:
            chunk.release()
            return
        self._outlet.run(partial(self._write, *taken(chunk)))

    def commit(self) -> Coverage:
        """Wait until the brokers have confirmed all records; return the Coverage with them.

        Raises LogRefusedError, after the commit of all other logs, for those with a record that the topic never takes.
        """
        if self._outlet.is_open:
            self._outlet.run(self._flush)
        coverage = self._land([span for span in self._spans.take() if span.log not in self._refused])
        if self._refused:
            self._raise_refused()
        self._begin_roll()
        return coverage

    def close(self) -> None:
        """Close the producer; unconfirmed records are dropped, or stored without being acknowledged."""
        self._outlet.close()
        self._held.clear()

    # --- what the sink remembers

    def _keep(self, letters: Sequence[DeadLetter]) -> None:
        """Keep entries that cannot be decoded, if the sink can; the pipeline logs them."""

    def _refuse(self, letter: DeadLetter) -> None:
        """Handle a record that the topic never takes."""
        place, why = format_position(letter.log.system, letter.position), letter.reason.partition(": ")[2]
        text = f"the record of {letter.log} at {place} cannot be written to {self._outlet.what}: {why}"
        self._refused.setdefault(letter.log, text)

    def _land(self, spans: Sequence[Span]) -> Coverage:
        """Make the positions of confirmed records durable."""
        return self.cover(spans)

    # --- inside

    def _raise_refused(self) -> None:
        refused = self._refused
        self._begin_roll()
        raise LogRefusedError("; ".join(refused.values()), refused.__contains__)

    def _begin_roll(self) -> None:
        self._spans = SpanAccumulator()
        self._held.clear()
        self._refused = {}

    async def _write(self, batch: pa.RecordBatch, runs: Runs) -> None:
        first = self._held.add(batch, runs)
        given = _outgoing(batch, self._ordering_keys)
        for log, start, rows in runs:
            if log not in self._refused:
                await self._write_rows(log, batch.slice(start, rows), given.slice(start, rows), first + start)
        if self._held.nbytes >= MOST_HELD_BYTES:
            await self._flush()

    async def _write_rows(self, log: Log, batch: pa.RecordBatch, given: pa.RecordBatch, first: int) -> None:
        """Write the columns ``given`` of rows of one log, of which ``first`` is the number of the first one."""
        rows = Rows(given, text_keys=True, origin=first)
        try:
            await self._give(log, batch, rows)
        except ValueError as exc:
            if batch.num_rows == 1:
                self._refuse(self._held.letter(first, str(exc)))
                return
            middle = batch.num_rows // 2
            await self._write_rows(log, batch.slice(0, middle), given.slice(0, middle), first)
            await self._write_rows(log, batch.slice(middle), given.slice(middle), first + middle)
            return
        self._unconfirmed += batch.num_rows
        if rows.changed_times and not self.changed_times:
            _log.warning(
                "the topic cannot hold some event times as they are: they are cut to the units that it has, or "
                "written without a time if the system has no number for it",
                topic=self._outlet.what,
                times=rows.changed_times,
            )
        self.changed_times += rows.changed_times

    async def _give(self, log: Log, batch: pa.RecordBatch, rows: Rows) -> None:
        """Pass rows to the writer; ``batch`` has them with the columns of their positions."""
        writer = cast(Writer, self._outlet.writer)  # that of a subclass may take records in another way
        await writer.write_rows(rows)

    async def _flush(self) -> None:
        writer = self._outlet.writer
        await writer.flush()
        refused = writer.take_refused()
        for one in refused:
            for number in one.origins:
                self._refuse(self._held.letter(number, str(one.error)))
        confirmed, self._confirmed = writer.produced.records - self._confirmed, writer.produced.records
        expected, self._unconfirmed = self._unconfirmed - sum(len(one.origins) for one in refused), 0
        if confirmed != expected:
            raise SinkFailedError(f"{self._outlet.what} has confirmed {confirmed:,} of {expected:,} records")
        self._held.clear()


class RememberingTopicSink(TopicSink):
    """A topic sink whose positions and dead letters are in a dataset without files: a ``LoggedSink``, at least once.

    The positions are committed after the brokers have confirmed the records. With ``keeps`` a record that the topic
    never takes becomes a dead letter; without it its log stops, and the others are committed.
    """

    too_many_files = False
    committed_files = 0
    committed_bytes = 0
    unpooled_bytes = 0

    def __init__(
        self,
        outlet: TopicOutlet,
        make_memory: MakeMemory,
        needed_columns: frozenset[str],
        *,
        ordering_keys: bool = False,
        keeps: bool = True,
    ) -> None:
        super().__init__(outlet, ordering_keys=ordering_keys)
        self._stop = threading.Event()
        self._full: str | None = None
        self._memory = make_memory(self._on_full, self._stop)
        self._keeps = keeps
        self._letters = 0  # rows of the roll that became dead letters
        self.dead_letter_sums = DeadLetterSums()
        """Those rows, by reason; the pipeline takes them after a commit."""
        self.needed_columns = needed_columns
        self.decoded = Decoded()
        """Counts of the records in the topic, and of those that became dead letters: alerts look at these."""

    def _on_full(self, message: str | None) -> None:
        self._full = message

    @property
    def waiting(self) -> str | None:
        """See ``TopicSink.waiting``; also the disk of the positions can be full."""
        return self._full or super().waiting

    def interrupt(self) -> None:
        """See ``LoggedSink.interrupt``."""
        self._stop.set()
        super().interrupt()

    @property
    def exists(self) -> bool:
        """See ``LoggedSink.exists``."""
        return self._memory.exists

    @property
    def cluster(self) -> str:
        """See ``LoggedSink.cluster``."""
        return self._memory.cluster

    @property
    def staged_bytes(self) -> int:
        """Size of the dead letters of the roll, in bytes."""
        return self._memory.dead_letter_bytes

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """See ``LoggedSink.stage_ns``."""
        return {"fsync": self._memory.sync_ns}

    def open(self) -> Coverage:
        """Read the positions, and open the topic."""
        self._stop.clear()
        self.dead_letter_sums.clear()
        self._memory.open()
        super().open()
        return self._memory.refresh()

    def create_dataset(self) -> None:
        """See ``LoggedSink.create_dataset``."""
        if not self._memory.exists:
            self._memory.create()

    def identify(self, cluster_id: str) -> None:
        """See ``LoggedSink``."""
        self._memory.identify(cluster_id)

    def refresh(self) -> Coverage:
        """See ``LoggedSink.refresh``."""
        return self._memory.refresh()

    def raise_floors(self, floors: Mapping[Log, Position]) -> None:
        """See ``LoggedSink.raise_floors``: the next commit takes them."""
        self._floors.update(floors)

    def close(self) -> None:
        """Close the topic and the memory."""
        super().close()
        self._memory.close()

    def _begin_roll(self) -> None:
        super()._begin_roll()
        self._letters = 0
        self._floors: dict[Log, Position] = {}

    def _keep(self, letters: Sequence[DeadLetter]) -> None:
        self._memory.add_dead_letters(letters)

    def _refuse(self, letter: DeadLetter) -> None:
        if not self._keeps:
            super()._refuse(letter)
            return
        self._memory.add_dead_letters([letter])
        self.dead_letter_sums.add([letter])
        self._letters += 1

    def _land(self, spans: Sequence[Span]) -> Coverage:
        letters, sent = self._letters, sum(span.rows for span in spans) - self._letters
        coverage = self._memory.commit([], spans, filtered=letters, sent=sent, floors=self._floors)
        self.decoded = self.decoded._replace(
            values=self.decoded.values + sent, dead_letters=self.decoded.dead_letters + letters
        )
        return coverage


def _outgoing(batch: pa.RecordBatch, ordering_keys: bool) -> pa.RecordBatch:
    """Return the columns that are written. A system with event times has them in a column of their own."""
    names = batch.schema.names
    columns = {name: batch.column(name) for name in ("value", "key", "headers") if name in names}
    columns["eventTime"] = batch.column("eventTime" if "eventTime" in names else "timestamp")
    if ordering_keys and "orderingKey" in names:
        columns["orderingKey"] = batch.column("orderingKey")
    return pa.record_batch(columns)
