"""The embedded TubeMQ Master and Broker.

From the bottom: ``topics`` (stores), ``groups`` (positions at the Broker), ``balance`` (groups at the Master),
``cluster`` (topics, options, faults), ``connection`` (frames), ``logins``, the modules of requests (``producers``,
``consume``, ``members``), and ``broker`` (their tables).
"""

from .broker import TubeMQDevBroker
from .cluster import TubeMQOptions

__all__ = ["TubeMQDevBroker", "TubeMQOptions", "make"]


def make(partitions: int = 0) -> TubeMQDevBroker:
    """Make a broker whose topics have this number of partitions unless their creator names another one, 0: one."""
    return TubeMQDevBroker(TubeMQOptions(partitions=max(partitions, 1)))
