"""Settings of a TANK source."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fastwire.grammar import NamePattern
from fastwire.tank.fetch import FetchLimits

from ....config import Connection, SourceConfig, Start, TopicChoice
from ..config import own_connection, own_source
from ..settings import ClientSettings, client_fields

__all__ = ["TankSettings", "reader_settings", "settings_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TankSettings(ClientSettings):
    """Settings of one TANK source."""

    topics: tuple[str, ...] = ()
    pattern: NamePattern | None = None  # instead of ``topics``
    start: Start
    cluster: str  # of every Log; stays what it is when the URL changes
    incarnations: Mapping[str, int] = field(default_factory=dict)  # by topic
    on_unreadable: Literal["stop", "continue"] = "stop"
    limits: FetchLimits = field(default_factory=FetchLimits)
    metadata_max_age_s: float = 60.0
    """Interval of requests for topics and partitions."""
    lag_poll_s: float = 15.0


def settings_from(source: SourceConfig, *, columns: Iterable[str] | None = None, cluster: str = "") -> TankSettings:
    """Return the settings of ``[pipelines.NAME.source]``.

    ``cluster`` is the name that the dataset has kept, where there is one; ``columns`` are those to be built.
    """
    source = own_source(source)
    return TankSettings(
        **client_fields(source),
        on_corrupt=source.on_corrupt,
        topics=source.topics,
        pattern=source.chosen.name_pattern,
        metadata_max_age_s=source.metadata_max_age,
        start=source.start,
        cluster=cluster or source.cluster_name,
        incarnations=source.incarnation,
        on_unreadable=source.on_unreadable,
        columns=None if columns is None else frozenset(columns),
    )


def reader_settings(connection: Connection, topics: TopicChoice, start: Start) -> TankSettings:
    """Return the settings of a reader."""
    own = own_connection(connection)
    return TankSettings(
        **client_fields(own),
        topics=topics.names,
        pattern=topics.name_pattern,
        start=start,
        cluster=own.url.hosts,
        on_unreadable="continue",
    )
