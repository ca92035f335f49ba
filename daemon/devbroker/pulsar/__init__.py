"""The embedded Pulsar broker.

``broker`` has the topics and what one may do to them, ``connection`` and the modules beside it answer the commands
(``lookup``, ``producing``, ``consuming``), ``topic``, ``ledgers``, ``cursor``, ``subscription``, ``consumer`` and
``dispatch`` are what a broker is made of; ``credentials`` knows clients.
"""

import asyncio
from collections.abc import Callable

from ..server import running, serve_until_signal
from .broker import PulsarDevBroker, PulsarOptions
from .connection import PulsarConnection
from .consumer import ConsumerState

__all__ = ["ConsumerState", "PulsarConnection", "PulsarDevBroker", "PulsarOptions", "running", "serve"]


def serve(
    port: int = 6650,
    *,
    host: str = "127.0.0.1",
    partitions: int = 0,
    topics: dict[str, int] | None = None,
    token: str = "",
    ready: Callable[[str], None] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM.

    ``partitions`` is what a topic gets that a client makes by using it, ``topics`` are made at once with their
    partitions. ``ready`` is called with the service URL as soon as clients can connect; without it the URL is printed.
    """
    broker = PulsarDevBroker(PulsarOptions(auto_create_partitions=partitions, token=token))
    for name, count in (topics or {}).items():
        broker.create_topic(name, count)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(serve_until_signal(broker, host, port, ready or _say))


def _say(url: str) -> None:
    print(url, flush=True)  # flushed, because whoever waits for it reads a pipe
