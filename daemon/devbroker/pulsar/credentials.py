"""How the embedded broker knows its clients: each function makes one that says how long what was shown is good for."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

__all__ = ["Authenticate", "Shown", "basic", "bearer", "certificate"]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client has shown: method and data of its command, the common name of its certificate ("": none)."""

    method: str
    data: bytes
    subject: str = ""


Authenticate = Callable[[Shown], float | None]
"""Seconds that the credentials are good for from now on, without end ``inf``; None: they are not good at all."""


def bearer(seconds_left: Callable[[str], float | None]) -> Authenticate:
    """Tokens; ``seconds_left`` knows each of them, and when it ends."""

    def authenticate(shown: Shown) -> float | None:
        return seconds_left(shown.data.decode()) if shown.method == "token" else None

    return authenticate


def basic(users: Mapping[str, str]) -> Authenticate:
    """Users with their passwords."""

    def authenticate(shown: Shown) -> float | None:
        user, _, password = shown.data.decode().partition(":")
        return math.inf if shown.method == "basic" and users.get(user) == password else None

    return authenticate


def certificate(names: Collection[str]) -> Authenticate:
    """Certificates of these common names; the TLS context has to ask for them."""
    return lambda shown: math.inf if shown.method == "tls" and shown.subject in names else None
