"""Settings of all connections to a Kafka cluster."""

import os
from dataclasses import dataclass
from typing import Any, Literal

from fastwire.kafka.names import BootstrapUrl

from ...config import SourceConfig
from ...net.tls import ClientTls
from .config import own_source
from .login import Login

__all__ = ["ClientSettings", "client_fields"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Addresses, credentials and options of the connections to a cluster."""

    url: BootstrapUrl
    login: Login | None = None
    tls: ClientTls | None = None
    server_name: str = ""
    client_id: str = "fastwire"
    columns: frozenset[str] | None = None
    on_corrupt: Literal["divert", "stop"] = "divert"
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0


def client_fields(source: SourceConfig) -> dict[str, Any]:
    """Return the fields of ``ClientSettings`` from a source's configuration. Raises ConfigError for unusable files."""
    source = own_source(source)
    return {
        "url": source.url,
        "login": Login(source.auth) if source.auth.given else None,
        "tls": ClientTls(source.tls) if source.url.tls else None,
        "server_name": source.tls.server_name or "",
        "on_corrupt": source.on_corrupt,
        "client_id": source.client_id or f"fastwire-{os.uname().nodename}",
    }
