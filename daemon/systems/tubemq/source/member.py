"""Members of groups: the partitions that the Master or they themselves choose."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from google.protobuf.message import Message

from fastwire.errors import FastwireError
from fastwire.tubemq.format.error import BrokerError, Code, Remedy
from fastwire.tubemq.format.text import BrokerPartition
from fastwire.tubemq.groups.client_membership import ClientMembership
from fastwire.tubemq.groups.master import Change, ConsumerClient, State
from fastwire.tubemq.groups.membership import Membership

from ....runtime.logs import get_logger
from ..cluster import Cluster
from ..link import Link
from ..session import Session

C = TypeVar("C", bound=ConsumerClient)

BALANCE_S = 60.0  # between two looks of a Master at a group, unless it is configured otherwise (spec: tubemq 9.3)

log = get_logger("source")


class AnyMember(Session[C]):
    """A membership ``C``, which ``run`` keeps at the Masters.

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
        super().__init__(membership, cluster)
        self.membership = membership
        self.registered = asyncio.Event()
        self._perform = perform
        self._refused = refused
        self._changes: asyncio.Queue[Change] = asyncio.Queue()
        self._known = False  # to the Master, as of its last answer
        self._first_known: float | None = None  # by the loop's time
        self._refused_since: float | None = None  # by the loop's time
        self.denied_since: float | None = None  # the same, of the login
        self._fault = ""  # the last fault of rules that was logged

    async def perform(self) -> None:
        """Perform the changes in their order until cancelled.

        A Master that has waited too long for a result sends the next event before the former one is performed.
        """
        while True:
            change = await self._changes.get()
            await self._perform(change)
            self._performed(change)
            self.wake()

    @property
    def standing_by(self) -> bool:
        """True if it has no partition although those of the group are shared out, and not only for the moment."""
        if self._first_known is None or self.membership.held:
            return False
        return self._shared_out or self._loop.time() - self._first_known >= BALANCE_S

    @property
    def _shared_out(self) -> bool:
        """True if it is known that the members have their partitions."""
        return False

    def _performed(self, change: Change) -> None:
        """Handle the end of a change."""

    def expected(self, present: frozenset[str]) -> frozenset[str]:
        """Return those of the partitions that are ``present`` which come to this member if no other one is alive."""
        return present

    def took(self, place: BrokerPartition) -> None:
        """Record that a partition was registered."""
        self.membership.took(place)

    def refused(self, place: BrokerPartition) -> None:
        """Record that a partition could not be registered."""

    def lost(self, places: Iterable[BrokerPartition]) -> None:
        """Report partitions that were lost, at once."""
        self.membership.lost(places, self._loop.time())
        self.wake()

    def denied(self, error: FastwireError | None) -> None:
        """Note that a Master has refused the login with ``error``, or None: that it has answered something else."""
        if error is None:
            self.denied_since = None
            return
        self.denied_since = self._loop.time() if self.denied_since is None else self.denied_since
        self.error = str(error)

    def _refuse(self, error: BrokerError) -> None:
        self.registered.set()  # the start ends, and the failure follows
        self._refused(error)

    def _note(self, body: Message) -> None:
        """Note a refusal after which the request is repeated; one for good was raised."""
        code, text = getattr(body, "errCode", Code.SUCCESS), getattr(body, "errMsg", "")
        if code == Code.SUCCESS:
            self._refused_since = None
            self.denied(None)
            return
        now = self._loop.time()
        self._refused_since = now if self._refused_since is None else self._refused_since
        waited = round(now - self._refused_since, 1)
        error = BrokerError(code, text)
        self.error = str(error)
        self.denied(error if error.remedy is Remedy.CREDENTIALS else None)
        log.warning("the Master refuses a request, retrying", error=self.error, waited_s=waited)

    def _settled(self, link: Link) -> None:
        known, self._known = self._known, self.membership.state is State.REGISTERED
        if self._known:
            self.registered.set()
            self._first_known = self._first_known or self._loop.time()
            if not known:
                log.info("registered at the Master", master=str(link))
        if self.membership.rules_fault != self._fault:
            self._fault = self.membership.rules_fault
            log.warning("the Master's rules of flow control cannot be read and are ignored", error=self._fault)


class Member(AnyMember[Membership]):
    """A member whose partitions the Master assigns by events: each has one result, which is sent once."""

    @property
    def _shared_out(self) -> bool:
        return not self.membership.unallocated

    def _answered(self, body: Message) -> None:
        change = self.membership.answered(body, self._loop.time())
        self._note(body)
        if change is not None:
            self._changes.put_nowait(change)

    def _performed(self, change: Change) -> None:
        # Of an event of an earlier registration there is no result.
        self.membership.finished(change.rebalance_id, self._loop.time())


class NodeMember(AnyMember[ClientMembership]):
    """A member that chooses its partitions by its number in the group."""

    @property
    def _shared_out(self) -> bool:
        return self.membership.chosen is not None

    def _answered(self, body: Message) -> None:
        self.membership.answered(body, self._loop.time(), time.time_ns() // 1_000_000)
        self._note(body)

    def _look(self, now: float) -> None:
        change = self.membership.take_share(now)
        if change is not None:
            self._changes.put_nowait(change)

    def expected(self, present: frozenset[str]) -> frozenset[str]:
        """See ``AnyMember.expected``: those of its number, once they are known."""
        return present if self.membership.chosen is None else self.membership.chosen

    def refused(self, place: BrokerPartition) -> None:
        """Record that a partition could not be registered: it is tried again."""
        self.membership.refused(place, self._loop.time())
        self.wake()
