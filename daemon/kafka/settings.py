"""What every connection to a Kafka cluster has to be told, whoever uses it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fastwire.kafka.sasl import Mechanism

from ..tls import ClientTls

__all__ = ["ClientSettings", "Login"]

Login = Callable[[], Mechanism]
"""Begins an exchange with the credentials as they are now. Raises AuthError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where the brokers are, who we are to them, and what their connections build of what they send."""

    bootstrap: tuple[tuple[str, int], ...]
    login: Login | None = None
    tls: ClientTls | None = None
    server_name: str = ""
    client_id: str = "fastwire"
    columns: frozenset[str] | None = None
    on_corrupt: Literal["divert", "stop"] = "divert"
    read_committed: bool = True
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
