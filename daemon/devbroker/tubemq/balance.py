"""Groups at the Master: their members, and the events by which it moves partitions (spec: tubemq 9.3).

A round of the balance runs with each heartbeat, so that a change takes as long as the members' heartbeats do.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.text import BrokerPartition
from fastwire.tubemq.groups.membership import EventType


@dataclass(slots=True)
class Member:
    """One member by the Master's view."""

    client: str
    seen_s: float
    node: int = -2  # of client balance
    held: dict[str, BrokerPartition] = field(default_factory=dict)
    events: deque[pb.EventProto] = field(default_factory=deque)
    sent: bool = False  # the head of the events; each is sent once
    cleared: set[int] = field(default_factory=set)  # ids of sent events that took too many rounds


@dataclass(slots=True)
class Group:
    """One group: what its members must agree about, and its members."""

    name: str
    client_balance: bool
    topics: frozenset[str]
    filters: frozenset[str]
    bound: bool = False  # bound consumption; its session keys and offsets count for nothing here
    count: int = -2  # of members, in client balance
    members: dict[str, Member] = field(default_factory=dict)
    allocated: bool = False
    rebalance: int = 0  # the id of the last round with events
    stuck: int = 0  # rounds with an unfinished event

    def result(self, member: Member, event: pb.EventProto, *, strict: bool) -> None:
        """Take the result of an event off the queue. A real Master looks at nothing but the id's sign.

        Raises ProtocolError for another result than that of the event that was sent, if ``strict``; a member cannot
        know that its event was cleared meanwhile.
        """
        if event.rebalanceId <= 0:
            return
        head = member.events[0] if member.events and member.sent else None
        late = event.rebalanceId in member.cleared
        if strict and not late and (head is None or head.rebalanceId != event.rebalanceId):
            raise ProtocolError("event", detail=f"{event.rebalanceId} is not one that {member.client} has to finish")
        if member.events:
            member.events.popleft()
        member.sent = False

    def next_event(self, member: Member) -> pb.EventProto | None:
        """Return the event to send to a member, once; a connect waits for all disconnects of the group."""
        if not member.events or member.sent:
            return None
        event = member.events[0]
        if event.opType in (EventType.CONNECT, EventType.ONLY_CONNECT) and any(
            each.opType in (EventType.DISCONNECT, EventType.ONLY_DISCONNECT)
            for other in self.members.values()
            for each in other.events
        ):
            return None
        member.sent = True
        return event

    def balance(self, partitions: Iterable[BrokerPartition], rounds: int) -> None:
        """Queue the events that give each member an even share; nothing while an event of the group is unfinished."""
        if any(each.events for each in self.members.values()):
            self.stuck += 1
            if self.stuck <= rounds:
                return
            for member in self.members.values():
                if member.sent:
                    member.cleared.add(member.events[0].rebalanceId)
                member.events.clear()
                member.sent = False
        self.stuck = 0
        if not self.members:
            return
        self.allocated = True
        wanted = self._shares({each.key: each for each in partitions})
        self.rebalance += 1
        for client, member in self.members.items():
            gone = [each for key, each in member.held.items() if key not in wanted[client]]
            come = [each for key, each in wanted[client].items() if key not in member.held]
            alone = not gone or not come
            for lost, found in (
                (gone, (EventType.DISCONNECT, EventType.ONLY_DISCONNECT)),
                (come, (EventType.CONNECT, EventType.ONLY_CONNECT)),
            ):
                if lost:
                    member.events.append(
                        pb.EventProto(
                            rebalanceId=self.rebalance,
                            opType=found[alone],
                            subscribeInfo=[each.subscription(client, self.name) for each in lost],
                        )
                    )

    def _shares(self, partitions: dict[str, BrokerPartition]) -> dict[str, dict[str, BrokerPartition]]:
        """Return the partitions of each member: even shares, and as few moves as possible."""
        least, more = divmod(len(partitions), len(self.members))
        shares: dict[str, dict[str, BrokerPartition]] = {}
        left = dict(partitions)
        # Those that hold the most keep one more than the others, as long as there are any to keep.
        for place, member in enumerate(sorted(self.members.values(), key=lambda each: -len(each.held))):
            room = least + (place < more)
            kept = [key for key in member.held if key in left][:room]
            shares[member.client] = {key: left.pop(key) for key in kept}
        for place, member in enumerate(sorted(self.members.values(), key=lambda each: -len(each.held))):
            share = shares[member.client]
            while len(share) < least + (place < more):
                key = next(iter(left))
                share[key] = left.pop(key)
        return shares
