"""Connections to a cluster whose brokers are known by their addresses: one for each purpose, and any for questions."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeVar

from fastwire.errors import FastwireError

from .link import BrokerLink
from .linkbook import LinkBook

Address = tuple[str, int]
"""Host and port."""

Purpose = Literal["fetch", "group", "ask", "produce"]
"""The use of a connection. What may be delayed by large or waiting answers has a connection of its own."""

BrokerKey = tuple[Purpose, str, int]

L = TypeVar("L", bound=BrokerLink[Any, Any, Any])


class BrokerBook(LinkBook[BrokerKey, L]):
    """Holds the links ``L`` to brokers by purpose and address; ``hosts`` are those of the URL."""

    def __init__(self, hosts: Sequence[Address]) -> None:
        super().__init__()
        self._hosts = hosts
        self._turn = 0  # counts the failures to connect: the hosts of the URL take turns

    def _peer(self, key: BrokerKey) -> Address:
        return key[1:]

    async def link(self, purpose: Purpose, host: str, port: int) -> L:
        """Return the connection to a broker, opened if there is none."""
        return await self._link((purpose, host, port))

    @abstractmethod
    def _answers(self, purpose: Purpose, link: L) -> bool:
        """Return True if an open link may be used for questions: nothing on it delays the answer."""

    @abstractmethod
    def _known(self) -> Iterable[Address]:
        """Return the addresses of the brokers that are known beside the hosts of the URL."""

    async def any(self) -> L:
        """Return a connection for general questions: an open one, else to a known broker, else to a host of the URL.

        Raises the last error if no broker can be reached.
        """
        for (purpose, _, _), link in self.links.items():
            if link.ready and self._answers(purpose, link):
                return link
        first = self._turn % len(self._hosts)
        places = dict.fromkeys((*self._known(), *self._hosts[first:], *self._hosts[:first]))
        failure: FastwireError | None = None
        for host, port in places:
            try:
                return await self.link("ask", host, port)
            except FastwireError as exc:
                failure = exc
                self._turn += 1
        try:
            raise failure or FastwireError("the URL names no host")
        finally:
            del failure  # it holds this frame
