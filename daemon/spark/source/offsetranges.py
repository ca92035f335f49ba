"""A source of the daemon that reads one partition at a time between two offsets, for one of Spark's processes."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.wire.pool import Pool

from ...config import Connection, Start, TopicChoice
from ...config.values.end import End
from ...systems.links.link import BrokerLink
from ...systems.reading.clusterreader import Driver
from ...systems.reading.pulled import PulledPartition
from ...systems.reading.pullsource import PullSource
from ...systems.source import Assignment, LogStopped, ProgramEvents, SourceEvents, SourceFailed
from .connections import POOL_BYTES, tell_unfit

FETCH_WAIT_MS = 200  # of a broker at the end of a log: the next range waits behind it
CHUNKS = 4  # that wait for the reader before the brokers are not read any more

EACH = End(positions={"each range": Position(0, 0)})
"""The end of such a source in its settings: Coverage has those of the ranges."""


def range_settings(driver: Driver, connection: Connection, columns: frozenset[str]) -> Any:
    """Return the settings of a source for ranges, which finds no topics. Raises ConfigError for unusable files."""
    settings = driver.reader_settings(connection, TopicChoice(()), Start("earliest"), columns)
    return replace(settings, end=EACH, lag_poll_s=math.inf)


def offset_ranges(driver: Driver, settings: Any) -> Callable[[], "OffsetRanges"]:
    """Return what makes the source with ``settings``, within a loop."""
    return lambda: OffsetRanges(
        lambda events, moved: driver.source(settings, events, Pool(POOL_BYTES), patient=False, on_progress=moved)
    )


class DivergedError(FastwireError):
    """The log ends before what was read of it."""


class OffsetRanges(ProgramEvents):
    """The source, and what it tells of the partition that is read; ``moved`` is set whenever there is news.

    ``assignment`` is one that is to be resolved and granted, ``failure`` what has ended the reading.
    """

    def __init__(self, make_source: Callable[[SourceEvents, Callable[[], None]], Any]) -> None:
        self.moved = asyncio.Event()
        self.source: PullSource[Any, Any, Any] = make_source(self, self.moved.set)
        self.assignment: Assignment | None = None
        self.failure: FastwireError | None = None
        self._chunks: deque[Chunk] = deque()

    async def __aenter__(self) -> Self:
        self.source.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.source.close(1.0)

    @property
    def links(self) -> Mapping[Any, BrokerLink[Any, Any, Any]]:
        """The connections."""
        links: Mapping[Any, BrokerLink[Any, Any, Any]] = self.source.cluster.links
        return links

    def begin(self, partition: PulledPartition[Any]) -> None:
        """Have ``partition`` assigned, and read nothing else."""
        self._chunks.clear()
        self.assignment = self.failure = None
        partition.answers = 0
        self.source.assign([partition])

    def leave(self, partition: PulledPartition[Any]) -> None:
        """End reading; what was not taken is dropped."""
        self.source.give_up([partition], "its range was left")
        self._chunks.clear()
        self.source.resume()

    def take(self) -> Iterator[Chunk]:
        """Yield the chunks that have come, in the order of arrival."""
        while self._chunks:
            chunk = self._chunks.popleft()
            if len(self._chunks) < CHUNKS:
                self.source.resume()
            yield chunk

    def take_all(self) -> Iterator[Chunk]:
        """Yield all chunks; the last one may not be full."""
        self.source.cluster.hand_on()
        return self.take()

    def take_assignment(self) -> Assignment | None:
        """Return the assignment that is to be granted, if there is one."""
        found, self.assignment = self.assignment, None
        return found

    # --- what the source tells

    def on_chunk(self, chunk: Chunk) -> bool:
        """Keep a chunk for the reader."""
        tell_unfit(chunk)
        self._chunks.append(chunk)
        self.moved.set()
        return len(self._chunks) < CHUNKS

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """Note the assignment of the only partition that is read."""
        self.assignment = assignments[-1]
        self.moved.set()

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """Do nothing: another assignment follows."""

    def on_diverged(self, index: int, reason: str) -> None:
        """End the reading."""
        self._fail(DivergedError(reason))

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """End the reading."""
        self._fail(error)

    def on_failed(self, error: SourceFailed) -> None:
        """End the reading."""
        self._fail(error)

    def _fail(self, error: FastwireError) -> None:
        self.failure = self.failure or error
        self.moved.set()
