"""From the configuration's ``auth`` to exchanges of a SASL mechanism (kafka 15)."""

import secrets
from collections.abc import Awaitable, Callable

from fastwire.kafka.sasl import Mechanism, OAuthBearer, Plain, Scram

from ..auth import BasicCredentials, credentials
from ..config import AuthConfig

__all__ = ["login"]


def login(auth: AuthConfig) -> Callable[[], Awaitable[Mechanism]] | None:
    """A function that begins an exchange with the credentials as they are then; None: nobody has to log in.

    It raises AuthError or UnavailableError.
    """
    if not auth.given:
        return None
    known = credentials(auth)

    async def begin() -> Mechanism:
        if not isinstance(known, BasicCredentials):
            return OAuthBearer((await known.data() or b"").decode())
        user, password = known.user, known.password()
        if auth.mechanism == "PLAIN":
            return Plain(user, password)
        return Scram(auth.mechanism, user, password, secrets.token_urlsafe(24))

    return begin
