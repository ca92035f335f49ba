"""What a connection needs to know of credentials."""

from typing import Protocol

from fastwire.errors import FastwireError

__all__ = ["AuthError", "Credentials", "NoCredentials", "TlsCredentials", "UnavailableError"]


class AuthError(FastwireError):
    """There are no credentials, and asking again will not help: a missing file, a refused client. Holds no secret."""


class UnavailableError(FastwireError):
    """Whoever gives the credentials does not answer right now; asking again may help. Holds no secret."""


class Credentials(Protocol):
    """What CONNECT and AUTH_RESPONSE need to know (pulsar 2.3). One object serves all connections of a client."""

    @property
    def method(self) -> str:
        """The method's name on the wire; empty for none."""

    async def data(self) -> bytes | None:
        """Fresh data, None if the method has none. Raises AuthError or UnavailableError."""

    def forget(self, data: bytes | None) -> None:
        """The broker has refused ``data``, or wants other: do not give it again from memory."""

    def check(self) -> str:
        """Read what is read at each use, ask nobody, and say in a few words what was found. Raises AuthError."""


class NoCredentials:
    """Anonymous."""

    method = ""

    async def data(self) -> bytes | None:
        """Nothing."""
        return None

    def forget(self, data: bytes | None) -> None:
        """Nothing is kept."""

    def check(self) -> str:
        """Say so."""
        return "none: the broker has to let everybody in"


class TlsCredentials(NoCredentials):
    """The client certificate of the connection says who we are."""

    method = "tls"

    def check(self) -> str:
        """Say so."""
        return "our certificate says who we are"
