"""Connections by which records are requested: each has a fetcher, which decides what to request next."""

from collections.abc import Sized
from typing import Any, Generic, Protocol, TypeVar

from .link import BrokerLink, LinkMachine

__all__ = ["FetchLink", "Fetching"]

C = TypeVar("C", bound=LinkMachine[Any])
C_contra = TypeVar("C_contra", contravariant=True)
E = TypeVar("E")
A = TypeVar("A")


class Fetching(Sized, Protocol[C_contra]):
    """The requests for records on a connection. Its length is the number of partitions that are read."""

    @property
    def may_ask(self) -> bool:
        """True if ``pump`` may have a request to make."""

    def pump(self, connection: C_contra, now: float) -> bool:
        """Queue all requests that may be sent now; return False if there are none."""

    def drop(self, index: int) -> None:
        """Stop reading a partition."""


F = TypeVar("F", bound=Fetching[Any])


class FetchLink(BrokerLink[C, E, A], Generic[C, E, A, F]):
    """A connection with a fetcher ``F``, which has the partitions that are read by it."""

    fetcher: F

    def status(self) -> dict[str, Any]:
        """Return the fields of the status page."""
        return {"partitions": len(self.fetcher)}

    def pump(self) -> None:
        """Request records, as far as there is anything to request."""
        if self.fetcher.may_ask and self.ready and self.fetcher.pump(self.connection, self._loop.time()):
            self.transport.flush()
