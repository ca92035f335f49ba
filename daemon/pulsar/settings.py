"""What every connection to a Pulsar cluster has to be told, whoever uses it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from fastwire.pulsar.topic import ServiceUrl

from ..auth import Credentials, NoCredentials, credentials
from ..config import SourceConfig
from ..tls import ClientTls

__all__ = ["ClientSettings", "client_fields"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where the brokers are, who we are to them, and what their connections build of what they send."""

    url: ServiceUrl
    credentials: Credentials = field(default_factory=NoCredentials)
    tls: ClientTls | None = None
    server_name: str = ""
    listener: str = ""  # name of the broker's advertised listener
    columns: frozenset[str] | None = None
    on_corrupt: Literal["divert", "stop"] = "divert"
    keep_alive_s: float = 30.0
    operation_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0


def client_fields(source: SourceConfig) -> dict[str, Any]:
    """The fields of ``ClientSettings`` that a source's configuration gives. Raises ConfigError for unusable files."""
    return {
        "url": source.url,
        "credentials": credentials(source.auth, client_certificate=source.tls.cert is not None),
        "tls": ClientTls(source.tls) if source.url.tls else None,
        "server_name": source.tls.server_name or "",
        "listener": source.listener or "",
        "on_corrupt": source.on_corrupt,
    }
