"""One connection to a Pulsar broker for a process of Spark's: requests that are waited for, chunks that are taken."""

import asyncio
import time
from collections.abc import Callable

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.cold import ColdEntry
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
from fastwire.pulsar.topic import Address

from ...endpoint import LinkLost, RequestTimeout
from ...pulsar.equipment import Equipment
from ..blocking import BlockingLink, Wire

__all__ = ["Link", "Request"]

RECEIVE_BYTES = 1 << 20

Request = Callable[[Connection, float], int]


class Link(BlockingLink[Connection, Event, pb.BaseCommand]):
    """A connection that was opened and let in.

    Raises UnreachableError, AuthError, UnavailableError (no credentials now), BrokerError (refused), LinkLost, or what
    is wrong with what the peer sent. ``closed`` are the consumers that the broker has closed, ``ended`` those that have
    everything of a terminated topic.
    """

    def __init__(self, address: Address, physical: Address, equipment: Equipment) -> None:
        settings = equipment.settings
        self.link_id = next(equipment.link_ids)
        self.scanner = Scanner(
            equipment.slots,
            equipment.pool,
            self.link_id,
            columns=settings.columns,
            on_corrupt="stop",
            buffer_bytes=RECEIVE_BYTES,
        )
        connection = equipment.connection(self.scanner)
        super().__init__(str(address), connection)
        self.closed: set[int] = set()
        self.ended: set[int] = set()
        self.on_rejected: Callable[[ColdEntry], None] = _refuse
        self._settings = settings
        # Nothing else is asynchronous here: whoever asks an issuer for a token needs a loop, for that moment.
        self._shown = asyncio.run(settings.credentials.data())
        wire: Wire[Event] = Wire(
            connection,
            physical.host,
            physical.port,
            tls=settings.tls.context() if settings.tls is not None and physical.tls else None,
            server_name=settings.server_name,
            timeout_s=settings.connect_timeout_s,
        )
        proxy_to = "" if physical == address else address.netloc
        method = settings.credentials.method
        self._open(
            wire,
            lambda: connection.connect(time.monotonic(), method=method, data=self._shown, proxy_to=proxy_to),
        )

    @property
    def ready(self) -> bool:
        return self.connection.state is State.READY

    def acknowledge(self, consumer_id: int, position: Position) -> int | None:
        """Acknowledge everything up to ``position``; the id that ``answer`` waits for, None if no receipt will come.

        Raises LinkLost.
        """
        self.check()
        request_id = self.connection.ack_cumulative(consumer_id, position, time.monotonic())
        if request_id is None:
            self.flush()
        else:
            self._awaited.add(request_id)
        return request_id

    def take_open(self) -> Chunk | None:
        """The open chunk, full or not."""
        return self.connection.take_chunk()

    def on_event(self, event: Event) -> None:
        """See to one event; a message that cannot be decoded is for ``on_rejected``, which may raise."""
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


def _unanswered(kind: Kind, seconds: float) -> RequestTimeout:
    return RequestTimeout(f"{kind.name} was not answered within {seconds:g} s")


def _refuse(entry: ColdEntry) -> None:
    raise FastwireError(f"{entry!r} came to a connection that reads nothing")
