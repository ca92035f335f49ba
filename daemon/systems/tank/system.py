"""TANK as a ``System``."""

from fastwire.tank.grammar import GRAMMAR
from fastwire.wire.pool import Pool

from ...config import Connection, SourceConfig, Start, TopicChoice
from ..base import MakeSource
from ..reading.clusterreader import ClusterReader, ClusterSystem
from ..reading.offsets import start_at_offsets
from .config import NO_TIME

__all__ = ["SYSTEM"]


class _Tank(ClusterSystem):
    grammar = GRAMMAR

    def make_source(self, source: SourceConfig) -> MakeSource:
        from .source import TankSource, settings_from

        return lambda events, pool, metrics, columns, cluster: TankSource(
            settings_from(source, columns=columns, cluster=cluster), events, pool, metrics=metrics
        )

    def open_reader(
        self,
        connection: Connection,
        topics: TopicChoice,
        start: Start,
        pool: Pool,
        columns: frozenset[str] | None = None,
    ) -> ClusterReader:
        from .source import TankSource, reader_settings

        settings = reader_settings(connection, topics, start, columns)
        return ClusterReader(lambda events, moved: TankSource(settings, events, pool, patient=False, on_progress=moved))

    def start_of(self, text: str, topics: TopicChoice) -> Start:
        """``text`` may also be a sequence of every partition, or sequences by partition such as ``0=5,2=7``."""
        start = start_at_offsets(text, topics, self.grammar, "/") or super().start_of(text, topics)
        if start.time is not None:
            raise ValueError(NO_TIME)
        return start


SYSTEM = _Tank()
