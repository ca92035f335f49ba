"""Heartbeats to the Brokers, by which the registrations of a member last (spec: tubemq 11.4)."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from fastwire.errors import FastwireError
from fastwire.tubemq.format.text import BrokerPartition
from fastwire.tubemq.groups.client_membership import ClientMembership
from fastwire.tubemq.groups.membership import Membership

from ....runtime.logs import get_logger
from ....runtime.tasks import Tasks
from ..link import Link
from .partition import Partition
from .registrations import Registrations
from .settings import TubeMQSettings

log = get_logger("source")


class _Source(Protocol):
    settings: TubeMQSettings
    partitions: list[Partition]


class Heartbeats:
    """Sends one heartbeat a connection and period. ``lost`` gets the partitions whose registration has ended."""

    def __init__(
        self,
        source: _Source,
        registrations: Registrations,
        membership: Membership | ClientMembership,
        tasks: Tasks,
        lost: Callable[[BrokerPartition], None],
    ) -> None:
        self._source = source
        self._registrations = registrations
        self._membership = membership
        self._tasks = tasks
        self._lost = lost
        self._clock = asyncio.get_running_loop().time
        self._under_way: set[Link] = set()
        self._due_at = 0.0

    def look(self, now: float) -> None:
        """Send the heartbeats that are due."""
        if now >= self._due_at:
            self._due_at = now + self._source.settings.heartbeat_s
            for link in {one.link for one in self._source.partitions if one.link is not None} - self._under_way:
                self._tasks.run(self._beat(link), "heartbeat")

    async def _beat(self, link: Link) -> None:
        held = self._membership.held
        places = [one.place for one in self._source.partitions if one.link is link and one.place.key in held]
        if not places:
            return
        self._under_way.add(link)
        try:
            answer = await self._registrations.beat(link, places)
            lost = self._membership.broker_answered(places[0].broker, answer, self._clock())
        except FastwireError as exc:
            log.info("a Broker does not answer a heartbeat", broker=str(link), error=str(exc))
            return
        finally:
            self._under_way.discard(link)
        for place in lost:
            self._lost(place)
