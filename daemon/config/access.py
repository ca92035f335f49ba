"""Who we are to brokers, how the way to them is secured, and what opens what producers have encrypted."""

from typing import Literal

from pydantic import Field

from .fields import FolderPath, IssuerUrl, Password, Secret, Switch, Text, UserName
from .table import Table

__all__ = ["AuthConfig", "EncryptionConfig", "OAuth2Config", "TlsConfig"]


class OAuth2Config(Table):
    """An issuer that gives us tokens (client credentials), and how it knows us."""

    issuer_url: IssuerUrl | None = None
    """The issuer; by default the one that the key file names."""
    key_file: FolderPath | None = None
    """JSON with client_id and client_secret, as official clients take it; read again for each token."""
    client_id: Text | None = None
    """Instead of a key file: who we are to the issuer."""
    client_secret: Password | None = None
    """The secret of the client, best as "${NAME}"."""
    client_secret_file: FolderPath | None = None
    """A file that holds the secret, read again for each token."""
    audience: Text | None = None
    """For whom the tokens are: the cluster's name to the issuer, often a URN."""
    scope: Text | None = None
    """What the tokens are to allow, where the issuer asks for it."""
    ca: FolderPath | None = None
    """Certificates to trust the issuer by (PEM); by default those of the system."""


class AuthConfig(Table):
    """Who we are to the broker: a token, a user, or a client of an issuer. Files are read again at each use."""

    token: Secret | None = None
    """A token (JWT) itself, best as "${NAME}"; "file:///path" and "env:NAME" are looked up at each use."""
    token_file: FolderPath | None = None
    """A file that holds the token, read again for each connection."""
    user: UserName | None = None
    """A user, with password or password_file."""
    password: Password | None = None
    """The password of the user, best as "${NAME}"."""
    password_file: FolderPath | None = None
    """A file that holds the password, read again for each connection."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """How user and password are shown to a Kafka broker; PLAIN sends them as they are."""
    oauth2: OAuth2Config | None = None
    """Tokens of an issuer."""

    @property
    def given(self) -> bool:
        """Whether it says who we are."""
        return bool(self.model_fields_set)


class TlsConfig(Table):
    """How the broker's certificate is checked, and which one we show."""

    ca: FolderPath | None = None
    """Certificates to trust (PEM); by default those of the system."""
    cert: FolderPath | None = None
    """Our own certificate (PEM), for brokers that ask for one."""
    key: FolderPath | None = None
    """The key of our certificate, if it is not in the same file."""
    verify: Switch = True
    """false trusts anybody: for tests only."""
    server_name: Text | None = None
    """The name that the certificate must carry, if it is not the host of the URL."""


class EncryptionConfig(Table):
    """How entries are opened that producers have encrypted end to end."""

    private_keys: dict[Text, FolderPath] = Field(default_factory=dict)
    """RSA private keys: the name that producers gave the key, and the file (PEM) that holds it."""
    on_failure: Literal["fail", "discard", "consume"] = "fail"
    """What to do with an entry that no key opens: stop its log, acknowledge and drop it, or keep the ciphertext."""
