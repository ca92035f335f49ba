"""Logins of clients: the broker's side of each SASL mechanism, and the login of one connection (spec: kafka 15)."""

import base64
import hmac
import math
import secrets
from collections.abc import Callable, Collection, Mapping

from fastwire.errors import ProtocolError
from fastwire.kafka.format.error import Code
from fastwire.kafka.protocol.connection import Key
from fastwire.kafka.protocol.sasl import LEAST_ITERATIONS, Scram

AGAIN_S = 1.0  # seconds after a login before another one is taken
OF_LOGINS = frozenset({Key.SASL_HANDSHAKE, Key.SASL_AUTHENTICATE})

Users = Mapping[str, str]
"""Passwords by user."""


class LoginRefusedError(Exception):
    """The credentials of a client are wrong."""


class _Plain:
    """The broker's side of PLAIN."""

    def __init__(self, mechanism: str, users: Users) -> None:
        self._users = users

    def answer(self, token: bytes) -> tuple[bytes, bool]:
        """Return the response to a token, and whether it is the last one. Raises LoginRefusedError."""
        parts = token.split(b"\0")
        known = self._users.get(parts[1].decode(errors="replace")) if len(parts) == 3 else None
        if known is None or not hmac.compare_digest(known.encode(), parts[2]):
            raise LoginRefusedError("Authentication failed: Invalid username or password")
        return b"", True


class _Scram:
    """The broker's side of SCRAM: computes the tokens of a client that knows the password, and compares."""

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
    """The login of one connection. Without ``users`` every client is let in and no login is taken.

    A login that was made by SaslAuthenticate ends after ``lifetime_ms``; 0 is without end.
    """

    def __init__(self, users: Users | None, mechanisms: Collection[str], lifetime_ms: int) -> None:
        self.raw = False  # tokens come without requests, as after SaslHandshake 0
        self.lifetime_ms = lifetime_ms
        self._users = users
        self._mechanisms = mechanisms
        self._exchange: _Plain | _Scram | None = None
        self._ends = math.inf if users is None else -math.inf
        self._last = -math.inf

    @property
    def begun(self) -> bool:
        """Tell whether a mechanism was chosen and its exchange is not over."""
        return self._exchange is not None

    def admits(self, key: int, now: float) -> bool:
        """Tell whether a request is handled now. Raises ProtocolError for one between the steps of a login."""
        if self.begun and key not in OF_LOGINS:
            raise ProtocolError(f"request {key} between the steps of a login")
        return key in OF_LOGINS or key == Key.API_VERSIONS or now < self._ends

    def begin(self, mechanism: str, now: float, *, raw: bool) -> Code:
        """Begin an exchange with a mechanism; return the error code of the response."""
        if self._users is None or now - self._last < AGAIN_S:
            return Code.ILLEGAL_SASL_STATE
        if mechanism not in self._mechanisms:
            return Code.UNSUPPORTED_SASL_MECHANISM
        self._exchange = MECHANISMS[mechanism](mechanism, self._users)
        self.raw = raw
        return Code.NONE

    def step(self, token: bytes, now: float) -> tuple[bytes, bool]:
        """Return the broker's token, and whether the client is logged in with it. Raises LoginRefusedError."""
        assert self._exchange is not None
        answer, over = self._exchange.answer(token)
        if over:
            self._exchange = None
            self._ends = math.inf
            if not self.raw:
                self._last = now
                if self.lifetime_ms:
                    self._ends = now + self.lifetime_ms / 1000
            self.raw = False
        return answer, over
