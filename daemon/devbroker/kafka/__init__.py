"""The embedded Kafka broker.

From the bottom: ``topics`` (partition logs), ``consumer_group`` and ``groups`` (members and offsets), ``logins``,
``requests`` (versions by release), ``cluster`` (all of that, options, faults), ``connection`` (frames), the modules of
requests (``metadata``, ``producers``, ``fetch``, ``coordinator``), and ``broker`` (their table).
"""

from ..server import running
from .broker import KafkaDevBroker
from .cluster import KafkaOptions
from .connection import KafkaConnection
from .requests import Request

__all__ = ["KafkaConnection", "KafkaDevBroker", "KafkaOptions", "Request", "make", "running"]


def make(partitions: int = 0) -> KafkaDevBroker:
    """Make a broker whose auto-created topics have this number of partitions, 0: one."""
    return KafkaDevBroker(KafkaOptions(auto_create_partitions=max(partitions, 1)))
