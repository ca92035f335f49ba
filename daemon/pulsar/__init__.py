"""Apache Pulsar for people, and the connections that everything else stands on.

``connect`` gives a ``Client``, and that consumers (``subscribe``), readers (``read``) and producers. Below it are
``intake`` and ``member``, which keep partitions subscribed, and ``cluster`` and ``link``, which sources use, too.
"""

from fastwire.pulsar.deadletter import DeadLetterPolicy
from fastwire.pulsar.message_id import EARLIEST, LATEST, MessageId
from fastwire.pulsar.redelivery import RedeliveryBackoff

from .client import Client, connect
from .consumer import Consumer, Delivery
from .member import AckRefused
from .options import ConsumerOptions
from .reader import Reader

__all__ = [
    "EARLIEST",
    "LATEST",
    "AckRefused",
    "Client",
    "Consumer",
    "ConsumerOptions",
    "DeadLetterPolicy",
    "Delivery",
    "MessageId",
    "Reader",
    "RedeliveryBackoff",
    "connect",
]
