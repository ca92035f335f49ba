"""Events of a Kafka connection."""

from dataclasses import dataclass
from typing import Any

from fastwire.connection import ChunkReady, Lost, More
from fastwire.kafka.response import Fetched
from fastwire.kafka.scan import CorruptBatch

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
class Connected:
    """The versions are known and the login is complete; requests may be made."""


@dataclass(frozen=True, slots=True)
class LoginWanted:
    """The login expires soon: start another one with ``Connection.log_in`` (spec: kafka 15)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to ``Connection.request``; ``body`` is a dict according to the message tables."""

    correlation_id: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FetchDone:
    """The end of a Fetch response; its records came before, in chunks or in the open one."""

    fetched: Fetched


@dataclass(frozen=True, slots=True)
class CorruptFound:
    """A partition whose records cannot be read on; its slot is detached."""

    batch: CorruptBatch


@dataclass(frozen=True, slots=True)
class Throttled:
    """The broker's quota is exceeded: nothing is sent for ``seconds`` longer than known before (spec: kafka 5.1)."""

    seconds: float


Event = Connected | LoginWanted | Lost | Reply | FetchDone | ChunkReady | CorruptFound | Throttled | More
