"""Routing of consumers and producers: the route from a topic to its broker (spec: pulsar 5, 7, 20)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.topic import Address, ServiceUrl, parse_address
from fastwire.pulsar.protocol.connection import Connection
from fastwire.pulsar.protocol.consumer import ConsumerMachine, Phase, Run
from fastwire.pulsar.protocol.event import ConsumerClosed, ProducerClosed, ProducerMigrated, Reply, TopicMigrated
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.pulsar.protocol.request import BrokerError, available_permits, position_of

from ...net.endpoint import LinkLost
from ...runtime.logs import get_logger
from .cluster import Cluster
from .link import ConsumerEvents, Link

log = get_logger("topics")


class TopicRoute:
    """Route to the broker of ``topic``: by lookup at ``service``, or to the owner that the last broker has named."""

    def __init__(self, topic: str, service: ServiceUrl) -> None:
        self.topic = topic
        self.service = service
        self._next: tuple[Address, Address | None] | None = None  # the new owner, and the proxy that leads there

    @property
    def redirected(self) -> bool:
        """True if the next owner is known already."""
        return self._next is not None

    async def link(self, cluster: Cluster) -> Link:
        """Return the connection to the owner. Raises the errors of a lookup, and LinkLost if the connection is lost."""
        owner, self._next = self._next, None
        link = await (cluster.owner(self.topic, self.service) if owner is None else cluster.link(*owner))
        if not link.ready:
            raise LinkLost(f"connection to {link} was lost meanwhile")
        return link

    def closed(self, event: ConsumerClosed | ProducerClosed, link: Link | None) -> None:
        """Note the new owner that the broker may have named when it closed the producer or consumer on ``link``."""
        url = event.assigned_url_tls if self.service.tls else event.assigned_url
        proxy = link.physical if link is not None and link.physical != link.address else None
        try:
            self._next = (parse_address(url), proxy) if url else None
        except ValueError:
            self._next = None

    def migrated(self, event: TopicMigrated | ProducerMigrated) -> ServiceUrl | None:
        """Return the cluster that the topic has moved to, or None if its URL is not valid."""
        url = event.url_tls if self.service.tls else event.url
        try:
            address = parse_address(url)
        except ValueError:
            log.error("the broker names an invalid address for a topic that has moved", topic=self.topic, url=url)
            return None
        log.info("topic has moved to another cluster", topic=self.topic, url=str(address))
        return ServiceUrl(address.tls, (address,))

    def move(self, service: ServiceUrl) -> None:
        """Continue in another cluster."""
        self.service, self._next = service, None


async def close_on_broker(link: Link, close: Callable[[float], int | None], topic: str) -> None:
    """Close a consumer or producer of ``topic``; errors and timeouts are ignored, because the broker drops it later."""

    def request(_: Connection, now: float) -> int:
        request_id = close(now)
        if request_id is None:
            raise LinkLost("the connection was lost meanwhile")
        return request_id

    try:
        await link.ask(request)
    except FastwireError as exc:
        log.debug("what is closed was not confirmed", topic=topic, error=str(exc))


class RoutedConsumer(ConsumerEvents):
    """One consumer on the connection to its topic's broker; ``link`` is None while there is no connection."""

    def __init__(self, consumer: ConsumerMachine, service: ServiceUrl) -> None:
        self.consumer = consumer
        self.link: Link | None = None
        self._route = TopicRoute(consumer.want.topic, service)
        self._loop = asyncio.get_running_loop()

    @property
    def service(self) -> ServiceUrl:
        """The cluster that has the topic."""
        return self._route.service

    async def _join(self, link: Link) -> None:
        """Subscribe. After an error the broker may hold the consumer: call ``_withdraw`` before another attempt."""
        self.link = link
        link.consumers[self.consumer.consumer_id] = self
        try:
            await link.ask(
                lambda connection, now: self.consumer.subscribe(connection, link.link_id, now), self._subscribed
            )
        except BrokerError:
            self._detached()  # the broker has refused the consumer, so there is nothing to close
            raise
        self._check(link)

    def _subscribed(self, reply: Reply) -> None:
        if reply.error is None and self.consumer.phase is Phase.SUBSCRIBING:
            self._sent(self.consumer.subscribed(self._loop.time()))

    def send_acks(self) -> None:
        """Send the acks that wait; without a subscribed consumer they stay."""
        self._sent(self.consumer.send_acks(self._loop.time()))

    def acknowledge_again(self) -> Sequence[Run]:
        """Acknowledge landed entries that were delivered again; return them."""
        return self.consumer.acknowledge_again(self._loop.time())

    def _sent(self, acks: list[int]) -> None:
        """Note that acks were sent by these requests."""

    def _check(self, link: Link) -> None:
        if self.link is not link or self.consumer.phase is not Phase.READY:
            raise LinkLost(f"{self._route.topic}: the consumer was closed meanwhile")

    @property
    def _known(self) -> bool:
        """True if the broker may hold the consumer and is connected."""
        here = self.link is not None and self.link.ready
        return here and self.consumer.phase in (Phase.SUBSCRIBING, Phase.READY)

    async def _ask_end(self, link: Link) -> tuple[MessageId, Position | None]:
        """Return the last message of the topic (entry -1: none) and the broker's cursor, None if it is not reported."""
        number = self.consumer.consumer_id
        reply = await link.ask(lambda connection, now: connection.get_last_message_id(number, now))
        answer = reply.getLastMessageIdResponse
        known = answer.HasField("consumer_mark_delete_position")
        cursor = position_of(answer.consumer_mark_delete_position) if known else None
        return MessageId.from_pb(answer.last_message_id), cursor

    async def ask_stats(
        self, anew: Callable[[], Awaitable[None]], wanted: Callable[[], bool] = lambda: True
    ) -> pb.CommandConsumerStatsResponse | None:
        """Return the broker's statistics of the consumer; None if they do not come, or another connection carries it.

        Where damage, or the broker itself, may have made our count of permits wrong, the broker's is taken over, and
        what is missing is granted; if it does not tell its count, ``anew`` subscribes again. Neither is done unless
        ``wanted``, nor if entries have arrived meanwhile.
        """
        consumer, link, topic = self.consumer, self.link, self._route.topic
        outstanding = consumer.outstanding

        def is_doubted() -> bool:
            same = consumer.outstanding == outstanding and self.link is link
            return same and consumer.uncounted and wanted()

        if link is None:
            return None
        try:
            reply = await link.ask(lambda connection, now: connection.consumer_stats(consumer.consumer_id, now))
        except FastwireError as exc:
            log.debug("cannot ask for the consumer's state", topic=topic, error=str(exc))
            if isinstance(exc, BrokerError) and is_doubted():
                log.warning(
                    "permits cannot be counted, and the broker does not tell its count: the consumer subscribes again",
                    topic=topic,
                    error=str(exc),
                )
                await anew()
            return None
        if self.link is not link:
            return None
        stats = reply.consumerStatsResponse
        if is_doubted() and (lost := consumer.reconcile(available_permits(stats))):
            log.warning(
                "the broker counts permits otherwise than this consumer: its count is used", topic=topic, lost=lost
            )
            link.flush()
        return stats

    async def _withdraw(self) -> None:
        """Close the consumer of the last attempt at the broker, before another one (spec: pulsar 7.1)."""
        await self._close()
        self._detached()

    async def _close(self) -> None:
        if self.link is not None and self._known:
            await close_on_broker(self.link, self.consumer.close, self._route.topic)

    def _detached(self, reason: str = "") -> None:
        """Note that the broker does not hold the consumer any more."""
        self.consumer.detached(self._loop.time())
        if self.link is not None:
            self.link.consumers.pop(self.consumer.consumer_id, None)
            self.link = None
