"""The connections of one process to one cluster, without an event loop, and what is asked by them (kafka 5.1, 9)."""

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from fastwire.errors import FastwireError
from fastwire.kafka.connection import Connection, Key
from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.fetch import FetchLimits
from fastwire.kafka.message import Body
from fastwire.kafka.metadata import NO_ID, Metadata, Topic, topic_id_text
from fastwire.kafka.question import (
    NO_MEMBER,
    ask_coordinator,
    ask_epoch_end,
    ask_offsets,
    commit_offsets,
    read_commit_errors,
    read_coordinator,
    read_epoch_end,
    read_offsets,
)
from fastwire.kafka.question import Partition as Place
from fastwire.kafka.slot import SlotTable
from fastwire.position import Log
from fastwire.wire.pool import Pool

from ...kafka.settings import ClientSettings, client_fields
from ..options import Options
from ..ranges import Partition
from ..rows import Rows
from .link import Link

__all__ = ["Client", "fetch_limits", "incarnation_of", "settings_of"]

POOL_BYTES = 256 << 20  # a figure for the pool to count against: what limits memory is the queue of a task
FETCH_WAIT_MS = 200
# Before a topic counts as missing: a broker that has just come up may not know all of them.
MISSING_S = 2.0


def settings_of(options: Options) -> ClientSettings:
    """What the options ask of connections. Raises ConfigError for unusable files."""
    fields = client_fields(options.source)
    return ClientSettings(**fields, client_id=options.prefix, columns=Rows.built(options.system, options.columns))


def fetch_limits(options: Options) -> FetchLimits:
    """How much is asked for at a time: of one partition, because a task has one."""
    return FetchLimits(
        response_bytes=options.fetch_bytes,
        partition_bytes=options.fetch_bytes,
        max_wait_ms=FETCH_WAIT_MS,
        read_committed=options.read_committed,
    )


def incarnation_of(topic: Topic) -> str:
    """The topic's id as text, "" where the cluster is too old to have one."""
    return "" if topic.topic_id == NO_ID else topic_id_text(topic.topic_id)


class Client:
    """Finds the leaders of partitions and keeps one connection to each broker. Used by one thread at a time."""

    def __init__(self, settings: ClientSettings, limits: FetchLimits) -> None:
        self.settings = settings
        self.limits = limits
        self.slots = SlotTable()
        self.sessions = count(1)
        self.metadata = Metadata()
        self._pool = Pool(POOL_BYTES)
        self._links: dict[tuple[str, int], Link] = {}
        self._turn = 0
        self._logs: dict[tuple[Partition, str], int] = {}

    def log_index(self, partition: Partition, incarnation: str) -> int:
        """The index of ``partition`` in the slot table, entered there if it is new."""
        known = (partition, incarnation)
        if known not in self._logs:
            hosts = self.settings.url.hosts
            self._logs[known] = self.slots.add(
                Log("kafka", hosts, partition.topic, str(partition.index), incarnation or "0")
            )
        return self._logs[known]

    # --- questions

    def refresh(self, topics: Iterable[str] | None) -> None:
        """Ask for what is known of these topics, None: of all."""
        asked = None if topics is None else sorted(topics)
        answer = self._any().ask(_request(Key.METADATA, Metadata.request(asked)))
        self.metadata.update(answer, time.monotonic(), everything=asked is None)

    def topic(self, name: str) -> Topic | None:
        """What ``refresh`` has found, None if there is no such topic.

        Raises BrokerError for a topic that has an error, and for a missing one until that is certain.
        """
        known = self.metadata.topics.get(name)
        if known is None or known.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
            if self.metadata.missing_s(name, time.monotonic()) < MISSING_S:
                raise BrokerError(Code.LEADER_NOT_AVAILABLE, name)
            return None
        if known.error:
            raise BrokerError(known.error, name)
        return known

    def leader(self, place: Place) -> Link:
        """The connection to the leader of a partition. Raises BrokerError where it has none at the moment."""
        node = self.metadata.node(self.metadata.leader(*place).node_id)
        return self._link(node.host, node.port)

    def offsets(self, wanted: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
        """Offset and leader epoch for each partition's EARLIEST, LATEST or time in milliseconds; -1: there is none.

        Raises BrokerError for the first partition that has one.
        """
        by_link: dict[Link, dict[Place, int]] = {}
        for place, timestamp in wanted.items():
            by_link.setdefault(self.leader(place), {})[place] = timestamp
        committed = self.limits.read_committed
        begun = [
            (link, link.begin(_request(Key.LIST_OFFSETS, ask_offsets(asked, read_committed=committed))))
            for link, asked in by_link.items()
        ]
        found: dict[Place, tuple[int, int]] = {}
        for link, request_id in begun:
            found |= read_offsets(link.answer(request_id))
        return found

    def epoch_end(self, place: Place, epoch: int) -> int:
        """Where the leader's log leaves ``epoch`` and all before it; -1 where nobody can tell."""
        link = self.leader(place)
        if epoch < 0 or not link.connection.speaks(Key.OFFSET_FOR_LEADER_EPOCH):
            return -1
        body = ask_epoch_end(place, epoch, self.metadata.leader(*place).epoch)
        return read_epoch_end(link.ask(_request(Key.OFFSET_FOR_LEADER_EPOCH, body)))[1]

    def commit(self, group: str, offsets: Mapping[Place, tuple[int, int]]) -> dict[Place, int]:
        """Commit for a group that nobody is a member of. Returns the codes of what failed."""
        answer = self._any().ask(_request(Key.FIND_COORDINATOR, ask_coordinator(group)))
        link = self._link(*read_coordinator(answer, group))
        return read_commit_errors(link.ask(_request(Key.OFFSET_COMMIT, commit_offsets(group, offsets, NO_MEMBER))))

    # --- connections

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _any(self) -> Link:
        """A connection for general questions: one there is, or to a node that is known, or to a host of the URL."""
        for link in self._links.values():
            if link.ready:
                return link
        places = [(node.host, node.port) for node in self.metadata.nodes.values()]
        hosts = self.settings.url.addresses
        turn = self._turn % len(hosts)
        failure: FastwireError | None = None
        for host, port in (*places, *hosts[turn:], *hosts[:turn]):
            try:
                return self._link(host, port)
            except FastwireError as exc:
                failure = exc
                self._turn += 1
        raise failure or FastwireError(f"{self.settings.url} names no host")

    def _link(self, host: str, port: int) -> Link:
        link = self._links.get((host, port))
        if link is None or not link.ready:
            self._links[host, port] = link = Link(host, port, self.settings, self.slots, self._pool, self.limits)
        return link


def _request(key: int, body: Body) -> Callable[[Connection, float], int]:
    return lambda connection, now: connection.request(key, body, now)
