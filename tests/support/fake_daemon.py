"""A daemon without pipelines behind the HTTP server: its status is set by the test."""

from typing import Any

__all__ = ["FakeDaemon"]


class FakeDaemon:
    """A ``StatusProvider`` whose ``/status`` is ``said``."""

    def __init__(self, **pipelines: Any) -> None:
        self.said: dict[str, Any] = {
            "version": "1.2.3",
            "pid": 77,
            "live": True,
            "ready": True,
            "memory": {"used": 16_000_000, "limit": 64_000_000, "peak": 20_000_000},
            "pipelines": pipelines,
        }

    def live(self) -> bool:
        """See ``StatusProvider.live``."""
        return bool(self.said["live"])

    def ready(self) -> bool:
        """See ``StatusProvider.ready``."""
        return bool(self.said["ready"])

    def status(self) -> dict[str, Any]:
        """See ``StatusProvider.status``."""
        return self.said
