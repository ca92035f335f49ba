"""GETs of one member: which partition is asked next, and when."""

import asyncio
from collections import deque
from typing import Protocol
from weakref import WeakKeyDictionary

from fastwire.errors import FastwireError

from ..link import Link
from .partition import Partition
from .registrations import Registrations

MOST_GETS = 8  # in flight on a connection, which a Broker answers one after the other
TIMER_S = 0.001  # by which a timer of the loop may be early


class _Source(Protocol):
    partitions: list[Partition]

    @property
    def asking(self) -> bool: ...


class Gets:
    """Sends the GETs of partitions when flow control lets them: one for a partition, ``MOST_GETS`` on a connection.

    Those that a connection has no room for wait in turn. Nothing is sent while ``asking`` of the source is False.
    """

    def __init__(self, source: _Source, registrations: Registrations) -> None:
        self._source = source
        self._registrations = registrations
        self._loop = asyncio.get_running_loop()
        self._queues: WeakKeyDictionary[Link, deque[Partition]] = WeakKeyDictionary()

    def send_due(self) -> None:
        """Send all GETs that are due."""
        if not self._source.asking:
            return
        now = self._loop.time()
        for link in tuple(self._queues):
            self.send_queued(link)
        for partition in self._source.partitions:
            if partition.granted and partition.pace.due <= now:
                self._send(partition)

    def send_queued(self, link: Link) -> None:
        """Send the GETs that have waited for their turn on a connection."""
        queue = self._queues.get(link)
        while queue and self._source.asking and link.connection.fetches_outstanding < MOST_GETS:
            partition = queue.popleft()
            partition.queued = False
            if partition.granted and partition.link is link:
                self._send(partition)

    def plan(self, partition: Partition) -> None:
        """Send the next GET of a partition when its wait is over, which may be much shorter than the source's ticks."""
        if partition.pace.due > self._loop.time():
            self._loop.call_at(partition.pace.due, self._send_planned, partition)
        elif self._source.asking:
            self._send(partition)

    def _send_planned(self, partition: Partition) -> None:
        due = partition.pace.due <= self._loop.time() + TIMER_S
        if due and partition.granted and self._source.asking:
            self._send(partition)

    def _send(self, partition: Partition) -> None:
        """Send a GET, or queue it behind others of its connection."""
        link = partition.link
        if link is None or partition.in_flight or partition.queued or partition.committing:
            return
        if partition.leaving or partition.held or partition.ended or partition.paused:
            return
        if link.connection.fetches_outstanding >= MOST_GETS:
            partition.queued = True
            self._queues.setdefault(link, deque()).append(partition)
            return
        try:
            self._registrations.get(partition, partition.session)
        except FastwireError:
            return  # the loss of the connection follows
        partition.in_flight = True
