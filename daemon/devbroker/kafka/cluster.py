"""The state of an embedded Kafka cluster: options, topics, groups, Fetch sessions, and the faults that tests inject."""

import itertools
import ssl
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from fastwire.kafka.format.message import Body
from fastwire.kafka.names import TopicIdPartition, TopicPartition
from fastwire.kafka.producing.payload import Compression, encode_block_batch, encode_values
from fastwire.position import Position

from ...runtime.clock import now_ms
from ..base import DevBroker, Faults
from ..delayed import HeldRequests
from ..server import on_loop
from .consumer_group import ConsumerGroup
from .groups import Group
from .logins import MECHANISMS, Users
from .requests import Request, versions_of
from .topics import PartitionLog, StoredTopic, TransactionalId

FetchedPartition = TopicPartition | TopicIdPartition
"""Name or id of a topic, as a Fetch request has it, and number of a partition."""


@dataclass(frozen=True)
class KafkaOptions:
    """Behaviour of the brokers; the defaults are those of real ones, without their delays."""

    release: str = "4.1"  # determines the versions of requests
    nodes: int = 1  # each with its own listener; partition n is led by node n modulo this at first
    racks: tuple[str, ...] = ()  # of the nodes; readers are sent to the replica in their rack (KIP-392)
    cluster_id: str = "fastwire-dev"
    jumps: bool = False  # a reader may go on behind what it was sent: where another one of its dataset has landed
    auto_create: bool = True
    auto_create_partitions: int = 1
    max_message_bytes: int = 1_048_588
    fetch_max_bytes: int = 57_671_680
    segment_batches: int = 0  # a response never has batches of two segments; 0: there is one segment
    cut_tails: bool = True  # a response ends at its size limit, in the middle of a batch
    leader_hints: bool = True  # errors about leaders name the new one, if the version has a field for it
    session_ms: tuple[int, int] = (6_000, 1_800_000)  # lowest and highest session timeout of a member
    consumer_session_s: float = 45.0  # session timeout of members by KIP-848
    users: Users | None = None  # passwords by user; None: no login is needed
    mechanisms: tuple[str, ...] = tuple(MECHANISMS)  # of SASL
    login_ms: int = 0  # lifetime of a login; 0: without end
    enforce: bool = True  # violations: Fetch beyond what was sent, epochs that never were, foreign commits


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error in the response to a batch; ``stored``: although the batch was stored."""

    code: int
    stored: bool


@dataclass(slots=True)
class FetchSession:
    """Partitions that a reader has asked for and need not repeat (spec: kafka 9.2)."""

    session_id: int
    by_id: bool
    next_epoch: int = 1
    wanted: dict[FetchedPartition, Body] = field(default_factory=dict)
    told: dict[FetchedPartition, tuple[int, int]] = field(default_factory=dict)  # high watermark and log start


class Cluster(DevBroker):
    """Nodes that share one memory, and what tests do to them. ``KafkaDevBroker`` serves it.

    Fetches, epochs, generations and offset commits are checked more strictly than by a real cluster: a client that
    breaks a rule loses its connection, and ``violations`` has one line more.
    """

    scheme = "kafka"
    default_port = 9092

    def __init__(self, options: KafkaOptions | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.options = options or KafkaOptions()
        self.versions = versions_of(self.options.release)
        self.topics: dict[str, StoredTopic] = {}
        self.groups: dict[str, Group] = {}
        self.coordinator = 0  # node
        self.controller = 0  # node
        self.sessions: dict[int, FetchSession] = {}
        self.granted_sessions: set[int] = set()
        self.held = HeldRequests()  # Fetch requests that wait for records
        self.requests: Counter[str] = Counter()  # ever received, by name
        self.logins = 0  # ever made
        self.refused_logins = 0
        self.next_producer_id = 1000
        self.transactional_ids: dict[str, TransactionalId] = {}
        self.read_at: Counter[int] = Counter()  # responses with records, by node
        self._highest_epochs: dict[tuple[str, int], int] = {}
        self._advertised: dict[int, tuple[str, int]] = {}
        self._session_ids = itertools.count(1)
        # Faults.
        self.tamper: Callable[[Request, bytes], bytes] | None = None  # maps each response's frame to what is sent
        # Topics in transactions; "read …" of a topic; "transactional ids", "coordinators", "settings".
        self.forbidden: set[str] = set()
        self.batch_refusals = Faults[Refusal]()
        self.fetch_refusals = Faults[int]()  # of whole requests
        self.read_refusals = Faults[int]()  # of partitions in a Fetch
        self.replica_refusals = Faults[int]()
        self._throttles = Faults[int]()

    # Topics.

    @on_loop
    def create_topic(self, name: str, partitions: int = 0) -> None:
        """See ``DevBroker``."""
        if name in self.topics:
            raise ValueError(f"{name} exists already")
        self.topics[name] = StoredTopic(name, uuid.uuid4().bytes, [])
        self.grow_topic(name, partitions or self.options.auto_create_partitions)

    @on_loop
    def grow_topic(self, name: str, partitions: int) -> None:
        """See ``DevBroker``."""
        known = self.topics[name].partitions
        known += [PartitionLog(name, number, number % self.options.nodes) for number in range(len(known), partitions)]

    @on_loop
    def delete_topic(self, name: str) -> None:
        """Delete a topic with everything in it; made again it has another id, and its epochs begin anew."""
        for one in self.topics.pop(name).partitions:
            self._highest_epochs[name, one.number] = max(self.highest_epoch(one), one.epoch)
            for group in self.groups.values():
                group.offsets.pop((name, one.number), None)
        for group in self.groups.values():
            group.consumers.forget(name)
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
        block = encode_values(values, keys)
        batch = encode_block_batch(block, len(values), base_timestamp=now_ms(), compression=Compression[codec])
        self.append(name, [batch], partition)

    @on_loop
    def append(self, name: str, batches: Iterable[bytes], partition: int = 0) -> list[int]:
        """Store batches as if they had been sent, markers included; return the offsets that they begin at."""
        log = self.partition(name, partition)
        offsets = [log.append(batch, now_ms()) for batch in batches]
        self.held.wake()
        return offsets

    @on_loop
    def append_damaged(self, name: str, batch: bytes, bit: int, partition: int = 0) -> int:
        """Store a batch, then flip one ``bit`` of it, counted from its end; return its offset."""
        (offset,) = self.append(name, [batch], partition)
        self.damage(name, offset, len(batch) - 1 - bit // 8, 1 << bit % 8, partition)
        return offset

    @on_loop
    def ends(self, name: str) -> list[int]:
        """Return the end offset of each partition of a topic."""
        return [one.end for one in self.topics[name].partitions]

    @on_loop
    def end_positions(self, name: str) -> list[Position]:
        """See ``DevBroker``."""
        return [Position(end, -1) for end in self.ends(name)]

    @on_loop
    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group, by topic and partition."""
        return {place: one[0] for place, one in self.group(group).offsets.items()}

    @on_loop
    def backlog(self, name: str, group: str) -> int:
        """See ``DevBroker``; a partition without a committed offset counts from its start."""
        committed = self.groups[group].offsets
        logs = self.topics[name].partitions
        return sum(log.end - max(committed.get((name, log.number), (0,))[0], log.start) for log in logs)

    # Faults.

    @on_loop
    def move_leader(self, name: str, partition: int = 0, node: int | None = None) -> None:
        """Begin a new leader epoch of a partition, with the next node unless one is named; -1 is no leader."""
        moved = self.partition(name, partition)
        moved.lead((moved.leader + 1) % self.options.nodes if node is None else node)
        self.held.wake()

    @on_loop
    def truncate(self, name: str, offset: int, partition: int = 0, *, restored: bool = False) -> None:
        """Lose the batches from the one that holds ``offset`` on, as an unclean election does, in a new epoch.

        ``restored``: by a backup, which gives the same epoch again.
        """
        lost = self.partition(name, partition)
        lost.truncate(offset)
        if not restored:
            lost.lead(lost.leader)
        self.held.wake()

    @on_loop
    def damage(self, name: str, offset: int, at: int, mask: int = 1, partition: int = 0) -> None:
        """Flip the bits ``mask`` of byte ``at`` of the batch that holds ``offset``, as a disk does."""
        self.partition(name, partition).damage(offset, at, mask)

    @on_loop
    def trim(self, name: str, offset: int, partition: int = 0) -> None:
        """Delete the records before ``offset``, as retention does."""
        self.partition(name, partition).trim(offset)
        self.held.wake()

    @on_loop
    def throttle(self, milli: int, times: int = 1) -> None:
        """Throttle the next responses by ``milli`` milliseconds each, as a broker does with a client above its quota.

        The response goes out at once, that of a Fetch without any topic, and the connection is muted for that time.
        """
        self._throttles.inject(milli, times)

    @on_loop
    def refuse_batches(self, code: int, times: int = 1, *, stored: bool = False) -> None:
        """Answer the next batches of producers with an error; ``stored``: although they were stored."""
        self.batch_refusals.inject(Refusal(code, stored), times)

    @on_loop
    def refuse_fetches(self, code: int, times: int = 1, *, altogether: bool = False) -> None:
        """Answer the next partitions that are read with an error; ``altogether``: the next requests as a whole."""
        (self.fetch_refusals if altogether else self.read_refusals).inject(code, times)

    @on_loop
    def refuse_at_replicas(self, code: int, times: int = 1) -> None:
        """Answer the next reads from nodes that do not lead with an error."""
        self.replica_refusals.inject(code, times)

    @on_loop
    def forget_sessions(self) -> None:
        """Forget all Fetch sessions, as a broker does that has too many."""
        self.sessions.clear()

    @on_loop
    def move_coordinator(self, node: int) -> None:
        """Let another node coordinate all groups."""
        self.coordinator = node

    @on_loop
    def advertise(self, node: int, host: str, port: int) -> None:
        """Let metadata name another address for a node: that of a proxy."""
        self._advertised[node] = host, port

    # For the handlers of requests.

    def nodes(self) -> list[Body]:
        """Return the nodes as responses describe them."""
        found = []
        for node, port in enumerate(self.ports):
            host, number = self._advertised.get(node, (self.host, port))
            found.append({"node_id": node, "host": host, "port": number, "rack": self.rack(node)})
        return found

    def rack(self, node: int) -> str | None:
        """Return the rack of a node, if it has one."""
        return self.options.racks[node] if node < len(self.options.racks) else None

    def nearest(self, partition: PartitionLog, rack: str) -> int:
        """Return the replica in ``rack`` that its readers are sent to; -1: they stay with the leader.

        Every node is a replica of every partition.
        """
        if not rack or rack == self.rack(partition.leader):
            return -1
        return next((node for node in range(self.options.nodes) if self.rack(node) == rack), -1)

    def find(self, topic: str | bytes) -> StoredTopic | None:
        """Return a topic by name or id."""
        if isinstance(topic, str):
            return self.topics.get(topic)
        return next((one for one in self.topics.values() if one.topic_id == topic), None)

    def partition(self, topic: str, number: int) -> PartitionLog:
        """Return a partition. Raises KeyError or IndexError if it does not exist."""
        return self.topics[topic].partitions[number]

    def group(self, name: str) -> Group:
        """Return a group, created if it does not exist."""
        if name not in self.groups:
            consumers = ConsumerGroup(self.topics, self.options.consumer_session_s)
            self.groups[name] = Group(name, consumers)
        return self.groups[name]

    def looked_up(self, topic: str, number: int) -> None:
        """Note that a client has asked for an offset to begin at: it may fetch from any offset now."""
        found = self.topics.get(topic)
        if found is not None and 0 <= number < len(found.partitions):
            found.partitions[number].looked_up += 1

    def highest_epoch(self, partition: PartitionLog) -> int:
        """Return the highest epoch that any incarnation of a partition ever had."""
        return max(partition.epoch, self._highest_epochs.get((partition.topic, partition.number), -1))

    def open_session(self, by_id: bool) -> FetchSession:
        """Open a Fetch session."""
        session = FetchSession(next(self._session_ids), by_id)
        self.sessions[session.session_id] = session
        self.granted_sessions.add(session.session_id)
        return session

    def take_throttle(self) -> int:
        """Return the throttle time of the next response, in milliseconds; 0: none."""
        return self._throttles.take() or 0
