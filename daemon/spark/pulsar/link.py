"""One connection to a Pulsar broker for a process of Spark's: requests that are waited for, chunks that are taken."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from fastwire import __version__
from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.cold import ColdEntry
from fastwire.pulsar.completion import Completion
from fastwire.pulsar.connection import Connection, State
from fastwire.pulsar.event import (
    AuthChallenged,
    ChunkReady,
    ConnectRefused,
    ConsumerClosed,
    EndOfTopic,
    EntryRejected,
    Event,
    Lost,
    Reply,
    TimedOut,
    TopicMigrated,
)
from fastwire.pulsar.request import Kind
from fastwire.pulsar.scan import Scanner
from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import Address
from fastwire.wire.pool import Pool

from ...endpoint import LinkLost, RequestTimeout
from ...pulsar.settings import ClientSettings
from ..blocking import Wire

__all__ = ["Link", "Request"]

RECEIVE_BYTES = 1 << 20
TURN_S = 0.2  # the longest wait for bytes, after which whoever waits looks around

Request = Callable[[Connection, float], int]


class Link:
    """A connection that was opened and let in.

    Raises UnreachableError, AuthError, UnavailableError (no credentials now), BrokerError (refused), LinkLost, or what
    is wrong with what the peer sent. ``closed`` are the consumers that the broker has closed, ``ended`` those that have
    everything of a terminated topic.
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
    ) -> None:
        self.link_id = link_id
        self.address = address
        self.chunks: deque[Chunk] = deque()
        self.closed: set[int] = set()
        self.ended: set[int] = set()
        self.on_rejected: Callable[[ColdEntry], None] = _refuse
        self._settings = settings
        self._replies: dict[int, pb.BaseCommand | FastwireError] = {}
        self._awaited: set[int] = set()
        self.scanner = Scanner(
            slots, pool, link_id, columns=settings.columns, on_corrupt="stop", buffer_bytes=RECEIVE_BYTES
        )
        self.connection = Connection(
            self.scanner,
            completion,
            client_version=f"fastwire-{__version__}",
            request_ids=request_ids,
            keep_alive_s=settings.keep_alive_s,
            operation_timeout_s=settings.operation_timeout_s,
        )
        # Nothing else is asynchronous here: whoever asks an issuer for a token needs a loop, for that moment.
        self._shown = asyncio.run(settings.credentials.data())
        tls = settings.tls.context() if settings.tls is not None and physical.tls else None
        self._wire: Wire[Event] = Wire(
            self.connection,
            physical.host,
            physical.port,
            tls=tls,
            server_name=settings.server_name,
            timeout_s=settings.connect_timeout_s,
        )
        try:
            proxy_to = "" if physical == address else address.netloc
            self.connection.connect(
                time.monotonic(), method=settings.credentials.method, data=self._shown, proxy_to=proxy_to
            )
            while self.connection.state is not State.READY:
                self.pump(TURN_S)
        except BaseException:
            self.close()
            raise

    @property
    def ready(self) -> bool:
        return self.connection.state is State.READY

    def ask(self, request: Request) -> pb.BaseCommand:
        """Make a request and wait for its answer. Raises BrokerError, RequestTimeout or LinkLost."""
        return self.answer(self.begin(request))

    def begin(self, request: Request) -> int:
        """Make a request; ``answer`` waits for it. So many can be under way at the same time."""
        if not self.ready:
            raise LinkLost(f"connection to {self.address} is closed")
        request_id = request(self.connection, time.monotonic())
        self._awaited.add(request_id)
        return request_id

    def answer(self, request_id: int) -> pb.BaseCommand:
        """Wait for the answer to a request that was begun. Raises as ``ask``."""
        while (reply := self._replies.pop(request_id, None)) is None:
            self.pump(TURN_S)
        if isinstance(reply, FastwireError):
            raise reply
        return reply

    def acknowledge(self, consumer_id: int, position: Position) -> int | None:
        """Acknowledge everything up to ``position``; the id that ``answer`` waits for, None if no receipt will come.

        Raises LinkLost.
        """
        if not self.ready:
            raise LinkLost(f"connection to {self.address} is closed")
        request_id = self.connection.ack_cumulative(consumer_id, position, time.monotonic())
        if request_id is None:
            self.flush()
        else:
            self._awaited.add(request_id)
        return request_id

    def pump(self, timeout_s: float) -> bool:
        """Say what is to be said, read once, and see to what came; whether anything came.

        Raises LinkLost, a refusal of the connection, what is wrong with what the peer sent, or what ``on_rejected``
        raises.
        """
        try:
            events = self._wire.read(timeout_s)
            self._on_events(events)
        except FastwireError as exc:
            self.close()
            if isinstance(exc, LinkLost):
                raise LinkLost(f"connection to {self.address}: {exc}") from None
            raise
        return bool(events) or self.connection.more

    def rest(self) -> None:
        """Nothing is read for a while: stay alive. Raises LinkLost."""
        self._wire.rest()

    def flush(self) -> None:
        """Send what waits. Raises LinkLost."""
        self._wire.flush()

    def take_open(self) -> Chunk | None:
        """The open chunk, full or not."""
        return self.connection.take_chunk()

    def close(self) -> None:
        """Close the socket at once; brokers need no farewell."""
        self._wire.close()

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case ChunkReady(chunk):
                    self.chunks.append(chunk)
                case Reply(request_id, _, command, error):
                    self._replied(request_id, command if error is None else error)
                case TimedOut(request_id, kind):
                    self._replied(request_id, _unanswered(kind, self._settings.operation_timeout_s))
                case ConsumerClosed(consumer_id) | TopicMigrated(consumer_id):
                    self.closed.add(consumer_id)
                case EndOfTopic(consumer_id):
                    self.ended.add(consumer_id)
                case EntryRejected(entry):
                    self.on_rejected(entry)
                case AuthChallenged(method):
                    self._on_challenge(method)
                case ConnectRefused(error):
                    if error.code == pb.AuthenticationError:
                        self._settings.credentials.forget(self._shown)
                    raise error
                case Lost(reason):
                    raise LinkLost(reason)
                case _:
                    pass  # the wire sees to More; nobody here waits for anything else

    def _on_challenge(self, method: str) -> None:
        credentials = self._settings.credentials
        credentials.forget(self._shown)
        self._shown = asyncio.run(credentials.data())
        self.connection.auth_response(credentials.method or method, self._shown or b"")
        self._wire.flush()

    def _replied(self, request_id: int, reply: pb.BaseCommand | FastwireError) -> None:
        if request_id in self._awaited:  # nobody waits for the receipt of an ack or of a farewell
            self._awaited.discard(request_id)
            self._replies[request_id] = reply


def _unanswered(kind: Kind, seconds: float) -> RequestTimeout:
    return RequestTimeout(f"{kind.name} was not answered within {seconds:g} s")


def _refuse(entry: ColdEntry) -> None:
    raise FastwireError(f"{entry!r} came to a connection that reads nothing")
