"""One connection to a Kafka broker, driven: the state machine, its socket, and those who wait for answers."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from fastwire import __version__
from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError, ProtocolError
from fastwire.kafka.connection import Connection, State
from fastwire.kafka.event import (
    ChunkReady,
    Connected,
    CorruptFound,
    Event,
    FetchDone,
    LoginWanted,
    Lost,
    Reply,
)
from fastwire.kafka.fetch import Fetcher, FetchLimits
from fastwire.kafka.message import Body
from fastwire.kafka.response import Fetched
from fastwire.kafka.sasl import Mechanism, SaslError
from fastwire.kafka.scan import CorruptBatch, Scanner
from fastwire.kafka.slot import SlotTable
from fastwire.wire.pool import Pool

from ..endpoint import LinkLost
from ..transport import Transport, open_transport
from .settings import ClientSettings

__all__ = ["Answer", "Link", "LinkOwner"]

Answer = asyncio.Future[Body]

FETCH_BUFFER_BYTES = 1 << 20
CONTROL_BUFFER_BYTES = 64 << 10


class LinkOwner(Protocol):
    """Whoever reads by links: the source."""

    def on_chunk(self, chunk: Chunk) -> None: ...
    def on_fetched(self, link: "Link", fetched: Fetched) -> None: ...
    def on_corrupt(self, batch: CorruptBatch) -> None: ...
    def on_connected(self, link: "Link") -> None: ...
    def on_lost(self, link: "Link", reason: Exception | None) -> None: ...


class Link:
    """A connection to one broker. ``fetcher`` has the partitions that are read by it, if it is one to read by."""

    def __init__(
        self,
        host: str,
        port: int,
        settings: ClientSettings,
        slots: SlotTable,
        pool: Pool,
        owner: LinkOwner,
        *,
        limits: FetchLimits | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._settings = settings
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, Answer] = {}
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._renewing: asyncio.Task[None] | None = None  # the login
        self._exchange: Mechanism | None = None  # of the last one
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.fetcher = Fetcher(slots, limits or FetchLimits())
        self.scanner = Scanner(
            slots,
            pool,
            columns=settings.columns,
            on_corrupt=settings.on_corrupt,
            buffer_bytes=FETCH_BUFFER_BYTES if limits else CONTROL_BUFFER_BYTES,
        )
        self.connection = Connection(
            self.scanner,
            client_id=settings.client_id,
            software_version=__version__,
            request_timeout_s=settings.request_timeout_s,
        )
        self.transport: Transport[Event] = Transport(self.connection, on_events=self._on_events, on_lost=self._on_lost)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def open(self) -> None:
        """Connect, ask for versions, log in.

        Raises UnreachableError, AuthError, SaslError, UnsupportedError, LinkLost, or what is wrong with what came.
        """
        settings = self._settings
        mechanism = None if settings.login is None else await settings.login.begin()
        self._exchange = mechanism
        try:
            await open_transport(
                self.transport,
                self.host,
                self.port,
                tls=None if settings.tls is None else settings.tls.context(),
                server_name=settings.server_name,
                timeout_s=settings.connect_timeout_s,
            )
        except BaseException:
            self.transport.forget()
            raise
        if not self.transport.open:
            raise LinkLost(f"connection to {self}: closed at once")
        self.connection.connect(self._loop.time(), mechanism)
        self.transport.flush()
        try:
            await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            self.abort("given up")
            raise

    @property
    def ready(self) -> bool:
        return self.connection.state is State.READY and self.transport.open

    def begin(self, key: int, body: Body, *, most: int | None = None, timeout_s: float | None = None) -> Answer:
        """Make a request; its answer comes into the future, or LinkLost. Raises UnsupportedError or LinkLost."""
        if not self.ready:
            raise LinkLost(f"connection to {self} is closed")
        correlation_id = self.connection.request(key, body, self._loop.time(), most=most, timeout_s=timeout_s)
        future: Answer = self._loop.create_future()
        self._waiting[correlation_id] = future
        self.transport.flush()
        return future

    async def ask(self, key: int, body: Body, *, most: int | None = None, timeout_s: float | None = None) -> Body:
        """Make a request and wait for its answer. Raises UnsupportedError or LinkLost."""
        future = self.begin(key, body, most=most, timeout_s=timeout_s)
        try:
            return await future
        finally:
            del future  # it holds its exception, which holds this frame, which holds the receive buffer

    def pump(self) -> None:
        """Ask for records, as far as there is anything to ask for."""
        if self.ready and self.fetcher.pump(self.connection, self._loop.time()):
            self.transport.flush()

    def tick(self, now: float, chunk_age_s: float) -> None:
        """Keep time: deadlines, and the open chunk when it is ``chunk_age_s`` old."""
        self.transport.tick()
        since = self.connection.open_since
        if since is not None and now - since >= chunk_age_s:
            self.hand_on()

    def hand_on(self) -> None:
        """Hand the open chunk on, full or not."""
        chunk = self.connection.take_chunk()
        if chunk is not None:
            self._owner.on_chunk(chunk)

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

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case ChunkReady(chunk):
                    self._owner.on_chunk(chunk)
                case FetchDone(fetched):
                    self._owner.on_fetched(self, fetched)
                case Reply(correlation_id, body):
                    future = self._waiting.pop(correlation_id, None)
                    if future is not None and not future.done():
                        future.set_result(body)
                case CorruptFound(batch):
                    self._owner.on_corrupt(batch)
                case Connected():
                    if not self._ready.done():
                        self._ready.set_result(None)
                    self._owner.on_connected(self)
                case LoginWanted():
                    self._renewing = self._loop.create_task(self._log_in())
                case Lost(reason):
                    self.abort(reason)
                case _:
                    pass  # the transport sees to More

    async def _log_in(self) -> None:
        login, before = self._settings.login, self._exchange
        if login is None or before is None:
            return
        login.forget(before)  # it may be good for a little longer, but not for another login of its full length
        try:
            self._exchange = await login.begin()
        except FastwireError as exc:
            self.transport.abort(exc)
            return
        if self.ready:
            self.connection.log_in(self._exchange, self._loop.time())
            self.transport.flush()

    def _on_lost(self, reason: Exception | None) -> None:
        # What was received is sound, whatever happened to the connection afterwards.
        self.hand_on()
        self._gone("closed by the broker" if reason is None else str(reason), reason)

    def _gone(self, text: str, reason: Exception | None = None) -> None:
        self.connection.close()
        self.fetcher.lost()
        if isinstance(reason, SaslError) and self._settings.login is not None and self._exchange is not None:
            self._settings.login.forget(self._exchange)
        lost = reason if isinstance(reason, FastwireError) else LinkLost(f"connection to {self}: {text}")
        if not self._ready.done():
            self._ready.set_exception(lost)
            self._ready.exception()  # nobody may be waiting any more
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LinkLost(f"connection to {self}: {text}"))
        self._owner.on_lost(self, reason)
        if not self.lost.done():
            self.lost.set_result(None)
