"""A table as one process knows it: what is recorded of it, its columns, and the positions that have landed.

A name identifies no table: databases are restored, and tables dropped and made again. So the id of what is recorded and
the positions that this process has seen outlive a failed connection, and are compared whenever it connects again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa

from fastwire.coverage import Coverage
from fastwire.decode.program import SchemaError
from fastwire.position import positions_of

from ...dataset.origin import refuse_other_hosts, refuse_other_id
from ...runtime.errors import DatasetDamagedError, DatasetGoneError, DatasetMismatchError, SinkFailedError, Superseded
from .columns import Held
from .ledger import Entry, Ledger
from .options import PostgresOptions
from .session import Server, Session
from .target import Target

ADD_LOCK_TIMEOUT = "3s"


class Recorded:
    """The table ``target`` of ``server`` for records that ``decoder`` makes rows of.

    Methods raise DatasetMismatchError for a table of other records, DatasetGoneError if what was there is missing, and
    DatasetDamagedError if it has lost commits.
    """

    def __init__(self, server: Server, target: Target, options: PostgresOptions, decoder: Any) -> None:
        self.entry: Entry | None = None
        """What is recorded; None if nothing was when this process looked."""
        self.known = Coverage()
        """The positions that have landed, as far as this process knows."""
        self.held: Mapping[str, Held] = {}
        """The columns of the table."""
        self.ledger = Ledger(target.schema, target.table)
        self._server, self.target, self.options, self.decoder = server, target, options, decoder
        self._places = positions_of(options.system)
        self._id = ""
        self._name = f"the table {target.name} of {server.name}"

    @property
    def mode(self) -> str:
        """The mode of the table, with its key."""
        return f"upsert {', '.join(self.target.key)}" if self.target.key else "append"

    @property
    def knows_columns(self) -> bool:
        """False as long as the columns of the rows have yet to be inferred."""
        return self.options.inferred is None or bool(self.decoder.types)

    def open(self, session: Session, first: Callable[[], None] = lambda: None, *, rolling: bool = False) -> None:
        """Read what is recorded, and compare it with the configuration and with what is known.

        ``first`` is called if nothing is recorded, before the columns of a table that is there are compared. For
        ``rolling`` see :meth:`compare`.
        """
        self.entry = self.ledger.look(session)
        if self.entry is None:
            if self._id:
                raise self.gone(f"nothing of it is recorded in {self.target.schema}")
            first()
            self._compare_table(session, exists=False)
            return
        self.compare(self.entry, rolling=rolling)
        coverage = self.ledger.coverage(session)
        self._compare_table(session, exists=len(coverage) > 0)
        self._compare_positions(coverage)
        self.known = coverage

    def refresh(self, session: Session) -> None:
        """Read the positions that have landed."""
        self.entry = self.ledger.look(session)
        if self.entry is not None:
            self.compare(self.entry, rolling=True)
            self.known = self.ledger.coverage(session)
        elif self._id:
            raise self.gone(f"nothing of it is recorded in {self.target.schema} any more")

    def create(self, session: Session) -> None:
        """Record the table, and make it and our tables beside it where they are missing.

        Raises Superseded if another process has begun with it.
        """
        options = self.options
        types = getattr(self.decoder, "types", ())
        entry = Entry(uuid4().hex, options.system, options.cluster, "", options.hosts, self.mode, types)
        session.begin()
        self.ledger.make(session)
        made = self.ledger.begin(session, entry)
        if not made and (other := self.ledger.look(session)) is not None:
            self.compare(other)  # its columns are those of the table
        if made and self.target.look(session) is None:
            self.target.make(session, self._schema())
        self._compare_table(session, exists=True)
        session.commit()
        found = self.ledger.look(session)
        if found is None:
            raise SinkFailedError(f"{self.target.name} is not recorded any more")
        self.entry = found
        self.compare(found)
        if not made and (len(self.ledger.coverage(session)) or found.cluster != options.cluster):
            # Decisions that the caller made without it (first positions, cluster name) are void.
            raise Superseded(f"another writer has begun with {self.target.name}; open it again")

    def identify(self, session: Session, cluster_id: str) -> None:
        """Compare the cluster's id ("": it has none) with the recorded one, or record it."""
        entry, options = self.entry, self.options
        if entry is None:
            return
        if not (entry.cluster_id and cluster_id):
            held = (entry.cluster, entry.hosts)
            refuse_other_hosts(self._name, options.system, held, options, "another table")
        if cluster_id:
            known = self.ledger.identify(session, cluster_id) or cluster_id
            refuse_other_id(self._name, known, cluster_id, options.hosts, "another table")

    def hold_columns(self, session: Session, *, alone: bool) -> None:
        """Keep the columns as they are, and (``alone``) others from the table, until the end of the transaction.

        Raises SinkFailedError if they have changed: bytes for a column of one type are another value in one of another.
        """
        # Partitions have the same columns, and are locked as they get rows: others may be in use for long.
        session.run(f"LOCK TABLE ONLY {self.target.name} IN {'ACCESS' if alone else 'ROW'} EXCLUSIVE MODE")
        found = self.target.look(session)
        if found is None or not self.held.items() <= found.columns.items():
            raise SinkFailedError(f"{self._name} has other columns than before: it is looked at again")

    def add(self, session: Session, fields: Sequence[pa.Field]) -> None:
        """Add columns to the table."""
        session.begin()
        # Who waits for the table, too, waits behind this statement: a reader must not hold up all others.
        session.rows("SELECT set_config('lock_timeout', $1, true)", ADD_LOCK_TIMEOUT)
        self.target.add(session, fields)
        session.commit()
        found = self.target.look(session)
        if found is None:
            raise self.gone("it does not exist any more")
        if lacking := sorted({field.name for field in fields} - found.columns.keys()):
            raise self._mismatch(f"it has not got its new columns {', '.join(lacking)}")
        self.held = found.columns

    def compare(self, entry: Entry, *, rolling: bool = False) -> None:
        """Compare what is recorded with what this process knows and does, and take its columns.

        While rows are ``rolling``, columns that are inferred stay those of the roll.
        """
        if self._id and entry.id != self._id:
            raise self._mismatch(
                f"it was recorded anew: its id is {entry.id}, and this process has landed records in the one with the "
                f"id {self._id}. Restart the daemon to continue with what is there"
            )
        for what, was, now in (("the system", entry.system, self.options.system), ("mode", entry.mode, self.mode)):
            if was != now:
                raise self._mismatch(f"{what} of the table: {was}; configured: {now}. Use another table")
        adopt = getattr(self.decoder, "adopt", None)
        try:
            if adopt is not None and entry.types and not (rolling and self.options.inferred):
                adopt(entry.types)
        except SchemaError as exc:
            raise self._mismatch(f'{exc}. Use another table, or evolve = "add" where columns are only added') from exc
        self._id = entry.id

    def gone(self, why: str) -> DatasetGoneError:
        """Return the error for a table that was there."""
        return DatasetGoneError(
            f"{self._name} is gone: {why}. No record is acknowledged. Put it "
            f"back: then landing continues. To begin anew, delete its rows in {self.target.schema}.fastwire_tables "
            "and fastwire_coverage"
        )

    def _mismatch(self, why: str) -> DatasetMismatchError:
        return DatasetMismatchError(f"{self._name}: {why}")

    def _schema(self) -> pa.Schema:
        try:
            return self.options.schema
        except ValueError as exc:
            raise self._mismatch(str(exc)) from exc

    def _compare_table(self, session: Session, *, exists: bool) -> None:
        """Compare the columns of the table with those of the rows, and keep them."""
        found = self.target.look(session)
        if found is None:
            if exists:
                raise self.gone("records have landed in it, and it does not exist")
            self.held = {}
            return
        if wrong := self.target.differences(found, self._schema()) if self.knows_columns else []:
            raise self._mismatch("; ".join(wrong))
        self.held = found.columns

    def _compare_positions(self, coverage: Coverage) -> None:
        """Compare what has landed with what this process knows to have landed."""
        for log in self.known.logs():
            known, now = self.known.end(log), coverage.end(log)
            if known is not None and (now is None or self._places.precedes(now, known)):
                was, is_ = self._places.format(known), "nothing" if now is None else self._places.format(now)
                raise DatasetDamagedError(
                    f"{self._server.name} has lost commits: {self.target.name} had {log} up to {was}, and has it up "
                    f"to {is_}. An older copy was restored, or a replica that lacked them has taken over. Restart the "
                    "daemon to continue with what is there"
                )
