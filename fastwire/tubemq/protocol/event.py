"""Events of a TubeMQ connection."""

from dataclasses import dataclass

from fastwire.connection import ChunkReady, Lost, More
from fastwire.event import CorruptFound, FetchDone, Reply
from fastwire.tubemq.format.frame import Answer
from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched

__all__ = ["ChunkReady", "CorruptFound", "Event", "FetchDone", "FetchRefused", "Lost", "More", "Reply"]


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """A GET that the server answered with an exception."""

    serial: int
    body: Answer


Event = Lost | Reply[Answer] | FetchDone[Fetched] | FetchRefused | ChunkReady | CorruptFound[CorruptMessage] | More
