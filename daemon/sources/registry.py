"""From a configuration to the source of a pipeline, or to a reader without one."""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol

from fastwire.columns.chunk import Chunk
from fastwire.columns.logs import LogTable
from fastwire.wire.pool import Pool

from ..config import SourceConfig
from ..metrics import PipelineMetrics
from .base import Source, SourceEvents

if TYPE_CHECKING:
    from ..pulsar.schemas import Schemas

__all__ = ["TopicReader", "source_factory"]


class TopicReader(Protocol):
    """Looks at topics: moves no cursor, acknowledges nothing. Iterate for chunks as they come."""

    @property
    def schemas(self) -> "Schemas | None":
        """Of the records, where the system keeps them."""

    async def open(self) -> None:
        """Find the partitions and ask for their records. Raises FastwireError where a broker says no, or none is."""

    def __aiter__(self) -> AsyncIterator[Chunk]: ...

    def up_to_now(self) -> AsyncIterator[Chunk]:
        """Chunks up to what the topics held at ``open``."""

    async def close(self) -> None:
        """Leave; the broker forgets that we were there."""


def source_factory(
    config: SourceConfig,
    pool: Pool,
    metrics: PipelineMetrics,
    *,
    columns: frozenset[str] | None = None,
    max_records: int | None = None,
) -> Callable[[SourceEvents, str | None], Source]:
    """A function that makes the source as soon as its events and the cluster's name are known.

    ``columns`` are those to be built, None for all. Settings are made now, so that a file that cannot be used (a
    certificate, a token) is a ConfigError at the start.
    """
    # A system's modules are loaded with the first pipeline that wants them.
    make_source = _kafka(config) if config.system == "kafka" else _pulsar(config)

    def make(events: SourceEvents, cluster: str | None) -> Source:
        source = make_source(events, pool, metrics, columns, cluster or "")
        if max_records is not None:
            source.slots.limit_rows(max_records)
        return source

    return make


class _Limited(Source, Protocol):
    """A source whose rows can be limited."""

    @property
    def slots(self) -> LogTable: ...


# What makes the source of a configuration, whose files are looked at before the first is made.
_MakeSource = Callable[[SourceEvents, Pool, PipelineMetrics, frozenset[str] | None, str], _Limited]


def _pulsar(config: SourceConfig) -> _MakeSource:
    from .pulsar import PulsarSource, settings_from

    settings_from(config)
    return lambda events, pool, metrics, columns, cluster: PulsarSource(
        settings_from(config, columns=columns, cluster=cluster), events, pool, metrics=metrics
    )


def _kafka(config: SourceConfig) -> _MakeSource:
    from .kafka import KafkaSource, settings_from

    settings_from(config)
    return lambda events, pool, metrics, columns, cluster: KafkaSource(
        settings_from(config, columns=columns, cluster=cluster), events, pool, metrics=metrics
    )
