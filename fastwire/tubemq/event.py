"""Events of a TubeMQ connection."""

from dataclasses import dataclass

from fastwire.connection import ChunkReady, Lost, More
from fastwire.tubemq.fetched import CorruptMessage, Fetched
from fastwire.tubemq.frame import Answer

__all__ = ["ChunkReady", "CorruptFound", "Event", "FetchDone", "FetchRefused", "Lost", "More", "Reply"]


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to ``Connection.request``: its message, or the exception of the server."""

    serial: int
    body: Answer


@dataclass(frozen=True, slots=True)
class FetchDone:
    """The end of a GET response; its rows came before, in chunks or in the open one."""

    fetched: Fetched


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """A GET that the server answered with an exception."""

    serial: int
    body: Answer


@dataclass(frozen=True, slots=True)
class CorruptFound:
    """A partition whose messages cannot be read on; its slot is detached."""

    message: CorruptMessage


Event = Lost | Reply | FetchDone | FetchRefused | ChunkReady | CorruptFound | More
