"""Finding messages again that were written to a topic of Pulsar."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

import orjson

from fastwire.columns.chunk import Chunk
from fastwire.columns.text import LineFormatter
from fastwire.position import Log, Position
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.producing.settings import ProducerSettings
from fastwire.pulsar.protocol.message_id import EARLIEST, MessageId
from fastwire.wire.pool import Pool

from ..recall import RecordsGone
from .client.reader import Reader
from .cluster import ClientCluster
from .settings import ClientSettings
from .turn import in_turn
from .writer import open_topic

SILENT_S = 30.0
SETTLE_S = 5.0  # for entries that the broker has passed on to its storage nodes


class PulsarRecall:
    """Implementation of ``Recall`` for Pulsar."""

    def __init__(self, settings: ClientSettings, topic: str, pool: Pool) -> None:
        self._settings = settings
        self._topic = parse_topic(topic)
        self._pool = pool

    async def ends(self) -> dict[Log, Position]:
        """See ``Recall.ends``; (-1, -1) is that of a partition without messages."""
        async with Reader(self._settings, self._pool, [self._topic], "latest", window=1) as reader:
            lasts = await reader.ends()
        return {log: last.position if last.entry >= 0 else PULSAR_EARLIEST for log, last in lasts.items()}

    async def behind(self, ends: Mapping[Log, Position]) -> AsyncGenerator[Chunk, None]:
        """See ``Recall.behind``.

        Ledgers are deleted whole, and have numbers that are never used again. So the last message from before is read
        once more: if it is there, so is what follows.
        """
        async with ClientCluster(self._settings) as cluster:
            count = await cluster.partitions(str(self._topic), self._settings.url, create=False)
        begins = {log.partition: at for log, at in ends.items()}
        start = {}
        for index in range(count) if count else (self._topic.partition,):
            at = begins.get(str(index), PULSAR_EARLIEST)
            name = self._topic.of_partition(index) if count else self._topic
            start[str(name)] = EARLIEST if at == PULSAR_EARLIEST else MessageId(at.a, at.b)
        sought = {number: at for number, at in begins.items() if at != PULSAR_EARLIEST}
        first: dict[str, Position] = {}
        async with Reader(self._settings, self._pool, [self._topic], start, inclusive=True) as reader:
            async for chunk in self._until_silent(reader.up_to_now()):
                for number, at in _firsts(chunk) if sought.keys() - first.keys() else ():
                    first.setdefault(number, at)
                yield chunk
        for number, at in sought.items():
            if first.get(number) != at:
                where = f"partition {number} of {self._topic}" if count else str(self._topic)
                raise RecordsGone(
                    f"{where} has no message {at.a}:{at.b} any more: it was deleted, or the topic was created again"
                )

    async def _until_silent(self, chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        """Yield the chunks; some brokers report a last message that is deleted, and never send it."""
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise RecordsGone(
                    f"the broker has sent no message of {self._topic} for {SILENT_S:g} s, although there are more: "
                    "they were deleted"
                ) from None
            yield chunk

    async def fence(self, sender: str) -> None:
        """Open and close a producer of the same name, which the broker refuses while the former is connected."""

        async def open_and_close() -> None:
            async with open_topic(self._settings, str(self._topic), ProducerSettings(name=sender)):
                pass

        await in_turn(open_and_close)
        await asyncio.sleep(SETTLE_S)


def _firsts(chunk: Chunk) -> Iterator[tuple[str, Position]]:
    """Yield the position of a first entry in the chunk for each partition; a span tells only where reading began."""
    for letter in chunk.dead_letters:
        yield letter.log.partition, letter.position
    if not chunk.rows:
        return
    pieces: list[bytes] = []
    LineFormatter(chunk).write(pieces.append)
    lines = b"".join(pieces).splitlines()
    for index, first, _ in chunk.runs():
        row = orjson.loads(lines[first])
        yield chunk.log(index).partition, Position(row["ledger"], row["offset"])
