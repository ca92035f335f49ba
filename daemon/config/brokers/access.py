"""Tables for credentials and TLS."""

from pydantic import Field

from ..table import Table
from ..values.fields import FolderPath, IssuerUrl, Password, Secret, Switch, Text, UserName


class OAuth2Config(Table):
    """An issuer of tokens (OAuth 2 client credentials) and the client's credentials."""

    issuer_url: IssuerUrl | None = None
    """URL of the issuer; default: the one in the key file."""
    key_file: FolderPath | None = None
    """JSON file with client_id and client_secret, as official clients use it; read again for each token."""
    client_id: Text | None = None
    """Instead of a key file: the client's id."""
    client_secret: Password | None = None
    """The client's secret, preferably as "${NAME}"."""
    client_secret_file: FolderPath | None = None
    """File with the client's secret, read again for each token."""
    audience: Text | None = None
    """Audience of the tokens: the issuer's name of the cluster, often a URN."""
    scope: Text | None = None
    """Scope of the tokens, where the issuer requires one."""
    ca: FolderPath | None = None
    """CA certificates for the issuer (PEM); default: those of the system."""


class ProviderConfig(Table):
    """A plug-in that makes the tokens, for brokers whose tokens come from neither a file nor an issuer."""

    type: Text
    """aws_msk_iam (Amazon MSK, with the extra aws), or the name of a plug-in."""
    options: dict[Text, Text] = Field(default_factory=dict)
    """Settings of the plug-in, such as region."""


class AuthConfig(Table):
    """Credentials for the broker: a token or what makes it, or a user. Files are read again at each use."""

    token: Secret | None = None
    """A token (JWT) itself, preferably as "${NAME}"; "file:///path" and "env:NAME" are looked up at each use."""
    token_file: FolderPath | None = None
    """File with the token, read again for each connection."""
    user: UserName | None = None
    """User name, with password or password_file."""
    password: Password | None = None
    """The password of the user, preferably as "${NAME}"."""
    password_file: FolderPath | None = None
    """File with the password, read again for each connection."""
    oauth2: OAuth2Config | None = None
    """Tokens of an issuer (OAuth 2 client credentials)."""
    provider: ProviderConfig | None = None
    """Tokens of a plug-in, a fresh one for each login."""

    @property
    def given(self) -> bool:
        """True if the table holds any key."""
        return bool(self.model_fields_set)


class TlsConfig(Table):
    """Verification of the broker's certificate, and the client's own certificate."""

    ca: FolderPath | None = None
    """CA certificates to trust (PEM); default: those of the system."""
    cert: FolderPath | None = None
    """Client certificate (PEM), for brokers that require one."""
    key: FolderPath | None = None
    """Key of the client certificate, if it is not in the same file."""
    key_password: Password | None = None
    """Password of an encrypted key, preferably as "${NAME}"."""
    key_password_file: FolderPath | None = None
    """File with the key's password, read again together with the key."""
    verify: Switch = True
    """false trusts every certificate: for tests only."""
    server_name: Text | None = None
    """Name that the broker's certificate must carry, if it is not the host of the URL."""
