"""The conversation of one client with the Masters: its requests, one after the other, to the active one."""

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from google.protobuf.message import Message

from fastwire.errors import FastwireError, ProtocolError
from fastwire.tubemq.format.error import BrokerError
from fastwire.tubemq.groups.master import MasterClient

from ...runtime.logs import get_logger
from ...runtime.tasks import wait_for_set
from .cluster import Cluster
from .link import Link, RefusedError

AGAIN_S = 1.0

C = TypeVar("C", bound=MasterClient)

log = get_logger("source")


class Session(ABC, Generic[C]):
    """Runs the state machine ``client`` over the connections to the Masters, and goes to the next one where one fails.

    ``error`` is the reason why the last request had no answer that can be used; "" if it had one. ``unanswered`` counts
    such requests in a row.
    """

    def __init__(self, client: C, cluster: Cluster) -> None:
        self.client = client
        self.error = ""
        self.unanswered = 0
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()

    @abstractmethod
    def _answered(self, body: Message) -> None:
        """Handle an answer. Raises BrokerError if the Master refuses the client for good, and ProtocolError."""

    @abstractmethod
    def _refuse(self, error: BrokerError) -> None:
        """Handle the end of the conversation by a refusal that no retry cures."""

    def _settled(self, link: Link) -> None:
        """Look at the client after an answer of the Master on ``link``."""

    def _look(self, now: float) -> None:
        """Look for what is due by time."""

    async def run(self) -> None:
        """Make requests until cancelled, or refused for good."""
        while await self.turn():
            pass

    async def leave(self) -> None:
        """End the registration, after ``run`` was cancelled."""
        if self.client.next_at() is None:  # a request was in flight
            self.client.failed(self._loop.time())
        self.client.close(self._loop.time())
        while self.client.next_at() is not None:
            await self.turn()

    def wake(self) -> None:
        """Look again at the time of the next request."""
        self._wake.set()

    async def turn(self) -> bool:
        """Make the request that is due, or wait for its time; return False after an error for good."""
        self._wake.clear()
        now = self._loop.time()
        try:
            request = self.client.take_request(now)
        except FastwireError as exc:  # an unreadable password
            self.error = str(exc)
            log.warning("a request cannot be signed, retrying", error=self.error)
            await asyncio.sleep(AGAIN_S)
            return True
        if request is None:
            self._look(now)
            at = self.client.next_at()
            await wait_for_set(self._wake, None if at is None else max(at - now, 0))
            return True
        link: Link | None = None
        try:
            link = await self._cluster.master()
            body = await link.ask(*request, Message)
        except FastwireError as exc:
            # The next Master may be the active one. A stand-by and one that stops have not handled the request.
            unsent = link is None or (isinstance(exc, RefusedError) and (exc.refused.standby or exc.refused.stopping))
            if link is not None:
                self._cluster.leave_master(link)
            self.error = str(exc)
            self.unanswered += 1
            log.warning("no answer from the Master, retrying", error=self.error)
            self.client.failed(self._loop.time(), unsent=unsent)
            return True
        self.error = ""
        self.unanswered = 0
        try:
            self._answered(body)
        except BrokerError as exc:
            self._refuse(exc)
            return False
        except ProtocolError as exc:
            self.error = str(exc)
            self.unanswered += 1
            log.warning("an answer of the Master cannot be read", error=self.error)
            self._cluster.leave_master(link)
            await asyncio.sleep(AGAIN_S)
            return True
        self._settled(link)
        self._look(self._loop.time())
        return True
