"""The pipeline of a TANK source, for tests, and an embedded broker for it."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from fastwire.coverage import Coverage
from fastwire.grammar import parse_name_pattern
from fastwire.tank.grammar import GRAMMAR as TANK
from fastwire.tank.names import parse_tank_url
from fastwire.tank.protocol.fetch import FetchLimits
from fastwire.wire.pool import Pool
from fastwire_daemon.config import parse_start
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.systems.tank.source import TankSettings, TankSource
from tests.support import source_pipe
from tests.support.source_pipe import AnyPipe, playing


class TankPipe(AnyPipe):
    """Plays the pipeline; topics are asked for often, and a request waits a short time, so that no test has to."""

    source: TankSource

    def __init__(
        self,
        broker: TankDevBroker,
        *topics: str,
        coverage: Coverage | None = None,
        pool: Pool | None = None,
        start: str = "earliest",
        pattern: str = "",
        **more: Any,
    ) -> None:
        super().__init__(coverage, pool)
        settings: dict[str, Any] = {
            "url": parse_tank_url(broker.url),
            "client_id": "t",
            "topics": () if pattern else topics or ("t",),
            "pattern": parse_name_pattern(pattern) if pattern else None,
            "start": parse_start(start, TANK),
            "cluster": "c",
            "limits": FetchLimits(max_wait_ms=100),
            "metadata_max_age_s": 0.2,
        }
        self.source = TankSource(TankSettings(**settings | more), self, self.pool)


def serving(partitions: int = 1, **options: Any) -> AbstractAsyncContextManager[TankDevBroker]:
    """See ``source_pipe.serving``."""
    return source_pipe.serving(TankDevBroker(TankOptions(**options)), partitions)


def reading(
    broker: TankDevBroker, *topics: str, started: bool = True, **more: Any
) -> AbstractAsyncContextManager[TankPipe]:
    return playing(TankPipe(broker, *topics, **more), started=started)
