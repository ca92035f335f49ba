"""Logins of clients: checks of credentials, and the login of one connection (spec: pulsar 2)."""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ..delayed import Timer


@dataclass(frozen=True, slots=True)
class Shown:
    """Credentials of a client: method and data of its command, and the common name of its certificate ("": none)."""

    method: str
    data: bytes
    subject: str = ""


Authenticate = Callable[[Shown], float | None]
"""Returns how many seconds credentials are valid from now on, ``inf`` without end; None if they are not valid."""


def bearer(seconds_left: Callable[[str], float | None]) -> Authenticate:
    """Make a check of tokens; ``seconds_left`` returns how long one is valid, None if it is not."""

    def authenticate(shown: Shown) -> float | None:
        return seconds_left(shown.data.decode()) if shown.method == "token" else None

    return authenticate


def basic(users: Mapping[str, str]) -> Authenticate:
    """Make a check of users by their passwords."""

    def authenticate(shown: Shown) -> float | None:
        user, _, password = shown.data.decode().partition(":")
        return math.inf if shown.method == "basic" and users.get(user) == password else None

    return authenticate


def certificate(names: Collection[str]) -> Authenticate:
    """Make a check of certificates by common name; the TLS context has to require them."""
    return lambda shown: math.inf if shown.method == "tls" and shown.subject in names else None


class Login:
    """The login of one connection; each ``check_s`` seconds credentials that may expire are checked.

    ``challenge`` asks the client for fresh credentials, ``close`` ends the connection of a client that gave none until
    the next check.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        check_s: float,
        *,
        challenge: Callable[[], None],
        close: Callable[[], None],
    ) -> None:
        self._authenticate = authenticate
        self._check_s = check_s
        self._challenge = challenge
        self._close = close
        self._valid_until = math.inf  # loop time
        self._challenged = False
        self._timer = Timer()

    def admits(self, shown: Shown) -> bool:
        """Check credentials, and note the end of their validity."""
        seconds = self._authenticate(shown)
        if seconds is None or seconds <= 0:
            return False
        self._valid_until = asyncio.get_running_loop().time() + seconds
        self._challenged = False
        return True

    def expire(self) -> None:
        """Let the credentials expire now, and check them."""
        self._valid_until = asyncio.get_running_loop().time()
        self._timer.cancel()
        self.check()

    def check(self) -> None:
        """Challenge a client whose credentials have expired; close the connection of one that was challenged before."""
        if asyncio.get_running_loop().time() >= self._valid_until:
            if self._challenged:
                return self._close()
            self._challenged = True
            self._challenge()
        if self._valid_until < math.inf:
            self._timer.start(self._check_s, self.check)
        return None

    def stop(self) -> None:
        """Cancel further checks."""
        self._timer.cancel()
