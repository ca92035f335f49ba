"""Authentication of clients: signed requests to the Master and tokens for the brokers (spec: tubemq 17)."""

import base64
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote_plus

from fastwire.tubemq import tubemq_pb2 as pb

UNDEFINED = -2
"""The number that stands for an undefined value in all fields (spec: tubemq 8)."""


def signature(user: str, password: str, timestamp_ms: int, nonce: int) -> str:
    """Return the signature of ``user`` for a time and a random number below 2**31."""
    data = f"{user}{timestamp_ms}{nonce}".encode()
    digest = hmac.digest(password.encode(), data, "sha1")
    return quote_plus(base64.b64encode(digest).decode("ascii"))


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user with its password."""

    user: str
    password: str = field(repr=False)

    def for_master(self, timestamp_ms: int, nonce: int) -> pb.MasterCertificateInfo:
        """Return the authentication of one request to the Master; the server accepts a time near its own only."""
        return pb.MasterCertificateInfo(
            authInfo=pb.AuthenticateInfo(
                userName=self.user,
                timestamp=timestamp_ms,
                nonce=nonce,
                othParams="",
                signature=signature(self.user, self.password, timestamp_ms, nonce),
            )
        )

    def for_broker(self, timestamp_ms: int, nonce: int) -> str:
        """Return the ``authAuthorizedToken`` of one request to a broker."""
        return f"{self.user} {timestamp_ms} {nonce} {signature(self.user, self.password, timestamp_ms, nonce)}"


@dataclass(slots=True)
class VisitToken:
    """The last tokens that the Master has issued; requests 13, 15 and 16 to brokers carry them."""

    visit: int = UNDEFINED
    auth: str = ""
    sign: Callable[[], str] | None = None
    """Makes the ``authAuthorizedToken`` of one request from the client's credentials; None without authentication."""

    def store(self, info: pb.MasterAuthorizedInfo) -> None:
        """Take over the tokens of a response of the Master."""
        self.visit = info.visitAuthorizedToken
        if info.authAuthorizedToken:
            self.auth = info.authAuthorizedToken

    def for_broker(self) -> pb.AuthorizedInfo:
        """Return the tokens of one request; that of the credentials unless the Master has issued one.

        Raises what ``sign`` raises.
        """
        token = self.auth or (self.sign() if self.sign is not None else "")
        info = pb.AuthorizedInfo(visitAuthorizedToken=self.visit)
        if token:
            info.authAuthorizedToken = token
        return info
