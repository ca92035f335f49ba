"""Tokens and passwords, read again at each use from their file or variable."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...config.values.secretpath import shown_path
from .base import AuthError


class TokenCredentials:
    """Authentication by a token (JWT) that ``read`` returns at each use."""

    method = "token"

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def data(self) -> bytes | None:
        """Return the token as it is now. Raises AuthError."""
        return self._token()

    def forget(self, data: bytes | None) -> None:
        """Do nothing: there is no cache."""

    def check(self) -> str:
        """Read the token; return a short summary. Raises AuthError."""
        self._token()
        return "token found"

    def _token(self) -> bytes:
        return sound_token(self._read().strip().removeprefix("token:"))


class BasicCredentials:
    """A user name, and a password that ``read`` returns at each use. Each system has its own form for the two."""

    def __init__(self, user: str, read: Callable[[], str]) -> None:
        self.user = user
        self.password = read

    def check(self) -> str:
        """Read the password; return a short summary. Raises AuthError."""
        self.password()
        return f"user {self.user}, password found"


def sound_token(token: str) -> bytes:
    """Return ``token`` as bytes. Raises AuthError, without the token, for characters that cannot be sent."""
    if not token:
        raise AuthError("the token is empty")
    if not token.isascii() or not token.isprintable():
        raise AuthError("the token holds characters that are not allowed in a token")
    return token.encode()


def token_from(text: str) -> Callable[[], str]:
    """Return a function that reads the token that ``text`` describes, in the forms of the official clients.

    ``token:…`` or bare text is the token itself, ``file:///path`` is read and ``env:NAME`` looked up at each use.
    The function raises AuthError.
    """
    if text.startswith("file:"):
        path = Path(unquote(urlsplit(text).path))
        return lambda: read_secret(path, "token file")
    if text.startswith("env:"):
        name = text.removeprefix("env:")
        return lambda: _read_variable(name)
    return lambda: text


def password_from(path: Path | None) -> Callable[[], str]:
    """Return a function that reads a password file without its last line end. The function raises AuthError."""

    def read() -> str:
        if path is None:
            raise AuthError("the user has no password")
        password = read_secret(path, "password file").removesuffix("\n").removesuffix("\r")
        if not password:
            raise AuthError(f"the password file {path} is empty")
        return password

    return read


def read_secret(path: Path, what: str) -> str:
    """Return the text of a file that holds a secret, called ``what`` in errors. Raises AuthError without the secret."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise AuthError(f"cannot read the {what} {shown_path(path)}: {exc.strerror}") from None
    except UnicodeDecodeError:
        raise AuthError(f"the {what} {path} is not UTF-8 text") from None


def _read_variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise AuthError(f"the environment variable {name} of the token is not set")
    return value
