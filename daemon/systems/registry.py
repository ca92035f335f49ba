"""The systems by name. The modules of a system are imported at its first use."""

from collections.abc import Callable
from importlib import import_module

from fastwire.systems import package_of
from fastwire.wire.pool import Pool

from ..config import SourceConfig
from ..runtime.metrics import PipelineMetrics
from .base import System
from .source import Source, SourceEvents

__all__ = ["source_factory", "system_named"]


def system_named(name: str) -> System:
    """Return the system of a name: see ``fastwire.systems``."""
    system: System = import_module(f"{package_of(name, __package__)}.system").SYSTEM
    return system


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
