"""What comes out of a connection."""

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
]


@dataclass(frozen=True, slots=True)
class Connected:
    """Versions are known and we are logged in; requests may be made."""


@dataclass(frozen=True, slots=True)
class LoginWanted:
    """The login ends soon: begin another one with ``Connection.log_in`` (kafka 15)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to ``Connection.request``; ``body`` is a dict by the tables."""

    correlation_id: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FetchDone:
    """The end of a Fetch response; its records came before, in chunks or in the open one."""

    fetched: Fetched


@dataclass(frozen=True, slots=True)
class CorruptFound:
    """A partition cannot be read on; it is detached."""

    batch: CorruptBatch


Event = Connected | LoginWanted | Lost | Reply | FetchDone | ChunkReady | CorruptFound | More
