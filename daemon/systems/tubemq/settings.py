"""Settings of all connections to a TubeMQ cluster."""

import os
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from fastwire.address import HostsUrl

from ...config import Connection
from ...net.endpoint import own_host
from ..links.link import LinkSettings, tls_fields
from .config import TubeMQConnection
from .login import Login


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(LinkSettings):
    """Addresses and options of the connections to a cluster."""

    url: HostsUrl
    request_timeout_s: float = 10.0
    connect_timeout_s: float = 3.0
    login: Login | None = None
    host: str = field(default_factory=own_host)
    """The IPv4 address of this machine, which servers show to operators."""

    def shown(self) -> dict[str, Any]:
        """Return the fields of a client's identity that are the same for all clients of this machine and user."""
        login = self.login
        return {
            "host": self.host,
            "tls": self.url.tls,
            "certificate": None if login is None else login.certificate,
            "broker_token": None if login is None else login.broker_token,
        }

    def new_id(self, prefix: str = "", family: str = "") -> str:
        """Return a client id that no other client has; servers read address and process id from it (spec: tubemq 8).

        A consumer's has ``GROUP_`` as ``prefix`` and ``-Pull`` or ``-Balance`` as ``family``.
        """
        unique = f"{self.host}-{os.getpid()}-{time.monotonic_ns()}-{uuid.uuid4().hex}"
        return f"{prefix}{unique}{family}-fastwire"


def client_fields(connection: Connection) -> dict[str, Any]:
    """Return the fields of ``ClientSettings`` from the configuration. Raises ConfigError for unusable files."""
    own = TubeMQConnection.of(connection)
    return {
        "url": own.url,
        "login": Login(own.auth) if own.auth.given else None,
        **tls_fields(own),
    }
