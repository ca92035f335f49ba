"""What every connection to a Pulsar cluster has to be told, whoever uses it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.completion import OnFailure
from fastwire.pulsar.namespace import TopicPattern
from fastwire.pulsar.topic import ServiceUrl

from ..auth import Credentials, NoCredentials, credentials
from ..config import ConfigError, EncryptionConfig, Problem, SourceConfig
from ..tls import ClientTls

if TYPE_CHECKING:
    from fastwire.pulsar.encryption import Decryptor

__all__ = ["WIRE_TYPES", "ClientSettings", "SubscriptionType", "client_fields", "decryptor", "pattern_of"]

SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]

WIRE_TYPES: dict[SubscriptionType, "pb.CommandSubscribe.SubType"] = {
    "exclusive": pb.CommandSubscribe.Exclusive,
    "failover": pb.CommandSubscribe.Failover,
    "shared": pb.CommandSubscribe.Shared,
    "key_shared": pb.CommandSubscribe.Key_Shared,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Where the brokers are, who we are to them, and what their connections build of what they send."""

    url: ServiceUrl
    credentials: Credentials = field(default_factory=NoCredentials)
    tls: ClientTls | None = None
    server_name: str = ""
    listener: str = ""  # name of the broker's advertised listener
    columns: frozenset[str] | None = None
    on_corrupt: Literal["divert", "stop"] = "divert"
    decryptor: "Decryptor | None" = None
    on_undecryptable: OnFailure = "fail"
    keep_alive_s: float = 30.0
    operation_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0


def client_fields(source: SourceConfig) -> dict[str, Any]:
    """The fields of ``ClientSettings`` that a source's configuration gives. Raises ConfigError for unusable files."""
    return {
        "url": source.url,
        "credentials": credentials(source.auth, client_certificate=source.tls.cert is not None),
        "tls": ClientTls(source.tls) if source.url.tls else None,
        "server_name": source.tls.server_name or "",
        "listener": source.listener or "",
        "on_corrupt": source.on_corrupt,
        "decryptor": decryptor(source.encryption),
        "on_undecryptable": source.encryption.on_failure,
    }


def pattern_of(source: SourceConfig) -> TopicPattern | None:
    """What is meant instead of topics by their names, if anything."""
    pattern = source.topics_pattern
    return pattern if isinstance(pattern, TopicPattern) else None


def decryptor(encryption: EncryptionConfig) -> "Decryptor | None":
    """What opens encrypted entries; None without a key. Raises ConfigError for files that hold none."""
    if not encryption.private_keys:
        return None
    from fastwire.pulsar.encryption import Decryptor

    found: dict[str, bytes] = {}
    problems = []
    for name, path in encryption.private_keys.items():
        try:
            found[name] = path.read_bytes()
            Decryptor({name: found[name]})
        except OSError as exc:
            problems.append(Problem("", f"encryption.private_keys.{name}", f"cannot read {path}: {exc.strerror}"))
        except ValueError as exc:
            problems.append(Problem("", f"encryption.private_keys.{name}", f"{path}: {exc}"))
    if problems:
        raise ConfigError(problems)
    return Decryptor(found)
