"""The transaction of a roll: rows, dead letters and positions, or nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from fastwire.columns.chunk import DeadLetter
from fastwire.coverage import OverlapError
from fastwire.decode.evolution import Column, added_types
from fastwire.decode.program import SchemaError
from fastwire.position import Log, Position, Span, format_position

from ...dataset.commitlog.chain import check_fit
from ...runtime.errors import Superseded
from .fates import fates_of
from .ledger import LETTERS, OF_LOG
from .loading import Appending, Loading, Replacing, place
from .recorded import Recorded
from .rows import Letter, Ready
from .session import Session


class Roll(NamedTuple):
    """The content of one commit."""

    spans: Sequence[Span]
    floors: Mapping[Log, Position]
    ready: Sequence[Ready]
    given: Mapping[Log, int]
    """Rows that came, by log."""
    entries: Sequence[DeadLetter]
    """Entries that could not be decoded."""
    values: Sequence[DeadLetter]
    """Values of ``given`` that could not be decoded."""


class Landing:
    """Lands rolls in a table. ``reached`` is called with each step."""

    def __init__(self, recorded: Recorded, reached: Callable[[str], None]) -> None:
        self._recorded, self._target, self._decoder = recorded, recorded.target, recorded.decoder
        self._reached = reached

    def land(self, session: Session, roll: Roll, *, search: bool) -> list[DeadLetter]:
        """Commit the roll, and ``search`` for the rows that the database refuses; return their dead letters.

        Raises Superseded if another writer was first, SinkFailedError if the table has changed, LogRefusedError for a
        refused row that stops its log.
        """
        recorded, ledger = self._recorded, self._recorded.ledger
        session.begin()
        entry = ledger.hold(session)
        if entry is None:
            raise recorded.gone(f"nothing of it is recorded in {self._target.schema} any more")
        recorded.compare(entry, rolling=True)
        recorded.hold_columns(session, alone=any(each.clears for each in roll.ready))
        coverage = ledger.lock(session, {*(span.log for span in roll.spans), *roll.floors})
        self._reached("locked")
        try:
            check_fit(coverage, roll.spans, roll.floors, ordered=not recorded.options.shared)
        except OverlapError as exc:
            raise self._superseded(session, exc) from exc
        found = [letter for each in roll.ready for letter in each.letters]
        loading = self._loading(session, roll.ready)
        if search:
            for each in roll.ready:
                found += place(session, loading, each)
        else:
            loading.put(roll.ready)
        refused = [(each, self._letter(each)) for each in found]
        self._reached("loaded")
        letters = [(letter, "") for letter in (*roll.entries, *roll.values)]
        if letters := [*letters, *((letter, each.sqlstate) for each, letter in refused)]:
            session.copy(self._target.schema, LETTERS, [self._rows_of(letters, ascii=not session.has_all_text)])
        fates = fates_of(roll.spans, roll.given, roll.ready, roll.entries, roll.values, refused)
        types: Sequence[Column] = getattr(self._decoder, "types", ())
        try:
            if added_types(entry.types, types, landing=True):
                entry = ledger.hold(session, changing=True) or entry
                entry = entry._replace(types=added_types(entry.types, types, landing=True) or entry.types)
                ledger.record(session, entry.types)
        except SchemaError as exc:
            raise self._superseded(session, exc) from exc
        ledger.land(session, coverage, fates)
        self._reached("landed")
        session.commit()
        self._reached("committed")
        recorded.entry = entry
        recorded.compare(entry)  # takes the columns of other writers
        recorded.known.update(coverage)
        return [letter for _, letter in refused]

    def _superseded(self, session: Session, exc: Exception) -> Superseded:
        session.rollback()
        return Superseded(f"{self._target.name}: another writer was first: {exc}")

    def _loading(self, session: Session, ready: Sequence[Ready]) -> Loading:
        if not self._target.key:
            return Appending(session, self._target)
        names = dict.fromkeys(name for each in ready for name in each.batch.schema.names)
        return Replacing(session, self._target, list(names) or self._target.key)

    def _letter(self, letter: Letter) -> DeadLetter:
        gathered = letter.gathered
        reason = f"{letter.sqlstate}: {letter.reason}" if letter.sqlstate else letter.reason
        found: DeadLetter = self._decoder.letter(
            letter.row, reason, gathered.source, gathered.runs, "is refused by the database"
        )
        return found

    def _rows_of(self, letters: Sequence[tuple[DeadLetter, str]], *, ascii: bool) -> pa.RecordBatch:
        reasons = [letter.reason.replace("\0", "\\0") for letter, _ in letters]
        if ascii:
            reasons = [reason.encode("ascii", "backslashreplace").decode() for reason in reasons]
        texts = {
            "table": [self._target.table for _ in letters],
            **{name: [str(getattr(letter.log, name)) for letter, _ in letters] for name in OF_LOG},
            "position": [format_position(letter.log.system, letter.position) for letter, _ in letters],
            "sqlstate": [sqlstate for _, sqlstate in letters],
            "reason": reasons,
        }
        return pa.record_batch(
            {
                **{name: pa.array(values, pa.string()) for name, values in texts.items()},
                "rows": pa.array([letter.rows for letter, _ in letters], pa.int64()),
                "payload": pa.array([letter.payload for letter, _ in letters], pa.binary()),
            }
        )
