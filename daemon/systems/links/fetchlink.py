"""Connections by which records are requested, and those with a fetcher, which decides what to request next."""

from collections.abc import Sequence, Sized
from typing import Any, Generic, Protocol, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.connection import ChunkConnection, Lost
from fastwire.event import Connected, CorruptFound, FetchDone, Reply

from .brokerbook import Address
from .link import BrokerLink

C = TypeVar("C", bound=ChunkConnection[Any, Any])
C_contra = TypeVar("C_contra", contravariant=True)
E = TypeVar("E")
A = TypeVar("A")
R_contra = TypeVar("R_contra", contravariant=True)
D_contra = TypeVar("D_contra", contravariant=True)


class Fetching(Sized, Protocol[C_contra]):
    """The requests for records on a connection. Its length is the number of partitions that are read."""

    @property
    def may_ask(self) -> bool:
        """True if ``pump`` may have a request to make."""

    def pump(self, connection: C_contra, now: float) -> bool:
        """Queue all requests that may be sent now; return False if there are none."""

    def drop(self, index: int) -> None:
        """Stop reading a partition."""

    def lost(self) -> None:
        """Forget all partitions: the connection is closed."""


class FetchOwner(Protocol[R_contra, D_contra]):
    """Receiver of the events of its links, with results ``R`` of requests and damage ``D``: the source."""

    def on_chunk(self, chunk: Chunk, /) -> None:
        """Take a chunk of records."""

    def on_fetched(self, link: Any, fetched: R_contra, /) -> None:
        """Take the end of a response with records; the results of its partitions are in their slots."""

    def on_corrupt(self, found: D_contra, /) -> None:
        """Handle records that cannot be decoded; their slot is detached."""

    def on_connected(self, link: Any, /) -> None:
        """Note that the connection is ready for requests."""

    def on_lost(self, link: Any, reason: Exception | None, /) -> None:
        """Note that the connection is closed; ``reason`` is None if this side closed it."""


F = TypeVar("F", bound=Fetching[Any])


class OwnedLink(BrokerLink[C, E, A]):
    """A connection to the server at ``address``, whose events ``owner`` receives."""

    def __init__(self, address: Address, connection: C, owner: FetchOwner[Any, Any]) -> None:
        super().__init__(connection, owner.on_chunk)
        self.address = address
        self._owner = owner

    def __str__(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    # --- calls of the transport

    def _on_events(self, events: Sequence[E]) -> None:
        for event in events:
            match event:
                case FetchDone(fetched):
                    self._fetched(fetched)
                case Reply(request_id, answer):
                    self._answered(request_id, answer)
                case CorruptFound(found):
                    self._owner.on_corrupt(found)
                case Connected():
                    self._let_in()
                    self._owner.on_connected(self)
                case Lost(reason):
                    self.abort(reason)
                case _:
                    self._on_event(event)

    def _fetched(self, fetched: Any) -> None:
        self._owner.on_fetched(self, fetched)

    def _on_event(self, event: E) -> None:
        """Handle an event that only this system has."""

    def _left(self, text: str, reason: Exception | None) -> None:
        self._owner.on_lost(self, reason)


class FetchLink(OwnedLink[C, E, A], Generic[C, E, A, F]):
    """An owned connection; ``fetcher`` has the partitions that are read by it."""

    def __init__(self, address: Address, connection: C, fetcher: F, owner: FetchOwner[Any, Any]) -> None:
        super().__init__(address, connection, owner)
        self.fetcher = fetcher

    @property
    def carries(self) -> bool:
        """See ``BrokerLink.carries``."""
        return len(self.fetcher) > 0

    def status(self) -> dict[str, Any]:
        """Return the fields of the status page."""
        return {"partitions": len(self.fetcher)}

    def pump(self) -> None:
        """Request records, as far as there is anything to request."""
        if self.fetcher.may_ask and self.ready and self.fetcher.pump(self.connection, self._loop.time()):
            self.transport.flush()

    def _left(self, text: str, reason: Exception | None) -> None:
        self.fetcher.lost()
        super()._left(text, reason)
