"""Objects that all connections to one Pulsar cluster share."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from fastwire import __version__
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.protocol.connection import Connection
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from .settings import ClientSettings


@dataclass(frozen=True, slots=True)
class LinkContext:
    """The shared objects of all connections, between which consumers and parts of messages move."""

    settings: ClientSettings
    slots: SlotTable
    pool: Pool
    completion: Completion
    request_ids: Iterator[int] = field(default_factory=lambda: count(1))
    link_ids: Iterator[int] = field(default_factory=lambda: count(1))

    def connection(self, scanner: Scanner) -> Connection:
        """Return the state machine of a connection whose records ``scanner`` decodes."""
        return Connection(
            scanner,
            self.completion,
            client_version=f"fastwire-{__version__}",
            request_ids=self.request_ids,
            keep_alive_s=self.settings.keep_alive_s,
            operation_timeout_s=self.settings.operation_timeout_s,
        )
