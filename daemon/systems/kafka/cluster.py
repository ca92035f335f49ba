"""Connections to one cluster, its metadata, and requests to the responsible brokers (spec: kafka 1, 5.1, 9.3)."""

import asyncio
from collections.abc import Iterable, Mapping

from fastwire.errors import FastwireError
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.names import TopicPartition
from fastwire.kafka.protocol.connection import Key
from fastwire.kafka.protocol.fetch import FetchLimits
from fastwire.kafka.protocol.metadata import Metadata, Node, Topic
from fastwire.kafka.protocol.question import (
    Offsets,
    ask_committed,
    ask_coordinator,
    ask_epoch_end,
    ask_offsets,
    commit_offsets,
    read_commit_errors,
    read_committed_offsets,
    read_coordinator,
    read_epoch_end,
    read_offsets,
)
from fastwire.kafka.protocol.sasl import SaslError
from fastwire.kafka.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ...runtime.logs import get_logger
from ...runtime.shared import shared
from ..links.brokerbook import Address, BrokerBook, BrokerKey, Purpose
from ..links.linkbook import CLIENT_MEMORY, TimedLinkBook
from ..reading.topics import MISSING_S
from .link import Link, LinkOwner, LoginLost
from .refusal import is_of_login
from .replica import ReplicaChoice
from .settings import ClientSettings

log = get_logger("source")


class Cluster(BrokerBook[Link]):
    """Finds leaders and coordinators, and keeps the connections to them.

    A Fetch that waits holds up everything behind it on its connection (spec: kafka 1), and a heartbeat must not wait
    for an answer about offsets either: each purpose has its own connection.
    """

    def __init__(
        self, settings: ClientSettings, slots: SlotTable, pool: Pool, owner: LinkOwner, limits: FetchLimits
    ) -> None:
        super().__init__(settings.url.addresses)
        self.metadata = Metadata()
        self._settings = settings
        self._slots = slots
        self._pool = pool
        self._owner = owner
        self._limits = limits
        self._refreshing: dict[tuple[tuple[str, ...] | None, bool], asyncio.Task[None]] = {}

    # --- connections

    def _make(self, key: BrokerKey) -> Link:
        purpose, host, port = key
        limits = self._limits if purpose == "fetch" else None
        return Link((host, port), self._settings, self._slots, self._pool, self._owner, limits=limits)

    def _is_of_login(self, error: FastwireError) -> bool:
        return is_of_login(error) or isinstance(error, SaslError | LoginLost)

    def _answers(self, purpose: Purpose, link: Link) -> bool:
        # A JoinGroup holds up what is behind it as a Fetch does, and so does a throttle.
        return purpose != "group" and link.connection.fetches_outstanding == 0 and not link.throttled_s

    def _known(self) -> Iterable[Address]:
        return ((node.host, node.port) for node in self.metadata.nodes.values())

    def _questions(self) -> Iterable[asyncio.Task[None]]:
        return self._refreshing.values()

    # --- questions

    async def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> None:
        """Ask for what is known of these topics, None: of all. What a topic's error means is for the caller.

        ``create`` lets a broker make those that do not exist, if it is a broker that does so.
        """
        key = None if topics is None else tuple(sorted(topics))
        await shared(self._refreshing, (key, create), lambda: self._refresh(key, create))

    async def _refresh(self, topics: tuple[str, ...] | None, create: bool) -> None:
        link = await self.any()
        answer = await link.ask(Key.METADATA, Metadata.request(topics, create=create))
        self.metadata.update(answer, asyncio.get_running_loop().time(), everything=topics is None)

    def topic(self, name: str) -> Topic | None:
        """Return the topic ``name`` as ``refresh`` has found it; None if it does not exist.

        Raises BrokerError for a topic that has an error, and for a missing one until that is certain.
        """
        known = self.metadata.topics.get(name)
        if known is None or known.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
            if self.metadata.missing_s(name, asyncio.get_running_loop().time()) < MISSING_S:
                raise BrokerError(Code.LEADER_NOT_AVAILABLE, name)
            return None
        if known.error:
            raise BrokerError(known.error, name)
        return known

    async def leader(self, purpose: Purpose, partition: TopicPartition) -> Link:
        """The connection to the leader of a partition. Raises BrokerError where it has none at the moment."""
        node = self.metadata.leading(*partition)
        return await self.link(purpose, node.host, node.port)

    async def controller(self) -> Link:
        """The connection to the broker that makes topics; to any one where none is named."""
        node = self.metadata.nodes.get(self.metadata.controller)
        return await self.any() if node is None else await self.link("ask", node.host, node.port)

    async def nearest(self, partition: TopicPartition, choice: ReplicaChoice) -> Link:
        """Return the connection for reading a partition: to its chosen replica, else to its leader.

        A replica that cannot be reached is avoided. Raises the errors of ``leader``.
        """
        if not choice.at_leader:
            try:
                node = self.metadata.node(choice.node)
                return await self.link("fetch", node.host, node.port)
            except FastwireError as exc:
                log.debug("cannot read from the nearest replica", topic=partition[0], error=str(exc))
                choice.avoid(asyncio.get_running_loop().time())
        return await self.leader("fetch", partition)

    async def list_offsets(self, wanted: Mapping[TopicPartition, int], *, read_committed: bool) -> Offsets:
        """Ask for each partition's EARLIEST, LATEST or time in milliseconds; all leaders are asked at the same time.

        A leader that is missing or away fails its own partitions and no others.
        """
        offsets = Offsets()
        by_node: dict[Node, dict[TopicPartition, int]] = {}
        for partition, timestamp in wanted.items():
            try:
                node = self.metadata.leading(*partition)
            except FastwireError as exc:
                offsets.failed[partition] = exc
            else:
                by_node.setdefault(node, {})[partition] = timestamp
        questions = (self._offsets_at(node, asked, read_committed) for node, asked in by_node.items())
        for answer in await asyncio.gather(*questions):
            offsets.found.update(answer.found)
            offsets.failed.update(answer.failed)
        return offsets

    async def _offsets_at(self, node: Node, asked: Mapping[TopicPartition, int], read_committed: bool) -> Offsets:
        try:
            link = await self.link("ask", node.host, node.port)
            return read_offsets(await link.ask(Key.LIST_OFFSETS, ask_offsets(asked, read_committed=read_committed)))
        except FastwireError as exc:
            return Offsets(failed=dict.fromkeys(asked, exc))

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> tuple[int, int] | None:
        """The largest epoch up to ``epoch`` that the leader knows, and where it ends (spec: kafka 5.1, 13.3).

        None where the broker is too old to say; (-1, -1) where it does not know.
        """
        link = await self.leader("ask", partition)
        if not link.connection.speaks(Key.OFFSET_FOR_LEADER_EPOCH):
            return None
        body = ask_epoch_end(partition, epoch, self.metadata.leader(*partition).epoch)
        return read_epoch_end(await link.ask(Key.OFFSET_FOR_LEADER_EPOCH, body))

    # --- groups

    async def coordinator(self, group: str, purpose: Purpose = "group") -> Link:
        """The connection to the coordinator of a group; by default for nothing but membership."""
        link = await self.any()
        host, port = read_coordinator(await link.ask(Key.FIND_COORDINATOR, ask_coordinator(group)), group)
        return await self.link(purpose, host, port)

    async def transaction_coordinator(self, name: str) -> Link:
        """Return the connection to the coordinator of a transactional id."""
        answer = await (await self.any()).ask(Key.FIND_COORDINATOR, ask_coordinator(name, transactional=True))
        host, port = read_coordinator(answer, name, transactional=True)
        return await self.link("ask", host, port)

    async def committed(
        self, link: Link, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and epoch that the group has committed; partitions without are left out."""
        return read_committed_offsets(await link.ask(Key.OFFSET_FETCH, ask_committed(group, partitions)), group)

    async def commit(
        self, link: Link, group: str, offsets: Mapping[TopicPartition, tuple[int, int]], member: Body
    ) -> dict[TopicPartition, int]:
        """Commit offsets with their epochs; ``member`` has the group's fields. Returns the codes of what failed."""
        return read_commit_errors(await link.ask(Key.OFFSET_COMMIT, commit_offsets(group, offsets, member)))


class ClientCluster(Cluster, TimedLinkBook[BrokerKey, Link]):
    """A cluster without consumers, for requests and producers: an async context manager that ticks its connections."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(CLIENT_MEMORY), self, FetchLimits())

    def on_throttled(self, link: Link, seconds: float) -> None:
        """Do nothing: requests wait for the end of a throttle in the connection."""
