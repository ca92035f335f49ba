"""Events of a Kafka connection."""

from dataclasses import dataclass

from fastwire.connection import ChunkReady, Lost, More
from fastwire.event import Connected, CorruptFound, FetchDone, Reply
from fastwire.kafka.format.message import Body
from fastwire.kafka.reading.evidence import CorruptBatch
from fastwire.kafka.reading.response import Fetched

__all__ = [
    "ChunkReady",
    "Connected",
    "CorruptFound",
    "Event",
    "FetchDone",
    "LoginWanted",
    "Lost",
    "More",
    "Reply",
    "Throttled",
]


@dataclass(frozen=True, slots=True)
class LoginWanted:
    """The login expires soon: start another one with ``Connection.log_in`` (spec: kafka 15)."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """The broker's quota is exceeded: nothing is sent for ``seconds`` longer than known before (spec: kafka 5.1)."""

    seconds: float


Event = (
    Connected
    | LoginWanted
    | Lost
    | Reply[Body]
    | FetchDone[Fetched]
    | ChunkReady
    | CorruptFound[CorruptBatch]
    | Throttled
    | More
)
