"""The state of an embedded TANK cluster: options, topics, and the faults that tests inject."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fastwire.position import Position
from fastwire.tank.format.error import PartitionStatus, ProduceCode
from fastwire.tank.format.message import Address
from fastwire.tank.producing.bundle import Message, encode_bundle

from ...runtime.clock import now_ms
from ..base import DevBroker, Faults
from ..delayed import HeldRequests
from ..server import Connection, on_loop
from .topics import PartitionLog

_OF_MORE = frozenset({ProduceCode.REDIRECT, ProduceCode.READ_ONLY, ProduceCode.UNKNOWN_TOPIC})
_PLAIN = frozenset({PartitionStatus.SYSTEM_FAULT, PartitionStatus.NO_LEADER, PartitionStatus.UNKNOWN_PARTITION})

CODECS = {"NONE": False, "SNAPPY": True}


@dataclass(frozen=True)
class TankOptions:
    """Behaviour of the brokers; the defaults are those of real ones."""

    nodes: int = 1  # each with its own listener; 1 is a standalone broker. Partition n is led by node n modulo this
    partitions: int = 1  # of topics that are created without a number
    segment_bytes: int = 1 << 30
    never_used_s: float = 16.0  # after which a connection that has sent nothing is closed
    never_used: int = 64  # connections that have sent nothing; beyond that the oldest one is closed
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A code in the answer to a bundle; ``stored``: although the bundle was stored."""

    code: int
    stored: bool


class Cluster(DevBroker):
    """Nodes that share one memory, and what tests do to them. ``TankDevBroker`` serves it."""

    scheme = "tank"
    default_port = 11011
    usual_codec = "SNAPPY"

    def __init__(self, options: TankOptions | None = None) -> None:
        super().__init__()
        self.options = options or TankOptions()
        self.topics: dict[str, list[PartitionLog]] = {}
        self.never_used: dict[Connection, None] = {}  # connections that have sent nothing, the oldest first
        self.held = HeldRequests()  # consume requests that wait for messages
        self.requests: Counter[str] = Counter()  # ever received, by name
        # Faults.
        self.tamper: Callable[[bytes], bytes] | None = None  # maps each answer's frame to what is sent
        self.bundle_refusals = Faults[Refusal]()
        self.read_refusals = Faults[int]()  # of partitions in a consume request

    # Topics.

    @on_loop
    def create_topic(self, name: str, partitions: int = 0) -> None:
        """See ``DevBroker``."""
        self.create(name, partitions)

    def create(self, name: str, partitions: int = 0, *, segment_bytes: int = 0) -> None:
        """Make a topic, with segments of another size than the options say if ``segment_bytes`` is given."""
        if name in self.topics:
            raise ValueError(f"{name} exists already")
        self.topics[name] = []
        self._grow(name, partitions or self.options.partitions, segment_bytes or self.options.segment_bytes)

    @on_loop
    def grow_topic(self, name: str, partitions: int) -> None:
        """See ``DevBroker``."""
        self._grow(name, partitions, self.options.segment_bytes)

    def _grow(self, name: str, partitions: int, segment_bytes: int) -> None:
        known = self.topics[name]
        nodes = self.options.nodes
        known += [PartitionLog(name, one, one % nodes, segment_bytes) for one in range(len(known), partitions)]

    @on_loop
    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages; made again it begins with sequence 1."""
        del self.topics[name]
        self.held.wake()

    @on_loop
    def produce(
        self,
        name: str,
        values: Sequence[bytes],
        partition: int = 0,
        *,
        keys: Sequence[bytes] | None = None,
        codec: str = "NONE",
    ) -> None:
        """See ``DevBroker``."""
        time = now_ms()
        named = [None] * len(values) if keys is None else keys
        messages = [Message(value=value, key=key, timestamp=time) for value, key in zip(values, named, strict=True)]
        self.append(name, [encode_bundle(messages, compress=CODECS[codec])], partition)

    @on_loop
    def append(self, name: str, bundles: Iterable[bytes], partition: int = 0) -> None:
        """Store bundles as if they had been sent."""
        log = self.topics[name][partition]
        for bundle in bundles:
            log.append(bundle)
        self.held.wake()

    @on_loop
    def end_positions(self, name: str) -> list[Position]:
        """See ``DevBroker``."""
        return [Position(one.last + 1, 0) for one in self.topics[name]]

    def backlog(self, name: str, group: str) -> int:
        """See ``DevBroker``: a TANK broker knows no groups, so every one is unknown."""
        raise KeyError(group)

    # What happens to a log, and faults.

    @on_loop
    def trim(self, name: str, sequence: int, partition: int = 0) -> None:
        """Delete the segments that end before ``sequence``, as retention does."""
        self.topics[name][partition].trim(sequence)

    @on_loop
    def roll(self, name: str, partition: int = 0) -> None:
        """Close the last segment of a partition: the next bundle begins another one."""
        self.topics[name][partition].roll()
        self.held.wake()

    @on_loop
    def compact(self, name: str, partition: int = 0) -> None:
        """Keep the newest message of each key in the closed segments."""
        self.topics[name][partition].compact()

    @on_loop
    def skip(self, name: str, count: int, partition: int = 0) -> None:
        """Leave a hole of ``count`` sequences that cannot be read (spec: tank 5.5)."""
        self.topics[name][partition].skip(count)
        self.held.wake()

    @on_loop
    def move_leader(self, name: str, partition: int = 0, node: int | None = None) -> None:
        """Let the next node lead a partition unless one is named; -1 is no leader."""
        moved = self.topics[name][partition]
        moved.leader = (moved.leader + 1) % self.options.nodes if node is None else node
        self.held.wake()

    @on_loop
    def refuse_bundles(self, code: int, times: int = 1, *, stored: bool = False) -> None:
        """Answer the next bundles of producers with a ProduceCode; ``stored``: although they were stored.

        Raises ValueError for a code that states more than one partition: see ``move_leader`` and ``read_only``.
        """
        if code in _OF_MORE:
            raise ValueError(f"{code:#x} is no result of one bundle")
        self.bundle_refusals.inject(Refusal(code, stored), times)

    @on_loop
    def refuse_reads(self, status: int, times: int = 1) -> None:
        """Answer the next partitions that are read with a PartitionStatus: a fault of the log, no leader, unknown.

        Raises ValueError for one with further fields or chunks, which the broker answers where it is true.
        """
        if status not in _PLAIN:
            raise ValueError(f"{status:#x} is not a status without fields")
        self.read_refusals.inject(status, times)

    # For the handlers of requests.

    def partition(self, topic: str, number: int) -> PartitionLog | None:
        """Return a partition; None if it does not exist."""
        known = self.topics.get(topic, [])
        return known[number] if number < len(known) else None

    def address(self, node: int) -> Address:
        """Return the address of a node."""
        return self.host, self.ports[node]
