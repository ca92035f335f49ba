"""From a configuration to a sink: built in, a dataset with somebody else's encoder, or a whole sink of theirs."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastwire.columns.schema import column_names

from ..config import ConfigError, PipelineConfig, Problem, SinkConfig
from ..pages import keep_heap_pages
from .base import Sink
from .discard import DiscardSink
from .stdout import StdoutSink

if TYPE_CHECKING:
    from ..encoders.base import Encoder

__all__ = ["build_sink", "load_encoder"]

# What all encoders of a pipeline together may gather, as a share of its memory.
_GATHER_SHARE = 4


def build_sink(config: PipelineConfig, *, memory: int) -> Sink:
    """Make the sink of a pipeline that may use ``memory`` bytes; nothing is opened yet.

    A plug-in is an entry point of the group ``fastwire.sinks``: something callable that gives a ``Sink``. It is called
    with the keys of its table in the configuration, our own (``type``, ``columns``, ``roll``, ``writers``) left out,
    but for ``writers`` if it has a parameter of that name. Raises ConfigError if that does not work.
    """
    sink = config.sink
    if sink.type == "stdout":
        return StdoutSink()
    if sink.type == "discard":
        return DiscardSink()
    if sink.is_dataset:
        return _dataset_sink(config, memory)
    return _plugin_sink(sink)


def load_encoder(name: str) -> "type[Encoder]":
    """The encoder behind a sink type. Raises ConfigError if a plug-in cannot be loaded or is none."""
    if name == "parquet":
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
        raise _error("type", f"the encoder {name} is none: it has no {', no '.join(missing)}")
    return encoder  # type: ignore[no-any-return]


def _take_memory_from_system() -> None:
    """Let Arrow take its memory from the system's allocator, in the whole process, unless the environment says else.

    Its own ones keep 25 to 40 MiB that nobody uses, beyond any budget. It asks when it is loaded and never again, and
    writers of Parquet listen to nothing else (not to ``pyarrow.set_memory_pool``).
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    keep_heap_pages()


def _dataset_sink(config: PipelineConfig, memory: int) -> Sink:
    _take_memory_from_system()
    # These bring pyarrow with them, which a daemon that only prints can do without.
    from ..dataset.description import DatasetOptions
    from .dataset import DatasetSink, file_extension

    source, sink = config.source, config.sink
    system = source.system
    encoder = load_encoder(sink.type)
    known = column_names(system)
    wanted = known if sink.columns is None else sink.columns
    try:
        extension = file_extension(encoder, sink.compression)
    except ValueError as exc:
        raise _error("compression", str(exc)) from None
    assert sink.path is not None, "the configuration was checked"
    return DatasetSink(
        sink.path,
        DatasetOptions(
            system=system,
            cluster=source.cluster_name,
            columns=tuple(name for name in known if name in wanted),
            split=sink.split,
            partition_by=sink.partition_by,
            extension=extension,
            shared=source.subscription_type in ("shared", "key_shared"),
        ),
        encoder,
        compression=sink.compression,
        writers=sink.writers,
        gather_bytes=memory // _GATHER_SHARE,
    )


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
        raise _error("", f"the sink {config.type} cannot be made of what its table holds: {exc}") from None
    made = factory(**options)
    if not isinstance(made, Sink):
        what = type(made).__name__
        raise _error("type", f"{config.type} gives {what}, which is not a sink (open, write, commit, close)")
    return made


def _load(group: str, name: str) -> Any:
    from importlib.metadata import entry_points

    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        raise _error("type", f'nothing installed is called "{name}" ({group})')
    if len(found) > 1:
        where = ", ".join(sorted({point.value for point in found}))
        raise _error("type", f'"{name}" is the name of several plug-ins: {where}')
    try:
        return found[0].load()
    except Exception as exc:
        raise _error("type", f"the plug-in {name} ({found[0].value}) cannot be loaded: {exc}") from exc


def _error(key: str, message: str) -> ConfigError:
    return ConfigError([Problem("", f"sink.{key}".rstrip("."), message)])
