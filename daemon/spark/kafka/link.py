"""One connection to a Kafka broker for a process of Spark's: questions that are waited for, records that are taken."""

import asyncio
import time

from fastwire import __version__
from fastwire.kafka.connection import Connection, State
from fastwire.kafka.event import ChunkReady, CorruptFound, Event, FetchDone, LoginWanted, Lost, Reply
from fastwire.kafka.fetch import Fetcher, FetchLimits
from fastwire.kafka.message import Body
from fastwire.kafka.sasl import Mechanism, SaslError
from fastwire.kafka.scan import CorruptBatch, Scanner
from fastwire.kafka.slot import SlotTable
from fastwire.wire.pool import Pool

from ...endpoint import LinkLost
from ...kafka.settings import ClientSettings
from ..blocking import BlockingLink, Wire

__all__ = ["Link"]

RECEIVE_BYTES = 1 << 20


class Link(BlockingLink[Connection, Event, Body]):
    """A connection that was opened and let in.

    Raises UnreachableError, AuthError, SaslError, UnsupportedError, LinkLost, or what is wrong with what the peer sent.
    ``fetcher`` has the partition that is read by it, ``answers`` counts what answered it, ``corrupt`` has ended it.
    """

    def __init__(
        self, host: str, port: int, settings: ClientSettings, slots: SlotTable, pool: Pool, limits: FetchLimits
    ) -> None:
        self.scanner = Scanner(slots, pool, columns=settings.columns, on_corrupt="divert", buffer_bytes=RECEIVE_BYTES)
        connection = Connection(
            self.scanner,
            client_id=settings.client_id,
            software_version=__version__,
            request_timeout_s=settings.request_timeout_s,
        )
        super().__init__(f"{host}:{port}", connection)
        self.fetcher = Fetcher(slots, limits)
        self.answers = 0
        self.corrupt: CorruptBatch | None = None
        self._settings = settings
        self._exchange = self._begin_login()
        wire: Wire[Event] = Wire(
            connection,
            host,
            port,
            tls=None if settings.tls is None else settings.tls.context(),
            server_name=settings.server_name,
            timeout_s=settings.connect_timeout_s,
        )
        try:
            self._open(wire, lambda: connection.connect(time.monotonic(), self._exchange))
        except SaslError:
            self._forget_login()
            raise

    @property
    def ready(self) -> bool:
        return self.connection.state is State.READY

    def fetch(self) -> None:
        """Ask for records, unless that is done."""
        self.check()
        self.fetcher.pump(self.connection, time.monotonic())

    def on_event(self, event: Event) -> None:
        match event:
            case ChunkReady(chunk):
                self.chunks.append(chunk)
            case FetchDone(fetched):
                self.fetcher.done(fetched)
                self.answers += 1
            case Reply(correlation_id, body):
                self._replied(correlation_id, body)
            case CorruptFound(batch):
                self.corrupt = batch
            case LoginWanted():
                self._forget_login()  # it may be good for a little longer, but not for another login of its full length
                self._exchange = self._begin_login()
                if self._exchange is not None:
                    self.connection.log_in(self._exchange, time.monotonic())
            case Lost(reason):
                raise LinkLost(reason)
            case _:
                pass  # the wire sees to More, and whoever opens to Connected

    def _begin_login(self) -> Mechanism | None:
        # Nothing else is asynchronous here: whoever asks an issuer for a token needs a loop, for that moment.
        return None if self._settings.login is None else asyncio.run(self._settings.login.begin())

    def _forget_login(self) -> None:
        if self._settings.login is not None and self._exchange is not None:
            self._settings.login.forget(self._exchange)
