"""The scalars of a GET response, and damaged messages."""

from dataclasses import dataclass

from fastwire.errors import ProtocolError
from fastwire.position import Position
from fastwire.reason import Reason
from fastwire.tubemq.format.error import Code


@dataclass(frozen=True, slots=True)
class Planned:
    """A GET request that was sent: the slot of its partition, and the session that it belongs to."""

    index: int
    session: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The end of a GET response; its rows came before (spec: tubemq 11.2).

    ``offset`` is where the read began, -1 on errors. ``lag_bytes`` is what the data file holds after it.
    ``moved`` means that the read began where the position cannot be: nothing was taken, and the slot is detached.
    ``replaced`` means that the messages that the position counts are others than those that were taken: the topic was
    created again, or a broker has lost messages. Nothing was taken, and the slot is detached.
    """

    serial: int
    index: int
    session: int
    code: int
    text: str
    messages: int
    offset: int
    max_offset: int
    lag_bytes: int
    min_limit_ms: int
    escaped: bool
    require_slow: bool
    nbytes: int
    moved: bool
    replaced: bool = False

    @property
    def at_end(self) -> bool:
        """True if the partition holds no more messages. Another 404 names a wait: the read has skipped entries, or
        messages are not flushed yet (spec: tubemq 11.2).
        """
        return self.code == Code.NOT_FOUND and self.min_limit_ms <= 0


@dataclass(frozen=True, slots=True)
class CorruptMessage:
    """A damaged message for a caller with ``on_corrupt="stop"``. Its partition is not read any further."""

    index: int
    position: Position
    reason: Reason
    detail: str


class ResponseTooLargeError(ProtocolError):
    """The response to a GET of partition ``index`` does not fit into the memory, and would not the next time."""

    def __init__(self, index: int, detail: str) -> None:
        self.index = index
        super().__init__("response", detail=detail)
