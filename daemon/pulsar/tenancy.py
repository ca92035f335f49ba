"""What all tenants of links do alike: follow their topic to its broker, and keep a consumer there (pulsar 5, 7, 20)."""

import asyncio
from collections.abc import Callable

from fastwire.errors import FastwireError
from fastwire.pulsar.connection import Connection
from fastwire.pulsar.consumer import Consumer, Phase
from fastwire.pulsar.event import ConsumerClosed, ProducerClosed, ProducerMigrated, Reply, TopicMigrated
from fastwire.pulsar.request import BrokerError
from fastwire.pulsar.topic import Address, ServiceUrl, parse_address

from ..endpoint import LinkLost
from ..logs import get_logger
from .cluster import Cluster
from .link import Link, Tenant

__all__ = ["ConsumerTenancy", "Way", "part_with"]

log = get_logger("topics")


class Way:
    """Leads to the broker of ``topic``: by lookup at ``service``, or to where the broker that had it has sent us."""

    def __init__(self, topic: str, service: ServiceUrl) -> None:
        self.topic = topic
        self.service = service
        self._next: tuple[Address, Address | None] | None = None  # the new owner, and the proxy that leads there

    @property
    def told(self) -> bool:
        """Whether the next owner is known already."""
        return self._next is not None

    async def link(self, cluster: Cluster) -> Link:
        """The connection to the owner. Raises what finding it does, and LinkLost if it is lost at once."""
        told, self._next = self._next, None
        link = await (cluster.owner(self.topic, self.service) if told is None else cluster.link(*told))
        if not link.ready:
            raise LinkLost(f"connection to {link} was lost meanwhile")
        return link

    def closed(self, event: ConsumerClosed | ProducerClosed, link: Link | None) -> None:
        """The broker has closed what we had on ``link``, and may have said who is the next owner."""
        url = event.assigned_url_tls if self.service.tls else event.assigned_url
        proxy = link.physical if link is not None and link.physical != link.address else None
        try:
            self._next = (parse_address(url), proxy) if url else None
        except ValueError:
            self._next = None

    def migrated(self, event: TopicMigrated | ProducerMigrated) -> ServiceUrl | None:
        """The cluster that has the topic from here; what we have at the old one will be closed."""
        url = event.url_tls if self.service.tls else event.url
        try:
            address = parse_address(url)
        except ValueError:
            log.error("topic has moved to an address that is none", topic=self.topic, url=url)
            return None
        log.info("topic has moved to another cluster", topic=self.topic, url=str(address))
        return ServiceUrl(address.tls, (address,))

    def move(self, service: ServiceUrl) -> None:
        """Go on in another cluster."""
        self.service, self._next = service, None


async def part_with(link: Link, close: Callable[[float], int | None], topic: str) -> None:
    """Close a consumer or a producer of ``topic``: an error is as good as a success, and silence is taken for one."""

    def request(_: Connection, now: float) -> int:
        request_id = close(now)
        if request_id is None:
            raise LinkLost("the connection was lost meanwhile")
        return request_id

    try:
        await link.ask(request)
    except FastwireError as exc:
        log.debug("what is closed was not confirmed", topic=topic, error=str(exc))


class ConsumerTenancy(Tenant):
    """One consumer and its place on whichever link leads to its topic; ``link`` is None while it has none."""

    def __init__(self, consumer: Consumer, service: ServiceUrl) -> None:
        self.consumer = consumer
        self.link: Link | None = None
        self._way = Way(consumer.want.topic, service)
        self._loop = asyncio.get_running_loop()

    async def _join(self, link: Link) -> None:
        """Subscribe. Whatever goes wrong, the broker may hold something of it: ``_withdraw`` before another attempt."""
        self.link = link
        link.tenants[self.consumer.consumer_id] = self
        try:
            await link.ask(
                lambda connection, now: self.consumer.subscribe(connection, link.link_id, now), self._subscribed
            )
        except BrokerError:
            self._detached()  # it has not taken the consumer in, so there is nothing to close
            raise
        self._check(link)

    def _subscribed(self, reply: Reply) -> None:
        if reply.error is None and self.consumer.phase is Phase.SUBSCRIBING:
            self._sent(self.consumer.subscribed(self._loop.time()))

    def _sent(self, acks: list[int]) -> None:
        """Acks that waited for a connection have gone out, by these requests."""

    def _check(self, link: Link) -> None:
        if self.link is not link or self.consumer.phase is not Phase.READY:
            raise LinkLost(f"{self._way.topic}: the consumer was closed meanwhile")

    @property
    def _known(self) -> bool:
        """Whether the broker has something of the consumer, and can be told."""
        here = self.link is not None and self.link.ready
        return here and self.consumer.phase in (Phase.SUBSCRIBING, Phase.READY)

    async def _withdraw(self) -> None:
        """Before another attempt: make sure that the broker holds nothing of the last one (pulsar 7.1)."""
        await self._close()
        self._detached()

    async def _close(self) -> None:
        if self.link is not None and self._known:
            await part_with(self.link, self.consumer.close, self._way.topic)

    def _detached(self, reason: str = "") -> None:
        """The broker does not know our consumer any more."""
        self.consumer.detached(self._loop.time())
        if self.link is not None:
            self.link.tenants.pop(self.consumer.consumer_id, None)
            self.link = None
