"""The message system of a scene's topic."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from fastwire_daemon.devbroker.tank import TankDevBroker
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker
from tests.brokers.admin import partition_names
from tests.crash.feed import EmbeddedFeed, Feed, KafkaFeed, PulsarFeed
from tests.real.daemon import Job
from tests.real.raw import read_cursor
from tests.support.landed_ends import behind
from tests.support.tcp_proxy import Proxy

# How partitions are shared; the rest are the names of systems, or types of subscription of Pulsar. A static
# member's name spares whoever is started in its place the wait for the dead one's session.
KAFKA_KINDS: dict[str, dict[str, Any]] = {
    "none": {"group_protocol": "none"},
    "static": {"group_protocol": "classic", "group_instance_id": "one"},
    "classic": {"group_protocol": "classic", "session_timeout": "6s"},
    "consumer": {"group_protocol": "consumer"},
}


def seldom(*kinds: str) -> list[ParameterSet]:
    """Kinds that are left to those who have the time."""
    return [pytest.param(kind, marks=pytest.mark.soak) for kind in kinds]


class System(ABC):
    """A topic's broker: how the topic is fed and read, and what of it is not confirmed yet.

    ``members`` tells how many read under a job's subscription as the broker sees it; a real one's only.
    """

    url: str
    members: Callable[[Job, int], int]

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    def proxy(self) -> Proxy:
        """Another way to the broker."""
        return Proxy(int(self.url.rpartition(":")[2]), scheme=self.scheme)

    @abstractmethod
    def feed(self, topic: str, partitions: int) -> Feed: ...

    def subscribe(self, topic: str, subscription: str) -> None:
        """Let the broker keep everything for a subscription that nobody has yet."""
        return  # Kafka's keeps it anyway

    @abstractmethod
    def source(self, kind: str) -> dict[str, Any]:
        """Keys of the source for a ``kind`` of subscription."""

    @abstractmethod
    def ordered(self, kind: str) -> bool:
        """Return whether rows land in the order of their partition."""

    @abstractmethod
    def unacknowledged(self, job: Job, partitions: int) -> object:
        """Return what the job's subscription has not confirmed; falsy if nothing."""


class PulsarSystem(System):
    """``backlog`` tells what is not acknowledged; without it the cursors are asked by the protocol."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        backlog: Callable[[Job, int], object] | None = None,
        subscribe: Callable[[str, str], None] | None = None,
        members: Callable[[Job, int], int] | None = None,
    ) -> None:
        self.url = url
        if members is not None:
            self.members = members
        self._token = token
        self._backlog = backlog
        self._subscribe = subscribe

    def subscribe(self, topic: str, subscription: str) -> None:
        assert self._subscribe is not None
        self._subscribe(topic, subscription)

    def feed(self, topic: str, partitions: int) -> Feed:
        return PulsarFeed(self.url, topic, partitions, token=self._token)

    def source(self, kind: str) -> dict[str, Any]:
        return {} if self._token is None else {"auth": {"token": self._token}}

    def ordered(self, kind: str) -> bool:
        return kind in ("failover", "exclusive")

    def unacknowledged(self, job: Job, partitions: int) -> object:
        if self._backlog is not None:
            return self._backlog(job, partitions)
        names = partition_names(job.topic, partitions)
        cursors = [read_cursor(job.url, name, job.subscription, kind=job.kind, token=self._token) for name in names]
        return [cursor for cursor in cursors if not cursor.done]


class KafkaSystem(System):
    """``ends`` tells where the partitions of a topic end, ``committed`` what a group has committed."""

    def __init__(
        self,
        url: str,
        ends: Callable[[str], list[int]],
        committed: Callable[[str], dict[tuple[str, int], int]],
        members: Callable[[Job, int], int] | None = None,
    ) -> None:
        self.url = url
        if members is not None:
            self.members = members
        self._ends = ends
        self._committed = committed

    def feed(self, topic: str, partitions: int) -> Feed:
        return KafkaFeed(self.url.partition("://")[2], topic, partitions)

    def source(self, kind: str) -> dict[str, Any]:
        return {"subscription_type": None, **KAFKA_KINDS[kind]}

    def ordered(self, kind: str) -> bool:
        return True

    def unacknowledged(self, job: Job, partitions: int) -> object:
        told = self._committed(job.subscription)
        places = enumerate(self._ends(job.topic))
        behind = ((number, told.get((job.topic, number), 0), end) for number, end in places)
        return [one for one in behind if one[1] < one[2]]


class TankSystem(System):
    """An embedded TANK broker. It keeps no progress: what has landed counts."""

    def __init__(self, broker: TankDevBroker) -> None:
        self.url = broker.url
        self._broker = broker

    def feed(self, topic: str, partitions: int) -> Feed:
        return EmbeddedFeed(self._broker, topic, partitions)

    def source(self, kind: str) -> dict[str, Any]:
        return {"subscription": None, "subscription_type": None}

    def ordered(self, kind: str) -> bool:
        return True

    def unacknowledged(self, job: Job, partitions: int) -> object:
        return behind(job.path, [end.a for end in self._broker.end_positions(job.topic)])


class TubeMQSystem(System):
    """An embedded TubeMQ, whose Master balances the group with each heartbeat."""

    def __init__(self, broker: TubeMQDevBroker) -> None:
        self.url = broker.url
        self._broker = broker

    def feed(self, topic: str, partitions: int) -> Feed:
        return EmbeddedFeed(self._broker, topic, partitions)

    def source(self, kind: str) -> dict[str, Any]:
        return {"subscription_type": None, "heartbeat": "50ms"}

    def ordered(self, kind: str) -> bool:
        return True

    def unacknowledged(self, job: Job, partitions: int) -> object:
        try:
            return self._broker.backlog(job.topic, job.subscription)
        except KeyError:
            return partitions  # the group has registered nothing yet
