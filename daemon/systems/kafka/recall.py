"""Finding records again that were written to a topic of Kafka."""

from collections.abc import Callable
from dataclasses import replace

from fastwire.wire.pool import Pool

from ...config import Connection, Start, TopicChoice
from ..reading.clusterreader import ClusterReader
from ..reading.clusterrecall import ClusterRecall
from ..recall import Recall
from .cluster import ClientCluster
from .fence import can_fence, fence
from .settings import ClientSettings, client_fields
from .source import DRIVER, reader_settings


class _KafkaRecall(ClusterRecall):
    def __init__(self, client: ClientSettings, topic: str, make_reader: Callable[[], ClusterReader]) -> None:
        super().__init__(make_reader)
        self._client = client
        self._topic = topic

    async def fence(self, sender: str) -> None:
        async with ClientCluster(self._client) as cluster:
            if await can_fence(cluster, sender):
                await fence(cluster, self._topic, sender)
                return
        await super().fence(sender)


def recall_of(connection: Connection, topic: str, pool: Pool) -> Recall:
    """See ``System.recall``. Readers see all records: a transaction that stays open must hide none."""
    settings = reader_settings(connection, TopicChoice((topic,)), Start("earliest"))
    settings = replace(settings, columns=frozenset({"headers"}), limits=replace(settings.limits, read_committed=False))

    client = ClientSettings(**client_fields(connection))
    return _KafkaRecall(client, topic, lambda: DRIVER.reader(settings, pool))
