"""The contract of credentials that are one piece of data, and the two kinds that hold no secret."""

from typing import Protocol

from fastwire.errors import FastwireError


class AuthError(FastwireError):
    """There are no credentials, and a retry cannot help: a missing file, a refused client. The text has no secret."""


class UnavailableError(FastwireError):
    """The issuer of the credentials does not answer now; a retry may help. The text has no secret."""


class Credentials(Protocol):
    """Credentials that are one piece of data, such as a token. The connections of a client share them."""

    @property
    def method(self) -> str:
        """The name of the authentication method; "" for none."""

    async def data(self) -> bytes | None:
        """Return fresh data, None if the method has none. Raises AuthError or UnavailableError."""

    def forget(self, data: bytes | None) -> None:
        """Drop ``data`` from the cache: the broker has refused it, or asks for fresh data."""

    def check(self) -> str:
        """Check the local files and variables without a network request; return a short summary. Raises AuthError."""


class NoCredentials:
    """The credentials of an anonymous client."""

    method = ""

    async def data(self) -> bytes | None:
        """Return None."""
        return None

    def forget(self, data: bytes | None) -> None:
        """Do nothing: there is no cache."""

    def check(self) -> str:
        """Return a short summary."""
        return "none: the broker has to accept anonymous clients"


class TlsCredentials(NoCredentials):
    """Authentication by the client certificate of the connection."""

    method = "tls"

    def check(self) -> str:
        """Return a short summary."""
        return "the client certificate is the identity"
