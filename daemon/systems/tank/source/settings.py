"""Settings of a TANK source."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fastwire.tank.protocol.fetch import FetchLimits

from ....config import Connection, SourceConfig, Start, TopicChoice
from ...reading.sourcefields import PullSettings, reader_fields, source_fields
from ..config import TankConnection, TankSourceConfig
from ..settings import ClientSettings, client_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TankSettings(ClientSettings, PullSettings):
    """Settings of one TANK source."""

    incarnations: Mapping[str, int] = field(default_factory=dict)  # by topic
    on_unreadable: Literal["stop", "continue"] = "stop"
    limits: FetchLimits = field(default_factory=FetchLimits)


def settings_from(source: SourceConfig, *, columns: Iterable[str] | None = None, cluster: str = "") -> TankSettings:
    """Return the settings of ``[pipelines.NAME.source]``.

    ``cluster`` and ``columns`` are those of ``source_fields``.
    """
    source = TankSourceConfig.of(source)
    return TankSettings(
        **client_fields(source),
        **source_fields(source, columns, cluster),
        topics=source.topics,
        pattern=source.chosen.name_pattern,
        metadata_max_age_s=source.metadata_max_age,
        incarnations=source.incarnation,
        on_unreadable=source.on_unreadable,
    )


def reader_settings(
    connection: Connection, topics: TopicChoice, start: Start, columns: frozenset[str] | None = None
) -> TankSettings:
    """Return the settings of a reader."""
    own = TankConnection.of(connection)
    return TankSettings(
        **client_fields(own),
        **reader_fields(own, topics, start, columns),
        pattern=topics.name_pattern,
        on_unreadable="continue",
    )
