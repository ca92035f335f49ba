"""Authentication data of CONNECT and AUTH_RESPONSE (spec: pulsar 2.3), made from the configuration's ``auth``."""

from ...config import AuthConfig
from ...net.auth import AuthError, BasicCredentials, Credentials, credentials


class UserLogin:
    """Authentication by a user and a password."""

    method = "basic"

    def __init__(self, user: BasicCredentials) -> None:
        self._user = user

    async def data(self) -> bytes | None:
        """Return user and password as they are now. Raises AuthError."""
        return self.pair()

    def pair(self) -> bytes:
        """Return ``user:password``. Raises AuthError, also for a password that this form cannot hold.

        Neither part may contain a colon: the broker splits the text at each colon and refuses more than two parts.
        """
        password = self._user.password()
        if ":" in password:
            raise AuthError("the password contains a colon, which the broker takes for the end of the user name")
        return f"{self._user.user}:{password}".encode()

    def forget(self, data: bytes | None) -> None:
        """Do nothing: there is no cache."""

    def check(self) -> str:
        """Read the password; return a short summary. Raises AuthError."""
        return self._user.check()


def login(auth: AuthConfig, *, client_certificate: bool) -> Credentials:
    """Return the credentials for ``auth``; no file is read yet."""
    found = credentials(auth, client_certificate=client_certificate)
    return UserLogin(found) if isinstance(found, BasicCredentials) else found
