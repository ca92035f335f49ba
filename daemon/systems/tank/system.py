"""TANK as a ``System``."""

from fastwire.tank.grammar import GRAMMAR

from ...config import Start, TopicChoice
from ..reading.clusterreader import ClusterSystem
from ..reading.offsets import start_at_offsets
from .config import NO_TIME


class _Tank(ClusterSystem):
    grammar = GRAMMAR

    def start_of(self, text: str, topics: TopicChoice) -> Start:
        """``text`` may also be a sequence of every partition, or sequences by partition such as ``0=5,2=7``."""
        start = start_at_offsets(text, topics, self.grammar, "/") or super().start_of(text, topics)
        if start.time is not None:
            raise ValueError(NO_TIME)
        return start


SYSTEM = _Tank()
