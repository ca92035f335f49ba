"""SaslHandshake and SaslAuthenticate: who a client is, and for how long that is believed (kafka 15)."""

import base64
import hmac
import math
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fastwire.errors import ProtocolError
from fastwire.kafka.connection import Key
from fastwire.kafka.error import Code
from fastwire.kafka.message import Body
from fastwire.kafka.sasl import LEAST_ITERATIONS, Scram

if TYPE_CHECKING:
    from .connection import KafkaConnection, Request

__all__ = ["MECHANISMS", "Login", "authenticate", "handshake"]

AGAIN_S = 1.0  # another login is taken so long after the last one
OF_LOGINS = frozenset({Key.SASL_HANDSHAKE, Key.SASL_AUTHENTICATE})

Users = Mapping[str, str]
"""Passwords by user."""


class LoginRefusedError(Exception):
    """The client is not who it says it is."""


class _Plain:
    """The broker's side of PLAIN."""

    def __init__(self, mechanism: str, users: Users) -> None:
        self._users = users

    def answer(self, token: bytes) -> tuple[bytes, bool]:
        """What to say to a token, and whether that was the last one. Raises LoginRefusedError."""
        parts = token.split(b"\0")
        known = self._users.get(parts[1].decode(errors="replace")) if len(parts) == 3 else None
        if known is None or not hmac.compare_digest(known.encode(), parts[2]):
            raise LoginRefusedError("Authentication failed: Invalid username or password")
        return b"", True


class _Scram:
    """The broker's side of SCRAM: it knows the password, and so what a client that knows it will say."""

    def __init__(self, mechanism: str, users: Users) -> None:
        self._mechanism = mechanism
        self._users = users
        self._client: Scram | None = None
        self._expected = b""

    def answer(self, token: bytes) -> tuple[bytes, bool]:
        """See ``_Plain.answer``."""
        if self._client is None:
            return self._begin(token), False
        if not hmac.compare_digest(token, self._expected):
            raise self._refused()
        return b"v=" + base64.b64encode(self._client.server_signature or b""), True

    def _begin(self, token: bytes) -> bytes:
        said = dict(part.partition("=")[::2] for part in token.decode(errors="replace").split(","))
        user = said.get("n", "").replace("=2C", ",").replace("=3D", "=")
        if user not in self._users or not said.get("r"):
            raise self._refused()
        self._client = Scram(self._mechanism, user, self._users[user], said["r"])
        self._client.first()
        salt = base64.b64encode(secrets.token_bytes(16)).decode()
        challenge = f"r={said['r']}{secrets.token_hex(8)},s={salt},i={LEAST_ITERATIONS}".encode()
        self._expected = self._client.next(challenge) or b""
        return challenge

    def _refused(self) -> LoginRefusedError:
        return LoginRefusedError(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}"
        )


MECHANISMS: Mapping[str, Callable[[str, Users], _Plain | _Scram]] = {
    "PLAIN": _Plain,
    "SCRAM-SHA-256": _Scram,
    "SCRAM-SHA-512": _Scram,
}


class Login:
    """How far one connection is with its login. Without ``users`` everybody is let in."""

    def __init__(self, users: Users | None) -> None:
        self.exchange: _Plain | _Scram | None = None
        self.ends = math.inf if users is None else -math.inf
        self.last = -math.inf

    def admits(self, key: int, now: float) -> bool:
        """Whether a request may come now. Raises ProtocolError for what comes between the steps of a login."""
        if self.exchange is not None and key not in OF_LOGINS:
            raise ProtocolError(f"request {key} between the steps of a login")
        return key in OF_LOGINS or key == Key.API_VERSIONS or now < self.ends


def handshake(connection: "KafkaConnection", request: "Request") -> Body | None:
    """Handle SaslHandshake."""
    options, login = connection.broker.options, connection.login
    answer: Body = {"error_code": 0, "mechanisms": list(options.mechanisms)}
    if options.users is None or connection.broker.loop.time() - login.last < AGAIN_S:
        return answer | {"error_code": Code.ILLEGAL_SASL_STATE}
    mechanism = request.body["mechanism"]
    if mechanism not in options.mechanisms:
        return answer | {"error_code": Code.UNSUPPORTED_SASL_MECHANISM}
    login.exchange = MECHANISMS[mechanism](mechanism, options.users)
    return answer


def authenticate(connection: "KafkaConnection", request: "Request") -> Body | None:
    """Handle SaslAuthenticate; whoever is refused is told so, and hears nothing more."""
    broker, login = connection.broker, connection.login
    if login.exchange is None:
        return {"error_code": Code.ILLEGAL_SASL_STATE, "auth_bytes": b""}
    try:
        said, over = login.exchange.answer(request.body["auth_bytes"])
    except LoginRefusedError as exc:
        broker.refused_logins += 1
        refusal = {"error_code": Code.SASL_AUTHENTICATION_FAILED, "error_message": str(exc), "auth_bytes": b""}
        connection.answer(request, refusal)
        connection.close()
        return None
    answer: Body = {"error_code": 0, "auth_bytes": said}
    if over:
        broker.logins += 1
        login.exchange = None
        login.last = broker.loop.time()
        lifetime_ms = broker.options.login_ms
        login.ends = login.last + lifetime_ms / 1000 if lifetime_ms else math.inf
        answer["session_lifetime_ms"] = lifetime_ms
    return answer
