"""The embedded Pulsar broker.

From the bottom: ``ledgers`` (logs and positions), ``cursor`` (acknowledgements), ``dispatch`` (subscription types),
``subscriptions`` (with their consumers), ``topics`` (with their producers), ``logins``, ``options``, ``cluster`` (all
of that, and faults), ``frame`` and ``connection`` (frames), the modules of requests (``metadata``, ``producers``,
``consumers``), and ``broker`` (their table).
"""

from ..server import running
from .broker import PulsarDevBroker
from .connection import PulsarConnection
from .options import PulsarOptions
from .subscriptions import ConsumerState

__all__ = ["ConsumerState", "PulsarConnection", "PulsarDevBroker", "PulsarOptions", "make", "running"]


def make(partitions: int = 0) -> PulsarDevBroker:
    """Make a broker whose auto-created topics have this number of partitions, 0: they are not partitioned."""
    return PulsarDevBroker(PulsarOptions(auto_create_partitions=partitions))
