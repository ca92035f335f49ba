"""The part of ``Recall`` that systems have in common whose reader is a source without a dataset."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span

from ..recall import RecordsGone
from ..source import LogStopped
from .clusterreader import ClusterReader

SETTLE_S = 10.0  # for requests that a lost producer had on their way


class ClusterRecall:
    """Looks at one topic by readers, each of which ``make_reader`` makes with a start at the beginning."""

    def __init__(self, make_reader: Callable[[], ClusterReader]) -> None:
        self._make_reader = make_reader

    async def ends(self) -> dict[Log, Position]:
        """See ``Recall.ends``."""
        reader = self._make_reader()
        try:
            return await reader.ends()
        finally:
            await reader.close()

    async def behind(self, ends: Mapping[Log, Position]) -> AsyncGenerator[Chunk, None]:
        """See ``Recall.behind``."""
        coverage = Coverage()
        for log, position in ends.items():
            coverage.add(Span(log, position, position, 0))
        reader = self._make_reader()
        try:
            await reader.open(coverage)
            async for chunk in reader.up_to_now():
                yield chunk
        except LogStopped as exc:
            raise RecordsGone(str(exc)) from exc
        finally:
            await reader.close()
        if others := sorted(map(str, ends.keys() - reader.logs)):
            raise RecordsGone(f"{others[0]} is gone: the topic was deleted, or deleted and created again")
        if reader.gaps:
            raise RecordsGone("; ".join(f"{span.log}: {span.gap.reason}" for span in reader.gaps if span.gap))

    async def fence(self, sender: str) -> None:
        """See ``Recall.fence``. It waits for requests that are on their way: brokers do not know the producer."""
        await asyncio.sleep(SETTLE_S)
