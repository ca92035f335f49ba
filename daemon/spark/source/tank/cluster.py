"""A TANK cluster as one of Spark's processes reads it: the daemon's connections, for one range at a time."""

from itertools import count

from fastwire.position import Log
from fastwire.tank.format.error import BrokerError, PartitionStatus
from fastwire.tank.position import POSITIONS
from fastwire.tank.protocol.fetch import FetchLimits
from fastwire.tank.reading.response import Fetched
from fastwire.tank.reading.scan import CorruptBundle
from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ....systems.links.brokerbook import BrokerKey, Purpose
from ....systems.reading.topics import MISSING_S
from ....systems.tank.cluster import Cluster, Ranges
from ....systems.tank.config import TankConnection
from ....systems.tank.link import Link
from ....systems.tank.settings import ClientSettings, client_fields
from ..connections import POOL_BYTES, RangeBook
from ..offsetrangereader import UnreadableError
from ..options import Options
from ..ranges import QueryPartition
from ..rows import Rows
from .dialect import DIALECT

__all__ = ["RangeCluster", "ReplacedError", "settings_of"]


def settings_of(options: Options) -> ClientSettings:
    """Return the settings of connections for the options."""
    fields = client_fields(options.connection)
    fields["client_id"] = TankConnection.of(options.connection).client_id or options.prefix
    return ClientSettings(**fields, columns=Rows.built(DIALECT, options.columns))


class ReplacedError(UnreadableError):
    """The message before the position is another one than the one that was read."""


class RangeCluster(Cluster, RangeBook[BrokerKey, Link]):
    """One connection to each broker, for questions and for the messages of one range at a time.

    ``answered`` are the partitions of which answers have spoken, by log index, until a reader takes them.
    """

    def __init__(self, settings: ClientSettings, limits: FetchLimits) -> None:
        self.slots = SlotTable()
        self.sessions = count(1)
        self.answered: set[int] = set()
        self._indexes: dict[QueryPartition, int] = {}
        self._missing_since: dict[str, float] = {}  # topics that brokers do not know
        self._name = settings.url.hosts
        super().__init__(settings, self.slots, Pool(POOL_BYTES), self, limits)

    def log_index(self, partition: QueryPartition) -> int:
        """Return the index of ``partition`` in the slot table, which it is added to if it is new."""
        if partition not in self._indexes:
            log = Log("tank", self._name, partition.topic, str(partition.index))
            self._indexes[partition] = self.slots.add(log)
        return self._indexes[partition]

    async def link(self, purpose: Purpose, host: str, port: int) -> Link:
        """Return the connection to a broker: a task waits for one answer at a time, so all purposes share it."""
        return await super().link("fetch", host, port)

    def _answers(self, purpose: Purpose, link: Link) -> bool:
        return True

    async def existing(self, topic: str) -> Ranges | None:
        """Return the sequences of a topic, None if there is none of that name.

        Raises the errors of ``ranges``, of which BrokerError UNKNOWN_TOPIC until that is certain.
        """
        try:
            found = await self.ranges(topic)
        except BrokerError as exc:
            since = self._missing_since.setdefault(topic, self.now)
            if exc.code is not PartitionStatus.UNKNOWN_TOPIC or self.now - since < MISSING_S:
                raise
            return None
        self._missing_since.pop(topic, None)
        return found

    # --- calls of the links

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        """Wake the reader when an answer is through."""
        link.fetcher.done(fetched)
        self.answered.update(fetched.answered)
        self.tell()

    def on_corrupt(self, bundle: CorruptBundle) -> None:
        """End the reading: nothing behind ``bundle`` can be found."""
        at = POSITIONS.format(bundle.position)
        kind = ReplacedError if bundle.replaced else UnreadableError
        self.tell(kind(f"the log cannot be read from {at} on: {bundle.reason}: {bundle.detail}"))
