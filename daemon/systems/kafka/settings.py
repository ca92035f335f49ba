"""Settings of all connections to a Kafka cluster."""

import os
from dataclasses import dataclass
from typing import Any

from fastwire.address import HostsUrl

from ...config import Connection
from ..links.link import LinkSettings, tls_fields
from .config import KafkaConnection
from .login import Login


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(LinkSettings):
    """Addresses, credentials and options of the connections to a cluster."""

    url: HostsUrl
    login: Login | None = None
    client_id: str = "fastwire"
    request_timeout_s: float = 30.0


def client_fields(connection: Connection) -> dict[str, Any]:
    """Return the fields of ``ClientSettings`` from the configuration. Raises ConfigError for unusable files."""
    own = KafkaConnection.of(connection)
    return {
        "url": own.url,
        "login": Login(own.auth) if own.auth.given else None,
        **tls_fields(own),
        "client_id": own.client_id or f"fastwire-{os.uname().nodename}",
    }
