"""The settings that the sources and readers of all systems take from a configuration in the same way."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastwire.grammar import BrokerUrl, NamePattern

from ...config import Connection, End, SourceConfig, Start, TopicChoice


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """Settings of the sources of all systems; each adds those of its connections."""

    start: Start
    cluster: str  # of every Log; stays what it is when the URL changes
    end: End | None = None
    lag_poll_s: float = 15.0


@dataclass(frozen=True, kw_only=True)
class PullSettings(SourceSettings):
    """Settings of sources that request records by offset."""

    url: BrokerUrl
    topics: tuple[str, ...] = ()
    pattern: NamePattern | None = None  # instead of ``topics``
    metadata_max_age_s: float = 60.0
    """Interval of requests for topics and partitions."""


def source_fields(source: SourceConfig, columns: Iterable[str] | None, cluster: str) -> dict[str, Any]:
    """Return the fields of a source's settings.

    ``cluster`` is the name that the dataset has kept, "" where there is none; ``columns`` are those to be built, None
    for all.
    """
    return {
        "on_corrupt": source.on_corrupt,
        "start": source.start,
        "end": source.end,
        "cluster": cluster or source.cluster_name,
        "columns": None if columns is None else frozenset(columns),
    }


def reader_fields(
    connection: Connection, topics: TopicChoice, start: Start, columns: frozenset[str] | None
) -> dict[str, Any]:
    """Return the fields of the settings of a reader, which is part of no dataset and builds ``columns`` (None: all)."""
    return {"topics": topics.names, "start": start, "cluster": connection.url.hosts, "columns": columns}
