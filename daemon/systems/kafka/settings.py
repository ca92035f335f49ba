"""Settings of all connections to a Kafka cluster."""

import os
from dataclasses import dataclass
from typing import Any, Literal

from fastwire.address import HostsUrl

from ...config import Connection
from ...net.tls import ClientTls
from .config import KafkaConnection
from .login import Login

__all__ = ["ClientSettings", "client_fields"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Addresses, credentials and options of the connections to a cluster."""

    url: HostsUrl
    login: Login | None = None
    tls: ClientTls | None = None
    server_name: str = ""
    client_id: str = "fastwire"
    columns: frozenset[str] | None = None
    on_corrupt: Literal["dead_letter", "stop"] = "dead_letter"
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0


def client_fields(connection: Connection) -> dict[str, Any]:
    """Return the fields of ``ClientSettings`` from the configuration. Raises ConfigError for unusable files."""
    own = KafkaConnection.of(connection)
    return {
        "url": own.url,
        "login": Login(own.auth) if own.auth.given else None,
        "tls": ClientTls(own.tls) if own.url.tls else None,
        "server_name": own.tls.server_name or "",
        "client_id": own.client_id or f"fastwire-{os.uname().nodename}",
    }
