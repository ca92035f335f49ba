"""Authentication to brokers: a method and its data, fresh for every connection and every challenge.

``base`` has the contract, ``secret`` credentials from files and variables, ``oauth2`` tokens of an issuer,
``provider`` tokens of a plug-in.
"""

from ...config import AuthConfig
from .base import AuthError, Credentials, NoCredentials, TlsCredentials, UnavailableError
from .secret import BasicCredentials, TokenCredentials, password_from, read_secret, token_from

__all__ = [
    "AuthError",
    "BasicCredentials",
    "Credentials",
    "NoCredentials",
    "TlsCredentials",
    "TokenCredentials",
    "UnavailableError",
    "credentials",
    "token_from",
]


def credentials(auth: AuthConfig, *, client_certificate: bool = False) -> Credentials | BasicCredentials:
    """Return the credentials for ``auth``; no file is read yet.

    With a client certificate and nothing else the certificate is the identity.
    """
    if auth.oauth2 is not None:
        from .oauth2 import OAuth2Credentials  # it loads an HTTP client, 10 MiB that most processes do not need

        return OAuth2Credentials(auth.oauth2)
    if auth.provider is not None:
        from .provider import ProvidedCredentials

        return ProvidedCredentials(auth.provider)
    if auth.user is not None:
        secret, file = auth.password, auth.password_file
        return BasicCredentials(auth.user, password_from(file) if secret is None else secret.get_secret_value)
    if auth.token is not None:
        return TokenCredentials(token_from(auth.token.get_secret_value()))
    if auth.token_file is not None:
        path = auth.token_file
        return TokenCredentials(lambda: read_secret(path, "token file"))
    return TlsCredentials() if client_certificate else NoCredentials()
