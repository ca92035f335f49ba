"""Tokens and passwords, read anew at each use from where they are kept."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .base import AuthError

__all__ = ["BasicCredentials", "TokenCredentials", "password_from", "read_secret", "token_from"]


class TokenCredentials:
    """A token (JWT); ``read`` is called at each use."""

    method = "token"

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def data(self) -> bytes | None:
        """The token as it is now."""
        return self._token()

    def forget(self, data: bytes | None) -> None:
        """Nothing is kept."""

    def check(self) -> str:
        """Read the token."""
        self._token()
        return "token found"

    def _token(self) -> bytes:
        token = self._read().strip().removeprefix("token:")
        if not token:
            raise AuthError("the token is empty")
        if not token.isascii() or not token.isprintable():
            raise AuthError("the token holds characters that no token has")
        return token.encode()


class BasicCredentials:
    """A user and a password, which ``read`` gives at each use."""

    method = "basic"

    def __init__(self, user: str, read: Callable[[], str]) -> None:
        self.user = user
        self.password = read

    async def data(self) -> bytes | None:
        """User and password as they are now, in the form of Pulsar."""
        return self.pair()

    def pair(self) -> bytes:
        """``user:password``, as Pulsar wants it; raises AuthError, also where that form cannot hold the password.

        Neither may hold a colon: a broker takes the two apart at each one, and refuses more than two parts.
        """
        password = self.password()
        if ":" in password:
            raise AuthError("the password holds a colon, at which a Pulsar broker takes user and password apart")
        return f"{self.user}:{password}".encode()

    def forget(self, data: bytes | None) -> None:
        """Nothing is kept."""

    def check(self) -> str:
        """Read the password."""
        self.password()
        return f"user {self.user}, password found"


def token_from(text: str) -> Callable[[], str]:
    """Understand the forms in which official clients take a token.

    ``token:…`` or bare text is the token itself, ``file:///path`` is read and ``env:NAME`` looked up at each use.
    """
    if text.startswith("file:"):
        path = Path(unquote(urlsplit(text).path))
        return lambda: read_secret(path, "token file")
    if text.startswith("env:"):
        name = text.removeprefix("env:")
        return lambda: _read_variable(name)
    return lambda: text


def password_from(path: Path | None) -> Callable[[], str]:
    """A function that reads a password's file, whose last line end does not belong to it."""

    def read() -> str:
        if path is None:
            raise AuthError("the user has no password")
        password = read_secret(path, "password file").removesuffix("\n").removesuffix("\r")
        if not password:
            raise AuthError(f"the password file {path} is empty")
        return password

    return read


def read_secret(path: Path, what: str) -> str:
    """The text of a file that holds a secret; raises AuthError with words that hold none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise AuthError(f"cannot read the {what} {path}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise AuthError(f"the {what} {path} is no text") from None


def _read_variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise AuthError(f"the environment variable {name} of the token is not set")
    return value
