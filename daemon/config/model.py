"""The shape of a configuration: what a file may hold, what is there when it holds nothing, and what it means."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr
from pydantic.json_schema import SkipJsonSchema

from .address import HttpAddress
from .fields import (
    Column,
    Count,
    Duration,
    FolderPath,
    Http,
    IssuerUrl,
    Natural,
    Password,
    Pattern,
    Secret,
    Size,
    SomeSize,
    SomeTime,
    StartField,
    Switch,
    Text,
    Topic,
    Url,
    UserName,
    sink_kind,
)
from .machine import available_memory
from .spark import SparkConfig
from .systems import system_of
from .table import Table

__all__ = [
    "AuthConfig",
    "Config",
    "DaemonConfig",
    "EncryptionConfig",
    "OAuth2Config",
    "PipelineConfig",
    "RollConfig",
    "SinkConfig",
    "SourceConfig",
    "TlsConfig",
]


class DaemonConfig(Table):
    """The process as a whole."""

    memory: Size = Field(default_factory=lambda: available_memory() // 4)
    """Bytes that records may take up in this process; by default a quarter of what the machine or cgroup has."""
    http: Http = HttpAddress("127.0.0.1", 8650)
    """Address of /metrics /livez /readyz /status; "" is none, "unix:/path" a socket in the file system."""
    drain_timeout: Duration = 30.0
    """How long a stop may take to commit and ack what has been read."""


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


class SourceConfig(Table):
    """Where records come from."""

    url: Url
    """The broker: pulsar://host:port or kafka://host:port, with +ssl for TLS, several hosts separated by commas."""
    topics: tuple[Topic, ...] = ()
    """Topics by name; a partitioned topic stands for all its partitions."""
    topics_pattern: Pattern | None = None
    """Instead of topics: those of one namespace whose names match, also those that come later."""
    subscription: Text
    """The name under which the broker keeps our progress; `group` is an alias."""
    subscription_type: Literal["exclusive", "failover", "shared", "key_shared"] = "failover"
    """How the subscription is shared with other consumers."""
    start: StartField
    """Where to begin on a topic of which nothing has landed yet; what is added later is read from its beginning."""
    auth: AuthConfig = AuthConfig.model_construct()
    tls: TlsConfig = TlsConfig.model_construct()
    listener: Text | None = None
    """The name of the broker's advertised listener whose addresses we can reach."""
    encryption: EncryptionConfig = EncryptionConfig.model_construct()
    cluster: Text | None = None
    """The name of the cluster in the log of the dataset; by default the hosts of the URL at its creation."""
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of aborted transactions are left out (Kafka only)."""
    group_protocol: Literal["auto", "consumer", "classic", "none"] = "auto"
    """How partitions are shared with others of the group (Kafka only); none: all of them are read, by us alone."""
    group_instance_id: Text | None = None
    """Our fixed name in the group: a restart within session_timeout moves no partitions (Kafka only)."""
    assignor: Literal["cooperative-sticky", "sticky", "range", "roundrobin"] = "cooperative-sticky"
    """How members of a classic group share partitions; the same for all of them (Kafka only)."""
    session_timeout: SomeTime = 45.0
    """After so long a silence a classic group goes on without us (Kafka only)."""
    incarnation: Natural = 0
    """To be raised when a topic was deleted and made again under the same name."""
    on_truncation: Literal["stop", "continue"] = "stop"
    """What to do when the broker has lost what had already landed (Kafka only)."""
    on_corrupt: Literal["divert", "stop"] = "divert"
    """What to do with an entry that cannot be decoded: keep it raw beside the data and go on, or stop."""

    @property
    def system(self) -> str:
        """The message system that ``url`` leads to."""
        return system_of(self.url).name

    @property
    def cluster_name(self) -> str:
        """The cluster that a new dataset's log is about."""
        return self.cluster or self.url.hosts


class RollConfig(Table):
    """When a file is finished and committed: whatever comes first."""

    bytes: SomeSize = 128 * 2**20
    """Size on disk."""
    rows: Count = 5_000_000
    age: SomeTime = 60.0
    """Time since the first record of the file."""
    idle: SomeTime = 10.0
    """Time since the last record of the file."""


class SinkConfig(Table):
    """Where records go."""

    type: Text
    """parquet, arrow, jsonl (files), stdout, discard, or the name of a plug-in."""
    path: FolderPath | None = None
    """The folder of the dataset."""
    compression: Text | None = None
    """Codec of the files, with a level where it has one; by default what suits the type."""
    columns: tuple[Column, ...] | None = None
    """Columns to keep; by default all."""
    split: Literal["none", "topic", "partition"] = "none"
    """Whether topics or partitions go into folders of their own."""
    partition_by: Literal["none", "day", "hour"] = "none"
    """Whether days or hours (of the records, UTC) go into folders of their own."""
    roll: RollConfig = RollConfig.model_construct()
    writers: Count = 1
    """Files written at the same time; by default one a core and two at most, and one below 256MiB of memory."""
    create: Switch = False
    """Create the dataset even though the subscription has progress already."""
    options: SkipJsonSchema[dict[str, Any]] = Field(default_factory=dict, repr=False, exclude=True)
    """What the file gives to a plug-in besides our own keys. It may hold secrets."""

    @property
    def is_dataset(self) -> bool:
        """Whether rows and positions are one commit, which is what makes it exactly once."""
        return sink_kind(self.type) == "dataset"


class PipelineConfig(Table):
    """One way from a broker into a sink."""

    source: SourceConfig
    sink: SinkConfig


class Config(Table):
    """A whole configuration file."""

    daemon: DaemonConfig = Field(default_factory=DaemonConfig)
    pipelines: dict[str, PipelineConfig] = Field(default_factory=dict)
    """Pipelines by name."""
    spark: dict[str, SparkConfig] = Field(default_factory=dict)
    """Jobs on Spark by name; `fastwire-consume spark` runs them."""
    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """The file that this was read from."""
        return self._path
