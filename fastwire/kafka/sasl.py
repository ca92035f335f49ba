"""SASL mechanisms as exchanges of tokens: what to say, and whether the answer is right (kafka 15).

Each object is one exchange: ``first()`` begins it, ``next(token)`` answers the broker, until it returns None. Raises
SaslError where the broker does not prove who it is or refuses us; no error names a secret.
"""

import base64
import hashlib
import hmac
from typing import Protocol

from fastwire.errors import FastwireError

__all__ = ["Mechanism", "OAuthBearer", "Plain", "SaslError", "Scram"]

LEAST_ITERATIONS = 4096
# What a hostile peer may make us compute; brokers use 4,096 to some ten thousand.
MOST_ITERATIONS = 1_000_000


class SaslError(FastwireError):
    """The login failed. Trying again with the same credentials will not help."""


class Mechanism(Protocol):
    """One exchange."""

    @property
    def name(self) -> str:
        """As SaslHandshake knows it."""

    def first(self) -> bytes:
        """The first token."""

    def next(self, token: bytes) -> bytes | None:
        """The answer to the broker's token; None = the exchange is complete."""


class Plain:
    """User and password as they are: for TLS only."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._token = b"\0".join((b"", user.encode(), password.encode()))

    def first(self) -> bytes:
        """The only token."""
        return self._token

    def next(self, token: bytes) -> bytes | None:
        """Whatever comes: it is accepted."""
        return None


class OAuthBearer:
    """A token from elsewhere (RFC 7628)."""

    name = "OAUTHBEARER"

    def __init__(self, token: str) -> None:
        self.token = token

    def first(self) -> bytes:
        """The token in its frame."""
        return b"n,,\x01auth=Bearer " + self.token.encode() + b"\x01\x01"

    def next(self, token: bytes) -> bytes | None:
        """Empty is success; else the broker says why not, and wants one byte before it says so properly."""
        return b"\x01" if token else None


class Scram:
    """SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding.

    ``nonce`` is printable, without a comma, and new for each exchange.
    """

    def __init__(self, name: str, user: str, password: str, nonce: str) -> None:
        digests = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
        if name not in digests:
            raise ValueError(f"{name} is no SCRAM mechanism; there are {', '.join(digests)}")
        if "," in nonce or not nonce.isprintable() or not nonce:
            raise ValueError("the nonce must be printable, and without a comma")
        self.name = name
        self._digest = digests[name]
        self._password = password.encode()
        self._nonce = nonce
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={nonce}"
        self.server_signature: bytes | None = None  # what the broker has to show

    def first(self) -> bytes:
        """Who we are, and our nonce."""
        return f"n,,{self._bare}".encode()

    def next(self, token: bytes) -> bytes | None:
        """First our proof, then a look at the broker's."""
        if self.server_signature is None:
            return self._prove(token)
        said = _attributes(token)
        if "e" in said:
            raise SaslError(f"{self.name}: the broker says {said['e'][:100]}")
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
        raise SaslError("the broker's answer is no text") from None
    parts = (part.partition("=") for part in text.split(","))
    return {name: value for name, _, value in parts}


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
