"""The embedded Kafka broker.

``broker`` has the topics and what one may do to them, ``connection`` and the modules beside it answer the requests
(``topics``, ``producing``, ``fetching``, ``grouping``, ``logins``), ``topic`` and ``group`` are what a cluster is made
of; ``versions`` knows what each release speaks.
"""

import asyncio
from collections.abc import Callable

from ..server import running, serve_until_signal
from .broker import KafkaDevBroker, KafkaOptions
from .connection import KafkaConnection, Request

__all__ = ["KafkaConnection", "KafkaDevBroker", "KafkaOptions", "Request", "running", "serve"]


def serve(port: int = 9092, *, host: str = "127.0.0.1", partitions: int = 0, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    ``partitions`` is what a topic gets that a client makes by using it, 0 is one. ``ready`` is called with the URL as
    soon as clients can connect.
    """
    broker = KafkaDevBroker(KafkaOptions(auto_create_partitions=max(partitions, 1)))
    with asyncio.Runner() as runner:
        runner.run(serve_until_signal(broker, host, port, ready))
