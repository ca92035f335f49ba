"""Connections to one cluster, one per broker, found by lookup (spec: pulsar 2.4, 4.2, 5, 6.1)."""

import asyncio
import random
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count

from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.topic import Address, ServiceUrl, parse_address
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.protocol.connection import Connection
from fastwire.pulsar.reading.assembly import Assembly
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ...runtime.errors import ConfigurationRefused
from ...runtime.shared import shared
from ..links.linkbook import CLIENT_MEMORY, LinkBook, TimedLinkBook
from .link import Link, LinkContext, LinkOwner, Request
from .refusal import is_of_login
from .settings import ClientSettings

MOST_REDIRECTS = 20
QUESTIONS_AT_ONCE = 50  # lookup requests; brokers answer TooManyRequests above a limit


class Cluster(LinkBook[tuple[Address, Address], Link]):
    """Finds the owners of topics and keeps the connections to them."""

    def __init__(self, settings: ClientSettings, slots: SlotTable, pool: Pool, owner: LinkOwner) -> None:
        super().__init__()
        self._settings = settings
        self.completion = Completion(
            Assembly(pool, chance=random.random),
            keeps_corrupt=settings.on_corrupt == "dead_letter",
            decryptor=settings.decryptor,
            on_failure=settings.on_undecryptable,
        )
        self._owner = owner
        self._context = LinkContext(settings, slots, pool, self.completion)
        self._producer_ids: Iterator[int] = count()
        self._looking: dict[tuple[str, ServiceUrl], asyncio.Task[Link]] = {}
        self._turn: dict[ServiceUrl, int] = {}
        self._gate = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    # --- connections

    async def link(self, address: Address, physical: Address | None = None) -> Link:
        """Return the connection to a broker, opened if there is none. ``physical`` is the proxy in front of it."""
        return await self._link((address, address if physical is None else physical))

    def _make(self, key: tuple[Address, Address]) -> Link:
        address, physical = key
        return Link(address, physical, self._context, self._owner)

    def _is_of_login(self, error: FastwireError) -> bool:
        return is_of_login(error)

    def next_producer_id(self) -> int:
        """Return a producer id that is unique in this cluster: all producers may share one connection."""
        return next(self._producer_ids)

    # --- lookup

    async def owner(self, topic: str, service: ServiceUrl) -> Link:
        """Return the connection to the broker that owns ``topic``."""
        return await shared(self._looking, (topic, service), lambda: self._look_up(topic, service))

    async def partitions(self, topic: str, service: ServiceUrl, *, create: bool = True) -> int:
        """Return the number of partitions of ``topic``; 0 for a topic that is not partitioned.

        Without ``create`` the question does not make a broker create it, where the broker knows that wish.
        """
        answer = await self.ask(
            service, lambda connection, now: connection.partitioned_metadata(topic, now, create=create)
        )
        return answer.partitionMetadataResponse.partitions

    async def ask(self, service: ServiceUrl, request: Request) -> pb.BaseCommand:
        """Return the response of any broker of ``service`` to ``request``. Raises the errors of ``Link.ask``."""
        link, _ = await self.service_link(service)
        return await self._question(link, service, request)

    async def _look_up(self, topic: str, service: ServiceUrl) -> Link:
        link, entrance = await self.service_link(service)
        listener = self._settings.listener
        authoritative = False
        for _ in range(MOST_REDIRECTS + 1):
            ask = partial(_lookup, topic, authoritative, listener)
            answer = await self._question(link, service, ask)
            found = answer.lookupTopicResponse
            address = _address(found, service.tls)
            link = await self.link(address, entrance if found.proxy_through_service_url else None)
            if found.response == pb.CommandLookupTopicResponse.Connect:
                return link
            authoritative = found.authoritative
        self._next_turn(service)
        raise FastwireError(f"lookup of {topic}: more than {MOST_REDIRECTS} redirects")

    async def _question(self, link: Link, service: ServiceUrl, request: Request) -> pb.BaseCommand:
        """Send a metadata request, with limited concurrency; a host that fails is tried last."""
        try:
            async with self._gate:
                return await link.ask(request)
        except FastwireError:
            self._next_turn(service)
            raise

    async def service_link(self, service: ServiceUrl) -> tuple[Link, Address]:
        """Return a connection to a host of the service URL, an open one if possible, and its address."""
        failure: FastwireError | None = None
        for _ in service.addresses:
            address = service.addresses[self._turn.get(service, 0) % len(service.addresses)]
            try:
                return await self.link(address), address
            except FastwireError as exc:
                failure = exc
                self._next_turn(service)
        try:
            raise failure or FastwireError(f"{service} names no host")
        finally:
            del failure

    def _next_turn(self, service: ServiceUrl) -> None:
        self._turn[service] = self._turn.get(service, 0) + 1

    def _questions(self) -> Iterable[asyncio.Task[Link]]:
        return self._looking.values()


def _lookup(topic: str, authoritative: bool, listener: str, connection: Connection, now: float) -> int:
    return connection.lookup(topic, now, authoritative=authoritative, listener=listener)


def _address(found: pb.CommandLookupTopicResponse, tls: bool) -> Address:
    """Return the address of the broker that was found.

    Raises ConfigurationRefused if the broker has no port of the wanted kind, FastwireError for an invalid address.
    """
    text = found.brokerServiceUrlTls if tls else found.brokerServiceUrl
    if not text:
        what = "brokerServiceUrlTls" if tls else "brokerServiceUrl"
        raise ConfigurationRefused(
            f"the broker names no {what}: it {'has no TLS port' if tls else 'has a TLS port only'}"
        )
    try:
        return parse_address(text)
    except ValueError as exc:
        raise FastwireError(f"the broker answered the lookup with an invalid address: {exc}") from None


class ClientCluster(Cluster, TimedLinkBook[tuple[Address, Address], Link]):
    """A cluster without consumers, for requests and producers: an async context manager that ticks its connections."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(CLIENT_MEMORY), self)

    def after_read(self, link: Link) -> None:
        """Do nothing: no records are read."""
