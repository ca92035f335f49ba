"""Connection to one Pulsar broker: runs the protocol on a socket, and passes events to its consumers and producers."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Protocol

from fastwire import __version__
from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.grammar import GRAMMAR
from fastwire.pulsar.names.topic import Address
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.protocol.connection import Connection
from fastwire.pulsar.protocol.event import (
    ActiveChanged,
    AuthChallenged,
    Connected,
    ConnectRefused,
    ConsumerClosed,
    EndOfTopic,
    EntryRejected,
    Event,
    Lost,
    ProducerClosed,
    ProducerMigrated,
    Reply,
    SendConfirmed,
    SendRefused,
    TimedOut,
    TopicMigrated,
    TopicsChanged,
)
from fastwire.pulsar.protocol.request import Kind
from fastwire.pulsar.reading.assembly import Torn
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ...net.endpoint import RequestTimeout
from ...runtime.clock import CLOCK
from ..links.link import BrokerLink
from .settings import ClientSettings

# Bytes per read when the reader is slower than the sender: more would leave a core's own cache before decoding.
RECEIVE_BYTES = 512 << 10


class ConsumerEvents(Protocol):
    """Receiver of the events of one consumer on a link."""

    def on_receipt(self, request_id: int, accepted: bool) -> None:
        """Handle the receipt, or the refusal, of an ack request."""

    def on_closed(self, event: ConsumerClosed) -> None:
        """Handle the closing of the consumer by the broker."""

    def on_active(self, active: bool) -> None:
        """Note that the consumer has become the active one of its subscription, or has ceased to be it."""

    def on_end_of_topic(self) -> None:
        """Note that the topic was terminated, and that all its entries were sent."""

    def on_migrated(self, event: TopicMigrated) -> None:
        """Note that the topic has moved to another cluster."""

    def on_rejected(self, event: EntryRejected) -> None:
        """Handle an entry that cannot be decoded."""

    def on_link_lost(self, reason: str) -> None:
        """Handle the loss of the connection."""


class ProducerEvents(Protocol):
    """Receiver of the events of one producer on a link."""

    def on_confirmed(self, event: SendConfirmed) -> None:
        """Handle the receipt of an entry."""

    def on_refused(self, event: SendRefused) -> None:
        """Handle the refusal of an entry."""

    def on_closed(self, event: ProducerClosed) -> None:
        """Handle the closing of the producer by the broker."""

    def on_migrated(self, event: ProducerMigrated) -> None:
        """Note that the topic has moved to another cluster."""

    def on_link_lost(self, reason: str) -> None:
        """Handle the loss of the connection."""


class LinkOwner(Protocol):
    """Receiver of the events of all links: the source."""

    def on_chunk(self, chunk: Chunk) -> None:
        """Take a chunk of records."""

    def on_connected(self, link: "Link") -> None:
        """Note that the connection is ready for requests."""

    def on_lost(self, link: "Link", reason: Exception | None) -> None:
        """Note that the connection is closed; ``reason`` is None if this side closed it."""

    def after_read(self, link: "Link") -> None:
        """Note that bytes were read and decoded."""


Callback = Callable[[Reply], None]
Watcher = Callable[[TopicsChanged], None]
Request = Callable[[Connection, float], int]


@dataclass(frozen=True, slots=True)
class LinkContext:
    """The shared objects of all connections to a cluster, between which consumers and parts of messages move."""

    settings: ClientSettings
    slots: SlotTable
    pool: Pool
    completion: Completion
    request_ids: Iterator[int] = field(default_factory=lambda: count(1))
    link_ids: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(slots=True)
class LoadedTopic:
    """A topic that the broker has loaded: ``producers`` are open without a break ``since`` a time of the loop."""

    since: float
    producers: int = 0


class Link(BrokerLink[Connection, Event, pb.BaseCommand]):
    """A connection to one broker.

    ``consumers``, ``producers`` and ``watchers`` (of topic lists) are those on this link, each by ids of its kind.
    ``loaded`` are the topics whose producers are open on this link, by name.
    """

    grammar = GRAMMAR

    def __init__(self, address: Address, physical: Address, context: LinkContext, owner: LinkOwner) -> None:
        settings = context.settings
        self.link_id = next(context.link_ids)
        self.address = address
        self.consumers: dict[int, ConsumerEvents] = {}
        self.watchers: dict[int, Watcher] = {}
        self.producers: dict[int, ProducerEvents] = {}
        self.loaded: dict[str, LoadedTopic] = {}
        self.counted = (0, 0, 0, 0, 0, 0)  # the part of ``counters`` that is in the metrics already
        self._completion = context.completion
        self.physical = physical  # the peer of the socket: the broker, or a proxy in front of it
        self._settings = settings
        self._owner = owner
        self._callbacks: dict[int, Callback] = {}  # by request id
        self._shown: bytes | None = None  # the credentials that were last sent to the broker
        self.scanner = Scanner(
            context.slots,
            context.pool,
            self.link_id,
            columns=settings.columns,
            on_corrupt=settings.on_corrupt,
            buffer_bytes=RECEIVE_BYTES,
            clock=CLOCK,
        )
        connection = Connection(
            self.scanner,
            context.completion,
            client_version=f"fastwire-{__version__}",
            request_ids=context.request_ids,
            keep_alive_s=settings.keep_alive_s,
            operation_timeout_s=settings.operation_timeout_s,
        )
        super().__init__(connection, owner.on_chunk)
        self._receipt: asyncio.Future[None] = self._loop.create_future()  # the next one

    def __str__(self) -> str:
        return str(self.address)

    def status(self) -> dict[str, Any]:
        """Return the fields of the status page that only links of Pulsar have."""
        return {"server": self.server, "consumers": len(self.consumers)}

    @property
    def carries(self) -> bool:
        """See ``BrokerLink.carries``."""
        return bool(self.consumers or self.producers)

    async def open(self) -> None:
        """Connect and shake hands.

        Raises UnreachableError, AuthError, UnavailableError (no credentials now), BrokerError (refused), LinkLost, or
        what is wrong with what the peer sent.
        """
        settings = self._settings
        data = self._shown = await settings.credentials.data()
        proxy_to = "" if self.physical == self.address else self.address.netloc
        await self._connect(
            self.physical.host,
            self.physical.port,
            settings,
            lambda: self.connection.connect(
                self._loop.time(), method=settings.credentials.method, data=data, proxy_to=proxy_to
            ),
            plain=not self.physical.tls,
        )

    # --- requests

    async def ask(self, request: Request, on_reply: Callback | None = None) -> pb.BaseCommand:
        """Make a request and wait for its answer.

        ``request`` queues it at the connection and returns its id. Raises BrokerError, RequestTimeout or LinkLost.
        ``on_reply`` is called in wire order with the other events, which a waiting task cannot be.
        """
        self._need()
        request_id = request(self.connection, self._loop.time())
        if on_reply is None:
            return await self._answer(request_id)
        self._callbacks[request_id] = on_reply
        try:
            return await self._answer(request_id)
        finally:
            self._callbacks.pop(request_id, None)

    def counters(self) -> tuple[int, int, int, int, int, int]:
        """Return permits granted; acks sent, confirmed; redelivered entries: landed, staged, marked as redelivered."""
        connection, scanner = self.connection, self.scanner
        return (
            connection.permits_granted,
            connection.acks_sent,
            connection.acks_confirmed,
            scanner.landed_again,
            scanner.staged_again,
            scanner.redelivered,
        )

    async def receipts(self) -> None:
        """Wait until every ack that was sent has a receipt or was refused, or until the connection is lost."""
        while self.ready and self.connection.receipts_outstanding:
            if self._receipt.done():  # another caller may wait for it already
                self._receipt = self._loop.create_future()
            await asyncio.wait((self._receipt, self.lost), return_when=asyncio.FIRST_COMPLETED)

    def give_up(self, torn: Iterable[Torn]) -> None:
        """Make dead letters of the parts of chunked messages on this link that can never be completed."""
        self._on_events(self._completion.give_up(torn, self.scanner))
        if self.connection.open_since is None and self.scanner.has_open:
            self.connection.open_since = self._loop.time()

    # --- what the transport calls

    def _after_read(self) -> None:
        super()._after_read()
        self._owner.after_read(self)

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Reply():
                    self._on_reply(event)
                case SendConfirmed(producer_id):
                    if producer := self.producers.get(producer_id):
                        producer.on_confirmed(event)
                case ActiveChanged(consumer_id, active):
                    if consumer := self.consumers.get(consumer_id):
                        consumer.on_active(active)
                case ConsumerClosed(consumer_id):
                    if consumer := self.consumers.get(consumer_id):
                        consumer.on_closed(event)
                case EntryRejected(entry):
                    if consumer := self.consumers.get(entry.consumer_id):
                        consumer.on_rejected(event)
                case EndOfTopic(consumer_id):
                    if consumer := self.consumers.get(consumer_id):
                        consumer.on_end_of_topic()
                case TopicMigrated(consumer_id):
                    if consumer := self.consumers.get(consumer_id):
                        consumer.on_migrated(event)
                case TopicsChanged(watcher_id):
                    if watcher := self.watchers.get(watcher_id):
                        watcher(event)
                case SendRefused(producer_id):
                    if producer := self.producers.get(producer_id):
                        producer.on_refused(event)
                case ProducerClosed(producer_id):
                    if producer := self.producers.get(producer_id):
                        producer.on_closed(event)
                case ProducerMigrated(producer_id):
                    if producer := self.producers.get(producer_id):
                        producer.on_migrated(event)
                case TimedOut(request_id, kind):
                    self._on_timeout(request_id, kind)
                case AuthChallenged(method):
                    self._log_in_again(partial(self._answer_challenge, method))
                case Connected(server):
                    self.server = server
                    self._let_in()
                    self._owner.on_connected(self)
                case ConnectRefused(error):
                    if error.code == pb.AuthenticationError:
                        self._settings.credentials.forget(self._shown)
                    self.transport.abort(error)
                case Lost(reason):
                    self.abort(reason)
                case _:
                    pass  # chunks were passed on, and the transport sees to More

    def _on_reply(self, reply: Reply) -> None:
        if reply.kind is Kind.ACK:
            accepted = reply.error is None
            consumer = self.consumers.get(reply.command.ackResponse.consumer_id)
            for one in self.consumers.values() if consumer is None else (consumer,):
                one.on_receipt(reply.request_id, accepted)
            self._receipt_came()
            return
        on_reply = self._callbacks.pop(reply.request_id, None)
        if on_reply is not None:
            on_reply(reply)
        if reply.error is None:
            self._answered(reply.request_id, reply.command)
        else:
            self._refused(reply.request_id, reply.error)

    def _on_timeout(self, request_id: int, kind: Kind) -> None:
        if kind is Kind.ACK:
            for consumer in self.consumers.values():
                consumer.on_receipt(request_id, False)
            self._receipt_came()
            return
        seconds = self._settings.operation_timeout_s
        self._refused(request_id, RequestTimeout(f"{kind.name} was not answered within {seconds:g} s"))

    def _receipt_came(self) -> None:
        if not self._receipt.done():
            self._receipt.set_result(None)

    async def _answer_challenge(self, method: str) -> None:
        """Send fresh credentials to the broker, or disconnect if there are none (spec: pulsar 2.3)."""
        credentials = self._settings.credentials
        credentials.forget(self._shown)
        try:
            self._shown = await credentials.data()
        except FastwireError as exc:
            self.transport.abort(exc)
            return
        if self.transport.open:
            self.connection.auth_response(credentials.method or method, self._shown or b"")
            self.transport.flush()

    def _left(self, text: str, reason: Exception | None) -> None:
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            consumer.on_link_lost(text)
        producers, self.producers = self.producers, {}
        for producer in producers.values():
            producer.on_link_lost(text)
        self._owner.on_lost(self, reason)
