"""Settings of a TubeMQ source."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import randrange

from fastwire.position import Log
from fastwire.tubemq.groups.client_membership import NodeSettings
from fastwire.tubemq.groups.membership import Settings as MembershipSettings

from ....config import Connection, SourceConfig, Start, TopicChoice
from ...reading.sourcefields import SourceSettings, reader_fields, source_fields
from ..config import TubeMQConnection, TubeMQSourceConfig
from ..settings import ClientSettings, client_fields

TAIL_GROUPS = 100  # Brokers keep the offsets of a group until an administrator deletes it, so there are not more


@dataclass(frozen=True, slots=True, kw_only=True)
class TubeMQSettings(ClientSettings, SourceSettings):
    """Settings of one TubeMQ source."""

    topics: tuple[str, ...]
    group: str
    node: tuple[int, int] | None = None
    """``source_count`` and ``node_id`` of client balance; None: the Master balances the group."""
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    incarnations: Mapping[str, int] = field(default_factory=dict)  # by topic
    heartbeat_s: float = 10.0
    release_s: float = 20.0
    """The longest wait for a commit before partitions are given up without it."""
    keeps_offsets: bool = True
    """The group's offsets count: reading goes on there, and they follow what has landed."""

    def membership(self) -> MembershipSettings:
        """Return the identity of a new member of a server-balanced group."""
        return MembershipSettings(
            client_id=self.consumer_id(),
            group=self.group,
            topics=self.topics,
            filters=self.filters,
            heartbeat_s=self.heartbeat_s,
            session_time_ms=time.time_ns() // 1_000_000,
            **self.shown(),
        )

    def node_membership(self, source_count: int, node_id: int) -> NodeSettings:
        """Return the identity of a new member of a client-balanced group."""
        return NodeSettings(
            client_id=self.consumer_id(),
            group=self.group,
            topics=self.topics,
            filters=self.filters,
            heartbeat_s=self.heartbeat_s,
            source_count=source_count,
            node_id=node_id,
            **self.shown(),
        )

    def incarnation(self, topic: str) -> str:
        """Return the incarnation of a topic's logs: a position counts the messages that the filters let pass."""
        return self._incarnation(topic, self.incarnations.get(topic, 0))

    def earlier(self, log: Log) -> frozenset[Log]:
        """Return the logs that the same partition was before its ``incarnation`` was raised."""
        numbers = range(self.incarnations.get(log.topic, 0))
        return frozenset(replace(log, incarnation=self._incarnation(log.topic, number)) for number in numbers)

    def _incarnation(self, topic: str, number: int) -> str:
        types = sorted(set(self.filters.get(topic, ())))
        if not types:
            return str(number)
        filtered = sha256("\n".join(types).encode()).hexdigest()[:12]
        return f"{filtered}.{number}" if number else filtered

    def consumer_id(self) -> str:
        """Return a new id of a consumer of the group, for the Master or for one connection to a Broker."""
        return self.new_id(f"{self.group}_", "-Pull" if self.node is None else "-Balance")


def settings_from(source: SourceConfig, *, columns: Iterable[str] | None = None, cluster: str = "") -> TubeMQSettings:
    """Return the settings of ``[pipelines.NAME.source]``.

    ``cluster`` and ``columns`` are those of ``source_fields``.
    """
    own = TubeMQSourceConfig.of(source)
    return TubeMQSettings(
        **client_fields(own),
        **source_fields(own, columns, cluster),
        topics=own.topics,
        group=own.subscription,
        node=None if own.balance == "server" else (own.source_count, own.node_id),
        filters=own.filters,
        incarnations=own.incarnation,
        heartbeat_s=own.heartbeat,
    )


def reader_settings(
    connection: Connection, topics: TopicChoice, start: Start, columns: frozenset[str] | None = None
) -> TubeMQSettings:
    """Return the settings of a reader: the only member of a client-balanced group of its own."""
    own = TubeMQConnection.of(connection)
    return TubeMQSettings(
        **client_fields(own),
        **reader_fields(own, topics, start, columns),
        group=f"fastwire_tail_{randrange(TAIL_GROUPS)}",
        node=(1, 0),
        keeps_offsets=False,
    )
