"""Registrations of partitions at their Brokers, and the requests that only their owner may make."""

from collections.abc import Callable, Iterable, Sequence
from weakref import WeakKeyDictionary

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import BrokerPartition
from fastwire.tubemq.protocol.request import ConsumerRequests
from fastwire.tubemq.reading.fetched import Planned

from ....net.endpoint import LinkLost
from ..cluster import Cluster
from ..link import Link
from .partition import Partition
from .settings import TubeMQSettings


class Registrations:
    """The requests of one member to Brokers.

    Each connection registers partitions under a client id of its own. A Broker may handle requests of a lost connection
    long after the loss: a GET would move the position of the next registration, a COMMIT would confirm what it has
    fetched. They name the id of the lost connection, which owns nothing any more, and the Broker refuses them (spec:
    tubemq 11.2, 11.3). A partition that was registered on a lost connection is unregistered under that id first.

    ``authorize`` returns the tokens of a request.
    """

    def __init__(self, settings: TubeMQSettings, cluster: Cluster, authorize: Callable[[], pb.AuthorizedInfo]) -> None:
        self._settings = settings
        self._cluster = cluster
        self._authorize = authorize
        self._consumers: WeakKeyDictionary[Link, ConsumerRequests] = WeakKeyDictionary()

    def _consumer(self, link: Link) -> ConsumerRequests:
        consumer = self._consumers.get(link)
        if consumer is None:
            consumer = self._consumers[link] = ConsumerRequests(self._settings.consumer_id(), self._settings.group)
        return consumer

    async def register(self, partition: Partition, offset: int | None = None) -> pb.RegisterResponseB2C:
        """Register a partition at ``offset``, or where the group is, without one at the oldest message.

        The Broker forgets what it has sent and what was not confirmed. Raises BrokerError, LinkLost, and what opening a
        connection raises.
        """
        place = partition.place
        link = await self._cluster.broker(place.broker)
        consumer = self._consumer(link)
        former = partition.owner
        if former is not None and former is not consumer:
            await self._end(link, former, place)  # whatever the Broker says: it may have ended long ago
        # Also without an answer the Broker may have registered it.
        partition.owner, partition.link = consumer, link
        request = consumer.register(place, self._authorize(), offset=offset, filters=self._filters(place))
        answer = await link.ask(Method.BROKER_REGISTER, request, pb.RegisterResponseB2C)
        if not answer.success:
            raise BrokerError(answer.errCode, answer.errMsg)
        partition.registered = True
        partition.end = answer.maxOffset
        return answer

    def _filters(self, place: BrokerPartition) -> Sequence[str]:
        return self._settings.filters.get(place.topic, ())

    async def unregister(self, partition: Partition) -> None:
        """End the registration of a partition, and confirm nothing by that. Raises as ``register``."""
        owner = partition.owner
        if owner is not None:
            await self._end(await self._cluster.broker(partition.place.broker), owner, partition.place)
            partition.owner = partition.link = None
            partition.registered = False

    async def _end(self, link: Link, owner: ConsumerRequests, place: BrokerPartition) -> None:
        request = owner.unregister(place, self._authorize())
        await link.ask(Method.BROKER_REGISTER, request, pb.RegisterResponseB2C)

    def get(self, partition: Partition, session: int) -> None:
        """Request messages on the connection of the registration. Raises LinkLost."""
        link = self._link(partition)
        body = self._consumer(link).get(partition.place, escape=partition.pace.escape)
        link.get(body, Planned(partition.index, session))

    async def commit(self, partition: Partition) -> pb.CommitOffsetResponseB2C:
        """Confirm everything that was fetched, on the connection of the registration. Raises BrokerError, LinkLost."""
        link = self._link(partition)
        body = self._consumer(link).commit(partition.place)
        answer = await link.ask(Method.COMMIT, body, pb.CommitOffsetResponseB2C)
        if not answer.success:
            raise BrokerError(answer.errCode, answer.errMsg)
        return answer

    async def beat(self, link: Link, places: Iterable[BrokerPartition]) -> pb.HeartBeatResponseB2C:
        """Send a heartbeat for the partitions that are registered on a connection. Raises LinkLost."""
        request = self._consumer(link).heartbeat(places, self._authorize())
        return await link.ask(Method.BROKER_HEARTBEAT, request, pb.HeartBeatResponseB2C)

    def _link(self, partition: Partition) -> Link:
        if partition.link is None:
            raise LinkLost(f"the connection of {partition.place} was lost")
        return partition.link
