"""Put rows into a table within a transaction, and find the rows that the database refuses."""

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

import pyarrow as pa

from .rows import Letter, Ready, counting
from .session import Refused, Session, quoted
from .target import Target

STAGE = "fastwire_stage"
_AT, _DELETED = "_fastwire_at", "_fastwire_deleted"
COPY_BYTES = 32 << 20  # of one statement, which has a limit of time


class Loading(Protocol):
    """A way of rows into the table, for one transaction."""

    def put(self, ready: Sequence[Ready]) -> None:
        """Put rows into the table, in their order. Raises Refused."""


class Appending:
    """Rows are added."""

    def __init__(self, session: Session, target: Target) -> None:
        self._session, self._target = session, target

    def put(self, ready: Sequence[Ready]) -> None:
        """See ``Loading``."""
        for batches in _statements([each.batch for each in ready]):
            self._session.copy(self._target.schema, self._target.table, batches)
        _check_deferred(self._session)


class Replacing:
    """Rows replace those of the same key, or delete them; the last one of a key decides."""

    def __init__(self, session: Session, target: Target, columns: Sequence[str]) -> None:
        self._session, self._target = session, target
        names = ", ".join(map(quoted, columns))
        session.run(
            f"CREATE TEMPORARY TABLE {STAGE} ON COMMIT DROP AS SELECT {names}, 0::bigint AS {_AT}, false AS {_DELETED}"
            f" FROM {target.name} WITH NO DATA"
        )
        keys = ", ".join(map(quoted, target.key))
        newest = f"(SELECT DISTINCT ON ({keys}) * FROM {STAGE} ORDER BY {keys}, {_AT} DESC) AS newest"
        same = " AND ".join(f"held.{quoted(name)} = newest.{quoted(name)}" for name in target.key)
        changed = ", ".join(f"{quoted(name)} = EXCLUDED.{quoted(name)}" for name in columns if name not in target.key)
        inserted = (
            f"INSERT INTO {target.name} ({names}) SELECT {names} FROM {newest} WHERE NOT {_DELETED} ORDER BY {keys}"
        )
        self._merge = (
            f"DELETE FROM {target.name} AS held USING {newest} WHERE newest.{_DELETED} AND {same}",
            f"{inserted} ON CONFLICT ({keys}) DO {f'UPDATE SET {changed}' if changed else 'NOTHING'}",
            f"TRUNCATE {STAGE}",
        )
        self._at = 0

    def put(self, ready: Sequence[Ready]) -> None:
        """See ``Loading``."""
        if not ready:
            return  # all records of the roll are dead letters
        last = max((at for at, each in enumerate(ready) if each.clears), default=0)
        if ready[last].clears:
            self._session.run(f"TRUNCATE {self._target.name}")
            ready = ready[last:]
        for batches in _statements([self._staged(each) for each in ready]):
            self._session.copy(None, STAGE, batches)
        for statement in self._merge:
            self._session.run(statement)
        _check_deferred(self._session)

    def _staged(self, ready: Ready) -> pa.RecordBatch:
        batch = ready.batch
        numbers = counting(batch.num_rows, self._at)
        self._at += batch.num_rows
        batch = batch.append_column(_AT, numbers)
        return batch if ready.deleted is None else batch.append_column(_DELETED, ready.deleted)


def _check_deferred(session: Session) -> None:
    """Let the server check what it would check at the commit, where a refusal could not be told from a failure."""
    session.run("SET CONSTRAINTS ALL IMMEDIATE")


def _statements(batches: Sequence[pa.RecordBatch]) -> list[list[pa.RecordBatch]]:
    """Return batches of the same columns that follow each other, in groups of a bounded size."""
    groups: list[list[pa.RecordBatch]] = []
    for _, alike in groupby((each for each in batches if each.num_rows), key=lambda batch: batch.schema):
        held = COPY_BYTES
        for batch in alike:
            if held >= COPY_BYTES:
                groups.append([])
                held = 0
            groups[-1].append(batch)
            held += batch.nbytes
    return groups


def place(session: Session, loading: Loading, ready: Ready) -> list[Letter]:
    """Put rows into the table, and return those that the database refuses: halves that are refused are halved again.

    Raises Refused for an error that is not about rows, and if the table may not be emptied.
    """
    session.run("SAVEPOINT fastwire")
    try:
        loading.put([ready])
    except Refused as exc:
        if not exc.of_rows or ready.clears:
            raise
        session.run("ROLLBACK TO SAVEPOINT fastwire")
        if ready.batch.num_rows == 1:
            return [Letter(ready.gathered, ready.numbers[0], exc.sqlstate, exc.message, put=True)]
    else:
        session.run("RELEASE SAVEPOINT fastwire")
        return []
    half = ready.batch.num_rows // 2
    return [
        letter
        for part in (_part(ready, 0, half), _part(ready, half, ready.batch.num_rows))
        for letter in place(session, loading, part)
    ]


def _part(ready: Ready, first: int, upto: int) -> Ready:
    return Ready(
        ready.batch.slice(first, upto - first),
        ready.gathered,
        ready.numbers[first:upto],
        None if ready.deleted is None else ready.deleted.slice(first, upto - first),
    )
