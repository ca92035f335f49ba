"""State machine of one connection to a Pulsar broker (spec: pulsar 2, 3, 20); its base is ``fastwire.connection``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from fastwire.connection import CONNECT_TIMEOUT_S, ChunkConnection
from fastwire.errors import ProtocolError, UnsupportedError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import MIN_PROTOCOL_VERSION, PROTOCOL_VERSION, decode_command, encode_command
from fastwire.pulsar.protocol.ack import encode_ack_cumulative, encode_ack_elements, encode_ack_runs, encode_flow
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.protocol.event import (
    ActiveChanged,
    AuthChallenged,
    Connected,
    ConnectRefused,
    ConsumerClosed,
    EndOfTopic,
    Event,
    Lost,
    ProducerClosed,
    ProducerMigrated,
    ProducerQueued,
    Reply,
    SendConfirmed,
    SendRefused,
    TimedOut,
    TopicMigrated,
    TopicsChanged,
)
from fastwire.pulsar.protocol.request import (
    REPLIES,
    BrokerError,
    Kind,
    SubscribeRequest,
    position_of,
    refusal,
    reply_id,
)
from fastwire.pulsar.protocol.state import LEGAL, State
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.pulsar.reading.scan import Scanner

__all__ = ["LEGAL", "Connection", "State"]

KEEP_ALIVE_S = 30.0
SUSPENDED_PING_S = 10.0  # a broker closes a connection that is silent for one to two of its keep-alive intervals
SUSPENDED_FIRST_PING_S = 1.0  # most suspensions are shorter, and there may be a hundred a second
OPERATION_TIMEOUT_S = 30.0
RECEIPTS_SINCE = 17
KEY_SHARED_SINCE = 14
COMMAND_SHARE = 32  # divides the memory budget; a decoded list of topics takes up to 13 times its bytes
LEAST_COMMAND = 2 << 20
MOST_PARTITIONS = 100_000  # of one topic; each partition costs several hundred bytes here
# A larger max_message_size in CONNECTED is treated as damage.
LARGEST_MESSAGE_SIZE = 1 << 28

_PONG = encode_command(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))
_PING = encode_command(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))

_NOTHING: tuple[Event, ...] = ()

_C = pb.BaseCommand
_NOWHERE = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)


class Connection(ChunkConnection[Scanner, Event]):
    """One connection: handshake, keep-alive, requests with deadlines, and the scanner's commands and entries.

    All connections of a client share ``request_ids``, so that a late response never matches another request, and
    ``completion``, because held chunks outlive a connection.
    """

    def __init__(
        self,
        scanner: Scanner,
        completion: Completion,
        *,
        client_version: str,
        request_ids: Iterator[int] | None = None,
        keep_alive_s: float = KEEP_ALIVE_S,
        operation_timeout_s: float = OPERATION_TIMEOUT_S,
    ) -> None:
        super().__init__(scanner)
        self.state = State.NEW
        self.protocol_version = 0
        self.features = pb.FeatureFlags()
        self.permits_granted = 0
        self.acks_sent = 0  # commands, not ids
        self.acks_confirmed = 0
        self._client_version = client_version
        self._completion = completion
        self._request_ids = count(1) if request_ids is None else request_ids
        self._keep_alive_s = keep_alive_s
        self._operation_timeout_s = operation_timeout_s
        self._pending: dict[int, tuple[Kind, float]] = {}  # all have one timeout: in order of deadlines
        self._queued: dict[int, Kind] = {}  # PRODUCER requests that the broker has queued, without a deadline
        self._receipts = 0  # number of pending requests that are ack receipts
        self._rested = 0.0  # seconds for which the connection was suspended: deadlines are without them
        self._pinged_at: float | None = None
        self._suspended_ping_at = 0.0

    # --- bytes in

    def _found(self, now: float, events: list[Event]) -> bool:
        found = self.scanner.take_found()
        if isinstance(found, ColdEntry):
            return self._reject(found, events)
        if found is not None:
            self._command(found, now, events)
        return False

    def _reject(self, entry: ColdEntry, events: list[Event]) -> bool:
        """Complete an entry that the hot loop left; return True if the caller must handle it before the next scan."""
        rejected = self._completion.take(entry, self.scanner, lambda: self._hand_on(events))
        events += rejected
        # Later entries of this consumer must not be counted as if this one had been accepted.
        return not all(each.is_dead_letter for each in rejected)

    # --- time

    @property
    def ready(self) -> bool:
        """True if requests can be made."""
        return self.state is State.READY

    @property
    def awaiting(self) -> bool:
        """True if a response of the broker is pending; ack receipts do not count."""
        return len(self._pending) > self._receipts or self.state is State.HANDSHAKE

    @property
    def receipts_outstanding(self) -> int:
        """Number of acks without a receipt."""
        return self._receipts

    def tick(self, now: float) -> Sequence[Event]:
        """Send pings and expire requests: return ``Lost`` for a silent broker, ``TimedOut`` for each unanswered
        request.
        """
        self.scanner.rest()
        if self.state is State.HANDSHAKE:
            if now >= self._connect_deadline and self._suspended_at is None:
                return (self._lost("no answer to CONNECT"),)
            return _NOTHING
        if self.state is not State.READY:
            return _NOTHING
        if self._suspended_at is not None:
            if now >= self._suspended_ping_at:
                self._ping(now)
                self._suspended_ping_at = now + SUSPENDED_PING_S
            return _NOTHING
        if self._pinged_at is not None and self._received_at > self._pinged_at:
            self._pinged_at = None  # any received byte shows that the broker is alive
        if self._pinged_at is None:
            if now - self._received_at >= self._keep_alive_s:
                self._ping(now)
        elif now - self._pinged_at >= self._keep_alive_s:
            return (self._lost(f"silent for {now - self._received_at:.0f} s, a ping stayed unanswered"),)
        return self._expire(now)

    def _expire(self, now: float) -> Sequence[Event]:
        events: list[Event] = []
        while self._pending:
            request_id, (kind, deadline) = next(iter(self._pending.items()))
            if deadline > now - self._rested:
                break
            self._forget(request_id)
            events.append(TimedOut(request_id, kind))
        return events or _NOTHING

    def suspend(self, now: float) -> None:
        """Stop reading; pings keep the connection alive, because a broker counts any command as a sign of life."""
        if self._suspended_at is None:
            self._suspended_ping_at = now + SUSPENDED_FIRST_PING_S
        super().suspend(now)

    def _postpone(self, rested: float, now: float) -> None:
        self._pinged_at = None
        self._received_at = now
        self._rested += rested  # pending may be a receipt of each of many partitions

    def _ping(self, now: float) -> None:
        self._out.append(_PING)
        self._pinged_at = now

    def _lost(self, reason: str) -> Lost:
        self.close()
        return Lost(reason)

    def close(self) -> None:
        """Close the connection: discard output and forget all pending requests."""
        super().close()
        self.state = State.CLOSED
        self._pending.clear()
        self._queued.clear()
        self._receipts = 0

    # --- commands in

    def _command(self, body: bytes, now: float, events: list[Event]) -> None:
        most = max(self.scanner.memory // COMMAND_SHARE, LEAST_COMMAND)
        if len(body) > most:
            detail = f"{len(body)} bytes of a command, the memory budget (daemon.memory) allows {most}"
            raise ProtocolError("commandSize", 4, detail=detail)
        try:
            command = decode_command(body)
        except UnsupportedError:
            return  # a command of a newer protocol; official clients drop the connection, ignoring is safer
        kind = command.type
        if kind not in LEGAL[self.state]:
            raise ProtocolError("BaseCommand", 8, detail=f"{_C.Type.Name(kind)} in state {self.state.name}")
        if kind == _C.PING:
            self._out.append(_PONG)
        elif kind == _C.PONG:
            pass  # the received bytes have been counted as a sign of life
        elif kind == _C.CONNECTED:
            self._connected(command.connected, now, events)
        elif kind == _C.AUTH_CHALLENGE:
            challenge = command.authChallenge.challenge
            events.append(AuthChallenged(challenge.auth_method_name, challenge.auth_data))
        elif kind == _C.CLOSE_CONSUMER:
            closed = command.close_consumer
            urls = closed.assignedBrokerServiceUrl, closed.assignedBrokerServiceUrlTls
            events.append(ConsumerClosed(closed.consumer_id, *urls))
        elif kind == _C.ACTIVE_CONSUMER_CHANGE:
            change = command.active_consumer_change
            events.append(ActiveChanged(change.consumer_id, change.is_active))
        elif kind == _C.REACHED_END_OF_TOPIC:
            events.append(EndOfTopic(command.reachedEndOfTopic.consumer_id))
        elif kind == _C.TOPIC_MIGRATED:
            moved = command.topicMigrated
            if moved.resource_type == pb.CommandTopicMigrated.Consumer:
                events.append(TopicMigrated(moved.resource_id, moved.brokerServiceUrl, moved.brokerServiceUrlTls))
            else:
                events.append(ProducerMigrated(moved.resource_id, moved.brokerServiceUrl, moved.brokerServiceUrlTls))
        elif kind == _C.SEND_RECEIPT:
            receipt = command.send_receipt
            place = receipt.message_id if receipt.HasField("message_id") else _NOWHERE
            at = position_of(place)
            events.append(SendConfirmed(receipt.producer_id, receipt.sequence_id, at))
        elif kind == _C.SEND_ERROR:
            refused = command.send_error
            error = BrokerError(refused.error, refused.message)
            events.append(SendRefused(refused.producer_id, refused.sequence_id, error))
        elif kind == _C.CLOSE_PRODUCER:
            shut = command.close_producer
            urls = shut.assignedBrokerServiceUrl, shut.assignedBrokerServiceUrlTls
            events.append(ProducerClosed(shut.producer_id, *urls))
        elif kind == _C.WATCH_TOPIC_UPDATE:
            news = command.watchTopicUpdate
            gone = tuple(news.deleted_topics)
            events.append(TopicsChanged(news.watcher_id, tuple(news.new_topics), gone, news.topics_hash))
        elif self.state is State.HANDSHAKE:
            no = command.error
            self.close()
            events.append(ConnectRefused(BrokerError(no.error, no.message)))
        else:
            self._reply(command, events)

    def _connected(self, answer: pb.CommandConnected, now: float, events: list[Event]) -> None:
        version = min(PROTOCOL_VERSION, answer.protocol_version)
        if version < MIN_PROTOCOL_VERSION:
            raise UnsupportedError(
                f"broker {answer.server_version!r} speaks protocol version {answer.protocol_version}, "
                f"{MIN_PROTOCOL_VERSION} is the oldest supported"
            )
        if answer.max_message_size > 0:
            self.scanner.max_message_size = min(answer.max_message_size, LARGEST_MESSAGE_SIZE)
        self.state = State.READY
        self.protocol_version = version
        self.features = answer.feature_flags
        self._received_at = now
        events.append(Connected(answer.server_version, version, self.scanner.max_message_size))

    def _reply(self, command: pb.BaseCommand, events: list[Event]) -> None:
        request_id = reply_id(command)
        if request_id is None or (request_id not in self._pending and request_id not in self._queued):
            return  # it timed out, or was never requested
        if command.partitionMetadataResponse.partitions > MOST_PARTITIONS:
            count = command.partitionMetadataResponse.partitions
            raise ProtocolError("partitions", detail=f"{count} of a topic, the limit is {MOST_PARTITIONS}")
        kind = self._forget(request_id)
        if command.type not in (REPLIES[kind], _C.ERROR):
            got = _C.Type.Name(command.type)
            raise ProtocolError("BaseCommand", 8, detail=f"{got} answers request {request_id}, a {kind.name}")
        if kind is Kind.PRODUCER and command.type != _C.ERROR and not command.producer_success.producer_ready:
            self._queued[request_id] = kind
            events.append(ProducerQueued(request_id))
            return
        reply = Reply(request_id, kind, command, refusal(command))
        if kind is Kind.ACK and reply.error is None:
            self.acks_confirmed += 1
        events.append(reply)

    def _forget(self, request_id: int) -> Kind:
        if request_id in self._queued:
            return self._queued.pop(request_id)
        kind, _ = self._pending.pop(request_id)
        if kind is Kind.ACK:
            self._receipts -= 1
        return kind

    # --- intentions

    def connect(self, now: float, *, method: str = "", data: bytes | None = None, proxy_to: str = "") -> None:
        """Send CONNECT; no other request is allowed before ``Connected``.

        ``proxy_to`` is the ``host:port`` of the target broker if the socket is connected to a proxy. Raises ValueError
        if the connection is not new.
        """
        if self.state is not State.NEW:
            raise ValueError(f"connect in state {self.state.name}")
        hello = pb.CommandConnect(client_version=self._client_version, protocol_version=PROTOCOL_VERSION)
        hello.feature_flags.supports_auth_refresh = True
        hello.feature_flags.supports_broker_entry_metadata = True
        hello.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
        if method:
            hello.auth_method_name = method
        if data is not None:
            hello.auth_data = data
        if proxy_to:
            hello.proxy_to_broker_url = proxy_to
        self.state = State.HANDSHAKE
        self._received_at = now
        self._connect_deadline = now + CONNECT_TIMEOUT_S
        self._out.append(encode_command(_C(type=_C.CONNECT, connect=hello)))

    def auth_response(self, method: str, data: bytes) -> None:
        """Answer an ``AuthChallenged`` event with new credentials."""
        if self.state not in (State.HANDSHAKE, State.READY):
            raise ValueError(f"auth_response in state {self.state.name}")
        answer = pb.CommandAuthResponse(client_version=self._client_version, protocol_version=PROTOCOL_VERSION)
        answer.response.auth_method_name = method
        answer.response.auth_data = data  # present even when empty: a broker insists on it
        self._out.append(encode_command(_C(type=_C.AUTH_RESPONSE, authResponse=answer)))

    def lookup(self, topic: str, now: float, *, authoritative: bool = False, listener: str = "") -> int:
        """Look up the owner broker of ``topic``; return the request id, as all requests do."""
        request_id = self._request(Kind.LOOKUP, now)
        ask = pb.CommandLookupTopic(topic=topic, request_id=request_id, authoritative=authoritative)
        if listener:
            ask.advertised_listener_name = listener
        self._out.append(encode_command(_C(type=_C.LOOKUP, lookupTopic=ask)))
        return request_id

    def partitioned_metadata(self, topic: str, now: float, *, create: bool = True) -> int:
        """Request the number of partitions of ``topic`` (0: not partitioned). ``topic`` must not be a partition's name.

        A broker may create a missing topic. With ``create`` false, a broker that knows the flag answers TopicNotFound
        instead.
        """
        request_id = self._request(Kind.PARTITIONED_METADATA, now)
        ask = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=request_id)
        if not create and self.features.supports_get_partitioned_metadata_without_auto_creation:
            ask.metadata_auto_creation_enabled = False
        self._out.append(encode_command(_C(type=_C.PARTITIONED_METADATA, partitionMetadata=ask)))
        return request_id

    def subscribe(self, want: SubscribeRequest, now: float) -> int:
        """Send SUBSCRIBE. The caller attaches the consumer id at the slot table first: records may follow the answer at
        once.

        Raises UnsupportedError if the broker is too old for Key_Shared.
        """
        key_shared = want.subscription_type == pb.CommandSubscribe.Key_Shared
        if key_shared and self.protocol_version < KEY_SHARED_SINCE:
            raise UnsupportedError(f"Key_Shared needs protocol version 14, the broker has {self.protocol_version}")
        request_id = self._request(Kind.SUBSCRIBE, now)
        self._out.append(encode_command(want.command(request_id)))
        return request_id

    def close_consumer(self, consumer_id: int, now: float) -> int:
        """Send CLOSE_CONSUMER."""
        request_id = self._request(Kind.CLOSE_CONSUMER, now)
        ask = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=request_id)
        self._out.append(encode_command(_C(type=_C.CLOSE_CONSUMER, close_consumer=ask)))
        return request_id

    def unsubscribe(self, consumer_id: int, now: float, *, force: bool = False) -> int:
        """Delete the subscription itself, with its cursor."""
        request_id = self._request(Kind.UNSUBSCRIBE, now)
        ask = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id, force=force)
        self._out.append(encode_command(_C(type=_C.UNSUBSCRIBE, unsubscribe=ask)))
        return request_id

    def seek(
        self,
        consumer_id: int,
        now: float,
        *,
        position: Position | None = None,
        publish_time_ms: int | None = None,
        elements: Sequence[int] = (),
    ) -> int:
        """Move the cursor to ``position``, or to the first entry published at or after ``publish_time_ms``.

        ``elements`` are signed words of an ack_set: only those elements of the entry are delivered. The broker closes
        all consumers of the subscription before it answers. Raises ValueError unless exactly one target is given.
        """
        if (position is None) == (publish_time_ms is None):
            raise ValueError("seek needs either a position or a publish time")
        request_id = self._request(Kind.SEEK, now)
        ask = pb.CommandSeek(consumer_id=consumer_id, request_id=request_id)
        if position is not None:
            ask.message_id.ledgerId = position.a & 0xFFFFFFFFFFFFFFFF  # earliest is -1:-1
            ask.message_id.entryId = position.b & 0xFFFFFFFFFFFFFFFF
            ask.message_id.ack_set.extend(elements)
        else:
            ask.message_publish_time = publish_time_ms or 0
        self._out.append(encode_command(_C(type=_C.SEEK, seek=ask)))
        return request_id

    def get_last_message_id(self, consumer_id: int, now: float) -> int:
        """Request the id of the last message of the consumer's topic."""
        request_id = self._request(Kind.GET_LAST_MESSAGE_ID, now)
        ask = pb.CommandGetLastMessageId(consumer_id=consumer_id, request_id=request_id)
        self._out.append(encode_command(_C(type=_C.GET_LAST_MESSAGE_ID, getLastMessageId=ask)))
        return request_id

    def consumer_stats(self, consumer_id: int, now: float) -> int:
        """Request the broker's statistics of a consumer, which contain its available permits."""
        request_id = self._request(Kind.CONSUMER_STATS, now)
        ask = pb.CommandConsumerStats(consumer_id=consumer_id, request_id=request_id)
        self._out.append(encode_command(_C(type=_C.CONSUMER_STATS, consumerStats=ask)))
        return request_id

    def flow(self, consumer_id: int, permits: int) -> None:
        """Grant permits; allowed after SUCCESS of the subscribe only. Raises ValueError for fewer than 1."""
        if permits < 1:
            raise ValueError("a FLOW grants at least one permit")
        self._need_ready("flow")
        self.permits_granted += permits
        self._out.append(encode_flow(consumer_id, permits))

    def ack_runs(self, consumer_id: int, runs: Iterable[tuple[int, int, int]], now: float) -> list[int]:
        """Acknowledge whole entries individually: (ledger, first entry, last entry).

        Returns the ids of the requests that receipts will answer.
        """
        return self._ack(now, lambda receipts: encode_ack_runs(consumer_id, runs, request_ids=receipts))

    def ack_elements(self, consumer_id: int, elements: Iterable[tuple[int, int, bytes]], now: float) -> list[int]:
        """Acknowledge elements of batches: (ledger, entry, words of the remaining set); returns ids as ``ack_runs``
        does.
        """
        return self._ack(now, lambda receipts: encode_ack_elements(consumer_id, elements, request_ids=receipts))

    def _ack(self, now: float, encode: Callable[[Iterator[int] | None], list[bytes]]) -> list[int]:
        self._need_ready("ack")
        request_ids: list[int] = []
        frames = encode(self._receipt_ids(request_ids, now) if self.protocol_version >= RECEIPTS_SINCE else None)
        self.acks_sent += len(frames)
        self._out.extend(frames)
        return request_ids

    def _receipt_ids(self, given: list[int], now: float) -> Iterator[int]:
        while True:
            given.append(self._request(Kind.ACK, now))
            yield given[-1]

    def ack_cumulative(self, consumer_id: int, position: Position, now: float) -> int | None:
        """Acknowledge everything up to ``position``; return the request id if the broker sends receipts, else None."""
        self._need_ready("ack")
        request_id = self._request(Kind.ACK, now) if self.protocol_version >= RECEIPTS_SINCE else None
        self.acks_sent += 1
        self._out.append(encode_ack_cumulative(consumer_id, position.a, position.b, request_id))
        return request_id

    def request(self, kind: Kind, command: Callable[[int], pb.BaseCommand], now: float) -> int:
        """Make a request that has no method here: ``command`` builds it from its id. Return the id."""
        request_id = self._request(kind, now)
        self._out.append(encode_command(command(request_id)))
        return request_id

    def say(self, frame: bytes) -> None:
        """Send a complete frame that has no request id."""
        self._need_ready("say")
        self._out.append(frame)

    def ping(self, now: float) -> None:
        """Send a ping now."""
        self._need_ready("ping")
        self._ping(now)

    def _request(self, kind: Kind, now: float) -> int:
        self._need_ready(kind.name)
        request_id = next(self._request_ids)
        self._pending[request_id] = (kind, now - self._rested + self._operation_timeout_s)
        if kind is Kind.ACK:
            self._receipts += 1
        return request_id

    def _need_ready(self, what: str) -> None:
        if self.state is not State.READY:
            raise ValueError(f"{what} in state {self.state.name}")
