"""The systems by name. The modules of a system are imported at its first use."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module

from fastwire.systems import package_of
from fastwire.wire.pool import Pool

from ..config import Connection, PipelineConfig, SourceConfig, Start, TopicChoice
from ..net.schemaregistry import TopicSchemas
from ..runtime.budget import Budget
from ..runtime.metrics import PipelineMetrics
from .base import LimitedSource, System, TopicReader
from .consuming.consumer import Consumer
from .recall import Recall
from .source import Source, SourceEvents

__all__ = ["consuming", "reading", "recall_of", "source_factory", "system_named", "topic_schemas"]

READ_MEMORY = 1 << 30  # bytes; the largest value is an eighth of it, and most of it is never touched


def system_named(name: str) -> System:
    """Return the system of a name: see ``fastwire.systems``."""
    system: System = import_module(f"{package_of(name, __package__)}.system").SYSTEM
    return system


def topic_schemas(config: PipelineConfig) -> TopicSchemas | None:
    """Return the schemas of the brokers of a pipeline that decodes values by them, None for any other pipeline.

    Raises ConfigError for a file that cannot be used.
    """
    if config.decode is None or not config.decode.by_brokers:
        return None
    return system_named(config.source.system).topic_schemas(config.source)


def source_factory(
    config: SourceConfig,
    pool: Pool,
    metrics: PipelineMetrics,
    *,
    columns: frozenset[str] | None = None,
    max_records: int | None = None,
) -> Callable[[SourceEvents, str | None], Source]:
    """Return a function that makes the source from its events and the cluster's name.

    ``columns`` are the columns to build, None for all. The settings are checked now, so that an unusable file (a
    certificate, a token) raises ConfigError at the start.
    """
    make_source = system_named(config.system).make_source(config)

    def make(events: SourceEvents, cluster: str | None) -> Source:
        source = make_source(events, pool, metrics, columns, cluster or "")
        if max_records is not None:
            source.slots.limit_rows(max_records)
        return source

    return make


def reading(
    connection: Connection, topics: TopicChoice, start: Start, columns: frozenset[str] | None = None
) -> AbstractAsyncContextManager[TopicReader]:
    """Return what opens a reader of ``topics`` from ``start`` on, and closes it at the end of its block.

    ``columns`` are the columns to build, None for all. Raises ConfigError for a file that cannot be used; entering
    raises FastwireError as ``TopicReader.open`` does.
    """
    reader = system_named(connection.system).open_reader(connection, topics, start, Pool(READ_MEMORY), columns)
    return _opened(reader)


def recall_of(connection: Connection, topic: str) -> Recall | None:
    """Return what finds records of ``topic`` again; None if its system cannot. Raises ConfigError as above."""
    return system_named(connection.system).recall(connection, topic, Pool(READ_MEMORY))


def consuming(
    source: SourceConfig, memory: int, columns: frozenset[str] | None = None
) -> AbstractAsyncContextManager[Consumer]:
    """Return what opens a consumer with ``memory`` bytes, and closes it at the end of its block.

    ``columns`` are the columns to build, None for all. Raises ConfigError for a file that cannot be used; entering
    raises FastwireError as ``Consumer.open`` does.
    """
    make_source = system_named(source.system).make_source(source)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Consumer]:
        pool = Pool(memory)

        def make(events: SourceEvents) -> LimitedSource:
            return make_source(events, pool, None, columns, source.cluster_name)

        async with Consumer(make, Budget(pool)) as consumer:
            yield consumer

    return opened()


@asynccontextmanager
async def _opened(reader: TopicReader) -> AsyncIterator[TopicReader]:
    try:
        await reader.open()
        yield reader
    finally:
        await reader.close()
