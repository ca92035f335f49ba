"""Who we are to a broker: the method's name and its data, read anew for every connection and every challenge."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from fastwire.errors import FastwireError

from .config import AuthConfig, ConfigError

__all__ = [
    "AuthError",
    "Credentials",
    "NoCredentials",
    "TlsCredentials",
    "TokenCredentials",
    "credentials",
    "token_from",
]


class AuthError(FastwireError):
    """The credentials cannot be had right now (a file is missing, a variable is not set). Never holds a secret."""


class Credentials(Protocol):
    """What CONNECT and AUTH_RESPONSE need to know."""

    @property
    def method(self) -> str:
        """The method's name on the wire; empty for none."""

    def data(self) -> bytes | None:
        """Fresh data, None if the method has none. Raises AuthError."""


class NoCredentials:
    """Anonymous."""

    method = ""

    def data(self) -> bytes | None:
        """Nothing."""
        return None


class TlsCredentials:
    """The client certificate of the connection says who we are."""

    method = "tls"

    def data(self) -> bytes | None:
        """Nothing: the certificate was shown by the handshake."""
        return None


class TokenCredentials:
    """A token (JWT); ``read`` is called at each use."""

    method = "token"

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def data(self) -> bytes | None:
        """The token as it is now."""
        token = self._read().strip()
        if not token:
            raise AuthError("the token is empty")
        return token.encode()


def token_from(text: str) -> Callable[[], str]:
    """Understand the forms in which official clients take a token.

    ``token:…`` or bare text is the token itself, ``file:///path`` is read and ``env:NAME`` looked up at each use.
    """
    if text.startswith("file:"):
        return lambda: _read_file(Path(unquote(urlsplit(text).path)))
    if text.startswith("env:"):
        return lambda: _read_variable(text.removeprefix("env:"))
    return lambda: text.removeprefix("token:")


def credentials(auth: AuthConfig | None, *, client_certificate: bool = False) -> Credentials:
    """The credentials that a source's configuration asks for.

    With a client certificate and no token the certificate is the identity.
    """
    if auth is None or (auth.token is None and auth.token_file is None):
        return TlsCredentials() if client_certificate else NoCredentials()
    if auth.token is not None:
        return TokenCredentials(token_from(auth.token.get_secret_value()))
    return TokenCredentials(lambda: _configured_token(auth))


def _configured_token(auth: AuthConfig) -> str:
    try:
        return auth.read_token() or ""
    except ConfigError as exc:
        raise AuthError(str(exc)) from None


def _read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip().removeprefix("token:")
    except OSError as exc:
        raise AuthError(f"cannot read the token file {path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise AuthError(f"the token file {path} is no text") from None


def _read_variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise AuthError(f"the environment variable {name} of the token is not set")
    return value.removeprefix("token:")
