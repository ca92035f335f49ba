"""Apache Pulsar for people, and the connections that everything else stands on.

``connect`` gives a ``Client``, and that consumers (``subscribe``), readers (``read``) and producers. Below it are
``intake`` and ``member``, which keep partitions subscribed, and ``cluster`` and ``link``, which sources use, too: so
what is for people is imported when somebody asks for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastwire.pulsar.deadletter import DeadLetterPolicy
    from fastwire.pulsar.message_id import EARLIEST, LATEST, MessageId
    from fastwire.pulsar.redelivery import RedeliveryBackoff

    from .client import Client, connect
    from .consumer import Consumer, Delivery
    from .member import AckRefused
    from .options import ConsumerOptions
    from .reader import Reader
else:
    _WHERE = {
        "EARLIEST": "fastwire.pulsar.message_id",
        "LATEST": "fastwire.pulsar.message_id",
        "AckRefused": ".member",
        "Client": ".client",
        "Consumer": ".consumer",
        "ConsumerOptions": ".options",
        "DeadLetterPolicy": "fastwire.pulsar.deadletter",
        "Delivery": ".consumer",
        "MessageId": "fastwire.pulsar.message_id",
        "Reader": ".reader",
        "RedeliveryBackoff": "fastwire.pulsar.redelivery",
        "connect": ".client",
    }

    def __getattr__(name):
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_WHERE[name], __name__), name)


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
