"""Settings of all connections to a TANK cluster."""

import os
from dataclasses import dataclass
from typing import Any

from fastwire.address import HostsUrl

from ...config import Connection
from ..links.link import LinkSettings
from .config import TankConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(LinkSettings):
    """Addresses and options of the connections to a cluster; the protocol has neither credentials nor TLS."""

    url: HostsUrl
    client_id: str = "fastwire"
    request_timeout_s: float = 30.0


def client_fields(connection: Connection) -> dict[str, Any]:
    """Return the fields of ``ClientSettings`` from the configuration."""
    own = TankConnection.of(connection)
    return {"url": own.url, "client_id": own.client_id or f"fastwire-{os.uname().nodename}"}
