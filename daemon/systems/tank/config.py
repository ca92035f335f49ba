"""Configuration of connections and sources of TANK: its own keys, and advice about those that it lacks."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from ...config.brokers.connection import Connection, Tell
from ...config.brokers.source import SourceConfig, refuse_time
from ...config.brokers.sparksource import SparkBrokers
from ...config.values.fields import Natural, SomeTime, Text
from ...config.values.text import KeyPath

NO_TIME = (
    "names a time, and a TANK broker finds no message by its time: read from the earliest message, or name the "
    "sequence of each partition"
)


class TankConnection(Connection):
    """A connection to the brokers of TANK."""

    lacks: ClassVar[Mapping[str, str]] = {
        "auth": "brokers of TANK have no login",
        "tls": "the protocol has no TLS, use a tunnel",
        "subscription": "brokers of TANK keep no progress: the dataset does",
        "group": "brokers of TANK keep no progress: the dataset does",
    }

    client_id: Text | None = None
    """Client id in the requests. Default: fastwire- and the host name; of a Spark job fastwire-spark."""

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report a time as the first position."""
        super().check(path, table, tell)
        refuse_time(path, table, tell, NO_TIME)


class TankSourceConfig(TankConnection, SourceConfig):
    """Source of records: topics of TANK."""

    endless = ""

    incarnation: dict[Text, Natural] = Field(default_factory=dict)
    """Number of times that topics were deleted and created again under the same name, by topic; 0 if it is missing."""
    on_unreadable: Literal["stop", "continue"] = "stop"
    """Reaction to sequences that the broker has and cannot deliver: stop the partition, or declare a gap to its end."""
    metadata_max_age: SomeTime = 60.0
    """Interval at which the daemon asks for new topics and partitions."""


class TankSparkBrokers(TankConnection, SparkBrokers):
    """Input of a Spark job: topics of TANK."""


CONNECTION = TankConnection
SOURCE = TankSourceConfig
SPARK = TankSparkBrokers
