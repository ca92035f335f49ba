"""One connection to a broker, driven: the state machine, its socket, and those who wait for answers."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from fastwire import __version__
from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError, ProtocolError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.assembly import Torn
from fastwire.pulsar.completion import Completion
from fastwire.pulsar.connection import Connection, State
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
from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import Address
from fastwire.wire.pool import Pool

from ..clock import CLOCK
from ..endpoint import LinkLost, RequestTimeout
from ..transport import Transport, open_transport
from .settings import ClientSettings

__all__ = ["Link", "LinkOwner", "ProducerTenant", "Request", "Tenant"]

# 128 KiB is what one read brings when we are faster than the sender, a MiB when we are not.
RECEIVE_BYTES = 1 << 20


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


class Link:
    """A connection to one broker.

    ``tenants`` are the consumers on it, ``producers`` and ``watchers`` (of lists) the others, each by ids of its kind.
    """

    def __init__(
        self,
        link_id: int,
        address: Address,
        physical: Address,
        settings: ClientSettings,
        slots: SlotTable,
        pool: Pool,
        completion: Completion,
        request_ids: Iterator[int],
        owner: LinkOwner,
    ) -> None:
        self.link_id = link_id
        self.address = address
        self.tenants: dict[int, Tenant] = {}
        self.watchers: dict[int, Watcher] = {}
        self.producers: dict[int, ProducerTenant] = {}
        self.server = ""
        self.timed = (0, 0, 0, 0)  # ``scanner.times`` that the stages have
        self.counted = (0, 0, 0, 0, 0, 0)  # ``counters`` that the metrics have
        self._completion = completion
        self.physical = physical  # where the socket leads: the broker, or a proxy before it
        self._settings = settings
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[asyncio.Future[pb.BaseCommand], Callback | None]] = {}
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._shown: bytes | None = None  # the credentials that the broker has seen last
        self._answering: asyncio.Task[None] | None = None  # a challenge
        self._receipt: asyncio.Future[None] = self._loop.create_future()  # the next one
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.scanner = Scanner(
            slots,
            pool,
            link_id,
            columns=settings.columns,
            on_corrupt=settings.on_corrupt,
            buffer_bytes=RECEIVE_BYTES,
            clock=CLOCK,
        )
        self.connection = Connection(
            self.scanner,
            completion,
            client_version=f"fastwire-{__version__}",
            request_ids=request_ids,
            keep_alive_s=settings.keep_alive_s,
            operation_timeout_s=settings.operation_timeout_s,
        )
        self.transport: Transport[Event] = Transport(
            self.connection, on_events=self._on_events, on_lost=self._on_lost, after_read=self._after_read
        )

    async def open(self) -> None:
        """Connect and shake hands.

        Raises UnreachableError, AuthError, UnavailableError (no credentials now), BrokerError (refused), LinkLost, or
        what is wrong with what the peer sent.
        """
        settings = self._settings
        data = self._shown = await settings.credentials.data()
        tls = settings.tls.context() if settings.tls is not None and self.physical.tls else None
        try:
            await open_transport(
                self.transport,
                self.physical.host,
                self.physical.port,
                tls=tls,
                server_name=settings.server_name,
                timeout_s=settings.connect_timeout_s,
            )
        except BaseException:
            self.transport.forget()
            raise
        if not self.transport.open:
            raise LinkLost(f"connection to {self.address}: closed at once")
        self.connection.connect(
            self._loop.time(),
            method=settings.credentials.method,
            data=data,
            proxy_to="" if self.physical == self.address else self.address.netloc,
        )
        self.transport.flush()
        try:
            await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            self.abort("given up")
            raise

    @property
    def ready(self) -> bool:
        return self.connection.state is State.READY and self.transport.open

    # --- requests

    async def ask(self, request: Request, on_reply: Callback | None = None) -> pb.BaseCommand:
        """Make a request and wait for its answer.

        ``request`` queues it at the connection and returns its id. Raises BrokerError, RequestTimeout or LinkLost.
        ``on_reply`` is called in wire order with the other events, which a waiting task cannot be.
        """
        if not self.ready:
            raise LinkLost(f"connection to {self.address} is closed")
        request_id = request(self.connection, self._loop.time())
        future: asyncio.Future[pb.BaseCommand] = self._loop.create_future()
        self._waiting[request_id] = future, on_reply
        self.transport.flush()
        try:
            return await future
        finally:
            self._waiting.pop(request_id, None)
            del future  # it holds its exception, which holds this frame, which holds the receive buffer

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

    def flush(self) -> None:
        """Send what is queued."""
        self.transport.flush()

    async def receipts(self) -> None:
        """Wait until every ack that was sent has its receipt, was refused, or the connection is gone."""
        while self.ready and self.connection.receipts_outstanding:
            self._receipt = self._loop.create_future()
            await asyncio.wait((self._receipt, self.lost), return_when=asyncio.FIRST_COMPLETED)

    # --- the clock, and the open chunk

    def tick(self, now: float, chunk_age_s: float) -> None:
        """Keep time: pings, deadlines, and the open chunk when it is ``chunk_age_s`` old."""
        self.transport.tick()
        since = self.connection.open_since
        if since is not None and now - since >= chunk_age_s:
            self.hand_on()

    def hand_on(self) -> None:
        """Hand the open chunk on, full or not."""
        chunk = self.connection.take_chunk()
        if chunk is not None:
            self._owner.on_chunk(chunk)

    def give_up(self, torn: Iterable[Torn]) -> None:
        """Parts of chunked messages, held by consumers on this link, will never be whole: put them aside."""
        self._on_events(self._completion.give_up(torn, self.scanner))
        if self.connection.open_since is None and self.scanner.has_open:
            self.connection.open_since = self._loop.time()

    def drop_chunk(self) -> None:
        """Forget what the open chunk holds."""
        self.scanner.drop_chunk()
        self.connection.open_since = None

    def close(self) -> None:
        """Close the socket in order."""
        self.transport.close()
        if not self.transport.open and not self.lost.done():
            self._gone("closed")

    def abort(self, reason: str) -> None:
        """Close the socket at once."""
        self.transport.abort(LinkLost(reason))

    @staticmethod
    def why(reason: Exception | None) -> str:
        """What has ended a connection, as one of the words of the metrics."""
        if reason is None or isinstance(reason, OSError):
            return "lost"
        if isinstance(reason, ProtocolError):
            return "protocol_error"
        return "silent" if isinstance(reason, LinkLost) else "other"

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
                    self._on_challenge(method)
                case Connected(server):
                    self.server = server
                    if not self._ready.done():
                        self._ready.set_result(None)
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
        future, on_reply = self._waiting.pop(reply.request_id, (None, None))
        if on_reply is not None:
            on_reply(reply)
        if future is None or future.done():
            return
        if reply.error is None:
            future.set_result(reply.command)
        else:
            future.set_exception(reply.error)

    def _on_timeout(self, request_id: int, kind: Kind) -> None:
        if kind is Kind.ACK:
            for tenant in self.tenants.values():
                tenant.on_receipt(request_id, False)
            self._receipt_came()
            return
        future, _ = self._waiting.pop(request_id, (None, None))
        if future is not None and not future.done():
            seconds = self._settings.operation_timeout_s
            future.set_exception(RequestTimeout(f"{kind.name} was not answered within {seconds:g} s"))

    def _receipt_came(self) -> None:
        if not self._receipt.done():
            self._receipt.set_result(None)

    def _on_challenge(self, method: str) -> None:
        if self._answering is None or self._answering.done():
            self._answering = self._loop.create_task(self._answer_challenge(method))

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

    def _on_lost(self, reason: Exception | None) -> None:
        # What was received is sound, whatever happened to the connection afterwards.
        self.hand_on()
        self._gone("closed by the broker" if reason is None else str(reason), reason)

    def _gone(self, text: str, reason: Exception | None = None) -> None:
        self.connection.close()
        if self._answering is not None:
            self._answering.cancel()
        lost = reason if isinstance(reason, FastwireError) else LinkLost(f"connection to {self.address}: {text}")
        if not self._ready.done():
            self._ready.set_exception(lost)
            self._ready.exception()  # nobody may be waiting any more
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(LinkLost(f"connection to {self.address}: {text}"))
        tenants, self.tenants = self.tenants, {}
        for tenant in tenants.values():
            tenant.on_link_lost(text)
        producers, self.producers = self.producers, {}
        for producer in producers.values():
            producer.on_link_lost(text)
        self._owner.on_lost(self, reason)
        if not self.lost.done():
            self.lost.set_result(None)
