"""The shape of a configuration: what a file may hold, what is there when it holds nothing, and what it means."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr
from pydantic.json_schema import SkipJsonSchema

from .access import AuthConfig, EncryptionConfig, TlsConfig
from .address import HttpAddress
from .fields import (
    Column,
    Count,
    Duration,
    FolderPath,
    Http,
    Natural,
    Pattern,
    Size,
    SomeSize,
    SomeTime,
    StartField,
    Switch,
    Text,
    Topic,
    Url,
    sink_kind,
)
from .machine import available_memory
from .spark import SparkConfig, SparkSource
from .systems import system_of
from .table import Table

__all__ = ["Config", "DaemonConfig", "Landing", "PipelineConfig", "RollConfig", "SinkConfig", "SourceConfig"]


class DaemonConfig(Table):
    """The process as a whole."""

    memory: Size = Field(default_factory=lambda: available_memory() // 4)
    """Bytes that records may take up in this process; by default a quarter of what the machine or cgroup has."""
    http: Http = HttpAddress("127.0.0.1", 8650)
    """Address of /metrics /livez /readyz /status; "" is none, "unix:/path" a socket in the file system."""
    drain_timeout: Duration = 30.0
    """How long a stop may take to commit and ack what has been read."""


class SourceConfig(Table):
    """Where records come from."""

    url: Url
    """The broker: pulsar://host:port or kafka://host:port, with +ssl for TLS, several hosts separated by commas."""
    topics: tuple[Topic, ...] = ()
    """Topics by name; a partitioned topic stands for all its partitions."""
    topics_pattern: Pattern | None = None
    """Instead of topics: those whose names match (Pulsar: of one namespace), also those that come later."""
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
    metadata_max_age: SomeTime = 60.0
    """How often the broker is asked for new topics and partitions (Kafka only)."""
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


class Landing(Table):
    """What of a configuration file is the daemon's."""

    daemon: DaemonConfig = Field(default_factory=DaemonConfig)
    pipelines: dict[str, PipelineConfig] = Field(default_factory=dict)
    """Pipelines by name."""


class Config(Landing):
    """A whole configuration file."""

    spark: dict[str, SparkConfig] = Field(default_factory=dict)
    """Jobs on Spark by name; `fastwire-consume spark` runs them."""
    _path: Path | None = PrivateAttr(default=None)

    @property
    def sources(self) -> dict[str, SourceConfig]:
        """What is read from brokers: by pipeline, and by job as ``spark.NAME``, where a subscription may be missing."""
        found = {name: pipeline.source for name, pipeline in self.pipelines.items()}
        shared = SourceConfig.model_fields.keys() & SparkSource.model_fields.keys()
        for name, job in self.spark.items():
            if job.source.url is not None:
                fields = {key: getattr(job.source, key) for key in shared}
                found[f"spark.{name}"] = SourceConfig.model_construct(**fields)
        return found

    @property
    def path(self) -> Path | None:
        """The file that this was read from."""
        return self._path
