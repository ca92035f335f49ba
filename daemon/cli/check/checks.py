"""Static checks of a configuration: delivery guarantees, the files that it needs, the folders that it writes to."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...config import (
    Config,
    ConfigError,
    Connection,
    PipelineConfig,
    Secured,
    SinkConfig,
    SparkBrokers,
    SparkConfig,
    SparkOutput,
    TlsConfig,
)
from ...config.cleartext import of_job, of_pipeline
from ...config.sinks.store import StoreUrl
from ...net.auth import AuthError, credentials
from ...net.tls import client_context
from ...systems.base import FileCheck
from ...systems.registry import system_named

if TYPE_CHECKING:
    from ...dataset.description import Description
    from ...dataset.storage.bucket import Bucket
    from ...dataset.storage.probe import Check

UPKEEP = {
    "delta": "the table needs OPTIMIZE and then VACUUM now and then, by any tool that knows Delta: files stay as small "
    "as the rolls. Both leave _fastwire alone. Keep the 7 days of VACUUM, or at least the longest time that no daemon "
    "runs",
    "iceberg": "the table needs rewrite_data_files and then expire_snapshots now and then, by any tool that knows "
    "Iceberg: files stay as small as the rolls, and each commit takes longer with each snapshot. remove_orphan_files "
    "leaves _fastwire alone; keep its 3 days, or at least the longest time that no daemon runs",
}

DECODER_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: ``what`` names its subject in a word, ``detail`` is a sentence for the user."""

    pipeline: str
    what: str
    ok: bool
    detail: str
    configuration: bool = False
    """True if only a changed configuration helps (exit code 78 instead of 1)."""
    retried: bool = False
    """True if `run` starts in spite of the failure and tries again later."""


def promise(pipeline: PipelineConfig) -> str:
    """Return the delivery guarantee of a pipeline: the effect of a crash at any instant on its records."""
    sink = pipeline.sink
    if sink.table_format:
        return "exactly once: files and positions are one commit, and the table gets each file once"
    if sink.is_dataset:
        return "exactly once: files and positions are one commit"
    if sink.is_database:
        return "exactly once: rows and positions are one transaction"
    if sink.is_topic and sink.delivery == "exactly-once" and sink.path is not None:
        return (
            "exactly once: the brokers of the topic drop what they have stored, if deduplication is enabled, which the "
            "first batch shows; positions and dead letters are kept at path"
        )
    if sink.is_topic and sink.delivery == "exactly-once":
        return (
            "exactly once: records and positions are one transaction, for readers with isolation.level=read_committed"
        )
    if pipeline.brokers_decide:
        return (
            "exactly once if the brokers of the topic allow transactions, for readers with "
            "isolation.level=read_committed, else at least once: check --connect and the log say which"
        )
    if sink.is_topic:
        memory = (
            "positions and dead letters are kept at path"
            if sink.path is not None
            else "without a path only the source's brokers remember what was written: set sink.path, or "
            'sink.delivery = "exactly-once" where the topic allows it'
        )
        return (
            "at least once: records are acknowledged when the brokers of the topic have stored them, and those in "
            f"between are written again after a crash; {memory}"
        )
    if sink.type == "stdout":
        return "at least once: stdout has no log, so unacknowledged records are delivered again after a crash"
    if sink.type == "discard":
        return "none: discard acknowledges records and drops them"
    return (
        f"at least once, unless {sink.type} stores positions: unacknowledged records are delivered again after a crash"
    )


def static_checks(config: Config, *, tables: bool = True) -> list[CheckResult]:
    """Run the checks that need no broker and write nothing: guarantees, credentials, certificates, datasets.

    ``tables`` is that of ``dataset_checks``.
    """
    results = []
    for name, pipeline in config.pipelines.items():
        results.append(CheckResult(name, "promise", True, promise(pipeline)))
        results += _connection(name, pipeline.source)
        results += [CheckResult(name, "tls", True, f"none: {why}") for why in of_pipeline(pipeline)]
        if pipeline.sink.connection is not None:
            results += _connection(name, pipeline.sink.connection)
        results += _short_folders(name, pipeline)
        of_all = pipeline.decode is None or not pipeline.decode.by_topic
        if pipeline.sink.table_format:
            results += [_columns_of_table(name, pipeline)] if of_all else []
            results.append(CheckResult(name, "upkeep", True, UPKEEP[pipeline.sink.table_format]))
        elif pipeline.sink.is_dataset and of_all and pipeline.makes_columns:
            results += _columns(name, pipeline)
        if pipeline.sink.has_log and isinstance(pipeline.sink.path, Path):
            results += dataset_checks(name, pipeline.sink.path, pipeline, tables=tables)
        if pipeline.sink.is_database:
            results += _table_of_database(name, pipeline)
    for name, job in config.spark.items():
        results += _job(f"spark.{name}", job)
        results += [CheckResult(f"spark.{name}", "tls", True, f"none: {why}") for why in of_job(job)]
        if isinstance(job.output.path, Path):
            results += dataset_checks(f"spark.{name}", job.output.path, None, tables=tables)
    return results


def _table_of_database(name: str, pipeline: PipelineConfig) -> list[CheckResult]:
    """Report why the sink of a table in a database cannot be made."""
    from ...sinks.registry import build_sink

    try:
        build_sink(pipeline, memory=DECODER_BYTES)
    except ConfigError as exc:
        return [CheckResult(name, "table", False, str(problem), True) for problem in exc.problems]
    return []


def refusals(config: Config, names: Sequence[str]) -> list[str]:
    """Return why pipelines of ``config`` must not start, as sentences for the user.

    Runs the static checks of these pipelines, and compares their datasets in stores, too. Tables are not looked at: one
    that takes no files keeps no pipeline from starting, and its catalog may answer late.
    """
    chosen = {name: config.pipelines[name] for name in names}
    results = static_checks(config.model_copy(update={"pipelines": chosen, "spark": {}}), tables=False)
    for name, pipeline in chosen.items():
        if isinstance(pipeline.sink.path, StoreUrl):
            results += _dataset_in_store(name, pipeline.sink.path, pipeline)
    return [
        f"pipelines.{each.pipeline}: {each.what}: {each.detail}" for each in results if not each.ok and not each.retried
    ]


def _dataset_in_store(name: str, url: StoreUrl, pipeline: PipelineConfig) -> list[CheckResult]:
    """Compare the dataset in a store, as `run` would open it. A store that does not answer now is retried by `run`."""
    from ...dataset.place import bucket_of

    try:
        return dataset_checks(name, url, pipeline, bucket_of(pipeline.sink), tables=False)
    except ConfigError as exc:
        return [CheckResult(name, "store", False, "; ".join(map(str, exc.problems)), True)]


def dataset_checks(
    name: str,
    path: Path | StoreUrl,
    pipeline: PipelineConfig | None,
    medium: "Bucket | None" = None,
    *,
    tables: bool = True,
) -> list[CheckResult]:
    """Check the existing dataset, as `run` would open it, or the place of a new one; with ``tables`` its table, too."""
    from ...config.values.fields import TOPIC
    from ...dataset.origin import look_at
    from ...dataset.roots import dataset_around
    from ...runtime.errors import DatasetError, DatasetMismatchError

    if TOPIC in str(path):
        return []
    try:
        other = dataset_around(str(path), medium)
        found = None
        if medium is not None or Path(path).exists():
            from ...sinks.registry import dataset_options  # which takes pyarrow

            found = look_at(path, None if pipeline is None else dataset_options(pipeline), medium)
    except ConfigError:
        return []  # reported as columns
    except DatasetError as exc:
        return [CheckResult(name, "dataset", False, str(exc), isinstance(exc, DatasetMismatchError))]
    except OSError as exc:
        return [CheckResult(name, "dataset", False, f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc))]
    aside = f"readers of one would find the files of both: {other} is a dataset, too"
    if found is None:
        why = f"{path} would be new, and {aside}. Use folders beside each other"
        return [CheckResult(name, "dataset", False, why, True)] if other else []
    told = f"{path} is continued; it was created {found.created}"
    results = [CheckResult(name, "dataset", True, f"{told}; {aside}" if other else told)]
    return [*results, _table(name, path, found, pipeline, medium)] if found.table and tables else results


def _table(
    name: str,
    path: Path | StoreUrl,
    description: "Description",
    pipeline: PipelineConfig | None,
    medium: "Bucket | None" = None,
) -> CheckResult:
    """Check that the table takes files, as `run` would add them."""
    from ...config.sinks.catalog import catalog_of
    from ...dataset.place import storage_at, table_of
    from ...dataset.proof.tableaudit import TableAudit
    from ...dataset.tableformat import TableStoppedError
    from .catalog import look_within

    storage = storage_at(path, medium, patient=False)
    catalog = (None if pipeline is None else catalog_of(pipeline.sink)) or description.catalog
    try:
        if catalog:  # the audit waits longer for each of its answers
            look_within(table_of(storage, description, catalog, hasty=True), catalog)
    except TableStoppedError as exc:
        return _takes_no_files(name, f"{exc}")
    table = TableAudit(storage, description, catalog)
    if table.why:
        return _takes_no_files(name, table.why)
    return CheckResult(name, "table", True, f"it has the files of the log entries up to {table.upto:,}")


def _takes_no_files(name: str, why: str) -> CheckResult:
    lands = "Records land, and are published when it takes files"
    return CheckResult(name, "table", False, f"{why}. {lands}", retried=True)


def _new_table(name: str, sink: SinkConfig | SparkOutput, medium: "Bucket | None" = None) -> list[CheckResult]:
    """Ask the catalog for the table of a dataset that does not exist yet; one that exists is compared with its table.

    Where each topic has a table, the catalog is asked for that of a topic named "topic". One in a database is left
    alone: its library creates the database's tables when it is asked.
    """
    from ...config.sinks.catalog import catalog_of
    from ...config.values.fields import TOPIC
    from ...dataset.origin import look_at
    from ...dataset.place import storage_at, table_in
    from ...dataset.tableformat import TableStoppedError
    from ...runtime.errors import DatasetError
    from .catalog import look_within

    path, by_topic = str(sink.path), TOPIC in str(sink.path)
    try:
        if not sink.table_format or look_at(path, None, medium) is not None:
            return []
    except (DatasetError, OSError):
        return []  # reported as dataset, or as folder
    catalog = {key: value.replace(TOPIC, "topic") for key, value in catalog_of(sink).items()}
    if catalog.get("type") == "sql":
        return []
    table = table_in(storage_at(path, medium, patient=False), sink.table_format, "", catalog, hasty=True)
    try:
        seen = look_within(table, catalog)
    except (TableStoppedError, OSError) as exc:
        return [_takes_no_files(name, f"{exc}")]
    if seen is not None and not by_topic:
        why = f"the {table.title} table {table.url} exists, and the dataset does not: it takes no files of a new one. "
        return [CheckResult(name, "table", False, f"{why}Name another table, or restore the dataset", retried=True)]
    told = f"the catalog answers, and has no table {table.url} yet"
    return [CheckResult(name, "table", True, told)] if catalog and not by_topic else []


def _columns_of_table(name: str, pipeline: PipelineConfig) -> CheckResult:
    """Check that a table can have the columns of the pipeline."""
    from ...dataset.tableformat import TITLES
    from ...sinks.registry import dataset_options

    try:
        options = dataset_options(pipeline)
    except ConfigError as exc:
        return CheckResult(name, "table", False, "; ".join(problem.message for problem in exc.problems), True)
    levels = ", ".join(options.level_keys)
    partitioned = f"partitioned by {levels}" if levels else "not partitioned"
    return CheckResult(name, "table", True, f"in the format of {TITLES[options.table]}, {partitioned}")


def _columns(name: str, pipeline: PipelineConfig) -> list[CheckResult]:
    """Report columns that the files of a pipeline cannot have."""
    from ...sinks.registry import dataset_options

    try:
        dataset_options(pipeline)
    except ConfigError as exc:
        return [CheckResult(name, "columns", False, problem.message, True) for problem in exc.problems]
    return []


def _short_folders(name: str, pipeline: PipelineConfig) -> list[CheckResult]:
    """Report the shortened folder names of topics whose names are too long for a folder."""
    from ...dataset.level import level_directory, shortened

    split = pipeline.sink.split
    if split == "none" or not pipeline.sink.is_dataset:
        return []
    grammar = system_named(pipeline.source.system).grammar
    topics = [grammar.partition(topic)[1] if grammar.topic_is_partition else topic for topic in pipeline.source.topics]
    return [
        CheckResult(
            name, "folder", True, f"{level_directory('topic', 'none', topic=topic)} for {topic}: its name is too long"
        )
        for topic in topics
        if shortened("t", topic) != topic
    ]


def _connection(name: str, connection: Connection) -> list[CheckResult]:
    """Check the credentials of a connection and the files that it needs."""
    results = []
    if isinstance(connection, Secured) and connection.auth.given:
        results.append(_auth(name, connection))
    if isinstance(connection, Secured) and connection.url.tls:
        results.append(_tls(name, connection.tls))
    results += [_file(name, check) for check in system_named(connection.system).file_checks(connection)]
    return results


def _job(name: str, job: SparkConfig) -> list[CheckResult]:
    """Check a job without Spark; `fastwire-consume spark --dry-run` checks the rest."""
    promise = "exactly once: rows and the positions of the batch are one commit"
    results = [CheckResult(name, "promise", True, promise)]
    if isinstance(job.source, SparkBrokers):
        results += _connection(name, job.source)
    if job.decode.definition is not None:
        path = job.decode.definition
        try:
            size = len(path.read_bytes())
        except OSError as exc:
            results.append(CheckResult(name, "schema", False, f"{path}: {exc.strerror}"))
        else:
            results.append(CheckResult(name, "schema", size > 0, f"{path}" if size else f"{path} is empty"))
    return results


def database_checks(config: Config) -> list[CheckResult]:
    """Look at the databases and tables of pipelines as `run` would use them. Writes nothing."""
    from ...sinks.registry import build_sink

    results = []
    for name, pipeline in config.pipelines.items():
        if not pipeline.sink.is_database:
            continue
        try:
            sink: Any = build_sink(pipeline, memory=DECODER_BYTES)
        except ConfigError:
            continue  # reported as table
        from ...sinks.postgresql.inspection import inspect

        results += [CheckResult(name, what, ok, detail) for what, ok, detail in inspect(pipeline, sink)]
    return results


def folder_checks(config: Config) -> list[CheckResult]:
    """Try the operations of a commit at the place of each dataset. Leaves no files."""
    results = []
    for name, pipeline in config.pipelines.items():
        if pipeline.sink.has_log and isinstance(pipeline.sink.path, Path):
            results += [_folder(name, pipeline.sink.path), *_new_table(name, pipeline.sink)]
        elif pipeline.sink.has_log and isinstance(pipeline.sink.path, StoreUrl):
            results += _store(name, pipeline.sink.path, pipeline.sink, pipeline)
    for name, job in config.spark.items():
        output = job.output
        if isinstance(output.path, StoreUrl):
            results += _store(f"spark.{name}", output.path, output, None)
        else:
            results += [_folder(f"spark.{name}", output.path), *_new_table(f"spark.{name}", output)]
        results.append(_folder(f"spark.{name}", output.dead_letters))
    return results


def spark_checks(config: Config) -> list[CheckResult]:
    """Check for each job that PySpark, pandas and Java are installed."""
    missing = [module for module in ("pyspark", "pandas") if find_spec(module) is None]
    if which("java") is None and "JAVA_HOME" not in os.environ:
        missing.append("java")
    detail = f"missing: {', '.join(missing)} (pip install '.[spark]', and Java 17)"
    found = "PySpark and Java are installed"
    return [CheckResult(f"spark.{name}", "spark", not missing, detail if missing else found) for name in config.spark]


def _auth(pipeline: str, connection: Secured) -> CheckResult:
    try:
        found = credentials(connection.auth)
        said = found.check()
        system = system_named(connection.system)
        system.check_credentials(found)
        if mechanism := system.mechanism(connection):
            said += f", by {mechanism}"
        return CheckResult(pipeline, "auth", True, said)
    except AuthError as exc:
        return CheckResult(pipeline, "auth", False, str(exc))


def _tls(pipeline: str, tls: TlsConfig) -> CheckResult:
    try:
        client_context(tls)
    except ConfigError as exc:
        return CheckResult(pipeline, "tls", False, str(exc))
    if not tls.verify:
        return CheckResult(pipeline, "tls", True, "encrypted, but verify = false: the broker is not authenticated")
    return CheckResult(
        pipeline, "tls", True, f"the broker's certificate is verified with the CAs of {tls.ca or 'the system'}"
    )


def _file(pipeline: str, check: FileCheck) -> CheckResult:
    try:
        return CheckResult(pipeline, check.what, True, check.look())
    except ConfigError as exc:
        return CheckResult(pipeline, check.what, False, "; ".join(map(str, exc.problems)))


def _folder(pipeline: str, path: Path) -> CheckResult:
    from ...dataset.storage.probe import probe  # imported here because `tail` and `produce` do not need it

    return _place(pipeline, "folder", path, probe(str(path)))


def _store(
    name: str, url: StoreUrl, sink: SinkConfig | SparkOutput, pipeline: PipelineConfig | None
) -> list[CheckResult]:
    """Check the store of a dataset, and the dataset in it as `run` would open it."""
    from ...dataset.place import bucket_of
    from ...dataset.storage.probe import probe_bucket

    try:
        bucket = bucket_of(sink)
    except ConfigError as exc:
        return [CheckResult(name, "store", False, "; ".join(map(str, exc.problems)), True)]
    assert bucket is not None
    result = _place(name, "store", url, probe_bucket(bucket))
    if not result.ok:
        return [result]
    age_s = 0.0 if pipeline is None else pipeline.sink.roll.age
    more = [*dataset_checks(name, url, pipeline, bucket), *_new_table(name, sink, bucket)]
    return [result, *_lifecycle(name, bucket, age_s), *more]


def _lifecycle(name: str, bucket: "Bucket", age_s: float) -> list[CheckResult]:
    """Look for rules of an S3 bucket that would take what the dataset needs, with rolls up to ``age_s``."""
    from ...dataset.storage.lifecycle import UnreadableRulesError, harmful, rules_of

    if not bucket.url.startswith("s3://"):
        return []
    try:
        rules = rules_of(bucket.url, bucket.access)
    except ModuleNotFoundError:
        unseen = "not looked at: pip install 'fastwire-daemon[aws]'"
        return [CheckResult(name, "rules", True, f"lifecycle rules of the bucket were {unseen}")]
    except UnreadableRulesError as exc:
        return [CheckResult(name, "rules", True, f"the store does not tell its lifecycle rules: {exc}")]
    prefix = urlsplit(bucket.url).path.removeprefix("/")
    found = harmful(rules, f"{prefix}/" if prefix else "", age_s=age_s)
    if found:
        return [CheckResult(name, "rules", False, why) for why in found]
    return [CheckResult(name, "rules", True, f"no lifecycle rule of the bucket ({len(rules)}) takes what is needed")]


def _place(pipeline: str, what: str, place: Path | StoreUrl, checks: Sequence["Check"]) -> CheckResult:
    refused = [check for check in checks if not check.ok]
    if refused:
        return CheckResult(pipeline, what, False, "; ".join(f"{check.check}: {check.detail}" for check in refused))
    return CheckResult(pipeline, what, True, f"{place} can hold a dataset")
