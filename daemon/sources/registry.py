"""From a configuration to the source of a pipeline."""

from collections.abc import Callable

from fastwire.wire.pool import Pool

from ..config import SourceConfig
from ..metrics import PipelineMetrics
from .base import Source, SourceEvents
from .pulsar import PulsarSource, settings_from

__all__ = ["source_factory"]


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
    settings_from(config)

    def make(events: SourceEvents, cluster: str | None) -> Source:
        settings = settings_from(config, columns=columns, cluster=cluster or "")
        source = PulsarSource(settings, events, pool, metrics=metrics)
        if max_records is not None:
            source.slots.limit_rows(max_records)
        return source

    return make
