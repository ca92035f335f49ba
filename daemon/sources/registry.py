"""From a configuration to the source of a pipeline."""

from collections.abc import Callable

from fastwire.wire.pool import Pool

from ..config import SourceConfig
from ..metrics import PipelineMetrics
from ..sinks.base import LoggedSink, Sink
from .base import Source, SourceEvents
from .pulsar import PulsarSource, settings_from

__all__ = ["source_factory"]


def source_factory(
    config: SourceConfig, pool: Pool, sink: Sink, metrics: PipelineMetrics, *, max_records: int | None = None
) -> Callable[[SourceEvents, str | None], Source]:
    """A function that makes the source as soon as its events and the cluster's name are known.

    Settings are made now, so that a file that cannot be used (a certificate, a token) is a ConfigError at the start.
    """
    settings_from(config)

    def make(events: SourceEvents, cluster: str | None) -> Source:
        columns = sink.needed_columns if isinstance(sink, LoggedSink) else None
        source = PulsarSource(settings_from(config, columns=columns, cluster=cluster or ""), events, pool, metrics=metrics)
        if max_records is not None:
            source.slots.limit_rows(max_records)
        return source

    return make
