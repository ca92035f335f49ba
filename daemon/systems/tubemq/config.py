"""Configuration of connections and sources of TubeMQ: its own keys, and checks of keys that conflict."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ...config.brokers.connection import Tell
from ...config.brokers.secured import Secured
from ...config.brokers.source import SubscribedSource, refuse_time
from ...config.brokers.sparksource import SparkBrokers
from ...config.values.fields import Count, Natural, SomeTime, Text, WireNatural
from ...config.values.text import KeyPath

NO_TIME = (
    "names a time, and a TubeMQ broker finds no message by its time: read from the earliest or the latest message, or "
    "name the offset of each partition"
)
NO_PATTERN = (
    "is not supported for tubemq: the members of a group must name the same topics, so a new topic would refuse them: "
    "list them in topics"
)
NO_SPARK = (
    "a job cannot read TubeMQ: a Broker gives a partition to one consumer of a group, moves its position with each "
    "read, and names no end that two reads agree about, so a failed task could not read its range again. Land the "
    "topics by the daemon, and let the job read the dataset"
)


# Separators of the protocol's text forms cannot be part of a name (spec: tubemq 7, 8).
_GROUP = re.compile(r"[A-Za-z][A-Za-z0-9_-]{1,1023}")


# Each earlier incarnation is looked for among the logs of the dataset.
_MOST_INCARNATIONS = 10_000


def _incarnation(number: int) -> int:
    if number > _MOST_INCARNATIONS:
        raise ValueError(f"must be at most {_MOST_INCARNATIONS}, not {number}")
    return number


class TubeMQConnection(Secured):
    """A connection to the Masters of TubeMQ."""

    unranged = NO_SPARK

    @property
    def sends(self) -> str:
        """See ``Secured``: requests are signed, by the password."""
        return ""

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report what the protocol does not have."""
        super().check(path, table, tell)
        auth = table.get("auth")
        for way in ("token", "token_file", "oauth2"):
            if isinstance(auth, Mapping) and way in auth:
                tell((*path, "auth", way), "is not supported for tubemq: use user, with password or password_file")
        if "topics_pattern" in table:
            tell((*path, "topics_pattern"), NO_PATTERN)
        refuse_time(path, table, tell, NO_TIME)


class TubeMQSourceConfig(TubeMQConnection, SubscribedSource):
    """Source of records: topics of TubeMQ."""

    endless = ""
    no_group_start = (
        "the Brokers tell the offsets of a group to its members only. Name it in group, and reading goes on there"
    )

    filters: dict[Text, tuple[Text, ...]] = Field(default_factory=dict)
    """Values of $msgType$ that are read, by topic; a topic that is missing here is read whole."""
    incarnation: dict[Text, Annotated[Natural, AfterValidator(_incarnation)]] = Field(default_factory=dict)
    """Number of times that topics were deleted and created again, or cut short, by topic; 0 if it is missing."""
    heartbeat: SomeTime = 10.0
    """Time between heartbeats to the Master, whose responses assign partitions."""
    balance: Literal["server", "client"] = "server"
    """The choice of partitions: server: the Master assigns them; client: each member takes those of its number."""
    source_count: Count = 1
    """Number of members of a client-balanced group."""
    node_id: WireNatural = 0
    """Number of this member in a client-balanced group, from 0."""

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report a group that is not one of TubeMQ, and filters of topics that are not read."""
        super().check(path, table, tell)
        if isinstance(name := table.get("subscription"), str) and not _GROUP.fullmatch(name):
            tell((*path, "subscription"), "is not a group of TubeMQ: a letter, then letters, digits, _ and -")
        count, node = table.get("source_count", 1), table.get("node_id", 0)
        for key in ("source_count", "node_id"):
            if key in table and table.get("balance", "server") != "client":
                tell((*path, key), 'has no effect without balance = "client"')
        if isinstance(count, int) and isinstance(node, int) and node >= count >= 1:
            tell((*path, "node_id"), f"must be below source_count, which is {count}")
        topics = table.get("topics")
        for key in ("filters", "incarnation"):
            named = table.get(key)
            if isinstance(named, Mapping) and isinstance(topics, list):
                for topic in named:
                    if topic not in topics:
                        tell((*path, key, str(topic)), "is not among topics")


class TubeMQSparkBrokers(TubeMQConnection, SparkBrokers):
    """Input of a Spark job: topics of TubeMQ."""


CONNECTION = TubeMQConnection
SOURCE = TubeMQSourceConfig
SPARK = TubeMQSparkBrokers
