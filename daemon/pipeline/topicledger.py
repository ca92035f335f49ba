"""A topic as an exactly-once sink: records and positions are one transaction of the topic's brokers.

Positions are entries of a ledger (``systems.ledger``), which keeps the last value of each key. A log is written by its
owner, the last daemon that has claimed it:

1. It commits a claim: an entry with the log's name and its own.
2. It reads all claims. One behind its own is of a later owner: it gives way. It fences those before its own, which can
   commit nothing any more, and deletes their claims. A daemon that was killed within a commit leaves it open, and what
   comes behind is hidden: if a commit does not end, all that claim the log are fenced first.
3. It reads the positions, which no one else can change now, and goes on behind them.

A daemon that is fenced begins anew, and claims each log that its source still assigns to it. A later claim has
seen all earlier claims, and has fenced their daemons after they were committed: of two one is fenced.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import orjson

from fastwire.columns.chunk import DeadLetter
from fastwire.coverage import Coverage, OverlapError
from fastwire.errors import causes
from fastwire.position import Gap, Log, Position, Span, format_position, positions_of
from fastwire.producer import TransactionLost

from ..dataset.commitlog.checkpoint import Checkpoint
from ..dataset.deadletters.sums import DeadLetterSums
from ..dataset.description import DatasetOptions
from ..dataset.origin import refuse_other_hosts, refuse_other_id
from ..runtime.errors import DatasetDamagedError, SinkFailedError, Superseded
from ..runtime.logs import get_logger
from ..sinks.base import Decoded
from ..systems.ledger import LedgerWriter
from ..systems.writer import Writer
from .topicletters import letter_rows
from .topicoutlet import TopicOutlet
from .topicsink import MOST_HELD_BYTES, TopicSink

FORMAT = 1
CLAIM_PARTS = 6  # the five of a log, and the name of the writer

_log = get_logger("sink")


class Positions:
    """The entries of one pipeline in a ledger; ``name`` is the pipeline's, the same for all of its daemons."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.coverage = Coverage()
        """The committed Coverage."""
        self.claims: dict[Log, list[str]] = {}
        """The names of the writers that have claimed a log, in the order of their claims."""
        self.description: dict[str, Any] = {}
        """Facts about the source's cluster: ``cluster``, ``hosts``, ``cluster_id``; empty before the first commit."""

    def read(self, entries: Mapping[bytes, bytes]) -> None:
        """Take what is of this pipeline among all entries; others are ignored. Raises DatasetDamagedError."""
        self.coverage, self.claims, self.description = Coverage(), {}, {}
        for key, value in entries.items():
            kind, *rest = self._own(key)
            try:
                if kind == "positions":
                    self.coverage.update(Checkpoint.decode(value, 0).coverage)
                elif kind == "claim":
                    self.claims.setdefault(Log(*rest[:-1]), []).append(rest[-1])
                elif kind == "pipeline":
                    self.description = orjson.loads(value)
                    if self.description.get("format") != FORMAT:
                        raise ValueError(
                            f"it has format {self.description.get('format')!r}, and this version of fastwire knows "
                            f"{FORMAT}. If a later version writes this topic, continue with that version"
                        )
            except (ValueError, TypeError) as exc:
                raise DatasetDamagedError(f"the positions of {self._name}: the entry {key!r:.200}: {exc}") from exc

    def rivals(self, keys: Iterable[bytes], logs: Collection[Log], writer: str) -> set[str]:
        """Return the names of all writers but ``writer`` that claim one of ``logs`` by the keys of their entries."""
        claims = (rest for kind, *rest in map(self._own, keys) if kind == "claim" and len(rest) == CLAIM_PARTS)
        return {name for *log, name in claims if Log(*log) in logs} - {writer}

    def _own(self, key: bytes) -> Sequence[str]:
        """Return the parts of a key of this pipeline but its name; ("",) for any other."""
        try:
            parts = orjson.loads(key)
        except ValueError:
            return ("",)
        texts = isinstance(parts, list) and len(parts) > 1 and all(isinstance(part, str) for part in parts)
        return (parts[0], *parts[2:]) if texts and parts[1] == self._name else ("",)

    def claim(self, log: Log, writer: str) -> bytes:
        """Return the key of a claim; it has a value until another owner deletes it."""
        return self._key("claim", *_parts(log), writer)

    def proof(self, writer: str) -> bytes:
        """Return the key of an entry that says nothing."""
        return self._key("proof", writer)

    def described(self) -> tuple[bytes, bytes]:
        """Return the entry of the description."""
        return self._key("pipeline"), orjson.dumps({"format": FORMAT, **self.description})

    def landed(self, coverage: Coverage, logs: Iterable[Log]) -> dict[bytes, bytes]:
        """Return the entries for the positions of ``logs``."""
        return {
            self._key("positions", *_parts(log)): Checkpoint(coverage=coverage.only(log)).encode() for log in set(logs)
        }

    def _key(self, *parts: str) -> bytes:
        return orjson.dumps([parts[0], self._name, *parts[1:]])


def _parts(log: Log) -> tuple[str, ...]:
    return log.system, log.cluster, log.topic, log.partition, log.incarnation


class LedgerTopicSink(TopicSink):
    """A ``LoggedSink`` that is exactly once: see the module.

    Dead letters are part of the transaction if the writer has a topic for them; otherwise they stop their logs. Without
    ``keeps`` a record that the topic never takes stops its log. ``options`` describe the source, as for a dataset.
    A sink that ``follows_group`` goes on where the source's group stands if that is behind the positions: daemons that
    are at least once have written what lies between.
    """

    exactly_once = True
    too_many_files = False
    committed_files = 0
    committed_bytes = 0
    unpooled_bytes = 0
    staged_bytes = 0
    stage_ns: Mapping[str, int] = MappingProxyType({})
    exists = True  # without positions the cursor of the source's brokers tells where to begin
    follows_group = False

    def __init__(
        self,
        make_writer: Callable[[], AbstractAsyncContextManager[LedgerWriter]],
        what: str,
        name: str,
        options: DatasetOptions,
        needed_columns: frozenset[str],
        *,
        ordering_keys: bool = False,
        keeps: bool = False,
    ) -> None:
        super().__init__(TopicOutlet(make_writer, what), ordering_keys=ordering_keys)
        self.needed_columns = needed_columns
        self._keeps = keeps
        self._letters: list[DeadLetter] = []  # given to the writer, and not known to be stored
        self._refused_rows: list[DeadLetter] = []  # refused by the topic, and not given to the writer of dead letters
        self._kept = 0  # of these in the roll: they are with the brokers
        self.dead_letter_sums = DeadLetterSums()
        """Records that the topic never takes and that are dead letters; the pipeline takes them after a commit."""
        self.decoded = Decoded()
        """See ``RememberingTopicSink.decoded``."""
        self._options = options
        self._positions = Positions(name)
        self._owned: set[Log] = set()
        self._floors: dict[Log, Position] = {}
        self._lost = False  # the last transaction, and none was committed since then

    # --- state

    @property
    def cluster(self) -> str:
        """See ``LoggedSink.cluster``."""
        return str(self._positions.description.get("cluster", self._options.cluster))

    @property
    def threads(self) -> list[int | None]:
        """The threads that calls wait for."""
        return [self._outlet.thread]

    # --- the sink

    def open(self) -> Coverage:
        """Begin a new life of the writer, and read what has landed."""
        self._owned.clear()
        self.dead_letter_sums.clear()
        super().open()
        self._calling(self._read)
        return self._positions.coverage.copy()

    def identify(self, cluster_id: str) -> None:
        """See ``LoggedSink``. The id is part of the next commit."""
        self._identify(cluster_id)

    def _identify(self, cluster_id: str) -> None:
        known = self._positions.description.get("cluster_id", "")
        if known and cluster_id:
            again = "another group or subscription if the cluster was made again"
            refuse_other_id(self._outlet.what, known, cluster_id, self._options.hosts, again)
        self._describe(cluster_id=known or cluster_id)

    def claim(self, cursors: Mapping[Log, Position | None], cluster_id: str = "") -> Coverage:
        """Become the owner of these logs; return the Coverage. The roll must be empty.

        Raises Superseded, and as ``identify``: the group of another cluster must not move the positions.
        """
        wanted = [log for log in cursors if log not in self._owned]
        if wanted:
            self._calling(partial(self._claim, wanted))
            self._owned.update(wanted)
        if self.follows_group:
            self._identify(cluster_id)
            self._follow(cursors)
        return self._positions.coverage.copy()

    def create_dataset(self) -> None:
        """Do nothing: the topic of the positions is made when the writer is opened."""

    def refresh(self) -> Coverage:
        """Return the Coverage: no other daemon changes that of the logs that this sink owns."""
        return self._positions.coverage.copy()

    def raise_floors(self, floors: Mapping[Log, Position]) -> None:
        """See ``LoggedSink.raise_floors``."""
        self._floors.update(floors)

    def commit(self) -> Coverage:
        """Commit the records and the positions. Raises Superseded if another daemon has fenced this one."""
        self._calling(self._flush)
        if self._refused:
            # The transaction has records of these logs, so it cannot be committed.
            self._raise_refused()
        return self._land(self._spans.take())

    # --- inside

    def _follow(self, cursors: Mapping[Log, Position | None]) -> None:
        coverage, raised = self._positions.coverage, []
        for log, cursor in cursors.items():
            end, positions = coverage.end(log), positions_of(log.system)
            if cursor is None or end is None or not positions.passed(cursor, end):
                continue
            raised.append(log)
            if not positions.ordered:  # it may be the same place
                coverage.add(Span(log, end, end, 0, Gap(cursor, "the group of the source stands here")))
                continue
            _log.warning(
                "the group of the source stands behind the positions: a daemon that is at least once has written what "
                "lies between, or the group was moved. Writing goes on where the group stands",
                topic=self._outlet.what,
                partition=str(log),
                positions=format_position(log.system, end),
                group=format_position(log.system, cursor),
            )
            coverage.raise_floor(log, cursor)
        if raised:
            self._calling(lambda: self._ledger.commit(self._positions.landed(coverage, raised)))

    def _keep(self, letters: Sequence[DeadLetter]) -> None:
        if letters and self._ledger.dead_letters is None:
            for letter in letters:
                super()._refuse(letter)
        elif letters:
            self._calling(partial(self._send_letters, letters))

    def _refuse(self, letter: DeadLetter) -> None:
        """Hold back a record that the topic never takes until the roll is flushed, or stop its log."""
        if not self._keeps:
            super()._refuse(letter)
            return
        self._refused_rows.append(letter)

    async def _send_letters(self, letters: Sequence[DeadLetter]) -> None:
        writer = self._ledger.dead_letters
        assert writer is not None
        await writer.write_rows(letter_rows(letters, len(self._letters)))
        self._letters += letters
        if sum(len(letter.payload) for letter in self._letters) >= MOST_HELD_BYTES:
            await self._settle_letters(writer)

    async def _settle_letters(self, writer: Writer) -> None:
        """Wait until the brokers have the dead letters; one that they refuse stops its log."""
        await writer.flush()
        for one in writer.take_refused():
            for number in one.origins:
                letter = self._letters[number]
                super()._refuse(replace(letter, reason=f"{letter.reason}; nor as a dead letter: {one.error}"))
        self._letters = []

    async def _flush(self) -> None:
        await super()._flush()
        refused, self._refused_rows = self._refused_rows, []
        if refused:
            await self._send_letters(refused)
            self.dead_letter_sums.add(refused)
            self._kept += len(refused)
        if self._letters:
            writer = self._ledger.dead_letters
            assert writer is not None
            await self._settle_letters(writer)

    def _land(self, spans: Sequence[Span]) -> Coverage:
        foreign = {span.log for span in spans} - self._owned
        if foreign:
            raise SinkFailedError(f"a fault of this program: {min(map(str, foreign))} was written and is not claimed")
        coverage = self._positions.coverage.copy()
        try:
            for span in spans:
                coverage.add(span)
        except OverlapError as exc:
            raise Superseded(f"{self._outlet.what}: {exc}") from exc
        for log, floor in self._floors.items():
            if log in self._owned:
                coverage.raise_floor(log, floor)
        entries = self._positions.landed(coverage, (*(span.log for span in spans), *self._owned & {*self._floors}))
        key, value = self._positions.described()
        if entries:
            self._calling(lambda: self._ledger.commit({key: value, **entries}))
        self._positions.coverage = coverage
        self._lost = False
        sent = sum(span.rows for span in spans) - self._kept
        self.decoded = self.decoded._replace(
            values=self.decoded.values + sent, dead_letters=self.decoded.dead_letters + self._kept
        )
        self._begin_roll()
        return coverage.copy()

    def _begin_roll(self) -> None:
        super()._begin_roll()
        self._floors = {}
        self._letters, self._refused_rows, self._kept = [], [], 0

    @property
    def _ledger(self) -> LedgerWriter:
        return cast(LedgerWriter, self._outlet.writer)  # the outlet opens no other writers

    def _calling(self, call: Callable[[], Any]) -> None:
        """Run a coroutine of the writer. Raises Superseded if its transaction is lost, and is begun anew at once.

        A second loss without a commit between them is a failure, which is tried again after a pause.
        """
        try:
            self._outlet.run(call)
        except SinkFailedError as exc:
            if not _is_lost(exc) or self._lost:
                raise
            self._lost = True
            raise Superseded(f"{exc}; what it has not committed is read again") from exc

    async def _read(self, claimed: Collection[Log] = ()) -> None:
        """Read the entries; for those who have ``claimed`` logs each that was committed before."""
        own = self._positions.description
        if claimed:
            await self._ledger.settle(lambda keys: self._positions.rivals(keys, claimed, self._ledger.name))
        self._positions.read(await self._ledger.entries())
        if not self._positions.description:
            self._positions.description = own  # nothing is committed yet
        self._compare()

    async def _claim(self, logs: Sequence[Log]) -> None:
        own, positions = self._ledger.name, self._positions
        await self._ledger.commit({positions.claim(log, own): b"1" for log in logs})
        await self._read(logs)
        others: dict[str, list[Log]] = {}
        for log in logs:
            names = positions.claims[log]
            if names[-1] != own:
                raise TransactionLost(f"another daemon has claimed {log} meanwhile")
            for name in names[:-1]:
                others.setdefault(name, []).append(log)
        for name in others:
            await self._ledger.fence(name)
        if others:
            over = {positions.claim(log, name): None for name, logs in others.items() for log in logs}
            await self._ledger.commit(over)
            await self._read(logs)

    def _describe(self, **facts: str) -> None:
        known = self._positions.description
        hosts = known.get("hosts", list(self._options.hosts))
        self._positions.description = {**known, "cluster": self.cluster, "hosts": hosts, **facts}

    def _compare(self) -> None:
        """Raise DatasetMismatchError if the positions are of a source at other hosts."""
        known, options = self._positions.description, self._options
        if known:
            held = (known["cluster"], known["hosts"])
            refuse_other_hosts(self._outlet.what, options.system, held, options, "another group")
        self._describe()


def _is_lost(error: BaseException) -> bool:
    """Return True if a transaction was lost, by a fence of another daemon or a timeout."""
    return any(isinstance(each, TransactionLost) for each in causes(error))
