"""Readers: they read without a durable subscription and send no acks (spec: pulsar 7.2, 18.2, 25.1)."""

import math
import secrets
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, Self

from fastwire.columns.chunk import Chunk
from fastwire.position import Log, Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.ackset import words_of
from fastwire.pulsar.names.pattern import TopicPattern
from fastwire.pulsar.names.topic import Topic
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.protocol.message_id import EARLIEST, LATEST, MessageId
from fastwire.pulsar.protocol.request import SubscribeRequest
from fastwire.wire.pool import Pool

from ....runtime.errors import ConfigurationRefused
from ..link import Link
from ..settings import ClientSettings
from .intake import MOST_ELEMENTS, Intake, together
from .member import Member
from .places import Places, places_of

WINDOW = 1000

_Start = MessageId | datetime | Literal["earliest", "latest"] | dict[str, MessageId]


@dataclass(frozen=True, slots=True)
class _Place:
    """The start of a partition: ``ask`` goes into SUBSCRIBE, positions up to ``floor`` are dropped.

    ``floor`` is None until the broker has reported it. A broker counts back to ``since`` from when it handles the
    SUBSCRIBE, in whole seconds: ``spare_s`` is what that may take.
    """

    ask: Position
    floor: Position | None
    since: datetime | None = None
    spare_s: int = 1
    latest: bool = False

    @property
    def ago_s(self) -> float:
        """The seconds from ``since`` until now; 0 without one."""
        return 0.0 if self.since is None else (_now() - self.since).total_seconds()

    @property
    def rollback_s(self) -> int:
        """The seconds that a SUBSCRIBE of now goes back; 0 without ``since``."""
        return 0 if self.since is None else max(1, math.floor(self.ago_s) + self.spare_s)


_BEGINNING = _Place(PULSAR_EARLIEST, PULSAR_EARLIEST)


class Reader(Intake[Member]):
    """Reads the chunks of topics from a start position: ``async for chunk in reader``.

    ``start`` is ``"earliest"``, ``"latest"``, a time with a time zone, a ``timedelta`` before now, a message of a topic
    with one partition, or messages by the partition's name. A message is given by its id, by what ``send`` has returned
    for it, or by the position of its entry. Reading begins up to a second before a time, and more than that where the
    broker takes longer to subscribe. It begins after a message, or with ``inclusive`` at the message itself;
    ``"latest"`` with ``inclusive`` begins at the last message, and with ``before_end`` so many entries before the end,
    but not before the newest ledger. Everything else raises ValueError. After a lost
    connection reading continues at its position. A reader does not keep the broker from deleting unread data: that
    takes retention, or a subscription.
    """

    ordered = True

    def __init__(
        self,
        settings: ClientSettings,
        pool: Pool,
        topics: Iterable[Topic],
        start: Places = "latest",
        *,
        pattern: TopicPattern | None = None,
        inclusive: bool = False,
        before_end: int = 0,
        name: str = "",
        window: int = WINDOW,
        read_compacted: bool = False,
        patience_s: float | None = None,
        partition_poll_s: float = 60.0,
    ) -> None:
        super().__init__(
            settings,
            pool,
            topics,
            Member,
            window=window,
            patience_s=patience_s,
            pattern=pattern,
            subscription="",
            subscription_type="exclusive",
            partition_poll_s=partition_poll_s,
        )
        self._start = places_of(start)
        self._inclusive = inclusive
        self._before_end = before_end or int(inclusive)
        self._name = name or secrets.token_hex(5)
        self._compacted = read_compacted
        self._places: dict[int, _Place] = {}  # by member
        self._taken: dict[int, Position] = {}
        self._until: dict[Member, MessageId] = {}  # the ends for ``up_to_now``

    # --- taking

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.receive()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def receive(self) -> Chunk | None:
        """Return the next chunk, waiting for it; None if none can follow: closed, or the broker has told every end.

        It tells a reader, which acknowledges nothing, the end of a terminated topic only if reading began there.
        """
        while (chunk := await self._next()) is not None:
            if chunk.rows or chunk.dead_letters:
                return chunk
        return None

    async def _next(self) -> Chunk | None:
        chunk = await self.take()
        for number, ledger, _, last in () if chunk is None else chunk.entries():
            at = Position(ledger, last)
            self._taken[number] = max(self._taken.get(number, at), at)  # parts follow the last part of their message
        return chunk

    async def up_to_now(self) -> AsyncIterator[Chunk]:
        """Iterate up to the end of the topics at the time of the call; the last chunk may have a few later records.

        Chunked messages that are incomplete at that time are not waited for.
        """
        await self.open()
        last = await self._lasts()
        self._until = {member: at for member, at in last.items() if self._is_before(member, at)}
        try:
            while any(self._is_before(member, at) for member, at in self._until.items()):
                chunk = await self._next()
                if chunk is None:
                    return
                if chunk.rows or chunk.dead_letters:
                    yield chunk
        finally:
            self._until = {}

    @property
    def share(self) -> None:
        """See ``TopicReader.share``: the ids of two messages do not say how many are between them."""

    async def ends(self) -> dict[Log, MessageId]:
        """Return the id of the last message of each partition, with the entry -1 for one without messages."""
        await self.open()
        return {self.slots.log(member.number): last for member, last in (await self._lasts()).items()}

    def at_end(self) -> bool:
        """See ``Intake.at_end``; True too when everything for ``up_to_now`` was received."""
        return super().at_end() or (bool(self._until) and self._received())

    def _received(self) -> bool:
        return all(
            member.terminated or member.over or self.slots.staged_position(member.number) >= at.position
            for member, at in self._until.items()
        )

    def after_read(self, link: Link) -> None:
        """See ``Intake.after_read``; parts of a chunked message end ``up_to_now`` without a chunk."""
        super().after_read(link)
        if self._until and self._received():
            self._arrived.set()

    async def has_more(self) -> bool:
        """Return True if the topics hold messages that were not taken yet."""
        await self.open()
        last = await self._lasts()
        return any(self._is_before(member, at) for member, at in last.items())

    async def _lasts(self) -> dict[Member, MessageId]:
        live = self.live
        found = await self.asking(together(member.last_id() for member in live))
        return {member: last for member, (last, _) in zip(live, found, strict=True)}

    def _is_before(self, member: Member, last: MessageId) -> bool:
        """Return True if ``last`` was not taken yet."""
        place = self._places.get(member.number)
        floor = PULSAR_EARLIEST if place is None or place.floor is None else place.floor
        return last.entry >= 0 and max(floor, self._taken.get(member.number, floor)) < last.position

    async def seek(self, start: Places, *, inclusive: bool | None = None) -> None:
        """Continue at another position in all partitions; see ``start``. Chunks that were not taken are dropped.

        Reading begins at a message itself unless ``inclusive`` is false. Raises ValueError for an invalid start, and
        LinkLost if a partition is not read within ``operation_timeout_s``; it is read from there once it can be.
        """
        checked = places_of(start)
        if inclusive is None:
            inclusive = isinstance(checked, MessageId | dict) and checked != LATEST
        await self.open()
        if problem := self._problem(checked, self.live):
            raise ValueError(problem)
        self._start, self._inclusive, self._before_end = checked, inclusive, int(inclusive)
        for member in self.live:
            member.rejoin()
        self.drop_chunks(self.members)
        for member in self.live:
            member.late = False
            self._taken.pop(member.number, None)
            self._places.pop(member.number, None)
            self.renew(member)
        # "latest" and times are resolved by the subscribe.
        await self.asking(together(member.there() for member in self.live))

    # --- called by the intake

    def want(self, topic: Topic, number: int, *, late: bool) -> SubscribeRequest:
        """See ``Intake.want``."""
        return SubscribeRequest(
            topic=str(topic),
            subscription=f"reader-{secrets.token_hex(5)}",
            subscription_type=pb.CommandSubscribe.Exclusive,
            consumer_id=number,
            consumer_name=self._name,
            create=False,
            reader_from=PULSAR_EARLIEST,
            latest=True,  # the start for a position beyond the end, "latest" included
            read_compacted=self._compacted,
        )

    def added(self, member: Member) -> None:
        """See ``Intake.added``."""
        if member.late:
            return  # it is read from its beginning
        if problem := self._problem(self._start, (member,)):
            raise ConfigurationRefused(problem)

    def _problem(self, start: _Start, members: Iterable[Member]) -> str:
        """Return why a start is not valid for ``members``; "" if it is."""
        here = isinstance(start, MessageId) and start not in (EARLIEST, LATEST)
        for member in members:
            if (here and len(self.members) > 1) or (isinstance(start, dict) and str(member.topic) not in start):
                return f"a message id belongs to one partition: give ids by partition name, such as {member.topic}"
        return ""

    def prepare(self, member: Member) -> SubscribeRequest:
        """See ``Intake.prepare``: begin at the received position, or at the start."""
        place = self._places.get(member.number)
        if place is None:
            place = self._begin(member)
            self._settle(member, place)
        at = self.slots.staged_position(member.number)
        if place.floor is not None and at > place.floor:
            place = _Place(at, at)  # that entry is sent once more, and dropped
        return replace(member.consumer.want, reader_from=place.ask, rollback_s=place.rollback_s)

    async def subscribed(self, member: Member) -> bool:
        """Resolve the start to a position, so that it stays the same after a lost connection."""
        place, link = self._places[member.number], member.link
        if place.floor is not None or link is None:
            return True
        if (late_s := place.ago_s - member.consumer.want.rollback_s) > 0:
            # It may have been handled so late that reading would begin behind the time.
            self._settle(member, replace(place, spare_s=place.spare_s + math.ceil(2 * late_s)))
            return False
        last, cursor = await member.last_on(link)
        if place.latest and self._before_end and last.entry >= 0:
            if self._before_end > 1:
                last = MessageId(last.ledger, max(last.entry - self._before_end + 1, 0))
            self._settle(member, self._at(member, last, inclusive=True))
            return False
        floor = last.position if cursor is None and place.latest else cursor
        if floor is not None:
            ask = PULSAR_EARLIEST if floor.a < 0 else Position(floor.a, max(floor.b, 0))
            self._settle(member, _Place(ask, floor))
        return True

    def _settle(self, member: Member, place: _Place) -> None:
        self._places[member.number] = place
        if place.floor is not None and place.floor > PULSAR_EARLIEST:
            self.slots.set_landed(member.number, place.floor)

    def _begin(self, member: Member) -> _Place:
        start = self._start
        if isinstance(start, dict):
            start = start[str(member.topic)]
        if member.late or start in ("earliest", EARLIEST):
            return _BEGINNING
        if start in ("latest", LATEST):
            return _Place(LATEST.position, None, latest=True)
        if isinstance(start, datetime):
            return _Place(PULSAR_EARLIEST, None, since=start)
        if isinstance(start, MessageId):
            return self._at(member, start, inclusive=self._inclusive)
        raise AssertionError(f"{start!r} was checked before")

    def _at(self, member: Member, start: MessageId, *, inclusive: bool) -> _Place:
        first = start.batch_index if inclusive else start.batch_index + 1  # element of the entry that is wanted
        if not inclusive and start.ends_entry:
            return _Place(start.position, start.position)
        if start.first is not None:
            return _Place(start.begin, start.before)
        if first > 0:
            words = words_of((1 << MOST_ELEMENTS) - (1 << first))
            self.slots.narrow(member.number, start.ledger, start.entry, words)
        return _Place(start.position, start.before)


def _now() -> datetime:
    return datetime.now(UTC)
