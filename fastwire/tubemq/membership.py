"""Membership of a server-balanced consumer group: requests to the Master and the effect of its responses.

The Master assigns partitions by events in heartbeat responses (spec: tubemq 9). Time is an argument in seconds, as for
connections; the driver sends ``take_request`` to the active Master and hands each outcome back.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from google.protobuf.message import Message

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.credentials import UNDEFINED, VisitToken
from fastwire.tubemq.error import BrokerError, Remedy, remedy_of
from fastwire.tubemq.flow import NO_RULES, FlowRules, read_rules
from fastwire.tubemq.frame import Method
from fastwire.tubemq.text import Partition, read_subscription, write_conditions

__all__ = ["Assignment", "EventType", "Membership", "Settings", "State"]

HEARTBEAT_S = 10.0
SLOW_HEARTBEAT_S = 60.0
RETRY_S = 1.0
MOST_FAILURES = 5  # heartbeats in a row, before the slow period
REPORT_EVERY = 6  # heartbeats

_DONE = 2  # status of the result of an event


class EventType(IntEnum):
    """The kind of a balance event (spec: tubemq 9.3)."""

    UNKNOWN = -1
    CONNECT = 1
    DISCONNECT = 2
    REPORT = 3
    REFRESH = 4
    STOP_REBALANCE = 5
    ONLY_CONNECT = 10
    ONLY_DISCONNECT = 20


class State(Enum):
    """The progress of a membership."""

    UNREGISTERED = "unregistered"
    CLOSING_TO_REGISTER = "closing, to register again"
    REGISTERED = "registered"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A balance event: the partitions to register at their brokers, or to give up. ``Membership.finished`` ends it."""

    rebalance_id: int
    connect: bool
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The identity of a member and its subscription, which is the same in all members of a group."""

    client_id: str
    group: str
    host: str
    topics: tuple[str, ...]
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    session_time_ms: int
    tls: bool = False
    certificate: Callable[[], pb.MasterCertificateInfo] | None = None
    """Signs one request; None without authentication."""


class Membership:
    """One member of a group. Of its requests at most one is in flight; a request keeps its place until its outcome.

    ``held`` is the set of partitions that are registered at brokers: the driver changes it by ``took`` and ``lost``.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state = State.UNREGISTERED
        self.token = VisitToken()
        self.cluster_rules: FlowRules = NO_RULES
        self.group_rules: FlowRules = NO_RULES
        self.held: dict[str, Partition] = {}
        self._cluster_check = self._group_check = self._priority = UNDEFINED
        self._event: pb.EventProto | None = None  # received and not finished
        self._result: pb.EventProto | None = None  # finished and not sent
        self._sent: pb.EventProto | None = None  # the result in the heartbeat in flight
        self._report = False
        self._heartbeats = 0
        self._failures = 0
        self._due = 0.0
        self._in_flight: Method | None = None

    # --- requests

    def next_at(self) -> float | None:
        """Return the time of the next request; None while one is in flight, and after the end."""
        return None if self._in_flight is not None or self.state is State.CLOSED else self._due

    def take_request(self, now: float) -> tuple[Method, Message] | None:
        """Return the request to send now, if one is due."""
        at = self.next_at()
        if at is None or now < at:
            return None
        made: tuple[Method, Message]
        if self.state is State.UNREGISTERED:
            made = Method.CONSUMER_REGISTER, self._register()
        elif self.state is State.REGISTERED:
            made = Method.CONSUMER_HEARTBEAT, self._heartbeat()
        else:
            made = Method.CONSUMER_CLOSE, self._close()
        self._in_flight = made[0]
        return made

    def _subscriptions(self) -> list[str]:
        return [each.subscription(self.settings.client_id, self.settings.group) for each in self.held.values()]

    def _signed(self, request: pb.RegisterRequestC2M | pb.HeartRequestC2M | pb.CloseRequestC2M) -> None:
        # The open server wants it in each request (spec: tubemq 17).
        if self.settings.certificate is not None:
            request.authInfo.CopyFrom(self.settings.certificate())

    def _register(self) -> pb.RegisterRequestC2M:
        settings = self.settings
        request = pb.RegisterRequestC2M(
            clientId=settings.client_id,
            groupName=settings.group,
            hostName=settings.host,
            topicList=settings.topics,
            subscribeInfo=self._subscriptions(),
            topicCondition=write_conditions(settings.filters),
            requireBound=False,
            sessionTime=settings.session_time_ms,
            groupFlowCheckId=self._group_check,
            defFlowCheckId=self._cluster_check,
            qryPriorityId=self._priority,
        )
        self._signed(request)
        return request

    def _heartbeat(self) -> pb.HeartRequestC2M:
        self._heartbeats += 1
        result = self._result
        report = self._report or result is not None or self._heartbeats % REPORT_EVERY == 0
        request = pb.HeartRequestC2M(
            clientId=self.settings.client_id,
            groupName=self.settings.group,
            subscribeInfo=self._subscriptions() if report else (),
            reportSubscribeInfo=report,
            defFlowCheckId=self._cluster_check,
            groupFlowCheckId=self._group_check,
            qryPriorityId=self._priority,
        )
        if result is not None:
            request.event.CopyFrom(result)
        # A result is never sent twice: the Master takes each for the end of the event at the head of its queue.
        self._sent, self._result = result, None
        self._report = False
        self._signed(request)
        return request

    def _close(self) -> pb.CloseRequestC2M:
        request = pb.CloseRequestC2M(clientId=self.settings.client_id, groupName=self.settings.group)
        self._signed(request)
        return request

    # --- outcomes

    def answered(self, body: Message, now: float) -> Assignment | None:
        """Handle the response to the request in flight; return a new event.

        Raises BrokerError if the Master refuses the client for good, ProtocolError for a response that breaks the
        protocol.
        """
        self._in_flight = None
        if self.state is State.CLOSING and not isinstance(body, pb.CloseResponseM2C):
            self._due = now
            return None
        if isinstance(body, pb.RegisterResponseM2C):
            self._registered(body, now)
            return None
        if isinstance(body, pb.HeartResponseM2C):
            return self._beaten(body, now)
        if self.state is State.CLOSING:
            self.state = State.CLOSED
        else:
            self.state = State.UNREGISTERED
            self._due = now
        return None

    def failed(self, now: float, *, unsent: bool = False) -> None:
        """Handle the loss of the request in flight, or of its response.

        A heartbeat response may have carried an event, which the Master sends only once: the member closes and
        registers again, because a registration alone does not free the group (spec: tubemq 9.3). ``unsent`` says that
        the Master cannot have handled the request: no connection, or a stand-by.
        """
        method, self._in_flight = self._in_flight, None
        self._failures += 1
        self._due = now + (RETRY_S if self._failures < MOST_FAILURES else SLOW_HEARTBEAT_S)
        if self.state is State.CLOSING:
            if method is Method.CONSUMER_CLOSE:
                self.state = State.CLOSED
            self._due = now
        elif method is Method.CONSUMER_HEARTBEAT and unsent:
            self._result = self._sent
            self._report = True
        elif method is Method.CONSUMER_HEARTBEAT:
            # A result that was in it belongs to the old registration, too.
            self._forget_event()
            self.state = State.CLOSING_TO_REGISTER
            self._due = now

    def _forget_event(self) -> None:
        self._event = self._result = self._sent = None

    def _registered(self, body: pb.RegisterResponseM2C, now: float) -> None:
        remedy = remedy_of(body.errCode)
        if remedy is Remedy.NONE and body.success:
            self.state = State.REGISTERED
            self._forget_event()
            self._heartbeats = self._failures = 0
            self._report = bool(self.held)
            self._due = now
            self._store(body)
            return
        if remedy in (Remedy.FATAL, Remedy.CREDENTIALS):
            raise BrokerError(body.errCode, body.errMsg)
        self._failures += 1
        self._due = now + (RETRY_S if self._failures < MOST_FAILURES else SLOW_HEARTBEAT_S)

    def _beaten(self, body: pb.HeartResponseM2C, now: float) -> Assignment | None:
        remedy = remedy_of(body.errCode)
        self._due = now + HEARTBEAT_S
        if remedy is Remedy.NONE and body.success:
            self._failures = 0
            self._store(body)
            return self._received(body.event, now) if body.HasField("event") and body.event.rebalanceId > 0 else None
        if remedy is Remedy.REGISTER:
            self._forget_event()
            self.state = State.UNREGISTERED
            self._due = now
            return None
        if remedy is Remedy.CREDENTIALS:
            raise BrokerError(body.errCode, body.errMsg)
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            self._due = now + SLOW_HEARTBEAT_S
        return None

    def _store(self, body: pb.RegisterResponseM2C | pb.HeartResponseM2C) -> None:
        if body.HasField("authorizedInfo"):
            self.token.store(body.authorizedInfo)
        if body.HasField("qryPriorityId"):
            self._priority = body.qryPriorityId
        if body.HasField("defFlowCheckId") and body.defFlowCheckId != self._cluster_check:
            self.cluster_rules = read_rules(body.defFlowControlInfo)
            self._cluster_check = body.defFlowCheckId
        if body.HasField("groupFlowCheckId") and body.groupFlowCheckId != self._group_check:
            self.group_rules = read_rules(body.groupFlowControlInfo)
            self._group_check = body.groupFlowCheckId

    # --- events

    def _received(self, event: pb.EventProto, now: float) -> Assignment | None:
        try:
            partitions = tuple(read_subscription(text, tls=self.settings.tls) for text in event.subscribeInfo)
        except ProtocolError:
            # The event is lost, as if its response were.
            self.state = State.CLOSING_TO_REGISTER
            self._due = now + RETRY_S
            raise
        # A Master that has waited too long for a result clears the event, and its result must not be sent any more.
        self._event, self._result = event, None
        if event.opType in (EventType.CONNECT, EventType.ONLY_CONNECT):
            return Assignment(event.rebalanceId, True, partitions)
        if event.opType in (EventType.DISCONNECT, EventType.ONLY_DISCONNECT):
            return Assignment(event.rebalanceId, False, partitions)
        self.finished(event.rebalanceId, now)
        return None

    def finished(self, rebalance_id: int, now: float) -> bool:
        """Queue the result of an event with the full report, to be sent at once; later calls change nothing.

        Partitions that could not be registered are not in ``held`` and so not in the report; the Master assigns them
        again. Returns False for an event of an earlier registration, whose result must not be sent.
        """
        event = self._event
        if event is None or event.rebalanceId != rebalance_id:
            return False
        self._event = None
        self._result = pb.EventProto(
            rebalanceId=rebalance_id, opType=event.opType, status=_DONE, subscribeInfo=event.subscribeInfo
        )
        self._due = now
        return True

    def took(self, partition: Partition) -> None:
        """Record that a partition was registered at its broker."""
        self.held[partition.key] = partition

    def gave_up(self, partitions: Iterable[Partition]) -> None:
        """Record that partitions of a disconnect event were given up."""
        for partition in partitions:
            self.held.pop(partition.key, None)

    def lost(self, partitions: Iterable[Partition], now: float) -> None:
        """Record that partitions were lost without an event: the Master is told at once, or it never assigns them."""
        before = len(self.held)
        self.gave_up(partitions)
        if len(self.held) < before:
            self._report = True
            if self.state is State.REGISTERED:
                self._due = min(self._due, now)

    def close(self, now: float) -> None:
        """Leave the group; the driver has unregistered all partitions before."""
        self._forget_event()
        self.state = State.CLOSED if self.state is State.UNREGISTERED and self._in_flight is None else State.CLOSING
        self._due = now
