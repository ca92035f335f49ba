"""Requests to a broker, and the classification of its responses (spec: pulsar 1.4, 5, 21)."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import body_of, server_error_name
from fastwire.pulsar.format.server_error import Remedy, remedy

_C = pb.BaseCommand


class Kind(Enum):
    """The kind of a request, which determines the type of its response."""

    LOOKUP = auto()
    PARTITIONED_METADATA = auto()
    SUBSCRIBE = auto()
    CLOSE_CONSUMER = auto()
    SEEK = auto()
    GET_LAST_MESSAGE_ID = auto()
    UNSUBSCRIBE = auto()
    CONSUMER_STATS = auto()
    ACK = auto()
    PRODUCER = auto()
    CLOSE_PRODUCER = auto()
    LIST_TOPICS = auto()
    WATCH_TOPICS = auto()
    UNWATCH_TOPICS = auto()
    GET_SCHEMA = auto()


class BrokerError(FastwireError):
    """An error response of the broker: ``code`` is the protocol's number, ``name`` the protocol's name for it."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.name = server_error_name(code)
        self.message = message
        super().__init__(f"{self.name}: {message}" if message else self.name)

    @property
    def remedy(self) -> Remedy:
        """The remedy for the error."""
        return remedy(self.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    """The fields of a SUBSCRIBE. A new subscription starts at the earliest position, or with ``latest`` at the end.

    With ``reader_from`` the subscription is not durable: the broker sends from that entry on and deletes the
    subscription when the consumer leaves (spec: pulsar 7.2). ``rollback_s`` makes it start that many seconds ago
    instead.
    """

    topic: str
    subscription: str
    subscription_type: "pb.CommandSubscribe.SubType"
    consumer_id: int
    consumer_name: str
    priority_level: int = 0
    epoch: int = 0
    create: bool = True  # the broker may create a missing topic
    reader_from: Position | None = None
    rollback_s: int = 0
    latest: bool = False
    read_compacted: bool = False
    hash_ranges: tuple[tuple[int, int], ...] = ()  # Key_Shared: inclusive; (): the broker divides
    any_order: bool = False  # Key_Shared: a new consumer need not wait for the acks of earlier ones
    properties: tuple[tuple[str, str], ...] = ()  # of the consumer, shown in the topic's statistics
    subscription_properties: tuple[tuple[str, str], ...] = ()  # stored with the subscription when it is created
    replicate_state: bool = False  # the subscription's progress is replicated to other clusters
    schema: pb.Schema | None = None  # the broker refuses a consumer whose schema is incompatible with the topic's

    def command(self, request_id: int) -> pb.BaseCommand:
        """Return the command; signed numbers become unsigned on the wire."""
        ask = pb.CommandSubscribe(
            topic=self.topic,
            subscription=self.subscription,
            subType=self.subscription_type,
            consumer_id=self.consumer_id,
            request_id=request_id,
            consumer_name=self.consumer_name,
            priority_level=self.priority_level,
            durable=self.reader_from is None,
            initialPosition=pb.CommandSubscribe.Latest if self.latest else pb.CommandSubscribe.Earliest,
            consumer_epoch=self.epoch,
            metadata=[pb.KeyValue(key=key, value=value) for key, value in self.properties],
        )
        if not self.create:
            ask.force_topic_creation = False
        if self.read_compacted:
            ask.read_compacted = True
        for key, value in self.subscription_properties:
            ask.subscription_properties.add(key=key, value=value)
        if self.replicate_state:
            ask.replicate_subscription_state = True
        if self.schema is not None:
            ask.schema.CopyFrom(self.schema)
        if self.reader_from is not None:
            ask.start_message_id.ledgerId = self.reader_from.a & 0xFFFFFFFFFFFFFFFF
            ask.start_message_id.entryId = self.reader_from.b & 0xFFFFFFFFFFFFFFFF
            if self.rollback_s:
                ask.start_message_rollback_duration_sec = self.rollback_s
        if self.subscription_type == pb.CommandSubscribe.Key_Shared:
            ask.keySharedMeta.keySharedMode = pb.STICKY if self.hash_ranges else pb.AUTO_SPLIT
            ask.keySharedMeta.allowOutOfOrderDelivery = self.any_order
            for start, end in self.hash_ranges:
                ask.keySharedMeta.hashRanges.add(start=start, end=end)
        return _C(type=_C.SUBSCRIBE, subscribe=ask)


def redeliver_command(consumer_id: int, ids: Iterable[tuple[int, int]], epoch: int | None) -> pb.BaseCommand:
    """Return REDELIVER_UNACKNOWLEDGED_MESSAGES for (ledger, entry) ``ids``; none of them: all (spec: pulsar 16.3)."""
    ask = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id)
    for ledger, entry in ids:
        ask.message_ids.add(ledgerId=ledger, entryId=entry)
    if epoch is not None:
        ask.consumer_epoch = epoch
    return _C(type=_C.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=ask)


# The response of each kind; ERROR may answer any of them.
REPLIES = {
    Kind.LOOKUP: _C.LOOKUP_RESPONSE,
    Kind.PARTITIONED_METADATA: _C.PARTITIONED_METADATA_RESPONSE,
    Kind.SUBSCRIBE: _C.SUCCESS,
    Kind.CLOSE_CONSUMER: _C.SUCCESS,
    Kind.SEEK: _C.SUCCESS,
    Kind.GET_LAST_MESSAGE_ID: _C.GET_LAST_MESSAGE_ID_RESPONSE,
    Kind.UNSUBSCRIBE: _C.SUCCESS,
    Kind.CONSUMER_STATS: _C.CONSUMER_STATS_RESPONSE,
    Kind.ACK: _C.ACK_RESPONSE,
    Kind.PRODUCER: _C.PRODUCER_SUCCESS,
    Kind.CLOSE_PRODUCER: _C.SUCCESS,
    Kind.LIST_TOPICS: _C.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    Kind.WATCH_TOPICS: _C.WATCH_TOPIC_LIST_SUCCESS,
    Kind.UNWATCH_TOPICS: _C.SUCCESS,
    Kind.GET_SCHEMA: _C.GET_SCHEMA_RESPONSE,
}


def reply_id(command: pb.BaseCommand) -> int | None:
    """Return the request id of a response; None for an ack receipt without one."""
    body = body_of(command)
    number: int | None = body.request_id if body.HasField("request_id") else None
    return number


def refusal(command: pb.BaseCommand) -> BrokerError | None:
    """Return the error of a response, None on success; each type of response has its own field for it."""
    kind = command.type
    if kind == _C.ERROR:
        return BrokerError(command.error.error, command.error.message)
    if kind == _C.LOOKUP_RESPONSE:
        found = command.lookupTopicResponse
        # An unknown response kind reads as absent. It must not pass for the default, which is Redirect.
        if found.HasField("response") and found.response != pb.CommandLookupTopicResponse.Failed:
            return None
        return BrokerError(found.error, found.message)
    if kind == _C.PARTITIONED_METADATA_RESPONSE:
        parts = command.partitionMetadataResponse
        if parts.HasField("response") and parts.response == pb.CommandPartitionedTopicMetadataResponse.Success:
            return None
        return BrokerError(parts.error, parts.message)
    if kind in (_C.CONSUMER_STATS_RESPONSE, _C.GET_SCHEMA_RESPONSE):
        found = body_of(command)
        return BrokerError(found.error_code, found.error_message) if found.HasField("error_code") else None
    if kind == _C.ACK_RESPONSE:
        receipt = command.ackResponse
        return BrokerError(receipt.error, receipt.message) if receipt.HasField("error") else None
    return None


def available_permits(stats: pb.CommandConsumerStatsResponse) -> int:
    """Return the permits of a consumer by the broker's count; after a whole batch they may be below 0."""
    return _signed(stats.availablePermits)


def position_of(message_id: pb.MessageIdData) -> Position:
    """Return the position of an id. Its numbers are unsigned on the wire and signed here: -1 means none, or before the
    first.
    """
    return Position(_signed(message_id.ledgerId), _signed(message_id.entryId))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
