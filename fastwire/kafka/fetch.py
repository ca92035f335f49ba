"""Which partitions of a broker are asked for when.

A broker works on one request of a connection at a time, and a Fetch that finds nothing waits (kafka 1). So as long as
some partition is behind its log's end, the partitions that are behind are split over two requests, which are answered
at once; all others ride along in one of them. Only when nobody is behind does one request wait for news.

Where many partitions are read and few are behind, most of such a request says what the last one said. There a session
is opened, with one request in flight that names only what has changed; it is closed when many fall behind.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fastwire.kafka.connection import Connection, Key
from fastwire.kafka.message import Body
from fastwire.kafka.metadata import NO_ID
from fastwire.kafka.response import Fetched, Planned
from fastwire.kafka.session import LAST_WITH_NAMES, FetchSession, Target, Wanted, topics_of
from fastwire.kafka.slot import SlotTable

__all__ = ["FetchLimits", "Fetcher", "Target"]

SESSIONS_FROM = 7  # the version of Fetch
MEMORY_SHARE = 8  # of the memory: what an answer may take of it
LEAST_ANSWER = 1 << 20
MOST_FLIGHTS = 2  # plain requests
IDLE = 4  # a session begins when at most one partition of so many is behind, and ends at twice the share


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much an answer may hold, in bytes, how long a broker may wait for news, when a session is worth it."""

    response_bytes: int = 16 << 20
    partition_bytes: int = 4 << 20  # a request and what is done about an answer cost as much as a thousand records
    max_wait_ms: int = 500
    read_committed: bool = True
    session_above: int = 100  # partitions

    def within(self, memory: int) -> "FetchLimits":
        """The same for a reader with so many bytes for records: two answers of each of some brokers are under way."""
        answer = min(self.response_bytes, max(memory // MEMORY_SHARE, LEAST_ANSWER))
        return replace(self, response_bytes=answer, partition_bytes=min(self.partition_bytes, answer))


class Fetcher:
    """The Fetch requests of one connection."""

    def __init__(self, slots: SlotTable, limits: FetchLimits) -> None:
        self._slots = slots
        self.limits = limits
        self._targets: OrderedDict[int, Target] = OrderedDict()  # who was served last stands last
        self._behind: set[int] = set()
        self._flights: dict[int, list[int]] = {}
        self._busy: set[int] = set()
        self._session: FetchSession | None = None
        self._asking: int | None = None  # the session's request in flight
        self._moved: set[int] = set()  # since the session's last request: come, gone, or read on

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, target: Target) -> None:
        """Read ``target`` from here on."""
        self._targets[target.index] = target
        self._behind.add(target.index)
        self._moved.add(target.index)

    def drop(self, index: int) -> None:
        """Read it no more; what is in flight is for the slot's session to refuse."""
        self._targets.pop(index, None)
        self._behind.discard(index)
        self._moved.add(index)

    @property
    def may_ask(self) -> bool:
        """Whether there is anything to read and not too much in flight: where not, ``pump`` does nothing."""
        return bool(self._targets) and self._asking is None and len(self._flights) < MOST_FLIGHTS

    def pump(self, connection: Connection, now: float) -> bool:
        """Ask for what may be asked for now; false if nothing was."""
        if not self.may_ask:
            return False
        if self._wants_session(connection):
            if self._flights:
                return False
            self._send_session(connection, now)
            return True
        asked = False
        while len(self._flights) < MOST_FLIGHTS:
            ready = [target for index, target in self._targets.items() if index not in self._busy]
            behind = [target for target in ready if target.index in self._behind]
            if not ready or (self._flights and not behind):
                break
            if not behind:
                self._send(connection, ready, self.limits.max_wait_ms, now)
            elif self._flights:
                self._send(connection, behind, 0, now)
            else:
                # The larger half now; the other half follows at once, and is answered while this one is decoded.
                later = {target.index for target in behind[(len(behind) + 1) // 2 :]}
                self._send(connection, [one for one in ready if one.index not in later], self.limits.max_wait_ms, now)
            asked = True
        return asked

    def done(self, fetched: Fetched) -> Collection[int]:
        """An answer is through; the partitions that it was about, as far as they are read."""
        about: Collection[int]
        if fetched.correlation_id == self._asking:
            self._asking = None
            if self._session is not None:
                self._session.answered(fetched.session_id, fetched.error, fetched.unknown)
            about = fetched.answered
            self._moved.update(about)
        else:
            about = self._flights.pop(fetched.correlation_id, [])
            self._busy.difference_update(about)
        for index in about:
            if index not in self._targets:
                continue
            told = self._slots.told(index)
            end = told.stable_offset if self.limits.read_committed and told.stable_offset >= 0 else told.high_watermark
            if self._slots.position(index).a < end:
                self._behind.add(index)
            else:
                self._behind.discard(index)
            if told.received:
                self._targets.move_to_end(index)  # who got nothing comes first (kafka 9)
        return about

    def lost(self) -> None:
        """The connection is gone, and with it every answer."""
        self._flights.clear()
        self._busy.clear()
        self._session = self._asking = None

    # --- one request after the other, with what has changed

    def _wants_session(self, connection: Connection) -> bool:
        open_ = self._session is not None
        if len(self._targets) * (2 if open_ else 1) <= self.limits.session_above:
            return False
        if len(self._behind) * IDLE > len(self._targets) * (2 if open_ else 1):
            return False
        return connection.version_of(Key.FETCH) >= SESSIONS_FROM

    def _send_session(self, connection: Connection, now: float) -> None:
        version = self._version(connection, self._targets.values())
        by_id = version > LAST_WITH_NAMES
        session = self._session
        if session is None or session.by_id != by_id:
            before, session = session, FetchSession(by_id)
            self._session = session
            session.session_id = 0 if before is None else before.session_id
        moved = self._targets.keys() if session.opening else self._moved & self._targets.keys()
        asked = session.ask(self._wanted(moved), self._moved - self._targets.keys(), self.limits.partition_bytes)
        self._moved.clear()
        planned = Planned(version, self.limits.read_committed, session.planned)
        self._asking = connection.fetch(self._body(asked, self.limits.max_wait_ms), planned, now)

    # --- plain requests

    def _send(self, connection: Connection, targets: list[Target], wait_ms: int, now: float) -> None:
        version = self._version(connection, targets)
        by_id = version > LAST_WITH_NAMES
        wanted = self._wanted([target.index for target in targets])
        session_id = 0
        if self._session is not None:  # it ends with this request
            session_id, self._session = self._session.session_id, None
        topics = topics_of(wanted, by_id, self.limits.partition_bytes)
        asked = {"session_id": session_id, "session_epoch": -1, "topics": topics}
        planned: dict[bytes, dict[int, tuple[int, int]]] = {}
        for one in wanted:
            key, partition = one.place(by_id)
            planned.setdefault(key, {})[partition] = one.target.index, one.target.session
        correlation_id = connection.fetch(
            self._body(asked, wait_ms), Planned(version, self.limits.read_committed, planned), now
        )
        indexes = [target.index for target in targets]
        self._flights[correlation_id] = indexes
        self._busy.update(indexes)

    def _version(self, connection: Connection, targets: Collection[Target]) -> int:
        version = connection.version_of(Key.FETCH)
        if version > LAST_WITH_NAMES and any(target.topic_id == NO_ID for target in targets):
            version = connection.version_of(Key.FETCH, LAST_WITH_NAMES)
        return version

    def _wanted(self, indexes: Collection[int]) -> Sequence[Wanted]:
        return [Wanted(self._targets[index], self._slots.position(index).a) for index in indexes]

    def _body(self, asked: Body, wait_ms: int) -> Body:
        return {
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": self.limits.response_bytes,
            "isolation_level": int(self.limits.read_committed),
            **asked,
        }
