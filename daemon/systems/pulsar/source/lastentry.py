"""The last landed entry, read again beside the subscription: it says whether the log is still the one that it was."""

import asyncio
from dataclasses import replace

from fastwire.position import Position
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.pulsar.protocol.request import SubscribeRequest
from fastwire.wire.pool import Pool

from ..client.member import Member
from ..client.reader import Reader
from ..settings import ClientSettings

__all__ = ["witness_at"]

POOL_BYTES = 32 << 20
MOST_S = 5.0


class _EntryReader(Reader):
    """Reads one entry of one partition; it is at its end when that has come, or a later one."""

    def __init__(self, settings: ClientSettings, topic: str, at: Position) -> None:
        self._at_id = MessageId(at.a, at.b)
        super().__init__(settings, Pool(POOL_BYTES), [topic], self._at_id, inclusive=True, window=1)

    def prepare(self, member: Member) -> SubscribeRequest:
        self.slots.end_at(member.number, self._at_id.position)
        self._until = {member: self._at_id}
        return super().prepare(member)


async def witness_at(settings: ClientSettings, topic: str, at: Position) -> int | None:
    """Return the witness of the entry ``at`` of one partition, of the full name ``topic``.

    None if the broker no longer has the entry, or its bytes carry no checksum. Raises FastwireError if it cannot be
    read, TimeoutError after ``MOST_S``.
    """
    own = ClientSettings(**{name: getattr(settings, name) for name in ClientSettings.__dataclass_fields__})
    own = replace(own, columns=frozenset({"offset"}), on_corrupt="dead_letter")
    reader = _EntryReader(own, topic, at)
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
