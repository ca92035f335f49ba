"""The embedded Kafka broker: a cluster of nodes, its topics, and what a test or the demo may do to them."""

import itertools
import ssl
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fastwire.kafka.connection import Key
from fastwire.kafka.message import Body

from ..server import Connection, DevBroker, on_loop
from . import consumers, fetching, grouping, logins, producing, topics
from .connection import Handler, KafkaConnection, Request
from .consumers import ConsumerGroup
from .fetching import Session, Waiting
from .group import Group
from .topic import Partition, Topic
from .versions import versions_of

__all__ = ["KafkaDevBroker", "KafkaOptions"]

HANDLERS: dict[int, Handler] = {
    Key.API_VERSIONS: topics.api_versions,
    Key.METADATA: topics.metadata,
    Key.CREATE_TOPICS: topics.create_topics,
    Key.DELETE_TOPICS: topics.delete_topics,
    Key.PRODUCE: producing.produce,
    Key.INIT_PRODUCER_ID: producing.init_producer_id,
    Key.FETCH: fetching.fetch,
    Key.LIST_OFFSETS: fetching.list_offsets,
    Key.OFFSET_FOR_LEADER_EPOCH: fetching.epoch_ends,
    Key.FIND_COORDINATOR: grouping.find_coordinator,
    Key.JOIN_GROUP: grouping.join,
    Key.SYNC_GROUP: grouping.sync,
    Key.HEARTBEAT: grouping.heartbeat,
    Key.LEAVE_GROUP: grouping.leave,
    Key.OFFSET_COMMIT: grouping.commit,
    Key.OFFSET_FETCH: grouping.committed,
    Key.CONSUMER_GROUP_HEARTBEAT: consumers.heartbeat,
    Key.SASL_HANDSHAKE: logins.handshake,
    Key.SASL_AUTHENTICATE: logins.authenticate,
}


@dataclass(frozen=True)
class KafkaOptions:
    """How the brokers behave; the defaults are those of real ones, without the waiting."""

    release: str = "4.1"  # whose versions are spoken
    nodes: int = 1  # each with a listener of its own; partition n begins on node n modulo this
    cluster_id: str = "fastwire-dev"
    auto_create: bool = True
    auto_create_partitions: int = 1
    max_message_bytes: int = 1_048_588
    fetch_max_bytes: int = 57_671_680
    segment_batches: int = 0  # an answer never holds batches on both sides of such a boundary; 0: there are none
    cut_tails: bool = True  # answers end where their room ends, in the middle of a batch
    leader_hints: bool = True  # errors about leaders name the new one, to clients that know of it
    sessions: bool = True  # of Fetch
    session_ms: tuple[int, int] = (6_000, 1_800_000)  # which session timeouts of members are taken
    initial_rebalance_s: float = 0.0  # an empty group waits for more members; really 3 s
    consumer_session_s: float = 45.0  # of members whose shares the broker makes
    consumer_heartbeat_ms: int = 100  # how often they are told to come; really 5000
    users: Mapping[str, str] | None = None  # passwords by user; None lets everybody in
    mechanisms: tuple[str, ...] = tuple(logins.MECHANISMS)  # by which users log in
    login_ms: int = 0  # how long a login is good for; 0: without end
    enforce: bool = True  # end the connections of readers that skip, invent epochs, or commit what is not theirs


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that a batch is answered with; ``stored``: although it was stored."""

    code: int
    stored: bool


class KafkaDevBroker(DevBroker):
    """Serves topics from memory, and enforces what a real cluster leaves to good manners.

    A client that breaks a rule loses its connection, and ``violations`` has one line more: a version that was not
    offered, a session, epoch or generation that never was, an offset behind what was sent or stored, a commit for what
    is somebody else's. All nodes share one memory, so what one has every other one has.
    """

    scheme = "kafka"
    handlers = HANDLERS

    def __init__(self, options: KafkaOptions | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.options = options or KafkaOptions()
        self.versions = versions_of(self.options.release)
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.coordinator = 0  # node
        self.sessions: dict[int, Session] = {}
        self.granted_sessions: set[int] = set()
        self.waiting: set[Waiting] = set()
        self.requests: Counter[str] = Counter()  # by name, ever
        self.tamper: Callable[[Request, bytes], bytes] | None = None  # fault: what becomes of each answer's frame
        self.logins = 0  # that were good, ever
        self.refused_logins = 0
        self.next_producer_id = 1000
        self._highest_epochs: dict[tuple[str, int], int] = {}
        self._advertised: dict[int, tuple[str, int]] = {}
        self._throttles: list[int] = []
        self._refusals: list[Refusal] = []
        self._session_ids = itertools.count(1)

    def accept(self) -> Connection:
        return KafkaConnection(self, 0)

    def listeners(self) -> Sequence[Callable[[], Connection]]:
        return (self.accept, *(partial(KafkaConnection, self, node) for node in range(1, self.options.nodes)))

    # Topics.

    @on_loop
    def create_topic(self, name: str, partitions: int = 0) -> None:
        """Make a topic; 0 partitions are as many as a topic gets that comes into being by being used."""
        if name in self.topics:
            raise ValueError(f"{name} exists already")
        count = partitions or self.options.auto_create_partitions
        made = [Partition(name, number, number % self.options.nodes) for number in range(count)]
        self.topics[name] = Topic(name, uuid.uuid4().bytes, made)

    @on_loop
    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        known = self.topics[name].partitions
        known += [Partition(name, number, number % self.options.nodes) for number in range(len(known), partitions)]

    @on_loop
    def delete_topic(self, name: str) -> None:
        """Drop a topic with everything in it; made again it has another id, and its epochs begin anew."""
        for one in self.topics.pop(name).partitions:
            self._highest_epochs[name, one.number] = max(self.highest_epoch(one), one.epoch)
            for group in self.groups.values():
                group.offsets.pop((name, one.number), None)
        for group in self.groups.values():
            group.consumers.forget(name)
        self.wake()

    @on_loop
    def append(self, name: str, batches: Iterable[bytes], partition: int = 0) -> list[int]:
        """Store batches as if they had been sent, markers included; return the offsets that they begin at."""
        stored = self.partition(name, partition)
        offsets = [stored.append(batch, self.now_ms()) for batch in batches]
        self.wake()
        return offsets

    @on_loop
    def ends(self, name: str) -> list[int]:
        """The offsets that come next in each partition of a topic."""
        return [one.end for one in self.topics[name].partitions]

    @on_loop
    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed, by topic and partition."""
        return {place: one[0] for place, one in self.group(group).offsets.items()}

    # Faults.

    @on_loop
    def move_leader(self, name: str, partition: int = 0, node: int | None = None) -> None:
        """Let a partition be led in a new epoch, by the next node unless one is named; -1 is nobody."""
        moved = self.partition(name, partition)
        moved.lead((moved.leader + 1) % self.options.nodes if node is None else node)
        self.wake()

    @on_loop
    def truncate(self, name: str, offset: int, partition: int = 0) -> None:
        """Lose the batches from the one that holds ``offset`` on, as an unclean election does, in a new epoch."""
        lost = self.partition(name, partition)
        lost.truncate(offset)
        lost.lead(lost.leader)
        self.wake()

    @on_loop
    def trim(self, name: str, offset: int, partition: int = 0) -> None:
        """Lose everything before ``offset``, as retention does."""
        self.partition(name, partition).trim(offset)
        self.wake()

    @on_loop
    def throttle(self, milli: int, times: int = 1) -> None:
        """Let the next answers say that the client is to rest for so long, and read nothing from it meanwhile."""
        self._throttles += [milli] * times

    @on_loop
    def refuse_batches(self, code: int, times: int = 1, *, stored: bool = False) -> None:
        """Answer the next batches of producers with an error; ``stored``: although they were stored."""
        self._refusals += [Refusal(code, stored)] * times

    @on_loop
    def forget_sessions(self) -> None:
        """Forget all Fetch sessions, as a broker does that has too many."""
        self.sessions.clear()

    @on_loop
    def move_coordinator(self, node: int) -> None:
        """Let another node see to all groups."""
        self.coordinator = node

    @on_loop
    def advertise(self, node: int, host: str, port: int) -> None:
        """Let metadata name another address for a node: that of a proxy."""
        self._advertised[node] = host, port

    # For the connections.

    def now_ms(self) -> int:
        """The brokers' clock."""
        return time.time_ns() // 1_000_000

    def nodes(self) -> list[Body]:
        """The nodes as answers describe them."""
        found = []
        for node, port in enumerate(self.ports):
            host, number = self._advertised.get(node, (self.host, port))
            found.append({"node_id": node, "host": host, "port": number})
        return found

    def find(self, topic: str | bytes) -> Topic | None:
        """A topic by name or id."""
        if isinstance(topic, str):
            return self.topics.get(topic)
        return next((one for one in self.topics.values() if one.topic_id == topic), None)

    def partition(self, topic: str, number: int) -> Partition:
        """A partition that exists."""
        return self.topics[topic].partitions[number]

    def group(self, name: str) -> Group:
        """A group, made by asking for it."""
        if name not in self.groups:
            self.groups[name] = Group(name, self.loop, self.options.initial_rebalance_s, ConsumerGroup(self))
        return self.groups[name]

    def looked_up(self, topic: str, number: int) -> None:
        """Somebody has asked where to begin with a partition, and may begin anywhere."""
        found = self.topics.get(topic)
        if found is not None and 0 <= number < len(found.partitions):
            found.partitions[number].looked_up += 1

    def highest_epoch(self, partition: Partition) -> int:
        """The highest epoch that any incarnation of a partition ever had."""
        return max(partition.epoch, self._highest_epochs.get((partition.topic, partition.number), -1))

    def open_session(self, by_id: bool) -> Session:
        """A new Fetch session."""
        session = Session(next(self._session_ids), by_id)
        self.sessions[session.session_id] = session
        self.granted_sessions.add(session.session_id)
        return session

    def take_throttle(self) -> int:
        """For how many milliseconds the client that is answered next has to rest."""
        return self._throttles.pop(0) if self._throttles else 0

    def take_refusal(self) -> Refusal | None:
        """What the next batch is answered with, instead of success."""
        return self._refusals.pop(0) if self._refusals else None

    def wake(self) -> None:
        """There is news for those who wait: all of them look."""
        for waiting in tuple(self.waiting):
            self.loop.call_soon(waiting.look)

    def forget(self, connection: KafkaConnection) -> None:
        """A connection is gone, and with it whatever it waits for."""
        for waiting in tuple(self.waiting):
            if waiting.connection is connection:
                waiting.end()
