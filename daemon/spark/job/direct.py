"""Reads brokers for a job: translates its source into options of ``format("fastwire")``."""

from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException

from fastwire.systems import row_of

from ...config import ConfigError, Problem, SparkBrokers
from ..register import FastwireSource
from ..source.datasource import KNOWS_LIMITS
from ..source.dialects import dialect_of
from ..source.options import LANDED, parse_options
from ..source.rows import PLACE


def reader_options(source: SparkBrokers, *, streaming: bool, limited: bool = True) -> dict[str, str]:
    """Return the options equivalent to ``source``. A batch query is a trial: it has no limits and moves no cursor."""
    dialect = dialect_of(str(source.url))
    options = {
        "servers": str(source.url),
        "failOnDataLoss": str(source.on_data_loss == "stop").lower(),
        **source.access,
    }
    if source.topics_pattern is not None:
        options["subscribePattern"] = str(source.topics_pattern)
    else:
        options["subscribe"] = ",".join(source.topics)
    if source.columns is not None:
        chosen = {*source.columns, *PLACE}
        options["columns"] = ",".join(name for name in row_of(source.system).names if name in chosen)
    if source.min_partitions is not None:
        options["minPartitions"] = str(source.min_partitions)
    for key in dialect.options.keys() & source.model_fields_set:
        options[dialect.options[key]] = str(getattr(source, key))
    if "metadata_max_age" in source.model_fields_set:
        options["topicRefreshIntervalMs"] = str(round(source.metadata_max_age * 1000))
    if source.start.time is not None:
        options["startingTimestamp"] = str(max(0, int(source.start.time.timestamp() * 1000)))
        options["startingOffsetsByTimestampStrategy"] = "latest"
    elif streaming or source.start.kind == "earliest":
        options["startingOffsets"] = source.start.kind
    if streaming:
        if limited:
            options["maxRecordsPerTrigger"] = str(source.max_records)
        if source.group is not None:
            options[dialect.group] = source.group
    return options


def stream_brokers(session: Any, name: str, source: SparkBrokers, landed: Path, *, ends: bool) -> Any:
    """Return a streaming frame of records for the job ``name``. Raises ConfigError for unusable options.

    ``landed`` is the path of the positions that the job's tables have.
    ``ends``: the query ends when it has read the existing records. Spark 4.0 and 4.1 end such a query after one batch,
    so that batch is not limited.
    """
    options = reader_options(source, streaming=True, limited=KNOWS_LIMITS or not ends)
    options[LANDED] = str(landed)
    return _reader(session, session.readStream, name, options, streaming=True).load()


def read_brokers(session: Any, name: str, source: SparkBrokers) -> Any:
    """Return the present records of the topics as a batch frame."""
    return _reader(session, session.read, name, reader_options(source, streaming=False), streaming=False).load()


def _reader(session: Any, reader: Any, name: str, options: dict[str, str], *, streaming: bool) -> Any:
    try:
        parse_options(options, streaming=streaming)  # Spark would report it in a traceback of two languages
    except ConfigError as exc:
        problems = [Problem("", f"spark.{name}.source", f"{key}: {message}") for _, key, message in exc.problems]
        raise ConfigError(problems) from None
    _make_known(session)
    return reader.format(FastwireSource.name()).options(**options)


def _make_known(session: Any) -> None:
    """Register the format. Spark 4.0 and 4.1 raise an error if they have already discovered it; that is ignored."""
    try:
        session.dataSource.register(FastwireSource)
    except AnalysisException as exc:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(exc):
            raise
