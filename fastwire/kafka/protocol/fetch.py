"""Scheduling of Fetch requests to one broker.

A broker processes one request of a connection at a time, and a Fetch without results waits (spec: kafka 1). As long as
some partition lags behind its log's end, the lagging partitions are split over two requests, which are answered at
once; the others are added to one of them. Only if no partition lags does one request wait for new records.

With many partitions of which few lag, consecutive requests are nearly equal. Then a fetch session is opened, with one
request in flight that names changed partitions only. It is closed when many partitions lag.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fastwire.kafka.format.message import Body
from fastwire.kafka.protocol.connection import Connection, Key
from fastwire.kafka.protocol.metadata import NO_ID
from fastwire.kafka.protocol.session import LAST_WITH_NAMES, FetchSession, Target, Wanted, topics_of
from fastwire.kafka.reading.response import Fetched, Planned
from fastwire.kafka.reading.slot import SlotTable

__all__ = ["FetchLimits", "Fetcher", "Target"]

SESSIONS_FROM = 7  # lowest Fetch version with sessions
MEMORY_SHARE = 8  # a response may take the memory divided by this
LEAST_ANSWER = 1 << 20
MOST_FLIGHTS = 2  # concurrent requests without a session
IDLE = 4  # a session begins with at most one lagging partition in this many, and ends at twice the share


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a response in bytes, the broker's longest wait, and the threshold of a session."""

    response_bytes: int = 16 << 20
    partition_bytes: int = 4 << 20  # a request and its response cost as much as a thousand records
    max_wait_ms: int = 500
    min_bytes: int = 1  # a broker waits for them, for ``max_wait_ms`` at most
    read_committed: bool = True
    session_above: int = 100  # number of partitions
    rack: str = ""  # a leader names the nearest replica for it; "": none (spec: kafka 9.4)

    def within(self, memory: int) -> "FetchLimits":
        """Return limits for a reader with ``memory`` bytes for records; several brokers have two responses in flight
        each.
        """
        answer = min(self.response_bytes, max(memory // MEMORY_SHARE, LEAST_ANSWER))
        return replace(self, response_bytes=answer, partition_bytes=min(self.partition_bytes, answer))


class Fetcher:
    """The Fetch requests of one connection."""

    def __init__(self, slots: SlotTable, limits: FetchLimits) -> None:
        self._slots = slots
        self.limits = limits
        self._targets: OrderedDict[int, Target] = OrderedDict()  # the least recently served first
        self._behind: set[int] = set()
        self._flights: dict[int, list[int]] = {}
        self._busy: set[int] = set()
        self._session: FetchSession | None = None
        self._asking: int | None = None  # the session's request in flight
        self._moved: set[int] = set()  # added, removed or advanced since the session's last request

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, target: Target) -> None:
        """Read ``target`` from now on."""
        self._targets[target.index] = target
        self._behind.add(target.index)
        self._moved.add(target.index)

    def drop(self, index: int) -> None:
        """Stop reading a partition; its slot's session rejects responses in flight."""
        self._targets.pop(index, None)
        self._behind.discard(index)
        self._moved.add(index)

    @property
    def may_ask(self) -> bool:
        """True if ``pump`` has a request to make: there is a partition to read, and a free place for a request."""
        return bool(self._targets) and self._asking is None and len(self._flights) < MOST_FLIGHTS

    def pump(self, connection: Connection, now: float) -> bool:
        """Queue all Fetch requests that may be sent now; return False if there are none."""
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
                # The larger half is requested now. The other half follows at once, and is answered while this one is
                # decoded.
                later = {target.index for target in behind[(len(behind) + 1) // 2 :]}
                self._send(connection, [one for one in ready if one.index not in later], self.limits.max_wait_ms, now)
            asked = True
        return asked

    def done(self, fetched: Fetched) -> Collection[int]:
        """Handle the end of a response; return those of its partitions that are still read."""
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
            result = self._slots.result(index)
            end = (
                result.stable_offset
                if self.limits.read_committed and result.stable_offset >= 0
                else result.high_watermark
            )
            if self._slots.position(index).a < end:
                self._behind.add(index)
            else:
                self._behind.discard(index)
            if result.received:
                self._targets.move_to_end(index)  # partitions without records come first (spec: kafka 9)
        return about

    def lost(self) -> None:
        """Forget all requests, because the connection is gone."""
        self._flights.clear()
        self._busy.clear()
        self._session = self._asking = None

    # --- one request after the other, with what has changed

    def _wants_session(self, connection: Connection) -> bool:
        open_ = self._session is not None
        if self._slots.probing:  # an empty answer carries information then, and a session leaves it out
            return False
        if len(self._targets) * (2 if open_ else 1) <= self.limits.session_above:
            return False
        if len(self._behind) * IDLE > len(self._targets) * (2 if open_ else 1):
            return False
        # Nor does a session say that an offset is asked for with more room, or that a partition is to come first.
        if any(self._slots.fetch_bytes(one, 0) for one in self._behind):
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
        asked = session.ask(self._wanted(moved), self._moved - self._targets.keys())
        self._moved.clear()
        planned = Planned(version, self.limits.read_committed, session.planned)
        body = self._body(self._targets.values(), asked, self.limits.max_wait_ms)
        self._asking = connection.fetch(body, planned, now)

    # --- plain requests

    def _send(self, connection: Connection, targets: list[Target], wait_ms: int, now: float) -> None:
        version = self._version(connection, targets)
        by_id = version > LAST_WITH_NAMES
        wanted = self._wanted([target.index for target in targets])
        session_id = 0
        if self._session is not None:  # the session ends with this request
            session_id, self._session = self._session.session_id, None
        topics = topics_of(wanted, by_id)
        asked = {"session_id": session_id, "session_epoch": -1, "topics": topics}
        planned: dict[bytes, dict[int, tuple[int, int]]] = {}
        for one in wanted:
            key, partition = one.place(by_id)
            planned.setdefault(key, {})[partition] = one.target.index, one.target.session
        correlation_id = connection.fetch(
            self._body(targets, asked, wait_ms), Planned(version, self.limits.read_committed, planned), now
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
        slots, most = self._slots, self.limits.partition_bytes
        # A broker fills an answer from its beginning: others must not cut off what is behind a doubtful batch.
        ordered = sorted(indexes, key=lambda one: not slots.fetch_bytes(one, 0))
        return [Wanted(self._targets[one], slots.fetch_offset(one), slots.fetch_bytes(one, most)) for one in ordered]

    def _body(self, targets: Iterable[Target], asked: Body, wait_ms: int) -> Body:
        return {
            "rack_id": self.limits.rack if all(target.near for target in targets) else "",
            "max_wait_ms": wait_ms,
            "min_bytes": self.limits.min_bytes,
            "max_bytes": self.limits.response_bytes,
            "isolation_level": int(self.limits.read_committed),
            **asked,
        }
