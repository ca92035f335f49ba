"""Settings of a Kafka source."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from fastwire.kafka.groups.assignor import Assignor
from fastwire.kafka.groups.membership import GroupSettings
from fastwire.kafka.protocol.fetch import FetchLimits

from ....config import Connection, SourceConfig, Start, TopicChoice
from ...reading.sourcefields import PullSettings, reader_fields, source_fields
from ..config import KafkaConnection, KafkaSourceConfig
from ..settings import ClientSettings, client_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings(ClientSettings, PullSettings):
    """Settings of one Kafka source."""

    group: str = ""  # of a source that joins none
    on_truncation: Literal["stop", "continue"] = "stop"
    limits: FetchLimits = field(default_factory=FetchLimits)
    protocol: Literal["auto", "consumer", "classic", "none"] = "none"
    instance: str | None = None
    assignor: Assignor = "cooperative-sticky"
    session_timeout_s: float = 45.0
    rebalance_timeout_s: float = 60.0
    rack: str = ""

    @property
    def membership(self) -> GroupSettings:
        """The settings of the group membership."""
        return GroupSettings(
            group=self.group,
            topics=self.topics,
            instance=self.instance,
            assignor=self.assignor,
            session_timeout_s=self.session_timeout_s,
            rebalance_timeout_s=self.rebalance_timeout_s,
            rack=self.rack or None,
        )


def settings_from(source: SourceConfig, *, columns: Iterable[str] | None = None, cluster: str = "") -> KafkaSettings:
    """Return the settings of ``[pipelines.NAME.source]``. Raises ConfigError for unusable files.

    ``cluster`` and ``columns`` are those of ``source_fields``.
    """
    source = KafkaSourceConfig.of(source)
    return KafkaSettings(
        **client_fields(source),
        **source_fields(source, columns, cluster),
        topics=source.topics,
        pattern=source.chosen.name_pattern,
        group=source.subscription,
        protocol=source.group_protocol,
        instance=source.group_instance_id,
        assignor=source.assignor,
        session_timeout_s=source.session_timeout,
        rebalance_timeout_s=source.rebalance_timeout,
        rack=source.rack or "",
        metadata_max_age_s=source.metadata_max_age,
        on_truncation=source.on_truncation,
        limits=FetchLimits(
            response_bytes=source.fetch_max_bytes,
            partition_bytes=min(source.fetch_partition_bytes, source.fetch_max_bytes),
            max_wait_ms=max(1, round(source.fetch_max_wait * 1000)),
            min_bytes=source.fetch_min_bytes,
            read_committed=source.isolation == "read_committed",
            rack=source.rack or "",
        ),
    )


def reader_settings(
    connection: Connection, topics: TopicChoice, start: Start, columns: frozenset[str] | None = None
) -> KafkaSettings:
    """Return the settings of a reader without a group. Raises ConfigError for unusable files."""
    own = KafkaConnection.of(connection)
    return KafkaSettings(
        **client_fields(own),
        **reader_fields(own, topics, start, columns),
        pattern=topics.name_pattern,
        limits=FetchLimits(rack=own.rack or ""),
    )
