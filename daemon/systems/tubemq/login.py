"""Signatures of requests made from the configuration's ``auth`` (spec: tubemq 17)."""

import time
from secrets import randbits

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import Credentials

from ...config import AuthConfig
from ...net.auth import BasicCredentials, credentials


class Login:
    """Signs requests with the current password. One object serves all connections of a client."""

    def __init__(self, auth: AuthConfig) -> None:
        known = credentials(auth)
        assert isinstance(known, BasicCredentials)  # the model refuses others
        self._known = known

    def certificate(self) -> pb.MasterCertificateInfo:
        """Return the signature of one request to the Master. Raises AuthError."""
        return self._current().for_master(*_stamp())

    def broker_token(self) -> str:
        """Return the token of one request to a Broker. Raises AuthError."""
        return self._current().for_broker(*_stamp())

    def _current(self) -> Credentials:
        return Credentials(self._known.user, self._known.password())


def _stamp() -> tuple[int, int]:
    """Return the time in ms since 1970, and a random number."""
    return time.time_ns() // 1_000_000, randbits(31)
