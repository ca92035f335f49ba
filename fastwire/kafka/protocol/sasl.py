"""SASL mechanisms as exchanges of tokens (spec: kafka 15).

Each object is one exchange: ``first()`` begins it, ``next(token)`` answers the broker, until it returns None. SaslError
is raised if the broker does not prove its identity or refuses the login; no error contains a secret.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Protocol

from fastwire.errors import FastwireError

LEAST_ITERATIONS = 4096
# Limit of the work that a hostile peer may cause; brokers use 4,096 to some ten thousand.
MOST_ITERATIONS = 1_000_000


class SaslError(FastwireError):
    """The login failed. Trying again with the same credentials will not help."""


class LoginRefusedError(SaslError):
    """The broker does not take these credentials; it may take others."""


class Mechanism(Protocol):
    """Interface of a mechanism."""

    @property
    def name(self) -> str:
        """The mechanism's name in SaslHandshake."""

    def first(self) -> bytes:
        """Return the first token."""

    def next(self, token: bytes) -> bytes | None:
        """Return the answer to the broker's token; None when the exchange is complete. Raises SaslError."""


def check_extension(name: str, value: str) -> None:
    """Raise ValueError if this is not a valid OAUTHBEARER extension (RFC 7628, 3.1)."""
    if not (name.isascii() and name.isalpha()) or name == "auth":
        raise ValueError(f'"{name}" is not the name of an extension: letters only, and not auth')
    if not value or not value.isascii() or not all(letter.isprintable() or letter in "\t\r\n" for letter in value):
        raise ValueError(f"{name}: must be printable ASCII")


class Plain:
    """User and password in clear text: for TLS only."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._token = b"\0".join((b"", user.encode(), password.encode()))

    def first(self) -> bytes:
        """Return the only token."""
        return self._token

    def next(self, token: bytes) -> bytes | None:
        """Return None: any answer means success."""
        return None


class OAuthBearer:
    """A bearer token (RFC 7628), with ``extensions`` for the broker (KIP-342).

    Raises ValueError for invalid extensions.
    """

    name = "OAUTHBEARER"

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self.token = token
        self._extensions = dict(extensions or {})
        for name, value in self._extensions.items():
            check_extension(name, value)

    def first(self) -> bytes:
        """Return the token in its frame."""
        said = {"auth": f"Bearer {self.token}"} | self._extensions
        return b"n,,\x01" + b"".join(f"{name}={value}\x01".encode() for name, value in said.items()) + b"\x01"

    def next(self, token: bytes) -> bytes | None:
        """Handle the answer: empty means success; otherwise it has the error, and one byte must be sent to end the
        exchange.
        """
        return b"\x01" if token else None


class Scram:
    """SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding.

    ``nonce`` is printable, without a comma, and new for each exchange.
    """

    def __init__(self, name: str, user: str, password: str, nonce: str) -> None:
        digests = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
        if name not in digests:
            raise ValueError(f"{name} is not a SCRAM mechanism; known are {', '.join(digests)}")
        if "," in nonce or not nonce.isprintable() or not nonce:
            raise ValueError("the nonce must be printable, and without a comma")
        self.name = name
        self._digest = digests[name]
        self._password = password.encode()
        self._nonce = nonce
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self.server_signature: bytes | None = None  # the signature expected of the broker

    def first(self) -> bytes:
        """Return user and nonce."""
        return f"n,,{self._bare}".encode()

    def next(self, token: bytes) -> bytes | None:
        """Return the client's proof, then verify the broker's signature."""
        if self.server_signature is None:
            return self._prove(token)
        said = _attributes(token)
        if "e" in said:
            raise LoginRefusedError(f"{self.name}: the broker says {said['e'][:100]}")
        if not hmac.compare_digest(_base64(said.get("v", "")), self.server_signature):
            raise SaslError(f"{self.name}: the broker does not know the password itself; this is not the right broker")
        return None

    def _prove(self, token: bytes) -> bytes:
        said = _attributes(token)
        nonce, salt, iterations = said.get("r", ""), _base64(said.get("s", "")), said.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) <= len(self._nonce):
            raise SaslError(f"{self.name}: the broker's nonce does not begin with ours")
        if not salt or not iterations.isdecimal():
            raise SaslError(f"{self.name}: the broker's first answer has no salt or no number of iterations")
        rounds = int(iterations[:10])
        if not LEAST_ITERATIONS <= rounds <= MOST_ITERATIONS:
            raise SaslError(f"{self.name}: {rounds} iterations are not within {LEAST_ITERATIONS} and {MOST_ITERATIONS}")
        salted = hashlib.pbkdf2_hmac(self._digest, self._password, salt, rounds)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{token.decode()},{without_proof}".encode()
        signature = self._hmac(hashlib.new(self._digest, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self.server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self._digest).digest()


def _attributes(token: bytes) -> dict[str, str]:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise SaslError("the broker's answer is not UTF-8") from None
    parts = (part.partition("=") for part in text.split(","))
    return {name: value for name, _, value in parts}


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
