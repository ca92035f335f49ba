"""SASL exchanges made from the configuration's ``auth`` (spec: kafka 15)."""

import secrets

from fastwire.kafka.protocol.sasl import Mechanism, OAuthBearer, Plain, Scram

from ...net.auth import BasicCredentials, credentials
from .config import KafkaAuthConfig


class Login:
    """Begins SASL exchanges with the current credentials. One object serves all connections of a client."""

    def __init__(self, auth: KafkaAuthConfig) -> None:
        self._known = credentials(auth)
        self._mechanism = auth.mechanism
        self._extensions = auth.extensions

    async def begin(self) -> Mechanism:
        """Return a new exchange. Raises AuthError or UnavailableError."""
        known = self._known
        if not isinstance(known, BasicCredentials):
            return OAuthBearer((await known.data() or b"").decode(), self._extensions)
        user, password = known.user, known.password()
        if self._mechanism == "PLAIN":
            return Plain(user, password)
        return Scram(self._mechanism, user, password, secrets.token_urlsafe(24))

    def forget(self, exchange: Mechanism) -> None:
        """Drop the cached token of ``exchange``: the broker has refused it, or asks for a new one."""
        if isinstance(exchange, OAuthBearer) and not isinstance(self._known, BasicCredentials):
            self._known.forget(exchange.token.encode())
