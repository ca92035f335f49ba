"""Members of groups: their requests to the Master, one after the other, and the partitions that it or they choose."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from fastwire.errors import FastwireError, ProtocolError
from fastwire.tubemq.client_membership import ClientMembership
from fastwire.tubemq.error import BrokerError
from fastwire.tubemq.master import ConsumerClient, State
from fastwire.tubemq.membership import Membership
from fastwire.tubemq.text import Partition as Place

from ....runtime.logs import get_logger
from ....runtime.tasks import wait_for_set
from ..cluster import Cluster
from ..link import Link, RefusedError

__all__ = ["AnyMember", "Change", "Member", "NodeMember"]

AGAIN_S = 1.0

C = TypeVar("C", bound=ConsumerClient)

log = get_logger("source")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the partitions of a member: those to give up, and those to register after that.

    ``to_end``: an operator asks to go on at the end of every partition.
    """

    take: tuple[Place, ...] = ()
    give_up: tuple[Place, ...] = ()
    to_end: bool = False
    rebalance_id: int = 0
    """The event of the Master whose result follows; 0 without one."""


class AnyMember(ABC, Generic[C]):
    """Runs the membership ``C`` over the connections to the Masters.

    ``perform`` is called with each change, one after the other, and returns when its partitions are registered or given
    up. ``refused`` is called with an error that no retry cures.
    """

    def __init__(
        self,
        membership: C,
        cluster: Cluster,
        perform: Callable[[Change], Awaitable[None]],
        refused: Callable[[FastwireError], None],
    ) -> None:
        self.membership = membership
        self.registered = asyncio.Event()
        self.error = ""
        self._cluster = cluster
        self._perform = perform
        self._refused = refused
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self._fault = ""  # the last fault of rules that was logged

    async def run(self) -> None:
        """Take part in the group until cancelled."""
        while await self._turn():
            pass

    async def perform(self) -> None:
        """Perform the changes in their order until cancelled.

        A Master that has waited too long for a result sends the next event before the former one is performed.
        """
        while True:
            change = await self._changes.get()
            await self._perform(change)
            self._performed(change)
            self._wake.set()

    def _performed(self, change: Change) -> None:
        """Handle the end of a change."""

    async def leave(self) -> None:
        """End the membership; all partitions were unregistered before, and ``run`` was cancelled."""
        if self.membership.next_at() is None:  # a request was in flight
            self.membership.failed(self._loop.time())
        self.membership.close(self._loop.time())
        while self.membership.next_at() is not None:
            await self._turn()

    def took(self, place: Place) -> None:
        """Record that a partition was registered."""
        self.membership.took(place)

    def refused(self, place: Place) -> None:
        """Record that a partition could not be registered."""

    def lost(self, places: Iterable[Place]) -> None:
        """Report partitions that were lost, at once."""
        self.membership.lost(places, self._loop.time())
        self._wake.set()

    async def _turn(self) -> bool:
        """Make the request that is due, or wait for its time; return False after an error for good."""
        self._wake.clear()
        now = self._loop.time()
        request = self.membership.take_request(now)
        if request is None:
            self._look(now)
            at = self.membership.next_at()
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
            log.warning("no answer from the Master, trying again", error=self.error)
            self.membership.failed(self._loop.time(), unsent=unsent)
            return True
        try:
            self._answered(body)
        except BrokerError as exc:
            self.registered.set()  # the start ends, and the failure follows
            self._refused(exc)
            return False
        except ProtocolError as exc:
            self.error = str(exc)
            log.warning("an answer of the Master cannot be read", error=self.error)
            self._cluster.leave_master(link)
            await asyncio.sleep(AGAIN_S)
            return True
        self.error = ""
        if self.membership.state is State.REGISTERED:
            self.registered.set()
        if self.membership.rules_fault != self._fault:
            self._fault = self.membership.rules_fault
            log.warning("the Master's rules of flow control cannot be read and are ignored", error=self._fault)
        self._look(self._loop.time())
        return True

    @abstractmethod
    def _answered(self, body: Message) -> None:
        """Handle an answer. Raises BrokerError if the Master refuses the client for good, and ProtocolError."""

    def _look(self, now: float) -> None:
        """Look for changes that are due by time."""


class Member(AnyMember[Membership]):
    """A member whose partitions the Master assigns by events: each has one result, which is sent once."""

    def _answered(self, body: Message) -> None:
        event = self.membership.answered(body, self._loop.time())
        if event is None:
            return
        take, give_up = (event.partitions, ()) if event.connect else ((), event.partitions)
        self._changes.put_nowait(Change(take, give_up, rebalance_id=event.rebalance_id))

    def _performed(self, change: Change) -> None:
        # Of an event of an earlier registration there is no result.
        self.membership.finished(change.rebalance_id, self._loop.time())


class NodeMember(AnyMember[ClientMembership]):
    """A member that chooses its partitions by its number in the group."""

    def _answered(self, body: Message) -> None:
        self.membership.answered(body, self._loop.time(), time.time_ns() // 1_000_000)

    def _look(self, now: float) -> None:
        share = self.membership.take_share(now)
        if share is not None:
            self._changes.put_nowait(Change(share.take, share.give_up, share.to_end))

    def refused(self, place: Place) -> None:
        """Record that a partition could not be registered: it is tried again."""
        self.membership.refused(place, self._loop.time())
        self._wake.set()
