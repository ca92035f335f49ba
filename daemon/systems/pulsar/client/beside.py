"""Readers of one partition beside a subscription: the entry at which a time begins, and the last landed entry."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import orjson

from fastwire.columns.text import LineFormatter
from fastwire.position import Position
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.pulsar.protocol.request import SubscribeRequest
from fastwire.wire.pool import Pool

from ..settings import ClientSettings
from .member import Member
from .reader import Reader

POOL_BYTES = 32 << 20
MOST_S = 5.0
EPOCH = datetime.fromtimestamp(0, UTC)
CLOCK_SKEW = timedelta(seconds=5)  # brokers count back from their own time
WINDOW = 100  # messages asked for at once: the entry is near, because brokers find times to the second


class _EntryReader(Reader):
    """Reads one entry of one partition; it is at its end when that has come, or a later one."""

    def __init__(self, settings: ClientSettings, topic: str, at: Position) -> None:
        self._at_id = MessageId(at.a, at.b)
        super().__init__(settings, Pool(POOL_BYTES), [parse_topic(topic)], self._at_id, inclusive=True, window=1)

    def prepare(self, member: Member) -> SubscribeRequest:
        self.slots.end_at(member.number, self._at_id.position)
        self._until = {member: self._at_id}
        return super().prepare(member)


async def witness_at(settings: ClientSettings, topic: str, at: Position) -> int | None:
    """Return the witness of the entry ``at`` of one partition, of the full name ``topic``.

    It says whether the log is still the one that it was. None if the broker no longer has the entry, or its bytes carry
    no checksum. Raises FastwireError if it cannot be read, TimeoutError after ``MOST_S``.
    """
    reader = _EntryReader(replace(settings, columns=frozenset({"offset"}), on_corrupt="dead_letter"), topic, at)
    try:
        async with asyncio.timeout(MOST_S):
            await reader.open()
            if any(last.entry < 0 or last.position < at for last in (await reader.ends()).values()):
                return None
            while (chunk := await reader.take()) is not None:
                spans = chunk.spans()
                chunk.release()
                for span in spans:
                    if span.end == at:
                        return span.witness
    finally:
        await reader.close()
    return None


async def entry_before(settings: ClientSettings, topic: str, time: datetime) -> Position | None:
    """Return the position before the first entry that was published at ``time`` or later.

    None if the topic, the full name of one partition, has none now. Raises FastwireError if it cannot be read.
    """
    own = replace(settings, columns=frozenset({"ledger", "offset", "timestamp"}), on_corrupt="dead_letter")
    start = max(time, EPOCH) - CLOCK_SKEW
    async with Reader(own, Pool(POOL_BYTES), [parse_topic(topic)], start, window=WINDOW) as reader:
        async for chunk in reader.up_to_now():
            pieces: list[bytes] = []
            LineFormatter(chunk).write(pieces.append)
            for row in map(orjson.loads, b"".join(pieces).splitlines()):
                if _is_since(row["timestamp"], time):
                    return Position(row["ledger"], row["offset"] - 1)
            chunk.release()
    return None


def _is_since(text: str | None, time: datetime) -> bool:
    """Return True if a record's time in JSON is ``time`` or later; producers may have set years without a calendar."""
    try:
        return text is not None and datetime.fromisoformat(text) >= time
    except ValueError:
        return not str(text).startswith("-")
