"""Configuration of connections and sources of Pulsar: its own keys, and checks of keys that conflict."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from ...config.brokers.connection import Tell
from ...config.brokers.secured import Secured
from ...config.brokers.source import SubscribedSource
from ...config.brokers.sparksource import SubscribedBrokers
from ...config.table import Table
from ...config.values.fields import FolderPath, Natural, Switch, Text, WireNatural
from ...config.values.text import KeyPath


class EncryptionConfig(Table):
    """Decryption of entries that producers have encrypted end to end."""

    private_keys: dict[Text, FolderPath] = Field(default_factory=dict)
    """RSA private keys: the producers' name of the key = its file (PEM)."""
    on_failure: Literal["fail", "discard", "consume"] = "fail"
    """Reaction to an entry that no key opens. fail: stop its partition; discard: drop it; consume: keep ciphertext."""


class PulsarConnection(Secured):
    """A connection to the brokers of Pulsar, and the keys for its encrypted entries."""

    listener: Text | None = None
    """Name of the broker's advertised listener whose addresses this machine can reach."""
    encryption: EncryptionConfig = EncryptionConfig.model_construct()

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report a password that Pulsar cannot transport."""
        super().check(path, table, tell)
        auth = table.get("auth")
        password = auth.get("password") if isinstance(auth, dict) else None
        if isinstance(password, str) and ":" in password:
            tell((*path, "auth", "password"), "holds a colon: Pulsar takes user:password apart there")


class PulsarSourceConfig(PulsarConnection, SubscribedSource):
    """Source of records: topics of Pulsar."""

    endless = ""
    no_group_start = (
        "the brokers tell the cursor of a subscription to its consumers only. Name it in subscription, and reading "
        "goes on there"
    )

    subscription_type: Literal["exclusive", "failover", "shared", "key_shared"] = "failover"
    """How consumers share the subscription. failover: one reads each partition, the others stand by."""
    consumer_name: Text | None = None
    """Name of this consumer; with failover the broker orders consumers by it. Default: a random name."""
    priority_level: WireNatural = 0
    """Priority of this consumer; the broker serves the lowest number first (failover and shared)."""
    consumer_properties: dict[Text, Text] = Field(default_factory=dict)
    """Properties of this consumer that the broker shows in the topic's statistics."""
    subscription_properties: dict[Text, Text] = Field(default_factory=dict)
    """Properties that the broker stores with the subscription when it is created."""
    replicate_subscription_state: Switch = False
    """Replicate the subscription's progress to other clusters, together with the topic."""
    read_compacted: Switch = False
    """Read only the newest record of each key, as far as the topic is compacted (exclusive and failover)."""
    incarnation: Natural = 0
    """Raise it when a topic was deleted and created again under the same name."""

    @property
    def shared(self) -> bool:
        """True if several consumers may read a partition: Shared and Key_Shared."""
        return self.subscription_type in ("shared", "key_shared")

    @classmethod
    def check(cls, path: KeyPath, table: Mapping[str, Any], tell: Tell) -> None:
        """Report keys that conflict."""
        super().check(path, table, tell)
        kind = table.get("subscription_type", "failover")
        if table.get("read_compacted") in (True, "true") and kind in ("shared", "key_shared"):
            tell((*path, "read_compacted"), 'needs subscription_type = "exclusive" or "failover"')
        if table.get("end") is not None and kind in ("shared", "key_shared"):
            tell((*path, "end"), f'needs subscription_type = "exclusive" or "failover": {kind} has no order to end in')
        if table.get("priority_level") and kind in ("exclusive", "key_shared"):
            tell((*path, "priority_level"), f'is for "failover" and "shared": the broker does not look at it on {kind}')


class PulsarSparkBrokers(PulsarConnection, SubscribedBrokers):
    """Input of a Spark job: topics of Pulsar."""


CONNECTION = PulsarConnection
SOURCE = PulsarSourceConfig
SPARK = PulsarSparkBrokers
