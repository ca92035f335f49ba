"""A daemon without pipelines behind the HTTP server: its status is set by the test."""

from typing import Any

from fastwire_daemon.runtime.health import Health


class FakeDaemon:
    """A ``StatusProvider`` whose ``/status`` is ``said``."""

    def __init__(self, **pipelines: Any) -> None:
        self.said: dict[str, Any] = {
            "version": "1.2.3",
            "pid": 77,
            "live": True,
            "ready": True,
            "health": "healthy",
            "memory": {"used": 16_000_000, "limit": 64_000_000, "peak": 20_000_000},
            "pipelines": pipelines,
        }

    def health(self) -> Health:
        """See ``StatusProvider.health``."""
        return Health(self.said["health"])

    def status(self) -> dict[str, Any]:
        """See ``StatusProvider.status``."""
        return self.said
