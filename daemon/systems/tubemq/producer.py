"""Producer for one topic: sends each message to the next partition, and reports its outcome (spec: tubemq 19).

At least once: a message whose response is lost is sent again, mostly to another partition, and may be stored twice.
"""

import asyncio
from functools import partial
from ipaddress import IPv4Address

from google.protobuf.message import Message

from fastwire.errors import FastwireError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError, Refused
from fastwire.tubemq.format.frame import Answer, Method
from fastwire.tubemq.format.text import Broker
from fastwire.tubemq.groups.master import ClientSettings as ProducerSettings
from fastwire.tubemq.groups.master import State
from fastwire.tubemq.producing.outbox import Outbox, OutgoingMessage, Sending, Stored
from fastwire.tubemq.producing.producer import Producer

from ...net.backoff import Backoff
from ...runtime.logs import get_logger
from ...runtime.tasks import on_failure, wait_for_set
from ..produced import ProduceError
from ..producing.leaderwriter import OPEN_S
from ..producing.topicwriter import PENDING_BYTES, Part, PendingWriter, failed
from .cluster import Cluster
from .link import Link
from .session import Session
from .settings import ClientSettings

AGAIN_S = 0.25  # between two looks for a partition
RETRY_S = 2.0  # at most between two tries to connect

log = get_logger("producer")


class TopicProducer(PendingWriter["_Part", OutgoingMessage, Stored]):
    """Writes to all partitions of one topic. As a context, a normal exit waits until all messages are stored.

    The owner of ``cluster`` has to tick its links. Without ``resend`` a message whose response is lost fails.
    Everything raises ProduceError.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        settings: ClientSettings,
        *,
        heartbeat_s: float = 10.0,
        send_timeout_s: float = 120.0,
        resend: bool = True,
        most_pending_bytes: int = PENDING_BYTES,
    ) -> None:
        super().__init__(topic, most_pending_bytes=most_pending_bytes)
        self.topic = topic
        self.cluster = cluster
        self._masters = len(settings.url.addresses)
        identity = ProducerSettings(
            client_id=settings.new_id(),
            topics=(topic,),
            heartbeat_s=heartbeat_s,
            **settings.shown(),
        )
        self.client = Producer(identity, address=int(IPv4Address(settings.host)))
        self._outbox = Outbox(self.client, topic, send_timeout_s=send_timeout_s, resend=resend)
        self.session = _Registration(self, cluster)
        self._heart: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Register, and find the partitions.

        Each Master is tried once. What a Master says will pass is tried again for a while.
        """
        try:
            async with asyncio.timeout(OPEN_S):
                await self._register()
        except TimeoutError:
            await self.session.leave()
            raise ProduceError(f"{self.topic}: not registered as a producer within {OPEN_S:g} s") from None
        except BaseException:
            await self.session.leave()
            raise
        self._parts = [_Part(self._outbox, self)]
        self._heart = asyncio.create_task(self.session.run(), name="registration")
        on_failure(self._heart, self._parts[0].fail)
        self._parts[0].start()

    async def _register(self) -> None:
        try:
            await self.cluster.master()
        except FastwireError as exc:
            raise ProduceError(f"{self.topic}: {exc}") from exc  # commands wait for a Master that is starting
        while True:
            going = await self.session.turn()
            if not going or self.session.unanswered >= self._masters:
                raise ProduceError(f"{self.topic}: {self.session.error}")
            if self.client.partitions(self.topic):
                return
            at = self.client.next_at()
            if self.client.state is State.REGISTERED and at is not None and at > asyncio.get_running_loop().time():
                raise ProduceError(
                    f"{self.topic}: no Broker takes messages of the topic: it does not exist, or is closed, or it is "
                    "new: a Broker takes up to 45 s to open one"
                )

    def refused(self, error: BrokerError) -> None:
        """End the producer: the Master refuses it for good."""
        for part in self._parts:
            part.fail(error)

    async def close(self) -> None:
        """Close the producer; messages that are not stored fail with ProduceError."""
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait((self._heart,))
        await super().close()
        await self.session.leave()

    # --- messages

    def check(self, message: OutgoingMessage) -> None:
        """Raise ValueError for a message that the topic cannot store."""
        self.client.check(self.topic, message.value, message.attributes)

    def _choose(self, record: OutgoingMessage, partition: int | None) -> "_Part":
        if not self._parts:
            raise ProduceError(f"{self.topic}: the producer is not open")
        places = self.client.partitions(self.topic)
        if record.number is not None and all(place.number != record.number for place in places):
            numbers = ", ".join(map(str, sorted({place.number for place in places})))
            raise ProduceError(f"{self.topic} has no partition {record.number}: there are {numbers or 'none'}")
        return self._parts[0]

    def _weigh(self, record: OutgoingMessage) -> int:
        return record.weight

    def settled(self, part: "_Part", stored: Stored) -> None:
        """Resolve a message that is stored or has failed."""
        if stored.error is None:
            self._confirmed(part, ((stored.ticket, stored),), records=1, size=stored.size)
        else:
            self._given_up(part, (stored.ticket,), failed(self.topic, stored.error))


class _Registration(Session[Producer]):
    """The producer at the Masters, whose answers name the partitions."""

    def __init__(self, owner: TopicProducer, cluster: Cluster) -> None:
        super().__init__(owner.client, cluster)
        self._owner = owner

    def _answered(self, body: Message) -> None:
        self.client.answered(body, self._loop.time())

    def _refuse(self, error: BrokerError) -> None:
        self.error = str(error)
        self._owner.refused(error)


class _Part(Part[Outbox]):
    """The messages on their way to the Brokers; any partition stores any of them, so that there is one part."""

    def __init__(self, outbox: Outbox, owner: TopicProducer) -> None:
        super().__init__(outbox)
        self._owner = owner
        self._links: dict[Broker, Link] = {}
        self._opening: dict[Broker, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()

    def send(self, record: OutgoingMessage, ticket: object) -> None:
        """See ``Part.send``."""
        try:
            self.machine.send(record, ticket, self._loop.time())
        except FastwireError as exc:
            raise failed(self._owner.topic, exc) from exc
        self._moved()

    def fail(self, error: FastwireError) -> None:
        """Fail all messages that are not stored, and later ones."""
        self._fail(error)

    def _moved(self) -> None:
        self._woken.set()
        for stored in self.machine.take_results():
            self._owner.settled(self, stored)

    async def _leave(self) -> None:
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)

    async def _run(self) -> None:
        while not self.broken:
            now = self._loop.time()
            self.machine.tick(now)
            self._connect()
            while (found := self.machine.take(self._links, now)) is not None:
                self._send(*found)
            self._moved()
            self._woken.clear()
            # A partition that rests, or a Broker that is away, wakes no caller.
            await wait_for_set(self._woken, None if self.machine.deadline is None else AGAIN_S)

    def _connect(self) -> None:
        """Connect to the Brokers that have partitions, in the background: one that is away delays no other."""
        for broker in {place.broker for place in self._owner.client.partitions(self._owner.topic)}:
            link = self._links.get(broker)
            if link is not None and not link.ready:
                del self._links[broker]
                log.warning(
                    "messages without a response are sent again and may be stored twice",
                    topic=self._owner.topic,
                    broker=str(broker),
                )
            if broker not in self._links and broker not in self._opening:
                self._opening[broker] = asyncio.create_task(self._open(broker), name=f"connection to {broker}")
                on_failure(self._opening[broker], self.fail)

    async def _open(self, broker: Broker) -> None:
        backoff = Backoff(most_s=RETRY_S)
        while True:
            try:
                self._links[broker] = await self._owner.cluster.link("produce", broker.host, broker.port)
                break
            except FastwireError as exc:
                self._owner.produced.trouble = str(exc)
                await asyncio.sleep(backoff.failed(log, "cannot write, retrying", exc, topic=self._owner.topic))
        del self._opening[broker]
        self._woken.set()

    def _send(self, sending: Sending, request: pb.SendMessageRequestP2B) -> None:
        assert sending.partition is not None
        try:
            answer = self._links[sending.partition.broker].begin(Method.SEND, request)
        except FastwireError as exc:
            self.machine.answered(sending, None, str(exc), self._loop.time())
            return
        answer.add_done_callback(partial(self._answered, sending))

    def _answered(self, sending: Sending, answer: "asyncio.Future[Answer]") -> None:
        body: pb.SendMessageResponseB2P | None = None
        problem = ""
        try:
            said = answer.result()
            if isinstance(said, Refused):
                problem = f"{said.exception}: {said.text}"
            else:
                assert isinstance(said, pb.SendMessageResponseB2P)
                body = said
        except (FastwireError, asyncio.CancelledError) as exc:
            problem = str(exc)
        self._owner.produced.trouble = problem or (body.errMsg if body is not None and not body.success else "")
        self.machine.answered(sending, body, problem, self._loop.time())
        if body is None or not body.success:
            self._owner.session.wake()  # a heartbeat may be due, which brings the partitions
        self._moved()
