"""Make the sink of a table of PostgreSQL from a configuration."""

from collections.abc import Callable, Sequence
from threading import Event
from typing import TYPE_CHECKING

from fastwire.decode.evolution import Column
from fastwire.systems import row_of

from ...config import ConfigError, PipelineConfig, Problem, SinkConfig
from ...config.decode import DELETED, KEY
from ...config.sinks.database import connection_uri, shown, table_parts
from ...dataset.columnnames import NameRule
from ...dataset.tableschema import data_columns
from ..recordrows import RecordRows
from .columns import too_fine
from .envelope import columns_in
from .options import PostgresOptions
from .session import Server
from .sink import PostgresSink
from .target import Target

if TYPE_CHECKING:
    from ..transform import TransformedValues
    from ..valuedecoder import ValueDecoder

NAMES = NameRule(longest=63)


def server_of(pipeline: PipelineConfig) -> Server:
    """Return the database of a pipeline."""
    sink = pipeline.sink
    assert sink.url is not None, "the configuration was checked"
    password = None if sink.password is None else sink.password.get_secret_value()
    return Server(connection_uri(sink.url, password), shown(sink.url), sink.timeout)


def target_of(pipeline: PipelineConfig) -> Target:
    """Return the table of a pipeline."""
    sink = pipeline.sink
    assert sink.table is not None, "the configuration was checked"
    own = () if pipeline.makes_columns else row_of(pipeline.source.system).names
    return Target(*table_parts(sink.table), sink.key, sink.types, frozenset((*own, *sink.types)))


def make_sink(
    pipeline: PipelineConfig,
    decoder: "ValueDecoder | TransformedValues | None",
    *,
    gather_bytes: int,
    first: Callable[[Event], None] | None = None,
) -> PostgresSink:
    """Return the sink; it is not opened yet. Raises ConfigError.

    ``first`` gives the decoder the columns of a table that nothing is recorded of, if it infers them.
    """
    source, sink = pipeline.source, pipeline.sink
    known = row_of(source.system).names
    rows: RecordRows | TransformedValues
    if decoder is None:
        columns = tuple(name for name in known if sink.columns is None or name in sink.columns)
        rows = RecordRows(columns, source.system, on_error=source.on_corrupt)
    else:
        rows = decoder
    unstored = _unstored(pipeline) & frozenset(rows.columns)
    made: Sequence[Column] = _columns_of(source.system, rows)
    changes = sink.envelope == "debezium"
    if changes:
        try:
            made, unstored = columns_in(made), frozenset({DELETED})
        except ValueError as exc:
            raise ConfigError([Problem("", "sink.envelope", str(exc))]) from None
    made = [each for each in made if each.name not in unstored]
    inferred = pipeline.decode is not None and pipeline.decode.inferred
    problems = [] if inferred else _misfits(made, sink)
    if sink.mode == "upsert" and source.shared:
        why = "needs the records of a key in order, and consumers share the partitions: take another subscription_type"
        problems.append(Problem("", "sink.mode", f'"upsert" {why}'))
    if problems:
        raise ConfigError(problems)

    def now() -> Sequence[Column]:
        columns = [each for each in _columns_of(source.system, rows) if each.name not in unstored]
        if wrong := _misfits(columns, sink):
            raise ValueError("; ".join(f"{each.key}: {each.message}" for each in wrong))
        return columns

    options = PostgresOptions(
        system=source.system,
        cluster=source.cluster_name,
        hosts=tuple(source.url.hosts.split(",")),
        shared=source.shared,
        columns=made,
        inferred=now if inferred else None,
        unstored=unstored,
        changes=changes,
    )
    return PostgresSink(server_of(pipeline), target_of(pipeline), options, rows, gather_bytes=gather_bytes, first=first)


def _columns_of(system: str, rows: "RecordRows | TransformedValues") -> tuple[Column, ...]:
    return data_columns(system, rows.columns, getattr(rows, "types", ()))


def _misfits(columns: Sequence[Column], sink: SinkConfig) -> list[Problem]:
    """Return why a table cannot have the columns, by the key of the configuration."""
    problems = [
        Problem("", "sink.table", f"{each.name} has nanoseconds, and PostgreSQL keeps microseconds")
        for each in columns
        if too_fine(each)
    ]
    if why := NAMES.refusal(columns):
        problems.append(Problem("", "sink.table", f"{why}: PostgreSQL cuts names behind 63 bytes"))
    names = {each.name for each in columns}
    for key, wanted in (("key", sink.key), ("types", tuple(sink.types))):
        problems += [
            Problem("", f"sink.{key}", f'"{name}" is not a column of the rows') for name in wanted if name not in names
        ]
    return problems


def _unstored(pipeline: PipelineConfig) -> frozenset[str]:
    """Return the columns that only say what to do with a row."""
    if pipeline.sink.mode != "upsert":
        return frozenset()
    asked = () if pipeline.decode is None else pipeline.decode.columns
    return frozenset({DELETED, *(() if KEY in asked or KEY in pipeline.sink.key else (KEY,))})
