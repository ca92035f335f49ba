"""Makes the sink of a configuration: a built-in one, a dataset with a plug-in encoder, or a plug-in sink."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from fastwire.systems import grammar_named, row_of

from ..config import ConfigError, PipelineConfig, Problem, SinkConfig
from ..config.decode import (
    DELETED,
    KEY,
    DecodeConfig,
    chosen_columns,
    decoded_columns,
    key_column,
    named_for,
    read_key_program,
    read_program,
    refuse_uninferable,
)
from ..config.sinks.catalog import catalog_of
from ..config.sinks.partitioning import UNPARTITIONED, Partitioning
from ..config.sql.arrowcolumns import names_of_records
from ..config.sql.rowwise import read_transform
from ..config.values.fields import TABLE_TYPES
from ..dataset.columnnames import ANY_NAME, NameRule
from ..dataset.level import level_keys
from .base import FirstColumns, Sink
from .discard import DiscardSink
from .stdout import StdoutSink

if TYPE_CHECKING:
    from fastwire.decode.evolution import Column
    from fastwire.decode.program import Step

    from ..config.sql.rowwise import Query
    from ..dataset.description import DatasetOptions
    from ..encoders.base import Encoder
    from ..net.schemaregistry import TopicSchemas
    from .transform import TransformedValues
    from .valuedecoder import ValueDecoder

# All encoders of a pipeline together may buffer this fraction (one fourth) of its memory.
_GATHER_SHARE = 4


def build_sink(
    config: PipelineConfig,
    *,
    memory: int,
    topics: "TopicSchemas | None" = None,
    many: bool = False,
    first: "FirstColumns | None" = None,
) -> Sink:
    """Make the sink of a pipeline that may use ``memory`` bytes; it is not opened yet.

    ``topics`` are the schemas of the brokers, if values are decoded by them. ``many``: see ``DatasetSink``.
    ``first`` has the columns of a new dataset, where they are not configured.

    A plug-in is an entry point of the group ``fastwire.sinks``: a callable that returns a ``Sink``. It is called with
    the keys of its table in the configuration except fastwire's own (``type``, ``columns``, ``roll``, ``writers``);
    it gets ``writers`` if it has a parameter of that name. Raises ConfigError if the sink cannot be made.
    """
    sink = config.sink
    if sink.type == "stdout":
        return _decoded_stdout(config, memory, topics) if config.makes_columns else StdoutSink()
    if sink.type == "discard":
        return DiscardSink()
    if sink.is_dataset:
        return _dataset_sink(config, memory, topics, many=many, first=first)
    if sink.is_database:
        return _database_sink(config, memory, topics, first)
    return _plugin_sink(sink)


def load_encoder(name: str) -> "type[Encoder]":
    """Return the encoder class of a sink type. Raises ConfigError if it cannot be loaded or is not an encoder."""
    if name in ("parquet", *TABLE_TYPES):
        from ..encoders.parquet import ParquetEncoder

        return ParquetEncoder
    if name == "arrow":
        from ..encoders.arrow import ArrowEncoder

        return ArrowEncoder
    if name == "jsonl":
        from ..encoders.jsonl import JsonlEncoder

        return JsonlEncoder
    encoder = _load("fastwire.encoders", name)
    missing = [word for word in ("extension", "compressions", "write", "flush", "finish") if not hasattr(encoder, word)]
    if missing:
        raise _error("type", f'"{name}" is not an encoder: it lacks {", ".join(missing)}')
    return encoder  # type: ignore[no-any-return]


def dataset_options(config: PipelineConfig) -> "DatasetOptions":
    """Return the dataset options of a pipeline's configuration. Raises ConfigError."""
    return _positions_options(config) if config.sink.is_topic else _options(config, value_decoder(config))


def _positions_options(config: PipelineConfig) -> "DatasetOptions":
    """Return the options of a dataset that has the positions of what was written to a topic."""
    from ..dataset.description import DatasetOptions, target_text

    source, sink = config.source, config.sink
    assert sink.connection is not None, "it is a topic"
    assert sink.topic is not None
    system, hosts = sink.connection.system, sink.connection.url.hosts
    return DatasetOptions(
        system=source.system,
        cluster=source.cluster_name,
        columns=(),
        extension="topic",
        shared=source.shared,
        hosts=tuple(source.url.hosts.split(",")),
        target=target_text(system, grammar_named(system).topic(sink.topic), hosts),
    )


def _options(config: PipelineConfig, decoder: "ValueDecoder | TransformedValues | None") -> "DatasetOptions":
    # These load pyarrow, which a daemon that only prints does not need.
    from ..dataset.description import DatasetOptions
    from ..dataset.place import table_refusal
    from ..dataset.tableschema import data_columns
    from .dataset import file_extension

    source, sink = config.source, config.sink
    try:
        extension = file_extension(load_encoder(sink.type), sink.compression)
    except ValueError as exc:
        raise _error("compression", str(exc)) from None
    options = DatasetOptions(
        system=source.system,
        cluster=source.cluster_name,
        columns=_columns_of_records(config) if decoder is None else decoder.columns,
        levels=sink.partition_by.columns,
        types=() if decoder is None else decoder.types,
        inferred=config.decode is not None and config.decode.inferred,
        widens=config.decode is not None and config.decode.widens,
        split=sink.split,
        partition_by=sink.partition_by.level,
        extension=extension,
        shared=source.shared,
        hosts=tuple(source.url.hosts.split(",")),
        table=sink.table_format,
        catalog=catalog_of(sink),
        level_types=decoder.level_types if sink.table_format and decoder is not None else (),
    )
    if why := table_refusal(options):
        raise _error("type", why)
    landing = data_columns(options.system, options.columns, options.types)
    if not options.table and (why := _names_of(sink).refusal(landing)):
        where = "transform" if config.transform is not None else "decode"
        text = f"the files cannot have these columns: {why}. A transform can give them other names"
        raise ConfigError([Problem("", where, text)])
    return options


def value_decoder(
    config: PipelineConfig, *, memory: int = 64 << 20, topics: "TopicSchemas | None" = None
) -> "ValueDecoder | TransformedValues | None":
    """Return the decoder of a pipeline's values, None if it keeps them as they are. Raises ConfigError.

    It takes at most ``memory`` bytes for one record.
    """
    decode, system, by = config.decode, config.source.system, config.sink.partition_by
    if decode is not None and config.sink.mode == "upsert" and decode.transform is None:
        # Null values are deletions, whose key is that of the record.
        columns = (*decode.columns, *(name for name in (DELETED, KEY) if name not in decode.columns))
        decode = decode.model_copy(update={"columns": columns})
    for_table, names = bool(config.sink.table_format), _names_of(config.sink)
    if decode is None:
        return None if config.transform is None else _transformed_records(config, for_table=for_table, names=names)
    if decode.transform is not None:
        return _transformed(decode, system, by, memory, topics, for_table=for_table, names=names)
    return decoder_of(decode, system, by, memory=memory, topics=topics, for_table=for_table, names=names)


def _names_of(sink: SinkConfig) -> NameRule:
    """Return the rule for the columns of a sink."""
    if sink.is_database:
        return NameRule(longest=63)  # the server cuts longer ones
    if not sink.is_dataset:
        return ANY_NAME
    levels = (*level_keys(sink.split, sink.partition_by.level), *sink.partition_by.columns)
    return NameRule(levels, folded=sink.type in ("parquet", *TABLE_TYPES))


def _columns_of_records(config: PipelineConfig) -> tuple[str, ...]:
    """Return the columns of the records that a pipeline keeps, in their order."""
    known, wanted = row_of(config.source.system).names, config.sink.columns
    return tuple(name for name in known if wanted is None or name in wanted)


def decoder_of(
    decode: DecodeConfig,
    system: str,
    by: Partitioning = UNPARTITIONED,
    *,
    memory: int = 64 << 20,
    topics: "TopicSchemas | None" = None,
    for_table: bool = False,
    names: NameRule = ANY_NAME,
) -> "ValueDecoder":
    """Return a decoder of values of ``system``, whose columns may name folders, or be those of a table.

    ``topics`` are the schemas of the brokers, for values that are decoded by them. Raises ConfigError.
    """
    return _made_decoder(
        decode, _read_schemas(decode, system), system, by, memory, topics, for_table=for_table, names=names
    )


class _Schemas(NamedTuple):
    """The schema files of a decoder, compiled."""

    program: "Sequence[Step]"
    columns: tuple[str, ...]  # to keep
    keys: "Sequence[Step] | None"


def _read_schemas(decode: DecodeConfig, system: str) -> _Schemas:
    """Read the schema files of a decoder. Raises ConfigError."""
    refuse_uninferable(decode)
    try:
        program = read_program(decode.definition, decode.format, decode.message)
        keys = None if decode.keys is None else read_key_program(decode.keys.definition, decode.keys.format)
        return _Schemas(program, chosen_columns(decode.columns, program, system), keys)
    except ValueError as exc:
        raise ConfigError([Problem("", "decode.schema", str(exc))]) from None


def _made_decoder(
    decode: DecodeConfig,
    read: _Schemas,
    system: str,
    by: Partitioning,
    memory: int,
    topics: "TopicSchemas | None",
    *,
    for_table: bool = False,
    names: NameRule = ANY_NAME,
) -> "ValueDecoder":
    from .keydecoder import KeyDecoder
    from .recordschemas import schemas_of
    from .valuedecoder import ValueDecoder

    schemas, keys = schemas_of(decode, topics), None
    if decode.keys is not None and read.keys is not None:
        keys = KeyDecoder(
            read.keys,
            form=decode.keys.format,
            schemas=schemas,
            evolve=decode.evolution,
            for_table=for_table,
            names=NameRule(folded=names.folded),
            memory=memory,
        )
    return ValueDecoder(
        read.program,
        tuple(name for name in read.columns if name not in by.columns),
        system,
        form=decode.format,
        on_error=decode.on_error,
        evolve=decode.evolution,
        open_ended="*" in decode.columns,
        extra=(*by.of_values, *(("_timestamp",) if by.of_records else ())),
        levels=by.columns,
        memory=memory,
        schemas=schemas,
        for_table=for_table,
        names=names,
        keys=keys,
        infers=decode.inferred and not decode.registered,
        maps=decode.maps,
        widens=decode.widens,
        registered=decode.registered,
        message=decode.message or "",
    )


def _transformed(
    decode: DecodeConfig,
    system: str,
    by: Partitioning,
    memory: int,
    topics: "TopicSchemas | None",
    *,
    for_table: bool,
    names: NameRule,
) -> "TransformedValues":
    """Return a decoder whose rows become those of the query. Raises ConfigError."""
    assert decode.transform is not None
    read = _read_schemas(decode, system)
    key = None if decode.keys is None or read.keys is None else key_column(read.keys, decode.keys.format)
    read = read._replace(program=named_for(decode.transform, read.program, key, read.columns, system))
    decoded = decoded_columns(read.program, key)
    query, result = _query_of(decode.transform, decoded, read.columns, system, by, "decode.transform")
    from .transform import TransformedValues

    given = read._replace(columns=(*read.columns, *query.own))
    return TransformedValues(
        _made_decoder(decode, given, system, UNPARTITIONED, memory, topics),
        query,
        result,
        own=names_of_records(system, decoded),
        levels=by.columns,
        evolve=decode.evolution,
        for_table=for_table,
        names=names,
    )


def _transformed_records(config: PipelineConfig, *, for_table: bool, names: NameRule) -> "TransformedValues":
    """Return what makes records as they are the rows of the query. Raises ConfigError."""
    source, by, columns = config.source, config.sink.partition_by, _columns_of_records(config)
    assert config.transform is not None
    query, result = _query_of(config.transform, None, columns, source.system, by, "transform")
    from .recordrows import RecordRows
    from .transform import TransformedValues

    return TransformedValues(
        RecordRows((*columns, *query.own), source.system, on_error=source.on_corrupt),
        query,
        result,
        own=names_of_records(source.system, None),
        levels=by.columns,
        for_table=for_table,
        names=names,
    )


def _query_of(
    text: str,
    decoded: "Sequence[Column] | None",
    columns: Sequence[str],
    system: str,
    by: Partitioning,
    key: str,
) -> "tuple[Query, Any]":
    """Read a query: see ``read_transform``. Raises ConfigError for the ``key`` of the configuration."""
    try:
        return read_transform(text, decoded, columns, system, carries_time=by.of_records)
    except ValueError as exc:
        raise ConfigError([Problem("", key, str(exc))]) from None


def _dataset_sink(
    config: PipelineConfig, memory: int, topics: "TopicSchemas | None", *, many: bool, first: "FirstColumns | None"
) -> Sink:
    from ..dataset.place import bucket_of
    from .dataset import DatasetSink

    sink = config.sink
    assert sink.path is not None, "the configuration was checked"
    decoder = value_decoder(config, memory=memory // _GATHER_SHARE, topics=topics)
    return DatasetSink(
        sink.path,
        _options(config, decoder),
        load_encoder(sink.type),
        compression=sink.compression,
        decoder=decoder,
        medium=bucket_of(sink),
        writers=1 if many else sink.writers,
        many=many,
        first=_first_columns(decoder, first),
        gather_bytes=memory // _GATHER_SHARE,
    )


def _first_columns(
    decoder: "ValueDecoder | TransformedValues | None", first: FirstColumns | None
) -> "Callable[[Event], None] | None":
    from .valuedecoder import ValueDecoder

    return None if first is None or not isinstance(decoder, ValueDecoder) else partial(first, decoder)


def _database_sink(
    config: PipelineConfig, memory: int, topics: "TopicSchemas | None", first: FirstColumns | None
) -> Sink:
    try:
        from .postgresql.making import make_sink
    except ModuleNotFoundError as exc:
        raise _error(
            "type", f"{config.sink.type} needs a driver: pip install 'fastwire-daemon[postgresql]' ({exc})"
        ) from exc
    decoder = value_decoder(config, memory=memory // _GATHER_SHARE, topics=topics)
    gather_bytes = memory // _GATHER_SHARE
    return make_sink(config, decoder, gather_bytes=gather_bytes, first=_first_columns(decoder, first))


def _decoded_stdout(config: PipelineConfig, memory: int, topics: "TopicSchemas | None") -> Sink:
    from .decodedstdout import DecodedStdoutSink  # loads pyarrow

    decoder = value_decoder(config, memory=memory // _GATHER_SHARE, topics=topics)
    assert decoder is not None
    return DecodedStdoutSink(decoder, config.source.system)


def _plugin_sink(config: SinkConfig) -> Sink:
    import inspect

    factory: Callable[..., Any] = _load("fastwire.sinks", config.type)
    options = dict(config.options)
    signature = inspect.signature(factory)
    if "writers" in signature.parameters:
        options.setdefault("writers", config.writers)
    try:
        signature.bind(**options)
    except TypeError as exc:
        raise _error("", f"the sink {config.type} does not accept the keys of its table: {exc}") from None
    made = factory(**options)
    if not isinstance(made, Sink):
        what = type(made).__name__
        raise _error("type", f"{config.type} returns {what}, which is not a sink (open, write, commit, close)")
    return made


def _load(group: str, name: str) -> Any:
    from importlib.metadata import entry_points

    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        raise _error("type", f'no plug-in "{name}" is installed ({group})')
    if len(found) > 1:
        where = ", ".join(sorted({point.value for point in found}))
        raise _error("type", f'"{name}" is the name of several plug-ins: {where}')
    try:
        return found[0].load()
    except Exception as exc:
        raise _error("type", f"the plug-in {name} ({found[0].value}) cannot be loaded: {exc}") from exc


def _error(key: str, message: str) -> ConfigError:
    return ConfigError([Problem("", f"sink.{key}".rstrip("."), message)])
