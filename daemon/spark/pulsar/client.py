"""The connections of one process to one cluster, without an event loop (pulsar 5, 6.1)."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from fastwire.errors import FastwireError
from fastwire.position import Log, Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.assembly import Assembly
from fastwire.pulsar.cold import ColdEntry
from fastwire.pulsar.completion import Completion, Finisher
from fastwire.pulsar.event import EntryRejected
from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import Address
from fastwire.wire.pool import Pool

from ...pulsar.equipment import Equipment
from ...pulsar.lookup import MOST_REDIRECTS, broker_address
from ...pulsar.settings import ClientSettings, client_fields
from ..options import Options
from ..ranges import Partition
from ..rows import Rows
from .link import Link, Request

__all__ = ["Client", "settings_of"]

POOL_BYTES = 256 << 20  # a figure for the pool to count against: what limits memory is the queue of a task


def settings_of(options: Options) -> ClientSettings:
    """What the options ask of connections. Raises ConfigError for unusable files."""
    return ClientSettings(**client_fields(options.source), columns=Rows.built(options.system, options.columns))


class TellingCompletion(Completion):
    """Tells of each entry that it is given: a part of something larger has come, though no row shows it yet."""

    on_taken: Callable[[Position], None] = staticmethod(lambda position: None)

    def take(self, entry: ColdEntry, to: Finisher, hand_on: Callable[[], None]) -> Sequence[EntryRejected]:
        """Tell, then complete."""
        self.on_taken(entry.position)
        return super().take(entry, to, hand_on)


class Client:
    """Finds the owners of topics and keeps one connection to each broker. Used by one thread at a time."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.slots = SlotTable()
        self.consumer_ids: Iterator[int] = count()
        pool = Pool(POOL_BYTES)
        self.completion = TellingCompletion(
            Assembly(pool),
            divert=False,
            decryptor=settings.decryptor,
            on_failure=settings.on_undecryptable,
        )
        self._equipment = Equipment(settings, self.slots, pool, self.completion)
        self._links: dict[tuple[Address, Address], Link] = {}
        self._turn = 0
        self._logs: dict[Partition, int] = {}

    def log_index(self, partition: Partition) -> int:
        """The index of ``partition`` in the slot table, entered there if it is new."""
        if partition not in self._logs:
            log = Log("pulsar", self.settings.url.hosts, partition.topic, str(partition.index))
            self._logs[partition] = self.slots.add_log(log)
        return self._logs[partition]

    def ask(self, request: Request) -> pb.BaseCommand:
        """Ask any broker of the service URL."""
        link, _ = self._service_link()
        try:
            return link.ask(request)
        except FastwireError:
            self._turn += 1
            raise

    def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has, 0 if it has none. Raises BrokerError(TopicNotFound), where brokers can."""
        answer = self.ask(lambda connection, now: connection.partitioned_metadata(topic, now, create=False))
        return answer.partitionMetadataResponse.partitions

    def owner(self, topic: str) -> Link:
        """The connection to the broker that owns ``topic``."""
        link, entrance = self._service_link()
        authoritative = False
        try:
            for _ in range(MOST_REDIRECTS + 1):
                found = self._look_up(link, topic, authoritative)
                address = broker_address(found, self.settings.url.tls)
                link = self._link(address, entrance if found.proxy_through_service_url else address)
                if found.response == pb.CommandLookupTopicResponse.Connect:
                    return link
                authoritative = found.authoritative
            raise FastwireError(f"lookup of {topic}: more than {MOST_REDIRECTS} redirects")
        except FastwireError:
            self._turn += 1
            raise

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _look_up(self, link: Link, topic: str, authoritative: bool) -> pb.CommandLookupTopicResponse:
        listener = self.settings.listener
        answer = link.ask(
            lambda connection, now: connection.lookup(topic, now, authoritative=authoritative, listener=listener)
        )
        return answer.lookupTopicResponse

    def _service_link(self) -> tuple[Link, Address]:
        """A connection to a host of the service URL: the one there is, or to the next host that lets us."""
        addresses = self.settings.url.addresses
        for attempt in range(len(addresses)):
            address = addresses[self._turn % len(addresses)]
            try:
                return self._link(address, address), address
            except FastwireError:
                self._turn += 1
                if attempt + 1 == len(addresses):
                    raise
        raise FastwireError(f"{self.settings.url} names no host")

    def _link(self, address: Address, physical: Address) -> Link:
        key = (address, physical)
        link = self._links.get(key)
        if link is None or not link.ready:
            self._links[key] = link = Link(address, physical, self._equipment)
        return link
