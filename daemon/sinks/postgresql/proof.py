"""Compare tables with what is recorded of them: ``verify``."""

import threading
from dataclasses import asdict, dataclass, field
from typing import Any

from fastwire.coverage import Coverage

from ...runtime.errors import DatasetError, SinkFailedError
from .fates import Fates
from .ledger import COVERAGE, LETTERS, TABLES, Ledger
from .session import Refused, Server, Session, failing, quoted

_SCHEMAS = f"""
SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = '{TABLES}' ORDER BY 1
"""


@dataclass
class TableReport:
    """One table. ``landed``, ``dead_letters`` and ``filtered`` are the records of all commits by their fate."""

    name: str
    mode: str
    partitions: int = 0
    records: int = 0
    """Records of all spans that have landed."""
    landed: int = 0
    dead_letters: int = 0
    filtered: int = 0
    rows: int = 0
    """Rows of the table now."""
    removed: int = 0
    """Rows that have landed by append, and that the table has not got any more."""
    removed_letters: int = 0
    """Records of dead letters that are not in their table any more."""
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def verify_tables(server: Server, *, strict: bool) -> list[TableReport]:
    """Compare each table that is recorded in a database; ``strict`` calls removed rows problems.

    Raises SinkFailedError if the database does not answer or refuses to.
    """
    session = Session(server, threading.Event())
    try:
        # One snapshot, so that daemons may go on.
        session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reports = []
        for (schema,) in session.rows(_SCHEMAS):
            for (table,) in session.rows(f"SELECT name FROM {quoted(schema, TABLES)} ORDER BY name"):
                reports.append(_verified(session, schema, table, strict=strict))
        return reports
    except Refused as exc:
        raise failing(server, exc) from exc
    finally:
        session.close()


def _verified(session: Session, schema: str, table: str, *, strict: bool) -> TableReport:
    ours, letters = quoted(schema, TABLES), quoted(schema, LETTERS)
    report = TableReport(f"{schema}.{table}", session.rows(f"SELECT mode FROM {ours} WHERE name = $1", table)[0][0])
    try:
        coverage: Coverage = Ledger(schema, table).coverage(session)
    except (DatasetError, SinkFailedError) as exc:
        report.problems.append(str(exc))
        return report
    report.partitions = len(coverage)
    sums = ", ".join(f"coalesce(sum({name}), 0)::bigint" for name in Fates._fields)
    counts = session.rows(f'SELECT {sums} FROM {quoted(schema, COVERAGE)} WHERE "table" = $1', table)[0]
    report.records, report.landed, report.dead_letters, report.filtered = counts
    by_fate = report.landed + report.dead_letters + report.filtered
    if report.records != by_fate:
        report.problems.append(
            f"{report.records:,} records have landed by their positions, and {by_fate:,} by what became of them"
        )
    kept = session.rows(f'SELECT coalesce(sum(rows), 0)::bigint FROM {letters} WHERE "table" = $1', table)[0][0]
    report.removed_letters = report.dead_letters - kept
    if report.removed_letters < 0:
        report.problems.append(f"{-report.removed_letters:,} dead letters are of no commit")
    if not session.rows("SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass($1)", quoted(schema, table)):
        report.problems.append("the table does not exist")
        return report
    report.rows = session.rows(f"SELECT count(*) FROM {quoted(schema, table)}")[0][0]
    if report.mode == "append":
        report.removed = max(0, report.landed - report.rows)
    if strict and (report.removed or report.removed_letters):
        report.problems.append(f"{report.removed:,} rows and {report.removed_letters:,} dead letters were removed")
    return report
