"""One connection to the embedded Pulsar broker: decodes frames, calls the handlers of commands, checks the protocol.

Tests of hostile brokers derive from ``PulsarConnection``, override ``send``, ``send_message`` or ``handle``, and name
that class as the ``connection`` of a broker derived from ``PulsarDevBroker``.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from fastwire.errors import ProtocolError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import DEFAULT_MAX_MESSAGE_SIZE, FRAME_PADDING, decode_command, encode_command
from fastwire.pulsar.format.payload import encode_broker_entry_metadata

from ..base import RefusedError
from ..delayed import Timer
from ..server import Connection
from ..topiclog import StoredEntry
from .cluster import Cluster
from .frame import ack_words
from .logins import Login, Shown
from .subscriptions import ConnectedConsumer
from .topics import ConnectedProducer, TopicWatcher

NO_REQUEST = (1 << 64) - 1  # request id of a message that is no response
REFRESH = b"PulsarAuthRefresh"
# The official C++ client numbers these with a counter of their own, so their ids meet those of other requests.
LOOKUPS = frozenset(("LOOKUP", "PARTITIONED_METADATA", "GET_TOPICS_OF_NAMESPACE", "GET_SCHEMA"))

CHALLENGE_SINCE = 14
ENTRY_METADATA_SINCE = 18
MIGRATION_SINCE = 20
# Commands that a proxy serves itself; others need a connection to a broker behind it.
PROXY_SERVES = LOOKUPS | {"CONNECT", "AUTH_RESPONSE", "PING", "PONG", "WATCH_TOPIC_LIST", "WATCH_TOPIC_LIST_CLOSE"}

_SIZES = Struct(">II")
Command = pb.BaseCommand

Handler = Callable[["PulsarConnection", Any, bytes], None]
"""Handles the fields of one command; the bytes are those that followed it in its frame."""

Handlers = Mapping[int, tuple[str, Handler]]
"""The name of its field in BaseCommand and the handler of each command, by type."""


class PulsarConnection(Connection):
    """A connection of one client."""

    def __init__(self, broker: Cluster, handlers: Handlers) -> None:
        super().__init__(broker)
        self.broker = broker
        self._handlers = handlers
        self.connected = False
        self.protocol_version = 0  # the lower one of both sides
        self.broker_entry_metadata = False  # enabled, and supported by the client
        self.consumers: dict[int, ConnectedConsumer] = {}
        self.producers: dict[int, ConnectedProducer] = {}
        self.watchers: dict[int, TopicWatcher] = {}
        self.proxy_to = ""  # the broker that the client names to a proxy
        # Ids that the broker closed: commands for them may still be on the way.
        self.closed_consumers: set[int] = set()
        self.closed_producers: set[int] = set()
        self.commands: list[str] = []  # received, in order, without FLOW, ACK, SEND, PING and PONG
        self._request_ids: set[tuple[bool, int]] = set()
        self._heard = False
        self._ping_open = False
        self._keep_alive = Timer()
        self.login = Login(
            broker.authenticate, broker.options.refresh_check_s, challenge=self.challenge, close=self.close
        )

    # Sending.

    def send(self, kind: pb.BaseCommand.Type, **parts: Any) -> None:
        """Queue one command; ``parts`` names its field in BaseCommand."""
        self.queue(encode_command(Command(type=kind, **parts)))

    def send_message(
        self, consumer: ConnectedConsumer, index: int, entry: StoredEntry, left: int | None, redelivery_count: int
    ) -> int:
        """Queue the MESSAGE frame of one entry and return its size; ``left`` are the elements to be delivered."""
        extra = b""
        if self.broker_entry_metadata:
            extra = encode_broker_entry_metadata(entry.stored_ms, entry.first + entry.messages - 1)
        header = consumer.header.encode(
            consumer.subscription.log.ledgers.position(index),
            len(extra) + len(entry.body),
            redelivery_count=redelivery_count,
            ack_set=() if left is None else ack_words(left),
            epoch=consumer.epoch,
        )
        if extra:
            self.queue(header, extra, entry.body)
        else:
            self.queue(header, entry.body)
        return len(header) + len(extra) + len(entry.body)

    def send_error(self, request_id: int, error: pb.ServerError, message: str) -> None:
        """Answer a request with an error."""
        self.send(Command.ERROR, error=pb.CommandError(request_id=request_id, error=error, message=message))

    def send_success(self, request_id: int) -> None:
        """Answer a request with SUCCESS."""
        self.send(Command.SUCCESS, success=pb.CommandSuccess(request_id=request_id))

    def close_consumer(self, consumer: ConnectedConsumer, assigned_url: str = "") -> None:
        """Close a consumer from the side of the broker; the connection stays."""
        self.consumers.pop(consumer.consumer_id, None)
        self.closed_consumers.add(consumer.consumer_id)
        close = pb.CommandCloseConsumer(consumer_id=consumer.consumer_id, request_id=NO_REQUEST)
        _assign(close, assigned_url)
        self.send(Command.CLOSE_CONSUMER, close_consumer=close)
        consumer.subscription.leave(consumer)

    def close_producer(self, producer: ConnectedProducer, assigned_url: str = "") -> None:
        """Close a producer from the side of the broker; the connection stays."""
        self.producers.pop(producer.producer_id, None)
        self.closed_producers.add(producer.producer_id)
        close = pb.CommandCloseProducer(producer_id=producer.producer_id, request_id=NO_REQUEST)
        _assign(close, assigned_url)
        self.send(Command.CLOSE_PRODUCER, close_producer=close)
        producer.topic.producers.leave(producer)

    def migrated(self, consumer_id: int, url: str) -> None:
        """Tell a consumer that its topic lives in another cluster, if its client understands that."""
        moved = pb.CommandTopicMigrated(resource_id=consumer_id, resource_type=pb.CommandTopicMigrated.Consumer)
        if url.startswith("pulsar+ssl"):
            moved.brokerServiceUrlTls = url
        else:
            moved.brokerServiceUrl = url
        if self.protocol_version >= MIGRATION_SINCE:
            self.send(Command.TOPIC_MIGRATED, topicMigrated=moved)

    def challenge(self) -> None:
        """Ask the client for fresh credentials, if its protocol version has that."""
        if self.protocol_version < CHALLENGE_SINCE:
            return
        data = pb.AuthData(auth_method_name="token", auth_data=REFRESH)
        challenge = pb.CommandAuthChallenge(
            server_version=self.broker.options.server_version, challenge=data, protocol_version=self.protocol_version
        )
        self.send(Command.AUTH_CHALLENGE, authChallenge=challenge)

    # Receiving.

    def receive(self, data: memoryview) -> int:
        """See ``Connection.receive``."""
        limit = (self.broker.options.max_message_size or DEFAULT_MAX_MESSAGE_SIZE) + FRAME_PADDING
        at = 0
        while not self.closing and len(data) - at >= 8:
            total, size = _SIZES.unpack_from(data, at)
            if not 4 <= total <= limit:
                raise ProtocolError("totalSize", at, detail=f"{total} is not within 4 and {limit}")
            if size > total - 4:
                raise ProtocolError("commandSize", at + 4, detail=f"{size} in a frame of {total}")
            end = at + 4 + total
            if len(data) < end:
                break
            body_at = at + 8 + size
            self._heard = True
            self.handle(decode_command(data[at + 8 : body_at]), bytes(data[body_at:end]))
            at = end
        return at

    def handle(self, command: pb.BaseCommand, body: bytes) -> None:
        """Handle one command; ``body`` is what followed it in its frame."""
        entry = self._handlers.get(command.type)
        name = Command.Type.Name(command.type)
        if entry is None:
            return self.violation(f"{name} is no command for a broker")
        field, handler = entry
        if not command.HasField(field):
            return self.violation(f"{name} without its fields")
        if not self.connected and command.type != Command.CONNECT:
            return self.violation(f"{name} before CONNECTED")
        if self.broker.options.proxy_through_service_url and not self.proxy_to and name not in PROXY_SERVES:
            return self.violation(f"{name} to a proxy, on a connection that leads to no broker")
        part: Any = getattr(command, field)
        request_id = self._note(name, part)
        if self.closing:
            return None
        try:
            handler(self, part, body)
        except RefusedError as exc:
            self.send_error(NO_REQUEST if request_id is None else request_id, exc.code, str(exc))
        return None

    def violated(self, text: str) -> None:
        """See ``Connection.violated``."""
        self.send_error(NO_REQUEST, pb.UnknownError, f"protocol violation: {text}")

    def lost(self) -> None:
        """See ``Connection.lost``."""
        self._keep_alive.cancel()
        self.login.stop()
        for watcher in self.watchers.values():
            self.broker.watchers.discard(watcher)
        for consumer in list(self.consumers.values()):
            consumer.subscription.leave(consumer)
        for producer in self.producers.values():
            producer.topic.producers.leave(producer)
        self.consumers.clear()
        self.producers.clear()

    def resumed(self) -> None:
        """See ``Connection.resumed``."""
        for consumer in self.consumers.values():
            consumer.subscription.schedule()

    def _note(self, name: str, part: Any) -> int | None:
        """Record a command; a request id that was used before is a violation."""
        if name not in ("FLOW", "ACK", "SEND", "PING", "PONG"):
            self.commands.append(name)
        if "request_id" not in part.DESCRIPTOR.fields_by_name or not part.HasField("request_id"):
            return None
        request_id: int = part.request_id
        numbered = (name in LOOKUPS, request_id)
        if numbered in self._request_ids:
            self.violation(f"{name} with request id {request_id}, which was used before")
        self._request_ids.add(numbered)
        return request_id

    # Handlers of the commands of connections.

    def connect(self, request: pb.CommandConnect, body: bytes) -> None:
        """Handle CONNECT."""
        options = self.broker.options
        if self.connected:
            return self.violation("a second CONNECT")
        if not request.client_version:
            return self.violation("CONNECT with an empty client_version")
        if not self._is_let_in(request.auth_method_name, request.auth_data):
            self.send_error(NO_REQUEST, pb.AuthenticationError, "Failed to authenticate")
            return self.close()
        self.connected = True
        self.protocol_version = min(request.protocol_version, options.protocol_version)
        self.proxy_to = request.proxy_to_broker_url
        self.broker_entry_metadata = (
            options.broker_entry_metadata
            and request.feature_flags.supports_broker_entry_metadata
            and self.protocol_version >= ENTRY_METADATA_SINCE
        )
        connected = pb.CommandConnected(
            server_version=options.server_version,
            protocol_version=self.protocol_version,
            feature_flags=options.feature_flags,
        )
        if options.max_message_size:
            connected.max_message_size = options.max_message_size
        self.send(Command.CONNECTED, connected=connected)
        self._watch()
        self.login.check()
        return None

    def auth_response(self, request: pb.CommandAuthResponse, body: bytes) -> None:
        """Handle AUTH_RESPONSE, the answer to ``challenge``."""
        if not request.response.HasField("auth_data"):
            return self.violation("AUTH_RESPONSE without auth_data")
        if not self._is_let_in(request.response.auth_method_name, request.response.auth_data):
            self.send_error(NO_REQUEST, pb.AuthenticationError, "Failed to authenticate")
            return self.close()
        return None

    def ping(self, request: pb.CommandPing, body: bytes) -> None:
        """Handle PING."""
        self.send(Command.PONG, pong=pb.CommandPong())

    def pong(self, request: pb.CommandPong, body: bytes) -> None:
        """Handle PONG."""
        self._ping_open = False

    def _is_let_in(self, method: str, data: bytes) -> bool:
        certificate: Any = (self.transport.get_extra_info("peercert") if self.transport is not None else None) or {}
        names = dict(pair for part in certificate.get("subject", ()) for pair in part)
        return self.login.admits(Shown(method, data, names.get("commonName", "")))

    def _watch(self) -> None:
        """Send a PING to a silent client, and close the connection of one that does not answer."""
        keep_alive_s = self.broker.options.keep_alive_s
        if keep_alive_s:
            self._keep_alive.start(keep_alive_s, self._check)

    def _check(self) -> None:
        if self._heard:
            self._ping_open = False
        elif self._ping_open:
            return self.abort()
        else:
            self._ping_open = True
            self.send(Command.PING, ping=pb.CommandPing())
        self._heard = False
        return self._watch()


def _assign(close: pb.CommandCloseConsumer | pb.CommandCloseProducer, url: str) -> None:
    """Name the broker that serves the topic now, if it is known."""
    if url.startswith("pulsar+ssl"):
        close.assignedBrokerServiceUrlTls = url
    elif url:
        close.assignedBrokerServiceUrl = url
