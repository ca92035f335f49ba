"""The embedded TANK broker.

From the bottom: ``topics`` (partition logs), ``cluster`` (topics, options, faults), ``connection`` (frames), the
modules of requests (``metadata``, ``producers``, ``consume``), and ``broker`` (their table).
"""

from .broker import TankDevBroker
from .cluster import TankOptions

__all__ = ["TankDevBroker", "TankOptions", "make"]


def make(partitions: int = 0) -> TankDevBroker:
    """Make a broker whose topics have this number of partitions unless their creator names another one, 0: one."""
    return TankDevBroker(TankOptions(partitions=max(partitions, 1)))
