"""Settings of a Pulsar source."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.pattern import TopicPattern
from fastwire.pulsar.names.topic import Topic, parse_topic

from ....config import SourceConfig
from ...reading.sourcefields import SourceSettings, source_fields
from ..config import PulsarSourceConfig
from ..settings import WIRE_TYPES, ClientSettings, SubscriptionType, client_fields, pattern_of

# More permits than this gain nothing, and a thousand partitions together need no more than the second number.
MOST_PERMITS = 10_000
MOST_PERMITS_TOGETHER = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSettings(ClientSettings, SourceSettings):
    """Settings of one Pulsar source; ``settings_from`` makes them from a configuration."""

    topics: tuple[Topic, ...] = ()
    pattern: TopicPattern | None = None  # instead of ``topics``
    subscription: str
    subscription_type: SubscriptionType
    incarnation: int = 0
    consumer_name: str = field(default_factory=lambda: secrets.token_hex(5))
    priority: int = 0
    properties: tuple[tuple[str, str], ...] = ()  # of the consumer
    subscription_properties: tuple[tuple[str, str], ...] = ()
    replicate_state: bool = False
    read_compacted: bool = False
    most_permits: int = MOST_PERMITS
    partition_poll_s: float = 60.0

    @property
    def wire_type(self) -> "pb.CommandSubscribe.SubType":
        """The subscription type on the wire."""
        return WIRE_TYPES[self.subscription_type]

    @property
    def ordered(self) -> bool:
        """True if each partition is delivered in order to one reader."""
        return self.subscription_type in ("exclusive", "failover")


def with_client(client: ClientSettings, **own: Any) -> PulsarSettings:
    """Return settings of a source with the connections of ``client``."""
    return PulsarSettings(**{name: getattr(client, name) for name in ClientSettings.__dataclass_fields__}, **own)


def settings_from(
    source: SourceConfig, *, columns: Iterable[str] | None = None, cluster: str = "", consumer_name: str = ""
) -> PulsarSettings:
    """Return the settings of ``[pipelines.NAME.source]``. Raises ConfigError for unusable files.

    ``cluster`` and ``columns`` are those of ``source_fields``.
    """
    source = PulsarSourceConfig.of(source)
    return PulsarSettings(
        **client_fields(source),
        **source_fields(source, columns, cluster),
        topics=tuple(parse_topic(str(topic)) for topic in source.topics),
        pattern=pattern_of(source.chosen),
        subscription=source.subscription,
        subscription_type=source.subscription_type,
        incarnation=source.incarnation,
        consumer_name=consumer_name or source.consumer_name or secrets.token_hex(5),
        priority=source.priority_level,
        properties=tuple(source.consumer_properties.items()),
        subscription_properties=tuple(source.subscription_properties.items()),
        replicate_state=source.replicate_subscription_state,
        read_compacted=source.read_compacted,
    )
