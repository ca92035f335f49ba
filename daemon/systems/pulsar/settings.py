"""Settings of all connections to a Pulsar cluster."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Encrypt
from fastwire.pulsar.names.pattern import TopicPattern
from fastwire.pulsar.names.topic import ServiceUrl
from fastwire.pulsar.protocol.completion import OnFailure

from ...config import ConfigError, Connection, Problem, TopicChoice
from ...config.values.secretpath import shown_path
from ...net.auth import Credentials, NoCredentials
from ..links.link import LinkSettings, tls_fields
from ..writer import Keys
from .config import EncryptionConfig, PulsarConnection
from .login import login

if TYPE_CHECKING:
    from fastwire.pulsar.reading.encryption import Decryptor

__all__ = [
    "WIRE_TYPES",
    "ClientSettings",
    "Keys",
    "SubscriptionType",
    "client_fields",
    "decryptor",
    "encrypt_for",
    "key_texts",
    "pattern_of",
]

SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]

WIRE_TYPES: dict[SubscriptionType, "pb.CommandSubscribe.SubType"] = {
    "exclusive": pb.CommandSubscribe.Exclusive,
    "failover": pb.CommandSubscribe.Failover,
    "shared": pb.CommandSubscribe.Shared,
    "key_shared": pb.CommandSubscribe.Key_Shared,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings(LinkSettings):
    """Addresses, credentials and options of the connections to a cluster."""

    url: ServiceUrl
    credentials: Credentials = field(default_factory=NoCredentials)
    listener: str = ""  # name of the broker's advertised listener
    decryptor: "Decryptor | None" = None
    on_undecryptable: OnFailure = "fail"
    keep_alive_s: float = 30.0
    operation_timeout_s: float = 30.0


def client_fields(connection: Connection) -> dict[str, Any]:
    """Return the fields of ``ClientSettings`` from the configuration. Raises ConfigError for unusable files."""
    own = PulsarConnection.of(connection)
    return {
        "url": own.url,
        "credentials": login(own.auth, client_certificate=own.tls.cert is not None),
        **tls_fields(own),
        "listener": own.listener or "",
        "decryptor": decryptor(own.encryption),
        "on_undecryptable": own.encryption.on_failure,
    }


def pattern_of(topics: TopicChoice) -> TopicPattern | None:
    """Return the topic pattern, or None if topics are named."""
    return topics.pattern if isinstance(topics.pattern, TopicPattern) else None


def encrypt_for(keys: Keys | None) -> Encrypt | None:
    """Return the encryption for these public keys; None for none. Raises ValueError for an invalid key."""
    if not keys:
        return None
    from .entryencryptor import EntryEncryptor  # a large import that most users never need

    return EntryEncryptor(key_texts(keys))


def key_texts(keys: Keys) -> dict[str, bytes]:
    """Return PEM texts by name. Raises ValueError for a file that cannot be read."""
    texts = {}
    for name, key in keys.items():
        try:
            texts[name] = key if isinstance(key, bytes) else Path(key).read_bytes()
        except OSError as exc:
            raise ValueError(f"the key {name!r} cannot be read: {exc}") from None
    return texts


def decryptor(encryption: EncryptionConfig) -> "Decryptor | None":
    """Return the decryption of entries; None without a key. Raises ConfigError for files without a valid key."""
    if not encryption.private_keys:
        return None
    from fastwire.pulsar.reading.encryption import Decryptor

    found: dict[str, bytes] = {}
    problems = []
    for name, path in encryption.private_keys.items():
        try:
            found[name] = path.read_bytes()
            Decryptor({name: found[name]})
        except OSError as exc:
            why = f"cannot read {shown_path(path)}: {exc.strerror}"
            problems.append(Problem("", f"encryption.private_keys.{name}", why))
        except ValueError as exc:
            problems.append(Problem("", f"encryption.private_keys.{name}", f"{path}: {exc}"))
    if problems:
        raise ConfigError(problems)
    return Decryptor(found)
