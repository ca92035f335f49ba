"""Reading without a subscription: nothing is acknowledged, no durable cursor moves (pulsar 7.2, 18.2, 25.1)."""

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, Self

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import PULSAR_EARLIEST, Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.ackset import words_of
from fastwire.pulsar.message_id import EARLIEST, LATEST, MessageId
from fastwire.pulsar.namespace import TopicPattern
from fastwire.pulsar.request import SubscribeRequest
from fastwire.pulsar.topic import Topic
from fastwire.wire.pool import Pool

from ..errors import ConfigurationRefused
from .intake import MOST_ELEMENTS, Intake, together
from .member import Member
from .settings import ClientSettings

__all__ = ["ReadFrom", "Reader"]

WINDOW = 1000

ReadFrom = MessageId | datetime | timedelta | Literal["earliest", "latest"] | Mapping[str, MessageId]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a partition begins: what SUBSCRIBE says, and up to where nothing is wanted (None: the broker will say)."""

    ask: Position
    floor: Position | None
    rollback_s: int = 0
    latest: bool = False


_BEGINNING = _Place(PULSAR_EARLIEST, PULSAR_EARLIEST)


class _FoundError(FastwireError):
    """The last message is known now: subscribe to it."""


class Reader(Intake):
    """Chunks of some topics from a place on: ``async for chunk in reader``.

    ``start`` is ``"earliest"``, ``"latest"``, a time with a zone, a ``timedelta`` (so long ago), a message id of a
    topic with one partition, or such ids by the partition's name. Times are good to a second, never later. A message
    id means what comes behind it, or with ``inclusive`` the message itself, too; ``"latest"`` with ``inclusive`` is the
    last message that there is. After a lost connection reading goes on where it was. Nothing holds the data back that
    a reader has yet to read: that takes retention, or a subscription.
    """

    ordered = True

    def __init__(
        self,
        settings: ClientSettings,
        pool: Pool,
        topics: Iterable[str | Topic],
        start: ReadFrom = "latest",
        *,
        pattern: TopicPattern | None = None,
        inclusive: bool = False,
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
            pattern=pattern,
            window=window,
            patience_s=patience_s,
            partition_poll_s=partition_poll_s,
        )
        self._start = _checked(start)
        self._inclusive = inclusive
        self._name = name or secrets.token_hex(5)
        self._compacted = read_compacted
        self._places: dict[int, _Place] = {}  # by member
        self._late: set[int] = set()
        self._taken: dict[int, Position] = {}

    # --- taking

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self.receive()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def receive(self) -> Chunk | None:
        """The next chunk, waiting for it; None when there will be none: closed, or every topic has ended."""
        while (chunk := await self._next()) is not None:
            if chunk.rows or chunk.diverted:
                return chunk
        return None

    async def _next(self) -> Chunk | None:
        chunk = await self.take()
        for number, ledger, _, last in () if chunk is None else chunk.entries():
            self._taken[number] = Position(ledger, last)
        return chunk

    async def up_to_now(self) -> AsyncIterator[Chunk]:
        """Chunks up to what the topics hold at the call; whole chunks, so a few later records may be in the last."""
        await self.open()
        last = await self._lasts()
        while any(self._is_before(member, at) for member, at in last.items()):
            chunk = await self._next()
            if chunk is None:
                return
            if chunk.rows or chunk.diverted:
                yield chunk

    async def has_more(self) -> bool:
        """Whether there are messages that were not taken yet."""
        await self.open()
        last = await self._lasts()
        return any(self._is_before(member, at) for member, at in last.items())

    async def _lasts(self) -> dict[Member, MessageId]:
        live = [member for member in self.members if not member.ended]
        return dict(
            zip(live, (last for last, _ in await self.asking(together(one.last() for one in live))), strict=True)
        )

    def _is_before(self, member: Member, last: MessageId) -> bool:
        """Whether what was taken does not reach to the last message."""
        place = self._places.get(member.number)
        floor = PULSAR_EARLIEST if place is None or place.floor is None else place.floor
        return last.entry >= 0 and max(floor, self._taken.get(member.number, floor)) < last.position

    async def seek(self, start: ReadFrom, *, inclusive: bool | None = None) -> None:
        """Read on from somewhere else, in all partitions; see ``start``. What was not taken yet is forgotten.

        A message id means the message itself, unless ``inclusive`` is false.
        """
        checked = _checked(start)
        if inclusive is None:
            inclusive = isinstance(start, MessageId | Mapping) and start != LATEST
        await self.open()
        self._start, self._inclusive = checked, inclusive
        self._late.clear()
        tasks = [
            self.run(member.rejoin(partial(self._begin_anew, member)), f"seek {member.topic}")
            for member in self.members
        ]
        await self.asking(together(asyncio.shield(task) for task in tasks))
        # Only then is it settled what the latest means, or so many seconds ago.
        await self.asking(together(member.there() for member in self.members))

    def _begin_anew(self, member: Member) -> None:
        self.drop_chunks(self.members)  # of the others, too: their turn comes
        self._taken.pop(member.number, None)
        self._places.pop(member.number, None)
        self.renew(member)

    # --- what the intake asks

    def want(self, topic: Topic, number: int, *, late: bool) -> SubscribeRequest:
        """See ``Intake.want``."""
        if late:
            self._late.add(number)
        return SubscribeRequest(
            topic=str(topic),
            subscription=f"reader-{secrets.token_hex(5)}",
            subscription_type=pb.CommandSubscribe.Exclusive,
            consumer_id=number,
            consumer_name=self._name,
            create=False,
            reader_from=PULSAR_EARLIEST,
            latest=True,  # what a broker does with a place beyond the end, the latest included
            read_compacted=self._compacted,
        )

    def added(self, member: Member) -> None:
        """See ``Intake.added``."""
        start = self._start
        here = isinstance(start, MessageId) and start not in (EARLIEST, LATEST)
        if (here and len(self.members) > 1) or (isinstance(start, Mapping) and str(member.topic) not in start):
            text = f"a position is one of a partition: name the partition, {member.topic} for example"
            raise ConfigurationRefused(text)

    def prepare(self, member: Member) -> SubscribeRequest:
        """Begin where we are, or where reading is to begin."""
        place = self._places.get(member.number)
        if place is None:
            place = self._begin(member)
            self._settle(member, place)
        at = self.slots.staged_position(member.number)
        if place.floor is not None and at > place.floor:
            place = _Place(at, at)  # that entry is sent once more, and cut
        return replace(member.consumer.want, reader_from=place.ask, rollback_s=place.rollback_s)

    async def subscribed(self, member: Member) -> None:
        """Find out what the beginning means, so that it means the same when the connection is lost."""
        place, link = self._places[member.number], member.link
        if place.floor is not None or link is None:
            return
        last, cursor = await member.last_on(link)
        if place.latest and self._inclusive and last.entry >= 0:
            self._settle(member, self._at(member, last, inclusive=True))
            raise _FoundError(f"the last message is {last}")
        floor = last.position if cursor is None and place.latest else cursor
        if floor is not None:
            ask = PULSAR_EARLIEST if floor.a < 0 else Position(floor.a, max(floor.b, 0))
            self._settle(member, _Place(ask, floor))

    def _settle(self, member: Member, place: _Place) -> None:
        self._places[member.number] = place
        if place.floor is not None and place.floor > PULSAR_EARLIEST:
            self.slots.set_landed(member.number, place.floor)

    def _begin(self, member: Member) -> _Place:
        start = self._start
        if isinstance(start, Mapping):
            start = start[str(member.topic)]
        if member.number in self._late or start in ("earliest", EARLIEST):
            return _BEGINNING
        if start in ("latest", LATEST):
            return _Place(LATEST.position, None, latest=True)
        if isinstance(start, datetime):
            ago_s = (datetime.now(UTC) - start).total_seconds()
            return _Place(PULSAR_EARLIEST, None, rollback_s=max(1, math.floor(ago_s) + 1))
        if isinstance(start, MessageId):
            return self._at(member, start, inclusive=self._inclusive)
        raise AssertionError(f"{start!r} was checked before")

    def _at(self, member: Member, start: MessageId, *, inclusive: bool) -> _Place:
        first = start.batch_index if inclusive else start.batch_index + 1  # element of the entry that is wanted
        if not inclusive and start.ends_entry:
            return _Place(start.position, start.position)
        if first > 0:
            words = words_of((1 << MOST_ELEMENTS) - (1 << first))
            self.slots.narrow(member.number, start.ledger, start.entry, words)
        return _Place(start.position, start.before)


def _checked(start: ReadFrom) -> ReadFrom:
    """``start`` as it will mean the same later. Raises ValueError."""
    if isinstance(start, timedelta):
        return datetime.now(UTC) - start
    if isinstance(start, datetime) and start.tzinfo is None:
        raise ValueError(f"{start.isoformat()} has no zone: nobody knows which moment that is")
    if isinstance(start, str) and start not in ("earliest", "latest"):
        raise ValueError(f"{start!r} is no place: earliest, latest, a time, a time ago or a message id")
    return start
