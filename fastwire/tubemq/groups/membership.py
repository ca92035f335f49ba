"""Membership of a server-balanced consumer group: requests to the Master and the effect of its responses.

The Master assigns partitions by events in heartbeat responses (spec: tubemq 9).
"""

from dataclasses import dataclass
from enum import IntEnum

from google.protobuf.message import Message

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import MOST_PARTITIONS, BrokerPartition, read_subscription, write_conditions
from fastwire.tubemq.groups.master import RETRY_S, Change, ConsumerClient, ConsumerSettings, State

__all__ = ["EventType", "Membership", "Settings", "State"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ConsumerSettings):
    """A member of a server-balanced group."""

    session_time_ms: int


class Membership(ConsumerClient):
    """One member of a group whose partitions the Master assigns."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.settings = settings
        self.unallocated = True
        """The Master has not assigned the partitions of the group."""
        self._event: pb.EventProto | None = None  # received and not finished
        self._result: pb.EventProto | None = None  # finished and not sent
        self._seen: set[str] = set()  # keys of the partitions of all events, which this process does not forget
        self._sent: pb.EventProto | None = None  # the result in the heartbeat in flight

    # --- requests

    def _subscriptions(self) -> list[str]:
        return [each.subscription(self.settings.client_id, self.settings.group) for each in self.held.values()]

    def _register(self) -> tuple[Method, Message]:
        settings = self.settings
        return Method.CONSUMER_REGISTER, pb.RegisterRequestC2M(
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

    def _next(self, now: float) -> tuple[Method, Message]:
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
        return Method.CONSUMER_HEARTBEAT, request

    # --- outcomes

    def answered(self, body: Message, now: float) -> Change | None:
        """Handle the response to the request in flight; return a new event.

        Raises BrokerError if the Master refuses the client for good, ProtocolError for a response that breaks the
        protocol.
        """
        if self._landed(body, now, pb.CloseResponseM2C):
            return None
        if isinstance(body, pb.RegisterResponseM2C):
            self._registered(body, now)
        elif isinstance(body, pb.HeartResponseM2C):
            return self._beaten(body, now)
        else:
            self.state = State.UNREGISTERED
            self._due = now
        return None

    def _lost(self, method: Method, now: float, unsent: bool) -> None:
        # A heartbeat response may have carried an event, which the Master sends only once: the member closes and
        # registers again, because a registration alone does not free the group (spec: tubemq 9.3).
        if method is not Method.CONSUMER_HEARTBEAT:
            return
        if unsent:
            self._result = self._sent
            self._report = True
        else:
            # A result that was in it belongs to the old registration, too.
            self._forget_event()
            self.state = State.CLOSING_TO_REGISTER
            self._due = now

    def _forget_event(self) -> None:
        self._event = self._result = self._sent = None

    def _registered(self, body: pb.RegisterResponseM2C, now: float) -> None:
        if self._accepted(body.errCode, body.errMsg, now, RETRY_S):
            self.state = State.REGISTERED
            self._forget_event()
            self._heartbeats = 0
            self._report = bool(self.held)
            self._due = now
            self._store(body)

    def _beaten(self, body: pb.HeartResponseM2C, now: float) -> Change | None:
        if self._accepted(body.errCode, body.errMsg, now, self.settings.heartbeat_s):
            self._due = now + self.settings.heartbeat_s
            self._store(body)
            return self._received(body.event, now) if body.HasField("event") and body.event.rebalanceId > 0 else None
        if self.state is State.UNREGISTERED:
            self._forget_event()
        return None

    def _store(self, body: pb.RegisterResponseM2C | pb.HeartResponseM2C) -> None:
        if body.HasField("authorizedInfo"):
            self.token.store(body.authorizedInfo)
        if body.HasField("notAllocated"):
            self.unallocated = body.notAllocated
        self._store_rules(body)

    # --- events

    def _received(self, event: pb.EventProto, now: float) -> Change | None:
        try:
            partitions = self._named(event)
        except ProtocolError:
            # The event is lost, as if its response were.
            self.state = State.CLOSING_TO_REGISTER
            self._due = now + RETRY_S
            raise
        # A Master that has waited too long for a result clears the event, and its result must not be sent any more.
        self._event, self._result = event, None
        if event.opType in (EventType.CONNECT, EventType.ONLY_CONNECT):
            return Change(take=partitions, rebalance_id=event.rebalanceId)
        if event.opType in (EventType.DISCONNECT, EventType.ONLY_DISCONNECT):
            return Change(give_up=partitions, rebalance_id=event.rebalanceId)
        self.finished(event.rebalanceId, now)
        return None

    def _named(self, event: pb.EventProto) -> tuple[BrokerPartition, ...]:
        """Read the partitions of an event. Raises ProtocolError for those that no Master in its senses gives away."""
        partitions = tuple(read_subscription(text, tls=self.settings.tls) for text in event.subscribeInfo)
        for each in partitions:
            if each.topic not in self.settings.topics:
                raise ProtocolError("event", detail=f"{str(each)[:200]!r} is of a topic that this member does not read")
        seen = self._seen | {each.key for each in partitions}
        if len(seen) > MOST_PARTITIONS:
            raise ProtocolError("event", detail=f"the Master has named more than {MOST_PARTITIONS:,} partitions")
        self._seen = seen
        return partitions

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

    def close(self, now: float) -> None:
        """Leave the group; the driver has unregistered all partitions before."""
        self._forget_event()
        super().close(now)
