"""The entry at which a time begins in a partition, found by a reader beside the subscription."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import orjson

from fastwire.columns.text import LineFormatter
from fastwire.position import Position
from fastwire.wire.pool import Pool

from ..client.reader import Reader
from ..settings import ClientSettings

__all__ = ["entry_before"]

POOL_BYTES = 32 << 20
EPOCH = datetime.fromtimestamp(0, UTC)
CLOCK_SKEW = timedelta(seconds=5)  # brokers count back from their own time
WINDOW = 100  # messages asked for at once: the entry is near, because brokers find times to the second


async def entry_before(settings: ClientSettings, topic: str, time: datetime) -> Position | None:
    """Return the position before the first entry that was published at ``time`` or later.

    None if the topic, the full name of one partition, has none now. Raises FastwireError if it cannot be read.
    """
    own = ClientSettings(**{name: getattr(settings, name) for name in ClientSettings.__dataclass_fields__})
    own = replace(own, columns=frozenset({"ledger", "offset", "timestamp"}), on_corrupt="dead_letter")
    reader = Reader(own, Pool(POOL_BYTES), [topic], max(time, EPOCH) - CLOCK_SKEW, window=WINDOW)
    try:
        await reader.open()
        async for chunk in reader.up_to_now():
            pieces: list[bytes] = []
            LineFormatter(chunk).write(pieces.append)
            for row in map(orjson.loads, b"".join(pieces).splitlines()):
                if _is_since(row["timestamp"], time):
                    return Position(row["ledger"], row["offset"] - 1)
            chunk.release()
    finally:
        await reader.close()
    return None


def _is_since(text: str | None, time: datetime) -> bool:
    """Return True if a record's time in JSON is ``time`` or later; producers may have set years without a calendar."""
    try:
        return text is not None and datetime.fromisoformat(text) >= time
    except ValueError:
        return not str(text).startswith("-")
