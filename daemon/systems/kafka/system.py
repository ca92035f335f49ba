"""Kafka as a ``System``."""

from contextlib import AbstractAsyncContextManager

from fastwire.kafka.grammar import GRAMMAR
from fastwire.wire.pool import Pool

from ...config import Connection, SourceConfig, Start, TopicChoice
from ..ledger import LedgerFinding, LedgerOptions, LedgerWriter
from ..reading.clusterreader import ClusterSystem
from ..reading.offsets import start_at_offsets
from ..recall import Recall
from ..writer import WriteOptions
from .config import KafkaConnection, KafkaSourceConfig


class _Kafka(ClusterSystem):
    grammar = GRAMMAR

    def open_ledger(
        self, connection: Connection, topic: str, options: WriteOptions, ledger: LedgerOptions
    ) -> AbstractAsyncContextManager[LedgerWriter]:
        from .ledger import open_ledger

        return open_ledger(connection, topic, options, ledger)

    async def inspect_ledger(self, connection: Connection, topic: str, ledger: LedgerOptions) -> list[LedgerFinding]:
        from .ledgercheck import inspect_ledger

        return await inspect_ledger(connection, topic, ledger)

    def recall(self, connection: Connection, topic: str, pool: Pool) -> Recall:
        from .recall import recall_of

        return recall_of(connection, topic, pool)

    def start_of(self, text: str, topics: TopicChoice) -> Start:
        """``text`` may also be an offset of every partition, or offsets by partition such as ``0=5,2=7``.

        Partitions that are not named begin at their end.
        """
        return start_at_offsets(text, topics, self.grammar, "-") or super().start_of(text, topics)

    def mechanism(self, connection: Connection) -> str:
        auth = KafkaConnection.of(connection).auth
        return "OAUTHBEARER" if auth.user is None else auth.mechanism

    def sharing(self, source: SourceConfig) -> str:
        own = KafkaSourceConfig.of(source)
        if own.group_protocol == "none":
            return f"all partitions alone, offsets kept as group {own.subscription}"
        return f"group {own.subscription} (protocol {own.group_protocol})"


SYSTEM = _Kafka()
