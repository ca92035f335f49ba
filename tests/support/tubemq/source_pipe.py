"""The pipeline of a TubeMQ source, for tests, and an embedded cluster for it."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from fastwire.address import HostsUrl
from fastwire.coverage import Coverage
from fastwire.tubemq.grammar import GRAMMAR as TUBEMQ
from fastwire.tubemq.names import parse_master_url
from fastwire.wire.pool import Pool
from fastwire_daemon.config import parse_start
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from fastwire_daemon.systems.tubemq.source import TubeMQSettings, TubeMQSource
from tests.support import source_pipe
from tests.support.source_pipe import AnyPipe, playing

GROUP = "g1"


class TubeMQPipe(AnyPipe):
    """Plays the pipeline of a member whose heartbeats follow each other quickly."""

    source: TubeMQSource

    def __init__(
        self,
        broker: TubeMQDevBroker,
        *topics: str,
        coverage: Coverage | None = None,
        pool: Pool | None = None,
        start: Any = "earliest",
        url: str | HostsUrl = "",
        **more: Any,
    ) -> None:
        super().__init__(coverage, pool)
        settings: dict[str, Any] = {
            "url": url if isinstance(url, HostsUrl) else parse_master_url(url or broker.url),
            "topics": topics or ("t",),
            "group": GROUP,
            "start": parse_start(start, TUBEMQ),
            "cluster": "c",
            "heartbeat_s": 0.05,
        }
        self.source = TubeMQSource(TubeMQSettings(**settings | more), self, self.pool)


def serving(partitions: int = 1, **options: Any) -> AbstractAsyncContextManager[TubeMQDevBroker]:
    """See ``source_pipe.serving``."""
    return source_pipe.serving(TubeMQDevBroker(TubeMQOptions(**options)), partitions)


def reading(
    broker: TubeMQDevBroker, *topics: str, started: bool = True, **more: Any
) -> AbstractAsyncContextManager[TubeMQPipe]:
    return playing(TubeMQPipe(broker, *topics, **more), started=started)
