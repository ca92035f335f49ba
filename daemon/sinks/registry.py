"""Makes the sink of a configuration: a built-in one, a dataset with a plug-in encoder, or a plug-in sink."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastwire.systems import row_of

from ..config import ConfigError, PipelineConfig, Problem, SinkConfig
from ..config.decode import DecodeConfig, chosen_columns, read_key_program, read_program
from ..config.fields import TABLE_TYPES
from ..config.partitioning import UNPARTITIONED, Partitioning
from ..config.store import StoreUrl
from .base import Sink
from .discard import DiscardSink
from .stdout import StdoutSink

if TYPE_CHECKING:
    from ..dataset.bucket import Bucket
    from ..dataset.description import DatasetOptions
    from ..encoders.base import Encoder
    from ..net.schemaregistry import TopicSchemas
    from .transform import TransformedValues
    from .valuedecoder import ValueDecoder

__all__ = ["bucket_of", "build_sink", "catalog_of", "dataset_options", "load_encoder", "value_decoder"]

# The package for each format of tables, and the extra that brings it.
_NEEDED = {"delta": ("deltalake", "lake"), "iceberg": ("pyiceberg", "iceberg")}
# All encoders of a pipeline together may buffer this fraction (one fourth) of its memory.
_GATHER_SHARE = 4


def build_sink(config: PipelineConfig, *, memory: int, topics: "TopicSchemas | None" = None) -> Sink:
    """Make the sink of a pipeline that may use ``memory`` bytes; it is not opened yet.

    ``topics`` are the schemas of the brokers, if values are decoded by them.

    A plug-in is an entry point of the group ``fastwire.sinks``: a callable that returns a ``Sink``. It is called with
    the keys of its table in the configuration except fastwire's own (``type``, ``columns``, ``roll``, ``writers``);
    it gets ``writers`` if it has a parameter of that name. Raises ConfigError if the sink cannot be made.
    """
    sink = config.sink
    if sink.type == "stdout":
        return StdoutSink() if config.decode is None else _decoded_stdout(config, memory, topics)
    if sink.type == "discard":
        return DiscardSink()
    if sink.is_dataset:
        return _dataset_sink(config, memory, topics)
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
    # These load pyarrow, which a daemon that only prints does not need.
    from ..dataset.description import DatasetOptions
    from .dataset import file_extension

    source, sink, decoder = config.source, config.sink, value_decoder(config)
    known = row_of(source.system).names
    wanted = known if sink.columns is None else sink.columns
    try:
        extension = file_extension(load_encoder(sink.type), sink.compression)
    except ValueError as exc:
        raise _error("compression", str(exc)) from None
    options = DatasetOptions(
        system=source.system,
        cluster=source.cluster_name,
        columns=tuple(name for name in known if name in wanted) if decoder is None else decoder.columns,
        levels=sink.partition_by.columns,
        types=() if decoder is None else decoder.types,
        split=sink.split,
        partition_by=sink.partition_by.level,
        extension=extension,
        shared=source.shared,
        hosts=tuple(source.url.hosts.split(",")),
        table=sink.table_format,
        catalog=catalog_of(sink),
        level_types=decoder.level_types if sink.table_format and decoder is not None else (),
    )
    if options.table:
        _check_table(options)
    return options


def catalog_of(sink: SinkConfig) -> dict[str, str]:
    """Return the settings of the catalog that has the table of ``sink``, secrets in clear text; {} without one."""
    return {} if sink.catalog is None or sink.table is None else sink.catalog.settings(sink.table)


def _check_table(options: "DatasetOptions") -> None:
    """Raise ConfigError if a table cannot have the columns, or its library is not installed."""
    from ..dataset.tableformat import TITLES
    from ..dataset.tableschema import data_columns, partition_columns, unfit

    levels = partition_columns(options.split, options.partition_by, options.level_types)
    if why := unfit((*data_columns(options.system, options.columns, options.types), *levels)):
        raise _error("type", f"a table of {TITLES[options.table]} cannot have these columns: {why}")
    _check_installed("type", *_NEEDED[options.table])
    if options.catalog.get("type") == "glue":
        _check_installed("catalog.type", "boto3", "glue")


def _check_installed(key: str, package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise _error(key, f"needs the package {package}: pip install 'fastwire-daemon[{extra}]'")


def value_decoder(
    config: PipelineConfig, *, memory: int = 64 << 20, topics: "TopicSchemas | None" = None
) -> "ValueDecoder | TransformedValues | None":
    """Return the decoder of a pipeline's values, None if it keeps them as they are. Raises ConfigError.

    It takes at most ``memory`` bytes for one record.
    """
    if config.decode is None:
        return None
    table, by = bool(config.sink.table_format), config.sink.partition_by
    if config.decode.transform is not None:
        return _transformed(config.decode, config.source.system, by, memory, topics, for_table=table)
    return decoder_of(config.decode, config.source.system, by, memory=memory, topics=topics, for_table=table)


def decoder_of(
    decode: DecodeConfig,
    system: str,
    by: Partitioning = UNPARTITIONED,
    *,
    memory: int = 64 << 20,
    topics: "TopicSchemas | None" = None,
    for_table: bool = False,
) -> "ValueDecoder":
    """Return a decoder of values of ``system``, whose columns may name folders, or be those of a table.

    ``topics`` are the schemas of the brokers, for values that are decoded by them. Raises ConfigError.
    """
    from .keydecoder import KeyDecoder
    from .recordschemas import schemas_of
    from .valuedecoder import ValueDecoder

    schemas, keys = schemas_of(decode, topics), None
    try:
        program = read_program(decode.definition, decode.format, decode.message)
        chosen = chosen_columns(decode.columns, program, system)
        if decode.keys is not None:
            keys = KeyDecoder(
                read_key_program(decode.keys.definition, decode.keys.format),
                form=decode.keys.format,
                schemas=schemas,
                evolve=decode.evolve,
                for_table=for_table,
                memory=memory,
            )
    except ValueError as exc:
        raise ConfigError([Problem("", "decode.schema", str(exc))]) from None
    return ValueDecoder(
        program,
        tuple(name for name in chosen if name not in by.columns),
        system,
        form=decode.format,
        on_bad=decode.on_bad,
        evolve=decode.evolve,
        open_ended="*" in decode.columns,
        extra=(*by.of_values, *(("_timestamp",) if by.of_records else ())),
        levels=by.columns,
        memory=memory,
        schemas=schemas,
        for_table=for_table,
        keys=keys,
    )


def _transformed(
    decode: DecodeConfig,
    system: str,
    by: Partitioning,
    memory: int,
    topics: "TopicSchemas | None",
    *,
    for_table: bool,
) -> "TransformedValues":
    """Return a decoder whose rows become those of the query. Raises ConfigError."""
    from ..config.rowwise import read_transform

    assert decode.transform is not None
    try:
        program = read_program(decode.definition, decode.format, decode.message)
        chosen = chosen_columns(decode.columns, program, system)
        query, result = read_transform(decode.transform, program, chosen, system, carries_time=by.of_records)
    except ValueError as exc:
        raise ConfigError([Problem("", "decode.transform", str(exc))]) from None
    from .transform import TransformedValues

    given = decode.model_copy(update={"columns": (*decode.columns, *query.own)})
    own = tuple(f"_{name}" for name in row_of(system).names)
    return TransformedValues(
        decoder_of(given, system, memory=memory, topics=topics),
        query,
        result,
        own=own,
        levels=by.columns,
        evolve=decode.evolve,
        for_table=for_table,
    )


def bucket_of(sink: SinkConfig) -> "Bucket | None":
    """Return the bucket that holds the dataset of ``sink``; None if that is a folder. Raises ConfigError."""
    if not isinstance(sink.path, StoreUrl):
        return None
    from ..dataset.bucket import open_bucket

    try:
        return open_bucket(sink.path, {} if sink.store is None else sink.store.settings())
    except ModuleNotFoundError as exc:
        raise _error("path", f"needs the package {exc.name}: pip install 'fastwire-daemon[lake]'") from None
    except ValueError as exc:
        raise _error("store", str(exc)) from None


def _dataset_sink(config: PipelineConfig, memory: int, topics: "TopicSchemas | None") -> Sink:
    from .dataset import DatasetSink

    sink = config.sink
    assert sink.path is not None, "the configuration was checked"
    return DatasetSink(
        sink.path,
        dataset_options(config),
        load_encoder(sink.type),
        compression=sink.compression,
        decoder=value_decoder(config, memory=memory // _GATHER_SHARE, topics=topics),
        medium=bucket_of(sink),
        writers=sink.writers,
        gather_bytes=memory // _GATHER_SHARE,
    )


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
