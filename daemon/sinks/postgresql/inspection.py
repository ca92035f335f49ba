"""Look at a database as a pipeline would use it, without writing: ``check --connect``."""

import threading
from collections.abc import Iterator

from ...config import PipelineConfig
from ...runtime.errors import DatasetError, SinkFailedError
from .ledger import COVERAGE, LETTERS, TABLES
from .making import server_of, target_of
from .session import Refused, Session, failing, quoted
from .sink import PostgresSink

OLDEST = 120_000  # by server_version_num: the oldest version that its makers still maintain


def inspect(pipeline: PipelineConfig, sink: PostgresSink) -> Iterator[tuple[str, bool, str]]:
    """Yield the subject, the verdict and a sentence of each check."""
    server, target = server_of(pipeline), target_of(pipeline)
    try:
        session = Session(server, threading.Event())
    except (Refused, SinkFailedError) as exc:
        yield "database", False, str(failing(server, exc) if isinstance(exc, Refused) else exc)
        return
    try:
        yield from _server(session, server.name)
        recorded = sink.recorded
        recorded.open(session)
        found = target.look(session)
        if recorded.entry is not None:
            logs, cluster = len(recorded.known), recorded.entry.cluster
            yield "table", True, f"{target.name} is continued, with positions of {logs:,} partitions of {cluster}"
        elif found is not None and not recorded.knows_columns:
            yield "table", True, f"{target.name} is there; the columns of the rows are inferred by the first start"
        elif found is not None:
            yield "table", True, f"{target.name} can have the rows; nothing has landed in it yet"
        else:
            yield "table", True, f"{target.name} will be made"
        lacking = list(_lacking_rights(session, pipeline, target.schema, target.table))
        told = f"the user lacks {', '.join(lacking)}" if lacking else "the user has the rights that are needed"
        yield "rights", not lacking, told
    except DatasetError as exc:
        yield "table", False, str(exc)
    except (Refused, SinkFailedError) as exc:
        yield "database", False, str(failing(server, exc) if isinstance(exc, Refused) else exc)
    finally:
        session.close()


def _server(session: Session, name: str) -> Iterator[tuple[str, bool, str]]:
    number, version, encoding, fsync, replica, read_only = session.rows(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'),"
        " current_setting('server_encoding'), current_setting('fsync'), pg_is_in_recovery(),"
        " current_setting('transaction_read_only')"
    )[0]
    if number < OLDEST:
        yield "database", False, f"{name} has version {version}: 12 is the oldest that is supported"
    elif replica or read_only == "on":
        yield "database", False, f"{name} is read-only"
    else:
        yield "database", True, f"{name} answers, version {version}, encoding {encoding}"
    if fsync != "on":
        yield "database", False, "fsync is off: a crash of the server's machine may lose rows that were acknowledged"


def _lacking_rights(session: Session, pipeline: PipelineConfig, schema: str, table: str) -> Iterator[str]:
    upsert = pipeline.sink.mode == "upsert"
    wanted = {
        TABLES: "SELECT INSERT UPDATE",
        COVERAGE: "SELECT INSERT UPDATE",
        LETTERS: "INSERT",
        table: "SELECT INSERT UPDATE DELETE" if upsert else "INSERT",
    }
    if pipeline.sink.envelope == "debezium":
        wanted[table] += " TRUNCATE"
    makes = False
    for name, rights in wanted.items():
        full = quoted(schema, name)
        if not session.rows("SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass($1)", full):
            makes = True
            continue
        for right in rights.split():
            if not session.rows("SELECT has_table_privilege($1, $2)", full, right)[0][0]:
                yield f"{right} on {full}"
    if not session.rows("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", schema):
        yield f"the schema {quoted(schema)}, which does not exist"
    elif makes and not session.rows("SELECT has_schema_privilege($1, 'CREATE')", schema)[0][0]:
        yield f"CREATE on the schema {quoted(schema)}, to make tables"
    if upsert and not session.rows("SELECT has_database_privilege(current_database(), 'TEMP')")[0][0]:
        yield "TEMPORARY on the database"
