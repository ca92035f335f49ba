"""Bases of the clients of a Master: requests one after the other, their times, and what all responses have in common.

``Membership`` (server balance), ``ClientMembership`` (client balance) and ``Producer`` differ in their requests only.
Time is an argument in seconds, as for connections; the driver sends ``take_request`` to the active Master and hands
each outcome back. A request keeps its place until its outcome: at most one is in flight.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from google.protobuf.message import Message

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import UNDEFINED, VisitToken
from fastwire.tubemq.format.error import BrokerError, Code, Remedy, remedy_of
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import Broker, BrokerPartition, read_failure
from fastwire.tubemq.reading.flow import NO_RULES, FlowRules, read_rules

RETRY_S = 1.0
SLOW_S = 5.0  # a Master forgets a client after 30 s, and frees what a killed one has had: a longer pause would miss it
NOT_DEPLOYED_S = 5.0
MOST_FAILURES = 5  # in a row, before the slow period
LOGIN_MOST_S = 60.0  # between logins that are refused: accounts are locked for failures that repeat


class State(Enum):
    """The progress of a client at the Master."""

    UNREGISTERED = "unregistered"
    CLOSING_TO_REGISTER = "closing, to register again"
    REGISTERED = "registered"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The identity of a client, and its topics."""

    client_id: str
    host: str
    topics: tuple[str, ...]
    tls: bool = False
    certificate: Callable[[], pb.MasterCertificateInfo] | None = None
    """Signs one request; None without authentication."""
    broker_token: Callable[[], str] | None = None
    """Makes the token of one request to a broker; None without authentication."""
    heartbeat_s: float = 10.0
    """Time between heartbeats, whose responses bring assignments. A Master forgets a client after 30 s without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ClientSettings):
    """A member of a group; topics and filters are the same in all members."""

    group: str
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the partitions of a member: those to give up, and those to register after that.

    ``to_end``: an operator asks to register all that are held again, each at the end that its last response named.
    ``rebalance_id`` is the event of the Master that ``Membership.finished`` ends; 0 without one.
    """

    take: tuple[BrokerPartition, ...] = ()
    give_up: tuple[BrokerPartition, ...] = ()
    to_end: bool = False
    rebalance_id: int = 0


class MasterClient(ABC):
    """One client of a Master: its state, and the time of its next request."""

    logs_in_again = False
    """Repeats a request whose credentials the Master refuses: they are made anew for each. Else the client ends."""

    def __init__(self, settings: ClientSettings) -> None:
        self._certificate = settings.certificate
        self.state = State.UNREGISTERED
        self.token = VisitToken(sign=settings.broker_token)
        self._failures = 0
        self._refusals = 0  # of the login, in a row
        self._accepted_before = False
        self._due = 0.0
        self._in_flight: Method | None = None

    # --- requests

    def next_at(self) -> float | None:
        """Return the time of the next request; None while one is in flight, and after the end."""
        return None if self._in_flight is not None or self.state is State.CLOSED else self._due

    def take_request(self, now: float) -> tuple[Method, Message] | None:
        """Return the request to send now, if one is due.

        Raises what ``certificate`` raises, and the request stays due.
        """
        at = self.next_at()
        if at is None or now < at:
            return None
        signed = None if self._certificate is None else self._certificate()
        if self.state is State.UNREGISTERED:
            method, body = self._register()
        elif self.state is State.REGISTERED:
            method, body = self._next(now)
        else:
            method, body = self._close()
        if signed is not None:
            # The open server wants it in each request (spec: tubemq 17).
            body.authInfo.CopyFrom(signed)  # type: ignore[attr-defined]
        self._in_flight = method
        return method, body

    @abstractmethod
    def _register(self) -> tuple[Method, Message]:
        """Return a registration."""

    @abstractmethod
    def _next(self, now: float) -> tuple[Method, Message]:
        """Return the request of a registered client: a heartbeat."""

    @abstractmethod
    def _close(self) -> tuple[Method, Message]:
        """Return the end of a registration."""

    # --- outcomes

    def failed(self, now: float, *, unsent: bool = False) -> None:
        """Handle the loss of the request in flight, or of its response.

        ``unsent`` says that the Master cannot have handled the request: no connection, or a stand-by.
        """
        method, self._in_flight = self._in_flight, None
        if unsent:
            self._due = now + RETRY_S  # another Master may serve it
        else:
            self._back_off(now, RETRY_S)
        if self.state is State.CLOSING:
            if method is self._close()[0]:
                self.state = State.CLOSED
            self._due = now
        elif method is not None:
            self._lost(method, now, unsent)

    @abstractmethod
    def _lost(self, method: Method, now: float, unsent: bool) -> None:
        """Handle the loss of a request of a client that is not closing; ``_due`` is the time to repeat it."""

    def _back_off(self, now: float, wait_s: float) -> None:
        """Count a failure in a row, and wait."""
        self._failures += 1
        self._due = now + (wait_s if self._failures < MOST_FAILURES else max(wait_s, SLOW_S))

    def _landed(self, body: Message, now: float, close: type[Message]) -> bool:
        """Begin to handle a response; return True if a close makes the rest of it void, or was its request."""
        self._in_flight = None
        if self.state is State.CLOSING:
            if isinstance(body, close):
                self.state = State.CLOSED
            self._due = now
            return True
        return False

    def _accepted(self, code: int, text: str, now: float, wait_s: float) -> bool:
        """Return whether a code is success; if not, the request is repeated after ``wait_s``, or registers again.

        A Master that has just become active knows no topic before the Brokers have found it, so a client that has been
        accepted before is patient. Raises BrokerError if the Master refuses the client for good.
        """
        remedy = remedy_of(code)
        if remedy is Remedy.NONE:
            self._failures = self._refusals = 0
            self._accepted_before = True
            return True
        if code == Code.TOPIC_NOT_DEPLOYED and self._accepted_before:
            self._due = now + NOT_DEPLOYED_S
            return False
        if remedy is Remedy.FATAL or (remedy is Remedy.CREDENTIALS and not self.logs_in_again):
            raise BrokerError(code, text)
        if remedy is Remedy.REGISTER and self.state is State.REGISTERED:
            self.state = State.UNREGISTERED
            self._due = now
        elif remedy is Remedy.CREDENTIALS and self.state is State.UNREGISTERED:
            # A registered client keeps its period: the Master would forget it.
            self._back_off(now, min(wait_s * 2**self._refusals, LOGIN_MOST_S))
            self._refusals += 1
        else:
            self._back_off(now, wait_s)
        return False

    def close(self, now: float) -> None:
        """End the registration; a consumer has unregistered all partitions before."""
        self.state = State.CLOSED if self.state is State.UNREGISTERED and self._in_flight is None else State.CLOSING
        self._due = now


class ConsumerClient(MasterClient):
    """A member of a group, in either family.

    ``held`` is the set of partitions that are registered at brokers: the driver changes it by ``took`` and ``lost``.
    """

    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self._tls = settings.tls
        self._identity = settings.client_id, settings.group
        self.cluster_rules: FlowRules = NO_RULES
        self.group_rules: FlowRules = NO_RULES
        self.rules_fault = ""
        """The reason why the last rules of the Master could not be read; "" if there was none."""
        self.held: dict[str, BrokerPartition] = {}
        self._cluster_check = self._group_check = self._priority = UNDEFINED
        self._report = False  # the next heartbeat has all partitions held
        self._heartbeats = 0

    def _close(self) -> tuple[Method, Message]:
        client_id, group = self._identity
        return Method.CONSUMER_CLOSE, pb.CloseRequestC2M(clientId=client_id, groupName=group)

    def _store_rules(self, body: pb.RegisterResponseM2C | pb.HeartResponseM2C | pb.OpsTaskInfo) -> None:
        """Take over rules of flow control; their text comes only if the id differs from the one sent."""
        if body.HasField("qryPriorityId"):
            self._priority = body.qryPriorityId
        if body.HasField("defFlowCheckId") and body.defFlowCheckId != self._cluster_check:
            self.cluster_rules = self._read_rules(body.defFlowControlInfo, self.cluster_rules)
            self._cluster_check = body.defFlowCheckId
        if body.HasField("groupFlowCheckId") and body.groupFlowCheckId != self._group_check:
            self.group_rules = self._read_rules(body.groupFlowControlInfo, self.group_rules)
            self._group_check = body.groupFlowCheckId

    def _read_rules(self, text: str, former: FlowRules) -> FlowRules:
        """Read rules. Those that cannot be read leave the former ones: the rest of the response counts, too."""
        try:
            return read_rules(text)
        except ProtocolError as exc:
            self.rules_fault = str(exc)
            return former

    def took(self, partition: BrokerPartition) -> None:
        """Record that a partition was registered at its broker."""
        self.held[partition.key] = partition

    def gave_up(self, partitions: Iterable[BrokerPartition]) -> None:
        """Record that partitions were given up because the balance says so."""
        for partition in partitions:
            self.held.pop(partition.key, None)

    def lost(self, partitions: Iterable[BrokerPartition], now: float) -> None:
        """Record that partitions were lost: the Master is told at once, or it never assigns them (spec: tubemq 9.2)."""
        before = len(self.held)
        for partition in partitions:
            self.held.pop(partition.key, None)
        if len(self.held) < before:
            self._report = True
            if self.state is State.REGISTERED:
                self._due = min(self._due, now)

    def broker_answered(self, broker: Broker, body: pb.HeartBeatResponseB2C, now: float) -> list[BrokerPartition]:
        """Handle the response of a broker to a heartbeat: record partitions that are lost, and return them.

        A refused heartbeat loses all partitions of the broker. Raises ProtocolError for an entry of ``failureInfo``
        that cannot be read, and changes nothing then.
        """
        remedy = remedy_of(body.errCode)
        gone: list[BrokerPartition] = []
        if remedy is Remedy.NONE:
            for text in body.failureInfo:
                _, partition = read_failure(text, tls=self._tls)
                if partition.key in self.held:
                    gone.append(self.held[partition.key])
        elif remedy in (Remedy.CREDENTIALS, Remedy.REGISTER):
            gone = [each for each in self.held.values() if each.broker.id == broker.id]
        self.lost(gone, now)
        return gone
