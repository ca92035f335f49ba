"""Consumer groups: members, generations and rebalances of the classic protocol, and offsets (spec: kafka 12.1)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count

from fastwire.errors import ProtocolError
from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.groups.subscription import decode_assignment

from ..base import RefusedError
from ..delayed import Timer
from .consumer_group import ConsumerGroup

Answer = Callable[[Body], None]


class State(Enum):
    """State of a group of the classic protocol."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True, eq=False)
class Member:
    """A member by the classic protocol; ``joining`` and ``syncing`` answer its requests that are held back."""

    member_id: str
    instance_id: str | None
    session_s: float
    rebalance_s: float
    protocols: dict[str, bytes]
    assignment: bytes = b""
    had: set[tuple[str, int]] = field(default_factory=set)  # in this generation and the one before it
    joining: Answer | None = None
    syncing: Answer | None = None
    expiry: Timer = field(default_factory=Timer)


class Group:
    """One group: ``offsets`` has committed offset, leader epoch and metadata by topic and partition.

    ``consumers`` are its members if the broker assigns the partitions (spec: kafka 12.2): a group has members of one
    protocol at a time.
    """

    def __init__(self, name: str, consumers: ConsumerGroup) -> None:
        self.name = name
        self.consumers = consumers
        self.state = State.EMPTY
        self.generation = 0
        self.protocol = ""
        self.protocol_type = ""
        self.leader = ""
        self.members: dict[str, Member] = {}
        self.offsets: dict[tuple[str, int], tuple[int, int, str | None]] = {}
        self.rebalances = 0
        self._numbers = count(1)
        self._promised: set[str] = set()  # ids that were given out and have not joined yet
        self._fenced: set[str] = set()  # ids of static members that were replaced
        self._deadline = Timer()

    # --- members

    def promise(self, client_id: str) -> str:
        """Return an id for a member that has none."""
        member_id = f"{client_id or 'member'}-{next(self._numbers)}"
        self._promised.add(member_id)
        return member_id

    def member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return the member with this id, in this generation. Raises RefusedError."""
        if member_id in self._fenced or self._static(instance_id) not in (None, member_id):
            raise RefusedError(Code.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            raise RefusedError(Code.ILLEGAL_GENERATION)
        return member

    def _static(self, instance_id: str | None) -> str | None:
        """Return the id of the member with this instance id."""
        if instance_id is None:
            return None
        return next((one.member_id for one in self.members.values() if one.instance_id == instance_id), None)

    def alive(self, member: Member) -> None:
        """Begin the session timeout of a member anew, as each of its requests does."""
        member.expiry.start(member.session_s, self._expire, member)

    def _expire(self, member: Member) -> None:
        if member.joining is not None:
            self.alive(member)  # its JoinGroup is held back here
        elif self.members.get(member.member_id) is member:
            self.remove(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, and begin a rebalance of the others."""
        member = self.members.pop(member_id)
        member.expiry.cancel()
        if not self.members:
            self._deadline.cancel()
            self.state = State.EMPTY
            self.leader = ""
            self.generation += 1
            return
        if self.state is State.PREPARING:
            self._look()
        else:
            self.prepare()

    # --- joining

    def join(self, member: Member, answer: Answer) -> None:
        """Let a member join, or join again; it is answered when all others have joined, too. Raises RefusedError."""
        others = [one for one in self.members.values() if one.member_id != member.member_id]
        if others and not set(member.protocols).intersection(*(one.protocols for one in others)):
            raise RefusedError(Code.INCONSISTENT_GROUP_PROTOCOL)
        replaced = self._static(member.instance_id)
        if replaced is not None and replaced != member.member_id:
            return self._replace(replaced, member, answer)
        known = self.members.get(member.member_id)
        if known is None and member.member_id not in self._promised:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        self._promised.discard(member.member_id)
        if known is not None:
            same = known.protocols == member.protocols
            known.protocols, known.session_s, known.rebalance_s = member.protocols, member.session_s, member.rebalance_s
            member = known
            self.alive(member)
            leads = self.leader == member.member_id
            if same and (self.state is State.COMPLETING or (self.state is State.STABLE and not leads)):
                answer(self._joined(member))
                return None
        else:
            self.members[member.member_id] = member
            self.alive(member)
        member.joining = answer
        if self.state is State.PREPARING:
            self._look()
        else:
            self.prepare()
        return None

    def _replace(self, old_id: str, member: Member, answer: Answer) -> None:
        """Give a returning static member its assignment under its new id, without a rebalance where possible."""
        old = self.members.pop(old_id)
        self._fenced.add(old_id)
        self._promised.discard(member.member_id)
        old.expiry.cancel()
        for held in (old.joining, old.syncing):
            if held is not None:
                held({"error_code": Code.FENCED_INSTANCE_ID})
        same = list(old.protocols) == list(member.protocols)
        member.assignment, member.had = old.assignment, old.had
        self.members[member.member_id] = member
        self.alive(member)
        led = self.leader == old_id
        if same and self.state is State.STABLE:
            # A former leader gets the old id in the response, so that it does not act as the leader (spec: kafka 21).
            answer(self._joined(member))
            if led:
                self.leader = member.member_id
            return
        if led:
            self.leader = member.member_id
        member.joining = answer
        if self.state is not State.PREPARING:
            self.prepare()
        self._look()

    def prepare(self) -> None:
        """Begin a rebalance: all members have to join again."""
        fresh = self.state is State.EMPTY
        self.state = State.PREPARING
        self.rebalances += 1
        for member in self.members.values():
            held, member.syncing = member.syncing, None
            if held is not None:
                held({"error_code": Code.REBALANCE_IN_PROGRESS})
        patience = max((member.rebalance_s for member in self.members.values()), default=0.0)
        self._deadline.start(0.0 if fresh else patience, self._complete)  # real brokers wait 3 s for the first members
        if not fresh:
            self._look()

    def _look(self) -> None:
        """Complete the rebalance if all members have joined."""
        if self.state is State.PREPARING and self.generation and all(one.joining for one in self.members.values()):
            self._complete()

    def _complete(self) -> None:
        """Begin the next generation, without the members that have not joined."""
        self._deadline.cancel()
        for member in [one for one in self.members.values() if one.joining is None]:
            del self.members[member.member_id]
            member.expiry.cancel()
        if not self.members:
            self.state = State.EMPTY
            return
        self.generation += 1
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        common = set.intersection(*(set(one.protocols) for one in self.members.values()))
        self.protocol = next(name for name in self.members[self.leader].protocols if name in common)
        self.state = State.COMPLETING
        for member in self.members.values():
            held, member.joining = member.joining, None
            member.had = assigned_partitions(member.assignment)
            member.assignment = b""
            self.alive(member)
            if held is not None:
                held(self._joined(member))

    def _joined(self, member: Member) -> Body:
        leads = self.leader == member.member_id
        members = [
            {"member_id": one.member_id, "group_instance_id": one.instance_id, "metadata": one.protocols[self.protocol]}
            for one in self.members.values()
        ]
        return {
            "error_code": 0,
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self.leader,
            "member_id": member.member_id,
            "members": members if leads else [],
        }

    # --- assignments

    def sync(self, member: Member, assignments: dict[str, bytes], answer: Answer) -> None:
        """Answer a member with its assignment, once the leader has brought those of all. Raises RefusedError."""
        self.alive(member)
        if self.state is State.PREPARING:
            raise RefusedError(Code.REBALANCE_IN_PROGRESS)
        member.syncing = answer
        if self.state is State.COMPLETING:
            if member.member_id != self.leader:
                return
            self.state = State.STABLE
            for one in self.members.values():
                one.assignment = assignments.get(one.member_id, b"")
                one.had |= assigned_partitions(one.assignment)
        for one in self.members.values():
            held, one.syncing = one.syncing, None
            if held is not None:
                held(self._synced(one))

    def _synced(self, member: Member) -> Body:
        return {
            "error_code": 0,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }


def assigned_partitions(assignment: bytes) -> set[tuple[str, int]]:
    """Return topics and partitions of an assignment of the consumer protocol (spec: kafka 10); none of any other."""
    try:
        return set(decode_assignment(assignment))
    except ProtocolError:
        return set()
