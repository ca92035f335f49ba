"""The tables of ours beside a table: what it is, the positions that have landed in it, and dead letters.

All three are in the schema of the table and serve all tables there. A commit changes them in the transaction of its
rows. Rows of positions are locked in one order, so that two daemons wait for each other and never deadlock.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fastwire.coverage import Coverage
from fastwire.decode.evolution import Column, columns_from_json, columns_to_json
from fastwire.position import Log, Until, format_position, parse_position, unnest

from ...runtime.errors import DatasetDamagedError, DatasetMismatchError
from .fates import Fates
from .session import Session, quoted

FORMAT = 1
TABLES, COVERAGE, LETTERS = "fastwire_tables", "fastwire_coverage", "fastwire_dead_letters"
OF_LOG = ("system", "cluster", "topic", "incarnation", "partition")
_OF_TABLE = "id, system, cluster, cluster_id, hosts, mode, columns, format"
_LOG_COLUMNS = ", ".join(OF_LOG)
_RECORDS = ", ".join(f"{name} text" for name in OF_LOG)

_DEFINITIONS = {
    TABLES: """name text PRIMARY KEY, id text NOT NULL, created timestamptz NOT NULL DEFAULT now(),
        system text NOT NULL, cluster text NOT NULL, cluster_id text NOT NULL DEFAULT '', hosts text NOT NULL,
        mode text NOT NULL, columns text NOT NULL, format integer NOT NULL""",
    COVERAGE: """"table" text NOT NULL, system text NOT NULL, cluster text NOT NULL, topic text NOT NULL,
        incarnation text NOT NULL, partition text NOT NULL, coverage text NOT NULL, witness text, until text,
        records bigint NOT NULL DEFAULT 0, landed bigint NOT NULL DEFAULT 0, dead_letters bigint NOT NULL DEFAULT 0,
        filtered bigint NOT NULL DEFAULT 0, changed timestamptz NOT NULL,
        PRIMARY KEY ("table", system, cluster, topic, incarnation, partition)""",
    LETTERS: """"table" text NOT NULL, system text NOT NULL, cluster text NOT NULL, topic text NOT NULL,
        incarnation text NOT NULL, partition text NOT NULL, position text NOT NULL,
        at timestamptz NOT NULL DEFAULT now(), sqlstate text NOT NULL, reason text NOT NULL, rows bigint NOT NULL,
        payload bytea NOT NULL""",
}


class Entry(NamedTuple):
    """The record of a table."""

    id: str
    system: str
    cluster: str
    cluster_id: str
    hosts: tuple[str, ...]
    mode: str
    types: tuple[Column, ...]
    """The columns of decoded values of all commits so far."""


class Ledger:
    """The records of one table of ``schema``, through the sessions that its methods are given."""

    def __init__(self, schema: str, table: str) -> None:
        self.schema, self.table = schema, table
        self._name = {name: quoted(schema, name) for name in _DEFINITIONS}

    def make(self, session: Session) -> None:
        """Make those of our tables that are missing. For a transaction."""
        # Two processes that make the same table at once would get an error; this lock ends with the transaction.
        session.run("SELECT pg_advisory_xact_lock(hashtext('fastwire'))")
        for name, definition in _DEFINITIONS.items():
            if not self._exists(session, name):
                session.run(f"CREATE TABLE {self._name[name]} ({definition})")

    def _exists(self, session: Session, name: str) -> bool:
        # A statement that reads the catalog sees new tables of others; to_regclass alone may not.
        return bool(session.rows("SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass($1)", self._name[name]))

    def look(self, session: Session) -> Entry | None:
        """Return what is recorded of the table; None if it has none."""
        if not self._exists(session, TABLES):
            return None
        found = session.rows(
            f"SELECT {_OF_TABLE} FROM {self._name[TABLES]} WHERE name = $1",
            self.table,
        )
        return None if not found else self._entry(found[0])

    def _entry(self, row: Sequence[Any]) -> Entry:
        id, system, cluster, cluster_id, hosts, mode, columns, form = row
        if form != FORMAT:
            raise DatasetMismatchError(
                f"{self.schema}.{TABLES}: {self.table} is recorded in format {form}, and this version of fastwire "
                f"knows format {FORMAT}: update it"
            )
        try:
            types = columns_from_json(json.loads(columns)) if columns else ()
        except ValueError as exc:
            raise self._damaged(TABLES, f"the columns of {self.table} are damaged: {exc}") from exc
        return Entry(id, system, cluster, cluster_id, tuple(hosts.split(",")), mode, types)

    def begin(self, session: Session, entry: Entry) -> bool:
        """Record the table; return False if another process has done so. For a transaction."""
        return bool(
            session.rows(
                f"INSERT INTO {self._name[TABLES]} (name, id, system, cluster, hosts, mode, columns, format)"
                f" VALUES ($1, $2, $3, $4, $5, $6, $7, {FORMAT}) ON CONFLICT (name) DO NOTHING RETURNING 1",
                *(self.table, entry.id, entry.system, entry.cluster, ",".join(entry.hosts), entry.mode),
                json.dumps(columns_to_json(entry.types)),
            )
        )

    def identify(self, session: Session, cluster_id: str) -> str:
        """Record the id of the cluster if none is; return the recorded one."""
        session.run(
            f"UPDATE {self._name[TABLES]} SET cluster_id = $2 WHERE name = $1 AND cluster_id = ''",
            *(self.table, cluster_id),
        )
        entry = self.look(session)
        return "" if entry is None else entry.cluster_id

    def hold(self, session: Session, *, changing: bool = False) -> Entry | None:
        """Return what is recorded, which is there until the end of the transaction.

        ``changing``: no other writer changes it either. This follows ``lock``, so that no two wait for each other.
        """
        how = "NO KEY UPDATE" if changing else "KEY SHARE"
        found = session.rows(f"SELECT {_OF_TABLE} FROM {self._name[TABLES]} WHERE name = $1 FOR {how}", self.table)
        return None if not found else self._entry(found[0])

    def record(self, session: Session, types: Sequence[Column]) -> None:
        """Record the columns of decoded values."""
        text = json.dumps(columns_to_json(types))
        session.run(f"UPDATE {self._name[TABLES]} SET columns = $2 WHERE name = $1", self.table, text)

    def coverage(self, session: Session) -> Coverage:
        """Return all positions that have landed."""
        if not self._exists(session, COVERAGE):
            return Coverage()
        return self._read(
            session.rows(
                f'SELECT {_LOG_COLUMNS}, coverage, witness, until FROM {self._name[COVERAGE]} WHERE "table" = $1'
                f" AND coverage <> '' ORDER BY {_LOG_COLUMNS}",
                self.table,
            )
        )

    def lock(self, session: Session, logs: Collection[Log]) -> Coverage:
        """Return the positions of these logs as they are once no other writer can change them. For a transaction."""
        found = session.rows(
            f'INSERT INTO {self._name[COVERAGE]} AS held ("table", {_LOG_COLUMNS}, coverage, changed)'
            f" SELECT $1, {_LOG_COLUMNS}, '', now() FROM jsonb_to_recordset($2::jsonb) AS given({_RECORDS})"
            f' ORDER BY {_LOG_COLUMNS} ON CONFLICT ("table", {_LOG_COLUMNS})'
            f" DO UPDATE SET changed = now() RETURNING {_LOG_COLUMNS}, held.coverage, held.witness, held.until",
            *(self.table, _to_json((log, {}) for log in logs)),
        )
        return self._read([row for row in found if row[len(OF_LOG)]])

    def land(self, session: Session, coverage: Coverage, fates: Mapping[Log, Fates]) -> None:
        """Store the positions of locked logs. The last statement of a transaction: it fails in one that has failed."""
        values = []
        for log, parts in unnest(coverage.to_json()):
            witness, until, numbers = coverage.witness(log), coverage.until(log), fates.get(log, Fates(0, 0, 0, 0))
            known = {
                "coverage": json.dumps(parts),
                "witness": None if witness is None else str(witness),
                "until": None
                if until is None
                else json.dumps([format_position(log.system, until.position), until.run]),
            }
            values.append((log, {**known, **numbers._asdict()}))
        sums = ", ".join(f"{name} = held.{name} + given.{name}" for name in Fates._fields)
        numbered = ", ".join(f"{name} bigint" for name in Fates._fields)
        given = f"{_RECORDS}, coverage text, witness text, until text, {numbered}"
        found = session.rows(
            f"WITH changed AS (UPDATE {self._name[COVERAGE]} AS held SET coverage = given.coverage,"
            f" witness = given.witness, until = given.until, {sums}, changed = now()"
            f" FROM jsonb_to_recordset($2::jsonb) AS given({given})"
            f' WHERE held."table" = $1 AND {" AND ".join(f"held.{name} = given.{name}" for name in OF_LOG)}'
            " RETURNING 1) SELECT count(*) FROM changed",
            *(self.table, _to_json(values)),
        )
        if found[0][0] != len(values):
            raise self._damaged(COVERAGE, f"rows of {self.table} have gone while they were locked")

    def _damaged(self, name: str, why: str) -> DatasetDamagedError:
        return DatasetDamagedError(f"{self.schema}.{name}: {why}")

    def _read(self, rows: Iterable[Sequence[Any]]) -> Coverage:
        tree: dict[str, Any] = {}
        witnesses: dict[Log, int] = {}
        ends: dict[Log, Until] = {}
        try:
            for system, cluster, topic, incarnation, partition, coverage, witness, until in rows:
                at = tree.setdefault(system, {}).setdefault(cluster, {}).setdefault(topic, {})
                at.setdefault(incarnation, {})[partition] = json.loads(coverage)
                log = Log(system, cluster, topic, partition, incarnation)
                if witness is not None:
                    witnesses[log] = int(witness)
                if until is not None:
                    position, run = json.loads(until)
                    ends[log] = Until(parse_position(system, position), str(run))
            found = Coverage.from_json(tree)
        except ValueError as exc:
            raise self._damaged(COVERAGE, f"positions of {self.table} are damaged: {exc}") from exc
        for log, witness in witnesses.items():
            found.recall(log, witness)
        for log, end in ends.items():
            found.end_at(log, end)
        return found


def _to_json(values: Iterable[tuple[Log, Mapping[str, Any]]]) -> str:
    return json.dumps([{**{name: getattr(log, name) for name in OF_LOG}, **more} for log, more in values])
