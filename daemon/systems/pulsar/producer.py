"""Producer for one topic: open producers of its partitions, routing, and the outcome of each record (spec: pulsar 24).

At least once, and in order within a partition: what had no receipt when a connection broke is sent again.
"""

import asyncio
from dataclasses import dataclass

from fastwire.columns.routes import Routes
from fastwire.errors import FastwireError, ProtocolError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Entry, Record
from fastwire.pulsar.format.server_error import Remedy
from fastwire.pulsar.names.topic import ServiceUrl, Topic
from fastwire.pulsar.producing.batcher import weight
from fastwire.pulsar.producing.producer import Outcome, Phase, Producer
from fastwire.pulsar.producing.router import Hashing, Router
from fastwire.pulsar.producing.settings import ProducerSettings
from fastwire.pulsar.protocol.event import ProducerClosed, ProducerMigrated, Reply, SendConfirmed, SendRefused
from fastwire.pulsar.protocol.request import BrokerError

from ...net.backoff import Backoff
from ...net.endpoint import LinkLost, RequestTimeout, UnreachableError
from ...runtime.clock import now_ms
from ...runtime.logs import get_logger
from ..produced import ProduceError
from ..producing.topicwriter import PENDING_BYTES, Part, TopicWriter, failed
from .cluster import Cluster
from .link import Link, LoadedTopic
from .refusal import is_for_good
from .routed import TopicRoute, close_on_broker

PENDING_ENTRIES = 1000  # per partition, sent and not confirmed
LOOKUPS = 32  # at a time
RETRY_S = 10.0  # at most between two tries
# A broker can forget the numbers of what it stores in the first moment after it has loaded a topic (spec: pulsar 24).
LOADED_S = 1.0

log = get_logger("producer")


@dataclass(frozen=True, slots=True)
class Sent:
    """Position of a stored record; ``partition`` and ``batch_index`` are -1 where they do not apply.

    -1:-1 is the position of a record that the broker recognised as stored before. ``first`` is the place of the first
    chunk of a record that went out in several.
    """

    partition: int
    position: Position
    batch_index: int
    sequence_id: int
    first: Position | None = None


class TopicProducer(TopicWriter["_Part", Record, Sent]):
    """Writes to all partitions of one topic. As a context, a normal exit waits until all records are confirmed.

    ``service`` is where lookups begin. The owner of ``cluster`` has to tick its links. ``router`` is what chooses
    partitions where the topic has some; ``None`` hashes keys as Java does and goes round for records without one.
    ``partitions`` is their number if it is fixed (0: the topic has none); otherwise added ones are written to as well.
    Everything raises ProduceError.
    """

    def __init__(
        self,
        cluster: Cluster,
        service: ServiceUrl,
        topic: Topic,
        settings: ProducerSettings | None = None,
        *,
        router: Router | None = None,
        partitions: int | None = None,
        most_pending_bytes: int = PENDING_BYTES,
        operation_timeout_s: float = 30.0,
    ) -> None:
        self._router = router or Router(1)
        super().__init__(str(topic), self._router, most_pending_bytes=most_pending_bytes)
        self.topic = topic
        self.settings = settings or ProducerSettings()
        self.cluster = cluster
        self.gate = asyncio.Semaphore(LOOKUPS)
        self.operation_timeout_s = operation_timeout_s
        self._service = service
        self._fixed = partitions

    # --- coming and going

    @property
    def partitions(self) -> int:
        """The number of partitions that are written to; 0 for a topic without partitions, or for a single one."""
        return len(self._parts) if self._parts and self._parts[0].index >= 0 else 0

    @property
    def hashing(self) -> Hashing:
        """The hash that maps keys to partitions."""
        return self._router.hashing

    async def open(self) -> None:
        """Find the partitions and open a producer for each; afterwards they are kept open.

        What can pass is tried again until the operation timeout, a broker that cannot be reached is not.
        """
        try:
            count = self._fixed or 0
            if self._fixed is None and self.topic.partition < 0:
                count = await self.cluster.partitions(str(self.topic), self._service)
        except FastwireError as exc:
            raise ProduceError(f"{self.topic}: {exc}") from exc
        self._router.partitions = max(count, 1)
        self._router.current %= self._router.partitions
        self._parts = [self._part(index) for index in (range(count) if count else (-1,))]
        for part in self._parts:
            part.start()
        try:
            await asyncio.gather(*(part.opened for part in self._parts))
        except BaseException:
            await self.close()
            raise
        if count and self._fixed is None:
            self._watch()

    async def _count(self) -> int:
        return await self.cluster.partitions(str(self.topic), self._service, create=False)

    async def _add(self, number: int) -> "_Part":
        part = self._part(number)
        part.start()
        try:
            await part.opened
        except BaseException:
            await part.close()
            raise
        return part

    def _part(self, index: int) -> "_Part":
        name = self.topic if index < 0 else self.topic.of_partition(index)
        return _Part(self, index, str(name), self._service)

    # --- records

    def _weigh(self, record: Record) -> int:
        return weight(record)

    def _key(self, record: Record) -> str | None:
        return record.key

    def _crowded(self, part: "_Part") -> bool:
        return part.machine.pending >= PENDING_ENTRIES

    async def send(self, record: Record, *, partition: int | None = None) -> Sent:
        """Take a record and wait until it is stored. For more than a few, ``put`` them and ``flush``."""
        return await (await self.put(record, partition=partition))

    @property
    def places(self) -> int:
        """The number of partitions, 1 for a topic without."""
        return len(self._parts)

    @property
    def idle(self) -> bool:
        """True if all records are confirmed or have failed."""
        return self._idle

    def last_stored(self, place: int) -> int:
        """Return the number of the last record of this name that the broker had stored when it was opened, or -1."""
        return self._of(place).machine.last_sequence_id

    async def post(self, record: Record, origin: int | None, place: int) -> None:
        """Take a record; ``origin`` is its number in ``take_refused``."""
        async with self._turn:
            part = self._of(place)
            await self._make_room(part, weight(record))
            part.send(record, origin)
            self._count_pending(part)

    async def put_entry(self, entry: Entry, *, partition: int = 0) -> "asyncio.Future[Sent]":
        """Take an encoded entry, with the sequence id and producer name in its metadata."""
        async with self._turn:
            part = self._of(partition)
            await self._make_room(part, len(entry.body))
            future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
            part.send_entry(entry, future)
            self._count_pending(part)
            return future

    # --- what partitions tell

    def settled(self, part: "_Part", outcome: Outcome) -> None:
        """Resolve the records of an entry that is stored or has failed."""
        if outcome.error is not None:
            self._given_up(part, outcome.tickets, failed(part.topic, outcome.error), outcome.refused)
            return
        position = outcome.position or Position(-1, -1)
        places = (
            Sent(part.index, position, place if outcome.batched else -1, number, outcome.first)
            for place, number in enumerate(outcome.sequence_ids)
        )
        placed = zip(outcome.tickets, places, strict=False)
        self._confirmed(part, placed, records=outcome.messages, size=outcome.size)


class _Part(Part[Producer]):
    def __init__(self, owner: TopicProducer, index: int, topic: str, service: ServiceUrl) -> None:
        super().__init__(Producer(topic, owner.cluster.next_producer_id(), owner.settings))
        self.index = index
        self.topic = topic
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._owner = owner
        self._route = TopicRoute(topic, service)
        self._link: Link | None = None
        self._loaded: LoadedTopic | None = None
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._migrating: ServiceUrl | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # the time of the timer
        self._saying = False

    # --- records

    def send(self, record: Record, ticket: object) -> None:
        self._need()
        self.machine.send(record, ticket, self._loop.time(), now_ms())
        self._moved()

    def send_rows(self, routes: Routes, first: int, stop: int) -> None:
        self._need()
        self.machine.send_rows(routes, first, stop, self._loop.time(), now_ms())
        self._moved()

    def send_entry(self, entry: Entry, ticket: object) -> None:
        """Pass an entry to the state machine."""
        self._need()
        self.machine.send_entry(entry, ticket, self._loop.time())
        self._moved()

    def _need(self) -> None:
        if self.machine.failure is not None:
            raise ProduceError(f"{self.topic}: {self.machine.failure}") from self.machine.failure

    def _moved(self) -> None:
        if self._link is not None and not self._saying:
            self._saying = True
            self._loop.call_soon(self._say)  # together with other messages of this turn of the loop
        for outcome in self.machine.take_outcomes():
            self._owner.settled(self, outcome)
        deadline = self.machine.deadline
        if deadline is not None and (self._timer is None or deadline < self._due):
            if self._timer is not None:
                self._timer.cancel()
            self._due = deadline  # uvloop's handle of a time that has passed does not say it
            self._timer = self._loop.call_at(deadline, self._tick)

    def _say(self) -> None:
        self._saying = False
        if self._link is not None:
            self._link.flush()

    def _tick(self) -> None:
        self._timer = None
        # A loop's clock may call a little early; what is due must then be due.
        self.machine.tick(self._loop.time() + 0.001)
        self._moved()

    # --- what the link tells

    def on_confirmed(self, event: SendConfirmed) -> None:
        try:
            self.machine.confirmed(event)
        except ProtocolError as exc:
            if self._link is not None:
                self._link.transport.abort(exc)
        self._moved()

    def on_refused(self, event: SendRefused) -> None:
        link = self._link
        self._owner.produced.trouble = str(event.error)
        if self.machine.refused(event) and link is not None:
            log.warning("the broker has not stored an entry, sending again", topic=self.topic, error=str(event.error))
            link.abort(f"the broker refused an entry of {self.topic}: {event.error}")
        self._moved()
        if self.broken:
            self._break(str(event.error))

    def on_closed(self, event: ProducerClosed) -> None:
        self._route.closed(event, self._link)
        if self._migrating is not None:
            self._route.move(self._migrating)
            self._migrating = None
        self._break("the broker has closed the producer")

    def on_migrated(self, event: ProducerMigrated) -> None:
        self._migrating = self._route.migrated(event) or self._migrating

    def on_link_lost(self, reason: str) -> None:
        self._break(reason)

    def _break(self, reason: str) -> None:
        self.machine.detached()
        if self._link is not None:
            self._link.producers.pop(self.machine.producer_id, None)
            if self._loaded is not None:
                self._loaded.producers -= 1
                if not self._loaded.producers:
                    del self._link.loaded[self.topic]
                self._loaded = None
            self._link = None
        if not self._lost.done():
            self._lost.set_result(reason)
        if self.broken:
            self._moved()

    # --- staying open

    async def _run(self) -> None:
        backoff = Backoff(most_s=RETRY_S)
        give_up_at = self._loop.time() + self._owner.operation_timeout_s
        while not self.broken:
            self._lost = self._loop.create_future()
            try:
                await self._attach()
                backoff.reset()
                if not self.opened.done():
                    self.opened.set_result(None)
                reason = await self._lost
                delay = backoff.next()
                log.debug("producer is open no longer", topic=self.topic, reason=reason)
            except FastwireError as exc:
                await self._withdraw(exc)
                self.machine.trouble = self._owner.produced.trouble = str(exc)
                if self._is_final(exc) or (not self.opened.done() and self._loop.time() >= give_up_at):
                    self._fail(exc)
                    return
                delay = backoff.failed(log, "cannot open a producer, retrying", exc, topic=self.topic)
            if not self._route.redirected and not self.broken:
                await asyncio.sleep(delay)

    def _is_final(self, exc: FastwireError) -> bool:
        if not self.opened.done():
            busy = isinstance(exc, BrokerError) and exc.remedy is Remedy.TURN
            return busy or isinstance(exc, UnreachableError) or is_for_good(exc)
        # A token can be renewed; a topic that is deleted, or has a producer with exclusive access, does not come back.
        return isinstance(exc, BrokerError) and exc.remedy is Remedy.PERSON and exc.code != pb.AuthenticationError

    def _fail(self, error: FastwireError) -> None:
        super()._fail(error)
        if not self.opened.done():
            self.opened.set_exception(failed(self.topic, error))
            self.opened.exception()

    async def _attach(self) -> None:
        """Open the producer; returns when entries may be sent."""
        async with self._owner.gate:
            link = await self._route.link(self._owner.cluster)
        self._link = link
        link.producers[self.machine.producer_id] = self
        asking = self._loop.create_task(link.ask(self.machine.open, self._answered))
        try:
            # Waiting for exclusive access can end with the broker closing the producer, and no answer.
            await asyncio.wait((asking, self._lost), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise LinkLost(self._lost.result())
            await asking
        finally:
            asking.cancel()
        if self._owner.settings.keeps_numbers:
            await self._wait_for_load(link)
            self._opened(asking.result())

    async def _wait_for_load(self, link: Link) -> None:
        """Return when the broker has had the topic for long enough to keep the numbers of what it stores."""
        if not self._lost.done():
            loaded = self._loaded = link.loaded.setdefault(self.topic, LoadedTopic(self._loop.time()))
            loaded.producers += 1
            await asyncio.wait((self._lost,), timeout=max(loaded.since + LOADED_S - self._loop.time(), 0.0))
        if self._lost.done():
            raise LinkLost(self._lost.result())

    def _answered(self, reply: Reply) -> None:
        if reply.error is None and self.machine.phase is Phase.OPENING and not self._owner.settings.keeps_numbers:
            self._opened(reply.command)

    def _opened(self, command: pb.BaseCommand) -> None:
        self.machine.opened(command.producer_success)
        self._moved()

    async def _withdraw(self, exc: FastwireError) -> None:
        """Close the producer of an unanswered attempt, before another one."""
        if isinstance(exc, RequestTimeout) and self._link is not None:
            await self._ask_to_close(self._link)
        self._break(str(exc))

    async def _ask_to_close(self, link: Link) -> None:
        if self.machine.phase is not Phase.DETACHED and link.ready:
            await close_on_broker(link, self.machine.close, self.topic)

    async def _leave(self) -> None:
        if self._link is not None:
            await self._ask_to_close(self._link)
        self._break("closed")

    async def close(self) -> None:
        await super().close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
