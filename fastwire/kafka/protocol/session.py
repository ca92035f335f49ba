"""Fetch session: the broker keeps the list of partitions, and requests name changes only (spec: kafka 9.2)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.names import TopicIdPartition

LAST_WITH_NAMES = 12  # newer versions use topic ids
LAST_EPOCH = 0x7FFFFFFF

# Errors that end a session; the next request opens another one.
ENDED = frozenset(
    {Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH, Code.FETCH_SESSION_TOPIC_ID_ERROR}
)


@dataclass(slots=True)
class Target:
    """A partition that is read from this broker; ``session`` is that of its slot.

    The leader gets the client's rack only if the partition may be read from a ``near`` replica.
    """

    index: int
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    session: int
    near: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """A target, its fetch offset, and the most bytes to return."""

    target: Target
    offset: int
    most_bytes: int

    def place(self, by_id: bool) -> TopicIdPartition:
        """Return topic and partition in the form of a request."""
        return self.target.topic_id if by_id else self.target.topic.encode(), self.target.partition


def topics_of(wanted: Iterable[Wanted], by_id: bool) -> list[Body]:
    """Return the ``topics`` of a request."""
    topics: dict[bytes, Body] = {}
    for one in wanted:
        target = one.target
        key = target.topic_id if by_id else target.topic.encode()
        said = topics.setdefault(key, {"topic_id": key} if by_id else {"topic": target.topic})
        said.setdefault("partitions", []).append(
            {
                "partition": target.partition,
                "current_leader_epoch": target.leader_epoch,
                "fetch_offset": one.offset,
                "partition_max_bytes": one.most_bytes,
            }
        )
    return list(topics.values())


class FetchSession:
    """One session with one broker, open or to be opened; it identifies topics either by id or by name for all its life.

    ``planned`` lists the partitions that a response may contain, as ``response.Planned`` has it.
    """

    def __init__(self, by_id: bool) -> None:
        self.by_id = by_id
        self.session_id = 0
        self.planned: dict[bytes, dict[int, tuple[int, int]]] = {}
        self._epoch = 0  # 0: request all partitions, and open a session
        self._places: dict[int, TopicIdPartition] = {}  # by index
        self._asked: dict[TopicIdPartition, tuple[int, int]] = {}  # offset and leader epoch

    @property
    def opening(self) -> bool:
        """True if the next request must name all partitions."""
        return self._epoch == 0

    def ask(self, wanted: Sequence[Wanted], gone: Iterable[int]) -> Body:
        """Return the fields of the next request: all targets while ``opening``, else those that are new or have moved.

        ``gone`` are the indexes of targets that are no longer read.
        """
        if self.opening:
            self.planned.clear()
            self._places.clear()
            self._asked.clear()
        forgotten = set()
        for index in gone:
            place = self._places.pop(index, None)
            if place is not None:
                forgotten.add(place)
                del self._asked[place]
                del self.planned[place[0]][place[1]]
        news = []
        for one in wanted:
            place, at = one.place(self.by_id), (one.offset, one.target.leader_epoch)
            forgotten.discard(place)
            self._places[one.target.index] = place
            self.planned.setdefault(place[0], {})[place[1]] = one.target.index, one.target.session
            if self._asked.get(place) != at:
                self._asked[place] = at
                news.append(one)
        return {
            "session_id": self.session_id,
            "session_epoch": self._epoch,
            "topics": topics_of(news, self.by_id),
            "forgotten_topics_data": [
                {"topic_id" if self.by_id else "topic": key if self.by_id else key.decode(), "partitions": [number]}
                for key, number in sorted(forgotten)
            ],
        }

    def answered(self, session_id: int, error: int, unknown: int) -> None:
        """Handle a response: the session continues, or is opened again."""
        if not error and session_id and not unknown:
            self.session_id = session_id
            self._epoch = self._epoch % LAST_EPOCH + 1
            return
        if error == Code.FETCH_SESSION_ID_NOT_FOUND or not error:
            self.session_id = session_id  # a session that never existed need not be closed; 0: none was opened
        self._epoch = 0
