"""What every connection to one Pulsar cluster is made with, whoever drives it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from fastwire import __version__
from fastwire.pulsar.completion import Completion
from fastwire.pulsar.connection import Connection
from fastwire.pulsar.scan import Scanner
from fastwire.pulsar.slot import SlotTable
from fastwire.wire.pool import Pool

from .settings import ClientSettings

__all__ = ["Equipment"]


@dataclass(frozen=True, slots=True)
class Equipment:
    """One for all connections, because consumers and parts of messages move between them."""

    settings: ClientSettings
    slots: SlotTable
    pool: Pool
    completion: Completion
    request_ids: Iterator[int] = field(default_factory=lambda: count(1))
    link_ids: Iterator[int] = field(default_factory=lambda: count(1))

    def connection(self, scanner: Scanner) -> Connection:
        """The state machine of a connection whose records ``scanner`` takes."""
        return Connection(
            scanner,
            self.completion,
            client_version=f"fastwire-{__version__}",
            request_ids=self.request_ids,
            keep_alive_s=self.settings.keep_alive_s,
            operation_timeout_s=self.settings.operation_timeout_s,
        )
