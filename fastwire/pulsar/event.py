"""What comes out of a connection."""

from dataclasses import dataclass

from fastwire.connection import ChunkReady, Lost, More
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.cold import ColdEntry
from fastwire.pulsar.request import BrokerError, Kind

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
    "Notice",
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
    """The handshake is done; requests may be made."""

    server: str
    protocol_version: int
    max_message_size: int


@dataclass(frozen=True, slots=True)
class ConnectRefused:
    """The broker does not want us; close the socket."""

    error: BrokerError


@dataclass(frozen=True, slots=True)
class AuthChallenged:
    """The broker wants fresh credentials: answer with ``auth_response``, or close the socket."""

    method: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request; ``error`` is None if it went well, whatever shape the refusal had."""

    request_id: int
    kind: Kind
    command: pb.BaseCommand
    error: BrokerError | None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """No answer came in time; one that comes later is dropped."""

    request_id: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class ConsumerClosed:
    """The broker has closed a consumer; the topic's new owner, where it is known already."""

    consumer_id: int
    assigned_url: str
    assigned_url_tls: str


@dataclass(frozen=True, slots=True)
class ActiveChanged:
    """Failover: this consumer has become the active one of its partition, or is not any more."""

    consumer_id: int
    active: bool


@dataclass(frozen=True, slots=True)
class EndOfTopic:
    """The topic was terminated and everything in it delivered."""

    consumer_id: int


@dataclass(frozen=True, slots=True)
class TopicMigrated:
    """The consumer's topic has moved to another cluster."""

    consumer_id: int
    url: str
    url_tls: str


@dataclass(frozen=True, slots=True)
class SendConfirmed:
    """An entry of a producer is stored; -1:-1 is the place of one that was there before and is not stored again."""

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
    """Others write to the topic: the request to open a producer has to wait its turn, for as long as that takes."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ProducerClosed:
    """The broker has closed a producer; the topic's new owner, where it is known already."""

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
    """Topics that a watcher of ours asked about have come into being or gone away, by their full names."""

    watcher_id: int
    new: tuple[str, ...]
    deleted: tuple[str, ...]
    topics_hash: str


@dataclass(frozen=True, slots=True)
class EntryRejected:
    """An entry that cannot be decoded (damaged, encrypted, a part of a torn message).

    ``diverted``: it is a dead letter of the open chunk. If not, ``More`` follows: deal with its consumer before the
    next ``receive``.
    """

    entry: ColdEntry
    diverted: bool


@dataclass(frozen=True, slots=True)
class Notice:
    """A command about schemas or transactions; whoever uses such things understands it."""

    command: pb.BaseCommand


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
    | Notice
    | More
    | Lost
)
