"""Events of a TANK connection."""

from dataclasses import dataclass

from fastwire.connection import ChunkReady, Lost, More
from fastwire.tank.message import PartitionRanges, ServiceStatus, TopicList, TopicResult, Topology
from fastwire.tank.produce import ProduceAnswer
from fastwire.tank.response import Fetched
from fastwire.tank.scan import CorruptBundle

__all__ = [
    "Answer",
    "ChunkReady",
    "Connected",
    "CorruptFound",
    "Event",
    "FetchDone",
    "Lost",
    "More",
    "Reply",
]

Answer = PartitionRanges | TopicList | TopicResult | ServiceStatus | Topology | ProduceAnswer


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker has sent its ping; requests may be made."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to ``Connection.request``."""

    request_id: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class FetchDone:
    """The end of a consume answer; its messages came before, in chunks or in the open one."""

    fetched: Fetched


@dataclass(frozen=True, slots=True)
class CorruptFound:
    """A partition whose messages cannot be read on; its slot is detached."""

    bundle: CorruptBundle


Event = Connected | Lost | Reply | FetchDone | ChunkReady | CorruptFound | More
