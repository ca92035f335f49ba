"""Events of a Pulsar connection."""

from dataclasses import dataclass

from fastwire.connection import ChunkReady, Lost, More
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.protocol.request import BrokerError, Kind
from fastwire.pulsar.reading.cold import ColdEntry

__all__ = [
    "ActiveChanged",
    "AuthChallenged",
    "ChunkReady",
    "ConnectRefused",
    "Connected",
    "ConsumerClosed",
    "EndOfTopic",
    "EntryRejected",
    "Event",
    "Lost",
    "More",
    "ProducerClosed",
    "ProducerMigrated",
    "ProducerQueued",
    "Reply",
    "SendConfirmed",
    "SendRefused",
    "TimedOut",
    "TopicMigrated",
    "TopicsChanged",
]


@dataclass(frozen=True, slots=True)
class Connected:
    """The handshake is complete; requests may be made. ``max_message_size`` is in bytes."""

    server: str
    protocol_version: int
    max_message_size: int


@dataclass(frozen=True, slots=True)
class ConnectRefused:
    """The broker refused the CONNECT; the driver closes the socket."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class AuthChallenged:
    """The broker requests new credentials: answer with ``auth_response``, or close the socket."""

    method: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to a request; ``error`` is None on success, for every form of refusal."""

    request_id: int
    kind: Kind
    command: pb.BaseCommand
    error: BrokerError | None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A request without a response before its deadline; a later response is dropped."""

    request_id: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class ConsumerClosed:
    """The broker has closed a consumer. The URLs name the topic's new owner, "" if it is unknown."""

    consumer_id: int
    assigned_url: str
    assigned_url_tls: str


@dataclass(frozen=True, slots=True)
class ActiveChanged:
    """Failover: this consumer has become the active one of its partition, or has ceased to be."""

    consumer_id: int
    active: bool


@dataclass(frozen=True, slots=True)
class EndOfTopic:
    """The topic is terminated and everything in it was delivered."""

    consumer_id: int


@dataclass(frozen=True, slots=True)
class TopicMigrated:
    """The consumer's topic has moved to another cluster."""

    consumer_id: int
    url: str
    url_tls: str


@dataclass(frozen=True, slots=True)
class SendConfirmed:
    """An entry of a producer is stored at ``position``; -1:-1 for a duplicate that the broker did not store again."""

    producer_id: int
    sequence_id: int
    position: Position


@dataclass(frozen=True, slots=True)
class SendRefused:
    """An entry of a producer was not stored."""

    producer_id: int
    sequence_id: int
    error: BrokerError


@dataclass(frozen=True, slots=True)
class ProducerQueued:
    """The broker has queued the request to open a producer, because of other producers. It has no deadline."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ProducerClosed:
    """The broker has closed a producer. The URLs name the topic's new owner, "" if it is unknown."""

    producer_id: int
    assigned_url: str
    assigned_url_tls: str


@dataclass(frozen=True, slots=True)
class ProducerMigrated:
    """The producer's topic has moved to another cluster."""

    producer_id: int
    url: str
    url_tls: str


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topics that match a watcher were created or deleted; the names are full."""

    watcher_id: int
    new: tuple[str, ...]
    deleted: tuple[str, ...]
    topics_hash: str


@dataclass(frozen=True, slots=True)
class EntryRejected:
    """An entry that cannot be decoded (damaged, encrypted, or a chunk of a torn message).

    ``is_dead_letter``: it is one of the open chunk. Otherwise ``More`` follows, and its consumer must be handled before
    the next ``receive``.
    """

    entry: ColdEntry
    is_dead_letter: bool


Event = (
    Connected
    | ConnectRefused
    | AuthChallenged
    | Reply
    | TimedOut
    | ConsumerClosed
    | ActiveChanged
    | EndOfTopic
    | TopicMigrated
    | TopicsChanged
    | ChunkReady
    | EntryRejected
    | SendConfirmed
    | SendRefused
    | ProducerQueued
    | ProducerClosed
    | ProducerMigrated
    | More
    | Lost
)
