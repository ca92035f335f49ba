"""From the configuration's ``auth`` to exchanges of a SASL mechanism (kafka 15)."""

import secrets

from fastwire.kafka.sasl import Mechanism, OAuthBearer, Plain, Scram

from ..auth import BasicCredentials, credentials
from ..config import AuthConfig

__all__ = ["Login"]


class Login:
    """Begins exchanges with the credentials as they are then. One object serves all connections of a client."""

    def __init__(self, auth: AuthConfig) -> None:
        self._known = credentials(auth)
        self._mechanism = auth.mechanism

    async def begin(self) -> Mechanism:
        """A new exchange. Raises AuthError or UnavailableError."""
        known = self._known
        if not isinstance(known, BasicCredentials):
            return OAuthBearer((await known.data() or b"").decode())
        user, password = known.user, known.password()
        if self._mechanism == "PLAIN":
            return Plain(user, password)
        return Scram(self._mechanism, user, password, secrets.token_urlsafe(24))

    def forget(self, exchange: Mechanism) -> None:
        """The broker has refused its token, or wants another: it is not given again from memory."""
        if isinstance(exchange, OAuthBearer):
            self._known.forget(exchange.token.encode())
