"""The keys for login and TLS of a connection, and the rules between them."""

from collections.abc import Mapping
from typing import Any

from fastwire.systems import grammar_of

from ..values.text import KeyPath, either
from .access import AuthConfig, TlsConfig
from .connection import Connection, Tell

_WAYS_IN = ["token", "token_file", "user", "oauth2", "provider"]


class Secured(Connection):
    """A connection of a system that has a login and TLS."""

    auth: AuthConfig = AuthConfig.model_construct()
    tls: TlsConfig = TlsConfig.model_construct()

    @property
    def sends(self) -> str:
        """The secret that a login sends as it is, as a noun; "" if it sends none. TLS is what keeps it secret."""
        if self.auth.user is not None:
            return "the password"
        return "the token" if self.auth.given else ""

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report credentials that conflict or are incomplete, and keys of TLS that have no effect."""
        super().check(path, table, tell)
        auth, tls = table.get("auth"), table.get("tls")
        if isinstance(tls, Mapping):
            _check_url((*path, "tls"), str(table.get("url", "")), tell)
            check_tls((*path, "tls"), tls, tell)
        if isinstance(auth, Mapping):
            check_auth((*path, "auth"), auth, tell)


def _check_url(path: KeyPath, url: str, tell: Tell) -> None:
    """Report a URL for plain text if the system also has one for TLS."""
    grammar, encrypted = grammar_of(url), f"{url.strip().lower().partition('://')[0]}+ssl"
    if grammar is not None and encrypted in grammar.schemes:
        tell(path, f"needs an encrypted connection: {encrypted}:// in url")


def check_tls(path: KeyPath, tls: Mapping[str, Any], tell: Tell) -> None:
    """Report keys of a table of TLS that have no effect, or lack another one."""
    if "key" in tls and "cert" not in tls:
        tell((*path, "key"), "is the key of a certificate: cert is missing")
    for key in ("key_password", "key_password_file"):
        if key in tls and "cert" not in tls:
            tell((*path, key), "is the password of a certificate's key: cert is missing")
    if "key_password" in tls and "key_password_file" in tls:
        tell((*path, "key_password_file"), "key_password is given too: use one of them")
    if tls.get("verify") is False and "server_name" in tls:
        tell((*path, "server_name"), "has no effect with verify = false")


def check_auth(path: KeyPath, auth: Mapping[str, Any], tell: Tell) -> None:
    """Report credentials that conflict or are incomplete."""
    if not auth:
        tell(path, f"is empty: remove it, or add {either(_WAYS_IN)}")
    ways = [way for way in _WAYS_IN if way in auth]
    for way in ways[1:]:
        tell((*path, way), f"{ways[0]} is given too: use one of them")
    if {"password", "password_file"} & auth.keys() and "user" not in auth:
        tell((*path, next(key for key in auth if key.startswith("password"))), "needs user")
    if "user" in auth:
        _check_one(path, "user", auth, ("password", "password_file"), tell)
    if isinstance(auth.get("oauth2"), Mapping):
        _check_oauth2((*path, "oauth2"), auth["oauth2"], tell)


def _check_oauth2(path: KeyPath, oauth2: Mapping[str, Any], tell: Tell) -> None:
    if "key_file" in oauth2:
        for key in ("client_id", "client_secret", "client_secret_file"):
            if key in oauth2:
                tell((*path, key), "is already in key_file, which is given too")
        return
    for key, why in (("client_id", "without key_file"), ("issuer_url", "without a key file that names it")):
        if key not in oauth2:
            tell((*path, key), f"is required {why}")
    _check_one(path, "client_id", oauth2, ("client_secret", "client_secret_file"), tell)


def _check_one(path: KeyPath, needing: str, table: Mapping[str, Any], keys: tuple[str, str], tell: Tell) -> None:
    """Report if not exactly one of the two ``keys`` is beside the key ``needing``."""
    given = [key for key in keys if key in table]
    if not given:
        tell((*path, needing), f"needs {keys[0]} or {keys[1]}")
    elif len(given) > 1:
        tell((*path, keys[1]), f"{keys[0]} is given too: use one of them")
