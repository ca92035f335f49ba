"""The brokers as rows for a job: its source, said in the options of ``format("fastwire")``."""

from typing import Any

from pyspark.errors import AnalysisException

from fastwire.columns.schema import column_names

from ..config import ConfigError, Problem, SparkSource
from .datasource import KNOWS_LIMITS
from .dialects import dialect_of
from .options import parse_options
from .register import FastwireSource
from .rows import PLACE

__all__ = ["read_brokers", "reader_options", "stream_brokers"]


def reader_options(source: SparkSource, *, streaming: bool, limited: bool = True) -> dict[str, str]:
    """The options that say the same as ``source``. A batch is a trial: without limits, and no cursor moves."""
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
        options["columns"] = ",".join(name for name in column_names(dialect.name) if name in chosen)
    if source.min_partitions is not None:
        options["minPartitions"] = str(source.min_partitions)
    if "isolation" in source.model_fields_set:
        options["isolationLevel"] = source.isolation
    if source.start.time is not None:
        options["startingTimestamp"] = str(max(0, int(source.start.time.timestamp() * 1000)))
        options["startingOffsetsByTimestampStrategy"] = "latest"
    elif streaming or source.start.kind == "earliest":
        options["startingOffsets"] = source.start.kind
    if streaming:
        if limited:
            options["maxRecordsPerTrigger"] = str(source.max_records)
        if source.subscription is not None:
            options[dialect.group] = source.subscription
    return options


def stream_brokers(session: Any, name: str, source: SparkSource, *, ends: bool) -> Any:
    """A streaming frame of records, for the job called ``name``. Raises ConfigError for what no query could be of.

    Where the query ``ends`` when all that is there has been read, Spark 4.0 and 4.1 end it after one batch, whatever it
    has left: so that batch is everything.
    """
    options = reader_options(source, streaming=True, limited=KNOWS_LIMITS or not ends)
    return _reader(session, session.readStream, name, options, streaming=True).load()


def read_brokers(session: Any, name: str, source: SparkSource) -> Any:
    """What the topics hold now, as a frame that is not a stream."""
    return _reader(session, session.read, name, reader_options(source, streaming=False), streaming=False).load()


def _reader(session: Any, reader: Any, name: str, options: dict[str, str], *, streaming: bool) -> Any:
    try:
        parse_options(options, streaming=streaming)  # in Spark it would be said in a trace of two languages
    except ConfigError as exc:
        problems = [Problem("", f"spark.{name}.source", f"{key}: {message}") for _, key, message in exc.problems]
        raise ConfigError(problems) from None
    _make_known(session)
    return reader.format(FastwireSource.name()).options(**options)


def _make_known(session: Any) -> None:
    """Register the format, also where Spark has found it by itself, which 4.0 and 4.1 take for a mistake."""
    try:
        session.dataSource.register(FastwireSource)
    except AnalysisException as exc:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(exc):
            raise
