"""Connections to one TANK cluster, and requests to the brokers that lead the partitions (spec: tank 8-12)."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastwire.errors import FastwireError, ProtocolError
from fastwire.tank.format.error import BrokerError, CreateCode, PartitionStatus
from fastwire.tank.format.message import (
    CreateTopic,
    DiscoverPartitions,
    DiscoverTopics,
    DiscoverTopology,
    PartitionRange,
    PartitionRanges,
)
from fastwire.tank.protocol.fetch import FetchLimits
from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ...runtime.logs import get_logger
from ...runtime.shared import shared
from ..links.brokerbook import Address, BrokerBook, BrokerKey, Purpose
from ..links.linkbook import CLIENT_MEMORY, TimedLinkBook
from ..reading.topics import MISSING_S
from .link import Link, LinkOwner
from .settings import ClientSettings

MOST_BROKERS = 256  # of a cluster: an answer that names more is not believed
MOST_REDIRECTS = 3  # brokers whose views of a cluster differ may name each other
NODES_S = 60.0  # between two requests for the list of brokers

Partition = tuple[str, int]
"""Topic and number."""

log = get_logger("source")


@dataclass(slots=True)
class Ranges:
    """The ``count`` partitions of a topic: the sequences of those whose leader has answered, and errors of the rest.

    ``error`` is the error of the whole topic, if no broker has described it.
    """

    topic: str
    count: int
    found: dict[int, PartitionRange] = field(default_factory=dict)
    failed: dict[int, FastwireError] = field(default_factory=dict)
    error: FastwireError | None = None

    def of(self, number: int) -> PartitionRange:
        """Return the sequences of a partition. Raises its error, or BrokerError for a partition that does not exist."""
        if (error := self.failed.get(number, self.error)) is not None:
            raise error
        if number not in self.found:
            raise BrokerError(PartitionStatus.UNKNOWN_PARTITION, f"{self.topic}/{number}")
        return self.found[number]


class Cluster(BrokerBook[Link]):
    """Finds the leaders of partitions and keeps the connections to them; a standalone broker leads all.

    Messages and questions have connections of their own, because large answers and back-pressure delay what is behind
    them.
    """

    def __init__(
        self,
        settings: ClientSettings,
        slots: SlotTable,
        pool: Pool,
        owner: LinkOwner,
        limits: FetchLimits | None = None,
    ) -> None:
        super().__init__(settings.url.addresses)
        self._limits = limits or FetchLimits()
        self._settings = settings
        self._slots = slots
        self._pool = pool
        self._owner = owner
        self.aware = False
        """True if the brokers are a cluster, where a leader may lag behind the one before it."""
        self._leaders: dict[Partition, Address] = {}
        self._nodes: tuple[Address, ...] = ()
        self._nodes_until = 0.0
        self._asking: dict[str, asyncio.Task[Ranges]] = {}
        self._missing_since: dict[str, float] = {}  # topics that brokers do not know

    @property
    def client_id(self) -> str:
        """The name of this client in requests."""
        return self._settings.client_id

    # --- connections

    def _make(self, key: BrokerKey) -> Link:
        purpose, host, port = key
        limits = self._limits if purpose == "fetch" else None
        return Link((host, port), self._settings, self._slots, self._pool, self._owner, limits=limits)

    def _answers(self, purpose: Purpose, link: Link) -> bool:
        return purpose == "ask"

    def _known(self) -> Iterable[Address]:
        return self._nodes

    def _questions(self) -> Iterable[asyncio.Task[Ranges]]:
        return self._asking.values()

    # --- topics

    async def topics(self) -> dict[str, int]:
        """Return the enabled topics with the number of their partitions."""
        link = await self.any()
        answer = await link.ask(DiscoverTopics())
        self.aware = answer.cluster_aware
        if answer.cluster_aware:
            await self._learn_nodes(link)
        return {topic.name: topic.partitions for topic in answer.topics if topic.enabled}

    async def create(self, topic: str, partitions: int, configuration: str = "") -> bool:
        """Create a topic; False if it exists. ``configuration`` has lines ``key=value``. Raises BrokerError."""
        link = await self.any()
        answer = await link.ask(CreateTopic(topic, partitions, configuration))
        if answer.code in (CreateCode.CREATED, CreateCode.EXISTS):
            return answer.code == CreateCode.CREATED
        known = answer.code in CreateCode.__members__.values()
        what = f"the broker has not created topic {topic}"
        raise BrokerError(CreateCode(answer.code), what) if known else FastwireError(f"{what}: code {answer.code}")

    # --- partitions and their leaders

    async def existing(self, topic: str) -> Ranges | None:
        """Return the sequences of a topic; None if the topic does not exist.

        Raises the errors of ``ranges``, of which BrokerError UNKNOWN_TOPIC until that is certain.
        """
        try:
            found = await self.ranges(topic)
        except BrokerError as exc:
            if exc.code is not PartitionStatus.UNKNOWN_TOPIC:
                raise
            now = asyncio.get_running_loop().time()
            if now - self._missing_since.setdefault(topic, now) < MISSING_S:
                raise
            return None
        self._missing_since.pop(topic, None)
        return found

    async def ranges(self, topic: str) -> Ranges:
        """Return the sequences of all partitions of a topic, asking the leaders that other brokers name.

        A leader that is missing or away fails its own partitions and no others. Raises BrokerError UNKNOWN_TOPIC.
        """
        return await shared(self._asking, topic, lambda: self._ranges(topic))

    async def ranges_of(self, topics: Iterable[str]) -> dict[str, Ranges]:
        """Return the sequences of each topic; a topic that no broker has described fails all of its partitions."""
        names = list(topics)
        answers = await asyncio.gather(*map(self.ranges, names), return_exceptions=True)
        found = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, FastwireError):
                answer = Ranges(name, 0, error=answer)
            elif isinstance(answer, BaseException):
                raise answer
            found[name] = answer
        return found

    async def _ranges(self, topic: str) -> Ranges:
        link = await self.any()
        try:
            answer = await _discover(link, topic)
        except BrokerError:
            self._leaders = {place: address for place, address in self._leaders.items() if place[0] != topic}
            raise
        found = Ranges(topic, answer.count)
        elsewhere = self._sort(found, link, answer, range(answer.count))
        if elsewhere or found.failed:
            await self._learn_nodes(link)
        for _ in range(MOST_REDIRECTS):
            if len(elsewhere) > MOST_BROKERS:
                raise ProtocolError("discover partitions answer", detail=f"names {len(elsewhere)} brokers")
            asked = (self._ranges_at(found, address, numbers) for address, numbers in elsewhere.items())
            answers = await asyncio.gather(*asked)
            elsewhere = {}
            for one in answers:
                for address, numbers in one.items():
                    elsewhere.setdefault(address, []).extend(numbers)
        for number in (number for numbers in elsewhere.values() for number in numbers):
            what = f"{topic}/{number}: {MOST_REDIRECTS} brokers have named another leader"
            self._failed(found, number, BrokerError(PartitionStatus.REDIRECT, what))
        return found

    async def _ranges_at(self, found: Ranges, address: Address, numbers: list[int]) -> dict[Address, list[int]]:
        """Ask the broker at ``address`` for partitions that it leads; return those that it does not lead."""
        try:
            link = await self.link("ask", *address)
            return self._sort(found, link, await _discover(link, found.topic), numbers)
        except FastwireError as exc:
            for number in numbers:
                self._failed(found, number, exc)
            return {}

    def _sort(
        self, found: Ranges, link: Link, answer: PartitionRanges, numbers: Iterable[int]
    ) -> dict[Address, list[int]]:
        """Take the partitions ``numbers`` of an answer; return those that other brokers lead, by address."""
        elsewhere: dict[Address, list[int]] = {}
        for number in numbers:
            place = (found.topic, number)
            if number >= len(answer.ranges):
                self._failed(found, number, BrokerError(PartitionStatus.UNKNOWN_PARTITION, f"{found.topic}/{number}"))
                continue
            one = answer.ranges[number]
            if one.status == PartitionStatus.OK:
                self._leaders[place] = link.address
                found.found[number] = one
            elif one.leader is not None:
                elsewhere.setdefault(one.leader, []).append(number)
            else:
                self._failed(found, number, BrokerError(PartitionStatus(one.status), f"{found.topic}/{number}"))
        return elsewhere

    def _failed(self, found: Ranges, number: int, error: FastwireError) -> None:
        self._leaders.pop((found.topic, number), None)
        found.failed[number] = error

    def lead(self, partition: Partition, address: Address | None) -> None:
        """Record the leader that an answer has named; None: the leader is not known any more."""
        if address is None:
            self._leaders.pop(partition, None)
        else:
            self._leaders[partition] = address

    async def leader(self, purpose: Purpose, partition: Partition) -> Link:
        """Return the connection to the leader of a partition. Raises BrokerError where it has none at the moment."""
        topic, number = partition
        address = self._leaders.get(partition)
        if address is None:
            (await self.ranges(topic)).of(number)
            address = self._leaders.get(partition)
        if address is None:
            raise BrokerError(PartitionStatus.NO_LEADER, f"{topic}/{number}")
        try:
            return await self.link(purpose, *address)
        except FastwireError:
            self._leaders.pop(partition, None)  # another broker may lead it meanwhile
            raise

    # --- brokers

    async def _learn_nodes(self, link: Link) -> None:
        """Ask for the brokers of a cluster, which are connected to when the hosts of the URL are away."""
        now = asyncio.get_running_loop().time()
        if now < self._nodes_until:
            return
        self._nodes_until = now + NODES_S
        try:
            answer = await link.ask(DiscoverTopology())
        except FastwireError as exc:
            log.debug("cannot ask for the brokers of the cluster", broker=str(link), error=str(exc))
            return
        usable = (node.endpoint for node in answer.nodes if node.available and not node.blocked)
        self._nodes = tuple(endpoint for endpoint in usable if endpoint is not None)


async def _discover(link: Link, topic: str) -> PartitionRanges:
    """Ask one broker for the partitions of a topic. Raises BrokerError UNKNOWN_TOPIC."""
    answer = await link.ask(DiscoverPartitions(topic))
    if answer.topic != topic:
        raise ProtocolError("discover partitions answer", 4, detail=f"is for topic {answer.topic!r}, not {topic!r}")
    if answer.count == 0:
        raise BrokerError(PartitionStatus.UNKNOWN_TOPIC, topic)
    if len(answer.ranges) < answer.count:
        # A cluster leaves disabled partitions out, and does not say which (spec: tank 8).
        listed = f"{len(answer.ranges)} of the {answer.count} partitions of {topic}"
        raise FastwireError(f"{link} lists {listed}: enable the others, or delete the topic")
    return answer


class ClientCluster(Cluster, TimedLinkBook[BrokerKey, Link]):
    """A cluster without a source, for requests and producers: an async context manager that ticks its connections."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(CLIENT_MEMORY), self)
