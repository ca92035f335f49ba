"""TubeMQ as a ``System``."""

from fastwire.tubemq.grammar import GRAMMAR
from fastwire.wire.pool import Pool

from ...config import Connection, SourceConfig, Start, TopicChoice
from ..reading.clusterreader import ClusterSystem
from ..recall import Recall
from .config import NO_TIME, TubeMQSourceConfig


class _TubeMQ(ClusterSystem):
    grammar = GRAMMAR

    def recall(self, connection: Connection, topic: str, pool: Pool) -> Recall:
        from ..reading.clusterrecall import ClusterRecall

        topics = TopicChoice((topic,))
        return ClusterRecall(lambda: self.open_reader(connection, topics, Start("earliest"), pool))

    def start_of(self, text: str, topics: TopicChoice) -> Start:
        """A time is refused: a Broker finds no message by its time."""
        start = super().start_of(text, topics)
        if start.time is not None:
            raise ValueError(NO_TIME)
        return start

    def sharing(self, source: SourceConfig) -> str:
        own = TubeMQSourceConfig.of(source)
        if own.balance == "client":
            return f"group {own.subscription}, as node {own.node_id} of {own.source_count}"
        return f"group {own.subscription}, whose partitions the Master assigns"


SYSTEM = _TubeMQ()
