"""One connection to a broker, driven: what is Pulsar's of a link: who is on it, and what they are told."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.assembly import Torn
from fastwire.pulsar.connection import Connection
from fastwire.pulsar.event import (
    ActiveChanged,
    AuthChallenged,
    ChunkReady,
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
from fastwire.pulsar.request import Kind
from fastwire.pulsar.scan import Scanner
from fastwire.pulsar.topic import Address

from ..clock import CLOCK
from ..endpoint import RequestTimeout
from ..link import BrokerLink
from .equipment import Equipment

__all__ = ["Link", "LinkOwner", "ProducerTenant", "Request", "Tenant"]

# What a read brings when we are slower than the sender: more would leave a core's own cache before it is decoded.
RECEIVE_BYTES = 512 << 10


class Tenant(Protocol):
    """Whoever has a consumer on a link: a partition."""

    def on_receipt(self, request_id: int, accepted: bool) -> None: ...
    def on_closed(self, event: ConsumerClosed) -> None: ...
    def on_active(self, active: bool) -> None: ...
    def on_end_of_topic(self) -> None: ...
    def on_migrated(self, event: TopicMigrated) -> None: ...
    def on_rejected(self, event: EntryRejected) -> None: ...
    def on_link_lost(self, reason: str) -> None: ...


class ProducerTenant(Protocol):
    """Whoever has a producer on a link."""

    def on_confirmed(self, event: SendConfirmed) -> None: ...
    def on_refused(self, event: SendRefused) -> None: ...
    def on_closed(self, event: ProducerClosed) -> None: ...
    def on_migrated(self, event: ProducerMigrated) -> None: ...
    def on_link_lost(self, reason: str) -> None: ...


class LinkOwner(Protocol):
    """Whoever holds all links: the source."""

    def on_chunk(self, chunk: Chunk) -> None: ...
    def on_connected(self, link: "Link") -> None: ...
    def on_lost(self, link: "Link", reason: Exception | None) -> None: ...
    def after_read(self, link: "Link") -> None: ...


Callback = Callable[[Reply], None]
Watcher = Callable[[TopicsChanged], None]
Request = Callable[[Connection, float], int]


class Link(BrokerLink[Connection, Event, pb.BaseCommand]):
    """A connection to one broker.

    ``tenants`` are the consumers on it, ``producers`` and ``watchers`` (of lists) the others, each by ids of its kind.
    """

    def __init__(self, address: Address, physical: Address, equipment: Equipment, owner: LinkOwner) -> None:
        settings = equipment.settings
        self.link_id = next(equipment.link_ids)
        self.address = address
        self.tenants: dict[int, Tenant] = {}
        self.watchers: dict[int, Watcher] = {}
        self.producers: dict[int, ProducerTenant] = {}
        self.counted = (0, 0, 0, 0, 0, 0)  # ``counters`` that the metrics have
        self._completion = equipment.completion
        self.physical = physical  # where the socket leads: the broker, or a proxy before it
        self._settings = settings
        self._owner = owner
        self._callbacks: dict[int, Callback] = {}  # by request id
        self._shown: bytes | None = None  # the credentials that the broker has seen last
        self.scanner = Scanner(
            equipment.slots,
            equipment.pool,
            self.link_id,
            columns=settings.columns,
            on_corrupt=settings.on_corrupt,
            buffer_bytes=RECEIVE_BYTES,
            clock=CLOCK,
        )
        super().__init__(equipment.connection(self.scanner), owner.on_chunk, self._after_read)
        self._receipt: asyncio.Future[None] = self._loop.create_future()  # the next one

    def __str__(self) -> str:
        return str(self.address)

    def status(self) -> dict[str, Any]:
        """What the status page shows of Pulsar's links alone."""
        return {"server": self.server, "consumers": len(self.tenants)}

    async def open(self) -> None:
        """Connect and shake hands.

        Raises UnreachableError, AuthError, UnavailableError (no credentials now), BrokerError (refused), LinkLost, or
        what is wrong with what the peer sent.
        """
        settings = self._settings
        data = self._shown = await settings.credentials.data()
        tls = settings.tls.context() if settings.tls is not None and self.physical.tls else None
        proxy_to = "" if self.physical == self.address else self.address.netloc
        await self._connect(
            self.physical.host,
            self.physical.port,
            tls,
            settings,
            lambda: self.connection.connect(
                self._loop.time(), method=settings.credentials.method, data=data, proxy_to=proxy_to
            ),
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
        """Permits granted, acks sent and confirmed; entries that came again: landed, staged, marked as redelivered."""
        connection, scanner = self.connection, self.scanner
        return (
            connection.permits_granted,
            connection.acks_sent,
            connection.acks_confirmed,
            scanner.cut_landed,
            scanner.cut_staged,
            scanner.redelivered,
        )

    async def receipts(self) -> None:
        """Wait until every ack that was sent has its receipt, was refused, or the connection is gone."""
        while self.ready and self.connection.receipts_outstanding:
            self._receipt = self._loop.create_future()
            await asyncio.wait((self._receipt, self.lost), return_when=asyncio.FIRST_COMPLETED)

    def give_up(self, torn: Iterable[Torn]) -> None:
        """Parts of chunked messages, held by consumers on this link, will never be whole: put them aside."""
        self._on_events(self._completion.give_up(torn, self.scanner))
        if self.connection.open_since is None and self.scanner.has_open:
            self.connection.open_since = self._loop.time()

    # --- what the transport calls

    def _after_read(self) -> None:
        self._owner.after_read(self)

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case ChunkReady(chunk):
                    self._owner.on_chunk(chunk)
                case Reply():
                    self._on_reply(event)
                case SendConfirmed(producer_id):
                    if producer := self.producers.get(producer_id):
                        producer.on_confirmed(event)
                case ActiveChanged(consumer_id, active):
                    if tenant := self.tenants.get(consumer_id):
                        tenant.on_active(active)
                case ConsumerClosed(consumer_id):
                    if tenant := self.tenants.get(consumer_id):
                        tenant.on_closed(event)
                case EntryRejected(entry):
                    if tenant := self.tenants.get(entry.consumer_id):
                        tenant.on_rejected(event)
                case EndOfTopic(consumer_id):
                    if tenant := self.tenants.get(consumer_id):
                        tenant.on_end_of_topic()
                case TopicMigrated(consumer_id):
                    if tenant := self.tenants.get(consumer_id):
                        tenant.on_migrated(event)
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
                    pass  # the transport sees to More

    def _on_reply(self, reply: Reply) -> None:
        if reply.kind is Kind.ACK:
            accepted = reply.error is None
            tenant = self.tenants.get(reply.command.ackResponse.consumer_id)
            for one in self.tenants.values() if tenant is None else (tenant,):
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
            for tenant in self.tenants.values():
                tenant.on_receipt(request_id, False)
            self._receipt_came()
            return
        seconds = self._settings.operation_timeout_s
        self._refused(request_id, RequestTimeout(f"{kind.name} was not answered within {seconds:g} s"))

    def _receipt_came(self) -> None:
        if not self._receipt.done():
            self._receipt.set_result(None)

    async def _answer_challenge(self, method: str) -> None:
        """Show the broker fresh credentials, or leave: it would throw us out anyway (pulsar 2.3)."""
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
        tenants, self.tenants = self.tenants, {}
        for tenant in tenants.values():
            tenant.on_link_lost(text)
        producers, self.producers = self.producers, {}
        for producer in producers.values():
            producer.on_link_lost(text)
        self._owner.on_lost(self, reason)
