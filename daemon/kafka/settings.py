"""What every connection to a Kafka cluster has to be told, whoever uses it."""

from dataclasses import dataclass
from typing import Any, Literal

from fastwire.kafka.names import BootstrapUrl

from ..config import SourceConfig
from ..tls import ClientTls
from .login import Login

__all__ = ["ClientSettings", "client_fields"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where the brokers are, who we are to them, and what their connections build of what they send."""

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
    """The fields of ``ClientSettings`` that a source's configuration gives. Raises ConfigError for unusable files."""
    return {
        "url": source.url,
        "login": Login(source.auth) if source.auth.given else None,
        "tls": ClientTls(source.tls) if source.url.tls else None,
        "server_name": source.tls.server_name or "",
        "on_corrupt": source.on_corrupt,
    }
