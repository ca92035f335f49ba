"""Membership of a client-balanced consumer group: the members share the partitions by a rule (spec: tubemq 10)."""

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.message import Message

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import UNDEFINED
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import BrokerPartition, write_conditions
from fastwire.tubemq.groups.master import RETRY_S, Change, ConsumerClient, ConsumerSettings, State
from fastwire.tubemq.groups.selection import Metadata, share

METADATA_S = 10.0
REFUSED_S = 5.0  # before a partition is registered again that was refused
REPORT_EVERY = 60  # heartbeats


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(ConsumerSettings):
    """A member of a client-balanced group: node ``node_id`` of ``source_count``."""

    source_count: int
    node_id: int


class ClientMembership(ConsumerClient):
    """One member of a group whose members choose their partitions themselves.

    After each response, and at ``next_at``, the driver asks ``take_share`` for partitions to register or to give up. It
    reports each that it was to register by ``took`` or ``refused``. Raises ValueError for a node that is not below the
    count.
    """

    def __init__(self, settings: NodeSettings) -> None:
        share((), settings.source_count, settings.node_id)
        super().__init__(settings)
        self.settings = settings
        self.metadata = Metadata(tls=settings.tls)
        self._metadata_at = 0.0
        self._heartbeat_at = 0.0
        self._registered_ms = 0
        self._jump = UNDEFINED  # id of the operator's last request to go on at the end
        self._to_end = False
        self._wanted: dict[str, BrokerPartition] = {}
        self._taking: set[str] = set()
        self._again_at: dict[str, float] = {}  # partitions that were refused

    # --- requests

    def next_at(self) -> float | None:
        """Return the time of the next request or of the next ``take_share``; None while a request is in flight."""
        at = super().next_at()
        return at if at is None or self.state is not State.REGISTERED else min((at, *self._again_at.values()))

    def take_request(self, now: float) -> tuple[Method, Message] | None:
        """Return the request to send now, if one is due."""
        return super().take_request(now) if now >= self._due else None

    def _operator(self) -> pb.OpsTaskInfo:
        known = pb.OpsTaskInfo()
        for name, value in (
            ("groupFlowCheckId", self._group_check),
            ("defFlowCheckId", self._cluster_check),
            ("qryPriorityId", self._priority),
            ("csmFrmMaxOffsetCtrlId", self._jump),
        ):
            if value != UNDEFINED:
                setattr(known, name, value)
        return known

    def _register(self) -> tuple[Method, Message]:
        settings = self.settings
        return Method.CLIENT_REGISTER, pb.RegisterRequestC2MV2(
            clientId=settings.client_id,
            groupName=settings.group,
            hostName=settings.host,
            sourceCount=settings.source_count,
            nodeId=settings.node_id,
            topicList=settings.topics,
            topicCondition=write_conditions(settings.filters),
            subRepInfo=self.metadata.report(self.held.values() if self.held else None),
            opsTaskInfo=self._operator(),
        )

    def _next(self, now: float) -> tuple[Method, Message]:
        client_id, group = self._identity
        if now >= self._metadata_at:
            return Method.CLIENT_METADATA, pb.GetPartMetaRequestC2M(
                clientId=client_id,
                groupName=group,
                brokerConfigId=self.metadata.broker_id,
                topicMetaInfoId=self.metadata.topic_id,
            )
        self._heartbeats += 1
        report = self._report or self._heartbeats % REPORT_EVERY == 0
        self._report = False
        return Method.CLIENT_HEARTBEAT, pb.HeartRequestC2MV2(
            clientId=client_id,
            groupName=group,
            subRepInfo=self.metadata.report(self.held.values() if report else None),
            opsTaskInfo=self._operator(),
        )

    # --- outcomes

    def answered(self, body: Message, now: float, now_ms: int) -> None:
        """Handle the response to the request in flight; ``now_ms`` is the time in ms since 1970.

        Raises BrokerError if the Master refuses the client for good, ProtocolError for a response that breaks the
        protocol.
        """
        if self._landed(body, now, pb.CloseResponseM2C):
            return
        assert isinstance(body, pb.RegisterResponseM2CV2 | pb.GetPartMetaResponseM2C | pb.HeartResponseM2CV2)
        wait = RETRY_S if isinstance(body, pb.RegisterResponseM2CV2) else self.settings.heartbeat_s
        if not self._accepted(body.errCode, body.errMsg, now, wait):
            return
        self.metadata.update(body, now_ms)
        if isinstance(body, pb.RegisterResponseM2CV2):
            self.state = State.REGISTERED
            self._heartbeats = 0
            self._report = True
            self._metadata_at = self._heartbeat_at = now
            self._registered_ms = now_ms
        elif isinstance(body, pb.HeartResponseM2CV2):
            self._heartbeat_at = now + self.settings.heartbeat_s
        else:
            self._metadata_at = now + METADATA_S
        self._schedule()
        if not isinstance(body, pb.GetPartMetaResponseM2C):
            if body.HasField("authorizedInfo"):
                self.token.store(body.authorizedInfo)
            if body.HasField("opsTaskInfo"):
                self._operated(body.opsTaskInfo)
        ours = (each for each in self.metadata.partitions() if each.topic in self.settings.topics)
        mine = share(ours, self.settings.source_count, self.settings.node_id)
        self._wanted = {each.key: each for each in mine}

    def _schedule(self) -> None:
        self._due = min(self._metadata_at, self._heartbeat_at)

    def _lost(self, method: Method, now: float, unsent: bool) -> None:
        if method is Method.CLIENT_HEARTBEAT:
            self._report = True  # the Master may not have it

    def _operated(self, task: pb.OpsTaskInfo) -> None:
        self._store_rules(task)
        if task.HasField("csmFrmMaxOffsetCtrlId") and task.csmFrmMaxOffsetCtrlId != self._jump:
            self._jump = task.csmFrmMaxOffsetCtrlId
            # An id is the time of the operator's request. A member that registered later is not meant.
            self._to_end = self._to_end or self._jump > self._registered_ms

    # --- partitions

    @property
    def chosen(self) -> frozenset[str] | None:
        """The keys of the partitions of this member; None before the Master has listed the partitions."""
        return None if self.metadata.topic_id == UNDEFINED else frozenset(self._wanted)

    def take_share(self, now: float) -> Change | None:
        """Return the change that is to be made now, once; None if there is none."""
        if self.state is not State.REGISTERED:
            return None
        take = []
        for key, partition in self._wanted.items():
            if key not in self.held and key not in self._taking and now >= self._again_at.get(key, now):
                self._taking.add(key)
                take.append(partition)
        self._again_at = {key: at for key, at in self._again_at.items() if at > now}
        give_up = [partition for key, partition in self.held.items() if key not in self._wanted]
        self.gave_up(give_up)
        to_end, self._to_end = self._to_end, False
        if not take and not give_up and not to_end:
            return None
        self._report = self._report or bool(give_up)
        return Change(tuple(take), tuple(give_up), to_end)

    def took(self, partition: BrokerPartition) -> None:
        """Record that a partition was registered at its broker."""
        super().took(partition)
        self._taking.discard(partition.key)
        self._report = True

    def refused(self, partition: BrokerPartition, now: float) -> None:
        """Record that a broker refused a partition, which another client may hold yet; it is tried again later."""
        self._taking.discard(partition.key)
        self._again_at[partition.key] = now + REFUSED_S

    def lost(self, partitions: Iterable[BrokerPartition], now: float) -> None:
        """Record that partitions were lost; they are registered again later."""
        gone = [each for each in partitions if each.key in self.held]
        for partition in gone:
            self.refused(partition, now)
        super().lost(gone, now)
