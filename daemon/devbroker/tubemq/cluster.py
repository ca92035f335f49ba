"""The state of an embedded TubeMQ cluster: options, topics, groups at the broker, and the faults that tests inject."""

import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fastwire.position import Position
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.frame import Method, Request
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.protocol.request import MSG_TYPE, encode_payload, payload_checksum
from fastwire.tubemq.reading.flow import NO_RULES, read_rules

from ...runtime.clock import now_ms
from ..base import DevBroker, Faults
from ..server import on_loop
from .balance import Group
from .groups import Progress
from .topics import StoredMessage, Topic

BROKER_ID = 1


@dataclass(frozen=True)
class TubeMQOptions:
    """Behaviour of Master and Broker; the defaults are those of real ones, but for the balance, which takes no time."""

    partitions: int = 1  # of each store of a topic that is created without a number
    stores: int = 1
    transfer_bytes: int = 524_288  # of a batch
    first_transfer_bytes: int = 327_680  # of the first batch after a registration, where ``from_file``
    from_file: bool = False  # reads are served as from a file: a batch may be empty, where memory answers 404
    message_bytes: int = 1 << 20
    consumer_timeout_s: float = 30.0  # without a heartbeat, at Master and Broker
    event_rounds: int = 10  # balance rounds after which an event without a result is cleared
    strict: bool = True  # what a real server drops without a word, or forgives, is a violation
    check_token: bool = False  # requests to the Broker must carry the visit token
    limit_window_s: float = 5.0  # of the bytes that a rule of flow control limits
    users: Mapping[str, str] = field(default_factory=dict)  # passwords; requests to the Master must be signed if given


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that goes wrong: ``code`` instead of the work; without one the work is done, and no answer comes."""

    code: int | None


class Cluster(DevBroker):
    """A Master and a Broker that share one memory, and what tests do to them. ``TubeMQDevBroker`` serves them."""

    scheme = "tubemq"
    default_port = 8715
    usual_codec = "NONE"
    keyed = False

    def __init__(self, options: TubeMQOptions | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.options = options or TubeMQOptions()
        self.topics: dict[str, Topic] = {}
        self.topic_list_id = now_ms()  # changes with the topics
        self.broker_list_id = now_ms()
        self.groups: dict[str, Group] = {}
        self.producers: dict[str, float] = {}  # when the Master has heard of a client
        self.progress: dict[tuple[str, str, int], Progress] = {}  # by group, topic and partition
        self.rules: dict[str, tuple[int, str]] = {}  # id and text of flow control, by group; "" for the cluster
        self.limits = NO_RULES  # the rules that the Broker enforces: those of the cluster
        self.limited = 0  # GETs that were refused for them
        self.to_end: dict[str, int] = {}  # csmFrmMaxOffsetCtrlId by group
        self.visit_token = now_ms()
        self.requests: Counter[str] = Counter()  # ever received, by name
        self.next_message = now_ms() << 20
        self._advertised: tuple[str, int] | None = None
        # Faults.
        self.standby = False  # the Master refuses everything
        self.tamper: Callable[[Request, bytes], bytes] | None = None  # maps each response's frame to what is sent
        self.failures: dict[Method, Faults[Failure]] = {method: Faults() for method in Method}

    # Topics.

    @on_loop
    def create_topic(self, name: str, partitions: int = 0) -> None:
        """See ``DevBroker``: ``partitions`` is the number of each store."""
        if name in self.topics:
            raise ValueError(f"{name} exists already")
        self.topics[name] = Topic(name, self.options.stores, partitions or self.options.partitions)
        self.topics_changed()

    @on_loop
    def grow_topic(self, name: str, partitions: int) -> None:
        """See ``DevBroker``."""
        self.topics[name].partitions = max(self.topics[name].partitions, partitions)
        self.topics_changed()

    @on_loop
    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages; made again it begins with offset 0."""
        del self.topics[name]
        self.progress = {key: one for key, one in self.progress.items() if key[1] != name}
        self.topics_changed()

    @on_loop
    def open_topic(self, name: str, is_open: bool) -> None:
        """Let a topic be subscribed and published, or not."""
        self.topics[name].open = is_open
        self.topics_changed()

    def topics_changed(self) -> None:
        """Give the list of topics a new id."""
        self.topic_list_id += 1

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
        """See ``DevBroker``: each value is a message, without attributes. A message has no key: raises ValueError."""
        if keys is not None:
            raise ValueError("a message of TubeMQ has no key")
        if codec != "NONE":
            raise KeyError(codec)
        for value in values:
            self.append(name, value, partition)

    @on_loop
    def append(self, name: str, value: bytes, partition: int = 0, attributes: Mapping[str, str] | None = None) -> int:
        """Store a message as if it had been sent, and return its offset."""
        payload, flag = encode_payload(value, attributes or {})
        kind = (attributes or {}).get(MSG_TYPE)
        return self.store(name, StoredMessage(partition, 0, payload, flag, payload_checksum(payload), kind))

    def store(self, topic: str, message: StoredMessage) -> int:
        """Give a message its id, store it, and return its offset. Raises KeyError for an unknown partition."""
        store = self.topics[topic].store(message.partition)
        if store is None:
            raise KeyError(message.partition)
        self.next_message += 1
        message.id = self.next_message
        return store.append(message)

    @on_loop
    def append_stored(self, name: str, messages: Iterable[StoredMessage]) -> None:
        """Store messages as they are, sound or not."""
        for message in messages:
            self.store(name, message)

    @on_loop
    def end_positions(self, name: str) -> list[Position]:
        """See ``DevBroker``: the offset behind the last message of each partition, not the end of its store."""
        topic = self.topics[name]
        found = ((number, topic.store(number)) for number in topic.numbers())
        return [Position(store.end_of(number), 0) for number, store in found if store is not None]

    @on_loop
    def backlog(self, name: str, group: str) -> int:
        """See ``DevBroker``."""
        found = [(key[2], one) for key, one in self.progress.items() if key[:2] == (group, name)]
        if not found:
            raise KeyError(group)
        return sum(one.backlog(number) for number, one in found)

    # What happens to a topic, and faults.

    @on_loop
    def trim(self, name: str, offset: int, partition: int = 0) -> None:
        """Delete the messages of a partition's store below ``offset``, as retention does."""
        store = self.topics[name].store(partition)
        assert store is not None
        store.trim(offset)

    @on_loop
    def lose_messages(self, name: str, count: int, partition: int = 0) -> None:
        """Lose the last ``count`` messages of a partition's store, which a crash has not let it flush."""
        store = self.topics[name].store(partition)
        assert store is not None
        store.lose(count)

    @on_loop
    def move_offset(self, name: str, group: str, offset: int | None = None, partition: int = 0) -> None:
        """Set the offset of a group as an administrator does; without ``offset`` to the end."""
        progress = self.progress[group, name, partition]
        progress.committed = progress.store.end if offset is None else offset
        progress.delta = 0

    @on_loop
    def fail(self, method: Method, code: int, times: int = 1) -> None:
        """Answer the next requests of a method with an error code, and do nothing."""
        self.failures[method].inject(Failure(code), times)

    @on_loop
    def lose_answers(self, method: Method, times: int = 1) -> None:
        """Handle the next requests of a method, and lose the answers."""
        self.failures[method].inject(Failure(None), times)

    @on_loop
    def forget_clients(self) -> None:
        """Forget all registrations at the Master, as after a restart; the Broker keeps its own."""
        self.groups.clear()
        self.producers.clear()

    @on_loop
    def expire_owners(self) -> None:
        """Let the registrations of all partitions time out at the Broker."""
        for progress in self.progress.values():
            progress.owner = None

    @on_loop
    def move_to_end(self, group: str) -> None:
        """Ask a client-balanced group to go on at the end, as an administrator does."""
        self.to_end[group] = now_ms()

    @on_loop
    def set_rules(self, text: str, group: str = "") -> None:
        """Set the rules of flow control of a group, or of the cluster. Raises ProtocolError for another form."""
        rules = read_rules(text)
        known, _ = self.rules.get(group, (now_ms(), ""))
        self.rules[group] = known + 1, text
        if not group:
            self.limits = rules

    @on_loop
    def advertise(self, host: str, port: int) -> None:
        """Let the Master name another address for the Broker: that of a proxy."""
        self._advertised = host, port

    # For the handlers of requests.

    @property
    def broker(self) -> Broker:
        """The one broker, by its address."""
        return Broker(BROKER_ID, *(self._advertised or (self.host, self.ports[1])))

    def list_brokers(self, known: int) -> list[str]:
        """Return the list of brokers for a client that knows the one with the id ``known``."""
        return [] if known == self.broker_list_id else [str(self.broker)]

    def partitions_of(self, topics: Sequence[str]) -> list[BrokerPartition]:
        """Return the partitions of topics that may be subscribed."""
        return [
            BrokerPartition(self.broker, name, number)
            for name in sorted(topics)
            if name in self.topics and self.topics[name].open
            for number in self.topics[name].numbers()
        ]

    def master_token(self) -> pb.MasterAuthorizedInfo:
        """Return what the Master's answers carry for requests to brokers."""
        return pb.MasterAuthorizedInfo(visitAuthorizedToken=self.visit_token)

    def admits(self, info: pb.AuthorizedInfo) -> bool:
        """Return whether a request to the Broker has the visit token, if it is checked."""
        return not self.options.check_token or info.visitAuthorizedToken == self.visit_token
