"""The settings that the sources and readers of all systems take from a configuration in the same way."""

from collections.abc import Iterable
from typing import Any

from ...config import Connection, SourceConfig, Start, TopicChoice


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
