"""The exactly-once sink of a table: a roll is gathered in memory, and lands with its positions in one transaction.

Nothing is held in the database while records are gathered. A connection that breaks during COMMIT leaves its outcome
unknown: the positions are read again before anything is repeated, and a commit that still runs on the server holds
their rows until it has ended.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter, SpanAccumulator
from fastwire.coverage import Coverage, OverlapError, UndeclaredGapError
from fastwire.errors import FastwireError
from fastwire.position import Log, Position, positions_of

from ...runtime.errors import SinkFailedError
from ...runtime.logs import get_logger
from ..base import Decoded
from ..recordrows import DecodedRows, RecordRows, Runs, taken
from .envelope import opened
from .landing import Landing, Roll
from .options import PostgresOptions
from .recorded import Recorded
from .rows import Gathered, Ready, prepared
from .session import Refused, Server, Session, failing
from .target import Target

if TYPE_CHECKING:
    from ..transform import TransformedValues

_log = get_logger("sink")

MANY_LETTERS = 100  # of one roll: the next ones are smaller, so that a search for more does not hold rows for long
CAREFUL_ROWS = 20_000
_SHOWN = 3  # reasons in the log


class PostgresSink:
    """A ``LoggedSink`` over one table.

    ``decoder`` makes the rows. ``gather_bytes`` bounds the memory of a roll, which then ends. ``reached`` is called
    with each step of a commit: "locked", "loaded", "landed", "committed". ``first`` has the columns of a table that
    nothing is recorded of, if the decoder infers them.
    """

    committed_files = 0

    def __init__(
        self,
        server: Server,
        target: Target,
        options: PostgresOptions,
        decoder: "RecordRows | TransformedValues",
        *,
        gather_bytes: int = 64 << 20,
        reached: Callable[[str], None] = lambda step: None,
        first: Callable[[threading.Event], None] | None = None,
    ) -> None:
        self._server, self._target, self._options, self._decoder = server, target, options, decoder
        self._gather_bytes = gather_bytes
        self._reached = reached
        self._first = first
        self._numbers = positions_of(options.system).number_columns
        self.recorded = Recorded(server, target, options, decoder)
        """The table, as this sink knows it."""
        self._stop = threading.Event()
        self._session: Session | None = None
        self._why: str | None = None
        self._careful = False
        self._void = True  # until open, and after a failure
        self._stage_ns = {"encode": 0, "database": 0}
        self.committed_bytes = 0
        self.decoded = Decoded()
        self._forget()

    def _forget(self) -> None:
        self._gathered: list[Gathered] = []
        self._given: Counter[Log] = Counter()  # rows that came
        self._entries: list[DeadLetter] = []  # dead letters that came
        self._values: list[DeadLetter] = []  # of values that could not be decoded
        self._spans = SpanAccumulator()
        self._floors: dict[Log, Position] = {}
        self._bytes = self._unpooled = self._rows = self._filtered = 0
        self._decoder.trim()

    # --- state, for any thread

    @property
    def exists(self) -> bool:
        """True if the table was recorded when the sink last looked."""
        return self.recorded.entry is not None

    @property
    def cluster(self) -> str:
        """The cluster name of all logs."""
        entry = self.recorded.entry
        return self._options.cluster if entry is None else entry.cluster

    @property
    def needed_columns(self) -> frozenset[str]:
        """The columns that chunks must have; the time of the records is for the lag."""
        return self._decoder.needed | {"timestamp"}

    @property
    def staged_bytes(self) -> int:
        """Memory of the open roll in bytes."""
        return self._bytes

    @property
    def unpooled_bytes(self) -> int:
        """Memory of the open roll beside that of the chunks, in bytes."""
        return self._unpooled + self._decoder.nbytes

    @property
    def too_many_files(self) -> bool:
        """True if the roll should end early: it takes the memory that it may take."""
        return self._bytes >= self._gather_bytes or (self._careful and self._rows >= CAREFUL_ROWS)

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """Nanoseconds of making columns of the table, and of waiting for the database."""
        return self._stage_ns

    @property
    def waiting(self) -> str | None:
        """The reason why a call waits for schemas; waits for the database declare themselves."""
        return self._why

    def interrupt(self) -> None:
        """End every wait: the calls that wait raise SinkFailedError. Lasts until ``open``."""
        self._stop.set()

    # --- the sink

    def open(self) -> Coverage:
        """Connect, and read what has landed. A table that is not recorded is not touched."""
        self._drop_roll()
        self._stop.clear()
        with self._failing():
            self._connect(self._find_columns)
        self._void = False
        return self.recorded.known.copy()

    def create_dataset(self) -> None:
        """Record the table, and make it and our tables beside it where they are missing."""
        with self._failing(), self._rolling():
            self.recorded.create(self._connected())

    def identify(self, cluster_id: str) -> None:
        """Compare the cluster's id ("": it has none) with the recorded one. Raises DatasetMismatchError."""
        with self._failing(), self._rolling():
            self.recorded.identify(self._connected(), cluster_id)

    def write(self, chunk: Chunk) -> None:
        """Take the rows, spans and dead letters of ``chunk``, and release it."""
        began = perf_counter_ns()
        try:
            with self._rolling():
                self._spans.add(chunk)
                self._entries += chunk.dead_letters
                self._bytes += chunk.dead_letter_bytes
                if chunk.rows:
                    self._gather(chunk)
        finally:
            chunk.release()
            self._stage_ns["encode"] += perf_counter_ns() - began

    def refresh(self) -> Coverage:
        """Read the commits of other writers and return the whole Coverage; the open roll stays open."""
        with self._failing(), self._rolling():
            self.recorded.refresh(self._connected())
            return self.recorded.known.copy()

    def raise_floors(self, floors: Mapping[Log, Position]) -> None:
        """Record with the next commit that a broker has confirmed all acks up to these positions."""
        self._floors.update(floors)

    def commit(self) -> Coverage:
        """Commit the roll and return the whole Coverage; without written chunks this is a refresh."""
        with self._failing(), self._rolling():
            spans = self._spans.take()
            if not (spans or self._entries or self._floors):
                return self.refresh()
            session = self._connected()
            if self.recorded.entry is None:
                self.recorded.create(session)
            began = perf_counter_ns()
            ready = self._ready(session)
            prepared_at = perf_counter_ns()
            roll = Roll(spans, self._floors, ready, self._given, self._entries, self._values)
            landing = Landing(self.recorded, self._reached)
            try:
                refused = landing.land(session, roll, search=False)
            except Refused as exc:
                if not exc.of_rows:
                    raise
                session.rollback()
                _log.warning("the database refuses rows: they are looked for", table=self._target.name, why=str(exc))
                refused = landing.land(session, roll, search=True)
            self._stage_ns["encode"] += prepared_at - began
            self._stage_ns["database"] += perf_counter_ns() - prepared_at
            self._note(ready, refused)
            self._forget()
            return self.recorded.known.copy()

    def close(self) -> None:
        """Drop uncommitted rows and close the connection."""
        self._drop_roll()

    # --- inside

    def _connect(self, first: Callable[[], None] = lambda: None, *, rolling: bool = False) -> Session:
        session = self._session = Session(self._server, self._stop)
        if session.rows("SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'")[0][0]:
            raise SinkFailedError(f"{self._server.name} is read-only: another server of it may take writes")
        self.recorded.open(session, first, rolling=rolling)
        return session

    def _connected(self) -> Session:
        """Return a session that answers: servers and poolers end those that were idle for long."""
        if self._session is None:
            raise SinkFailedError("the sink is not open")
        if self._session.answers():
            return self._session
        self._session.close()
        return self._connect(rolling=True)

    def _find_columns(self) -> None:
        if self._first is not None:
            self._first(self._stop)

    def _gather(self, chunk: Chunk) -> None:
        batch, runs = taken(chunk)
        for log, _, rows in runs:
            self._given[log] += rows
        source = batch.select([name for name in ("value", *self._numbers) if name in batch.schema.names])
        for decoded in self._decoder.decode(batch, runs, self._pause):
            self._take(decoded, source, runs)
        self._bytes += batch.get_total_buffer_size()

    def _take(self, rows: DecodedRows, source: pa.RecordBatch, runs: Runs) -> None:
        self._values += rows.dead_letters
        self._filtered += rows.filtered
        if rows.batch.num_rows:
            self._gathered.append(Gathered(rows.batch, rows.numbers, source, runs))
            self._rows += rows.batch.num_rows
            self._bytes += rows.nbytes
            self._unpooled += rows.nbytes

    def _pause(self, why: str, seconds: float) -> None:
        """Wait for a part that the decoder needs. Raises SinkFailedError if :meth:`interrupt` ends the wait."""
        self._why = why
        try:
            if self._stop.wait(seconds):
                raise SinkFailedError(f"the sink was stopped while it waited: {why}")
        finally:
            self._why = None

    def _ready(self, session: Session) -> list[Ready]:
        """Return the rows of the roll as the table takes them, after the columns that it lacks were added."""
        gathered_rows = [(each, False) for each in self._gathered]
        if self._options.changes:
            gathered_rows = [part for each in self._gathered for part in opened(each)]
        fields: dict[str, pa.Field] = {}
        for gathered, _ in gathered_rows:
            for field in gathered.batch.schema:
                if field.name not in self.recorded.held and field.name not in self._options.unstored:
                    fields.setdefault(field.name, field)
        if fields:
            self.recorded.add(session, list(fields.values()))
            _log.info("columns were added to the table", table=self._target.name, columns=sorted(fields))
        return [
            Ready(gathered.batch, gathered, (), clears=True)
            if clears
            else prepared(gathered, self.recorded.held, self._target.key, self._target.of_bytes)
            for gathered, clears in gathered_rows
        ]

    def _note(self, ready: Sequence[Ready], refused: Sequence[DeadLetter]) -> None:
        if refused:
            _log.warning(
                "rows that the database refuses became dead letters",
                table=self._target.name,
                rows=len(refused),
                reasons=list(dict.fromkeys(letter.reason for letter in refused))[:_SHOWN],
            )
        self._careful = len(refused) > MANY_LETTERS
        self.committed_bytes += sum(each.batch.nbytes for each in ready)
        values, bad, columns, filtered = self.decoded
        landed = self._rows - len(refused)
        bad += len(self._values) + len(refused)
        self.decoded = Decoded(values + landed, bad, columns, filtered + self._filtered)

    # --- failures

    @contextmanager
    def _rolling(self) -> Iterator[None]:
        """Void the roll until ``open`` if the block raises."""
        try:
            if self._void:
                raise SinkFailedError("the roll is void: open the sink again")
            yield
        except (FastwireError, UndeclaredGapError, OverlapError, Refused):
            self._drop_roll()
            raise
        except Exception as exc:
            self._drop_roll()
            raise SinkFailedError(f"{type(exc).__name__}: {exc}") from exc

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise SinkFailedError for an error of the server."""
        try:
            yield
        except Refused as exc:
            self._drop_roll()
            raise failing(self._server, exc) from exc

    def _drop_roll(self) -> None:
        self._void = True
        session, self._session = self._session, None
        if session is not None:
            session.close()  # the server rolls back what is not committed
        self._forget()
