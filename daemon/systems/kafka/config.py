"""Configuration of connections and sources of Kafka: its own keys, and checks of keys that conflict."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from fastwire.kafka.groups.assignor import Assignor
from fastwire.kafka.protocol.sasl import check_extension

from ...config.brokers.access import AuthConfig
from ...config.brokers.connection import Tell
from ...config.brokers.secured import Secured
from ...config.brokers.source import SubscribedSource
from ...config.brokers.sparksource import SubscribedBrokers
from ...config.values.fields import Count, SomeTime, Text, WireSize, WireTime
from ...config.values.text import KeyPath


class KafkaAuthConfig(AuthConfig):
    """Credentials of the client (SASL). Files are read again at each login."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """SASL mechanism for user and password; PLAIN sends the password in clear text."""
    extensions: dict[Text, Text] = Field(default_factory=dict)
    """SASL extensions beside a token (OAUTHBEARER, KIP-342), such as logicalCluster."""


class KafkaConnection(Secured):
    """A connection to the brokers of Kafka."""

    auth: KafkaAuthConfig = KafkaAuthConfig.model_construct()
    client_id: Text | None = None
    """Client id in the brokers' logs, metrics and quotas.

    Default: fastwire- and the host name; of a Spark job fastwire-spark.
    """
    rack: Text | None = None
    """Rack of this machine, as in broker.rack: replicas in this rack are read from."""

    @property
    def sends(self) -> str:
        """See ``Secured``: SCRAM proves that the client knows the password."""
        return "" if self.auth.user is not None and self.auth.mechanism != "PLAIN" else super().sends

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report SASL extensions that are invalid, or given without a token."""
        super().check(path, table, tell)
        auth = table.get("auth")
        if not isinstance(auth, dict) or "extensions" not in auth:
            return
        extensions = auth["extensions"]
        if not {"token", "token_file", "oauth2", "provider"} & auth.keys():
            tell((*path, "auth", "extensions"), "stands beside a token only: token, token_file, oauth2 or provider")
        for name, value in extensions.items() if isinstance(extensions, dict) else ():
            try:
                check_extension(name, str(value))
            except ValueError as exc:
                tell((*path, "auth", "extensions", name), str(exc))


class KafkaReading(KafkaConnection):
    """A connection by which records are read."""

    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """read_committed leaves out records of aborted transactions."""


class KafkaSourceConfig(KafkaReading, SubscribedSource):
    """Source of records: topics of Kafka."""

    endless = ""
    no_group_start = ""

    group_protocol: Literal["auto", "consumer", "classic", "none"] = "auto"
    """Group protocol: consumer is KIP-848; none joins no group and reads all partitions."""
    group_instance_id: Text | None = None
    """Static member id: a restart within session_timeout moves no partitions."""
    assignor: Assignor = "cooperative-sticky"
    """Partition assignor of a classic group; all members must use the same. range prefers partitions of this rack."""
    session_timeout: WireTime = 45.0
    """Time without a heartbeat after which a classic group removes this member."""
    rebalance_timeout: WireTime = 60.0
    """Time that a rebalance leaves this member for the commit of its records; a member that takes longer is removed."""
    fetch_max_bytes: WireSize = 16 << 20
    """Size of a response, and never more than the memory budget allows. A larger batch comes alone."""
    fetch_partition_bytes: WireSize = 4 << 20
    """Part of one partition in a response."""
    fetch_min_bytes: Count = 1
    """Bytes that a broker waits for before it responds: more of them are fewer, larger responses."""
    fetch_max_wait: WireTime = 0.5
    """Time after which a broker responds with fewer bytes."""
    metadata_max_age: SomeTime = 60.0
    """Interval at which the daemon asks for new topics and partitions."""
    on_truncation: Literal["stop", "continue"] = "stop"
    """Reaction when the broker has lost landed records: stop, or continue with the new log as another."""

    @property
    def divides(self) -> bool:
        """True if the group divides the partitions among its members."""
        return self.group_protocol != "none"


class KafkaSparkBrokers(KafkaReading, SubscribedBrokers):
    """Input of a Spark job: topics of Kafka."""


CONNECTION = KafkaConnection
SOURCE = KafkaSourceConfig
SPARK = KafkaSparkBrokers
