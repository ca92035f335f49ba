"""The asyncio client of Apache Pulsar, under the name that programs import.

``connect`` gives a ``Client``, and that gives consumers (``subscribe``), readers (``read``) and producers. The code is
in ``systems/pulsar/client`` and is imported when a name of it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastwire.pulsar.protocol.deadletter import DeadLetterPolicy
    from fastwire.pulsar.protocol.message_id import EARLIEST, LATEST, MessageId
    from fastwire.pulsar.protocol.redelivery import RedeliveryBackoff

    from .systems.pulsar.client.acking import AckRefused
    from .systems.pulsar.client.client import Client, connect
    from .systems.pulsar.client.consumer import Consumer
    from .systems.pulsar.client.delivery import Delivery
    from .systems.pulsar.client.options import ConsumerOptions
    from .systems.pulsar.client.reader import Reader
else:
    _WHERE = {
        "EARLIEST": "fastwire.pulsar.protocol.message_id",
        "LATEST": "fastwire.pulsar.protocol.message_id",
        "AckRefused": ".systems.pulsar.client.acking",
        "Client": ".systems.pulsar.client.client",
        "Consumer": ".systems.pulsar.client.consumer",
        "ConsumerOptions": ".systems.pulsar.client.options",
        "DeadLetterPolicy": "fastwire.pulsar.protocol.deadletter",
        "Delivery": ".systems.pulsar.client.delivery",
        "MessageId": "fastwire.pulsar.protocol.message_id",
        "Reader": ".systems.pulsar.client.reader",
        "RedeliveryBackoff": "fastwire.pulsar.protocol.redelivery",
        "connect": ".systems.pulsar.client.client",
    }

    def __getattr__(name):
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_WHERE[name], __package__), name)


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
