"""The end of a pipeline: with ``--until-end`` when all that the broker held at the start is committed, with ``end``
when each log is committed up to the end that its dataset has kept.
"""

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Protocol, TypeVar, cast

from fastwire.coverage import Coverage
from fastwire.position import Position, positions_of

from ..runtime.errors import SinkFailedError, Superseded
from ..runtime.logs import get_logger
from ..sinks.thread import SinkThread
from ..systems.reading.patience import LOOK_S, Patience
from ..systems.source import Source, SourceFailed, UnorderedSource

PEER_POLL_S = 1.0  # interval of requests to the broker about logs that another consumer reads
BUSY_POLL_S = 10.0  # the same while records arrive: with a thousand logs the answers would cost more than the records
CONFIRM_LIMIT_S = 10.0  # the longest wait for acks that a broker does not, or cannot, confirm
PUBLISH_LIMIT_S = 30.0  # the longest wait for the service of a table
UNREACHABLE_LIMIT_S = 30.0  # the pipeline fails after this time without a broker
STANDSTILL_S = 120.0  # and the age of a roll, in which another instance commits: then a log without progress is stopped
TOLD_S = 10.0, 60.0  # the log says after this time what is waited for, and then so often

log = get_logger("pipeline")

T = TypeVar("T")


class _Figures(Protocol):
    @property
    def rows_received(self) -> int: ...
    @property
    def commits(self) -> int: ...


class _Pipeline(Protocol):
    coverage: Coverage

    @property
    def figures(self) -> _Figures: ...
    @property
    def is_draining(self) -> bool: ...
    @property
    def queued(self) -> bool: ...
    @property
    def holds_records(self) -> bool: ...
    @property
    def assigning(self) -> bool: ...
    def has_stopped(self, index: int) -> bool: ...
    def commit_soon(self, reason: str) -> None: ...
    def refresh_soon(self) -> None: ...
    def drain(self, reason: str) -> None: ...


async def watch_end(pipeline: _Pipeline, source: Source, starting: "asyncio.Future[None]", roll_age_s: float) -> None:
    """Drain the pipeline when all logs are committed up to their heads at the start.

    Logs that cannot be read for ``Patience``'s limit, and those without progress for ``STANDSTILL_S`` and
    ``roll_age_s``, are stopped and left out. Raises SourceFailed without a broker.
    """
    loop = asyncio.get_running_loop()
    patience = Patience(source)
    standstill = _Standstill(source, STANDSTILL_S + roll_age_s)
    heads = await _patiently(source, patience, _find_heads(source, starting))
    asked, seen, landed_at = 0.0, -1, 0.0
    while not pipeline.is_draining:
        _give_up_without_broker(source)
        patience.look()
        if pipeline.assigning or source.offering:
            # Also the first position of an empty log must be committed, or the next run takes it for a new one.
            await asyncio.sleep(LOOK_S)
            continue
        # Logs that the source or the sink has stopped are not waited for.
        heads = {index: head for index, head in heads.items() if not pipeline.has_stopped(index)}
        behind = any(_is_behind(source, index, head) for index, head in heads.items())
        # Received records take a moment to reach the pipeline.
        quiet, seen = seen == pipeline.figures.rows_received, pipeline.figures.rows_received
        settled = quiet and not pipeline.queued
        if not behind and settled:
            pipeline.commit_soon("end")
        # Records that another consumer reads never arrive here; only the broker's cursor shows that they are done.
        # While the last commits run there is nothing to ask: with a thousand logs each answer takes much CPU.
        committed = not behind and settled and not pipeline.holds_records
        if committed or loop.time() - asked >= (PEER_POLL_S if quiet else BUSY_POLL_S):
            asked = loop.time()
            unfinished = await source.unfinished(heads, pipeline.coverage)
            standstill.look(unfinished, pipeline)
            if not unfinished:
                landed_at = landed_at or loop.time()
                # Records committed by an earlier run need their ack as well: wait until the broker's cursor shows it.
                confirmed = not source.confirms or not await source.unfinished(heads, Coverage())
                if confirmed or loop.time() - landed_at > CONFIRM_LIMIT_S:
                    pipeline.drain("end")
                    return
            if behind and not pipeline.queued:
                pipeline.commit_soon("end")
                pipeline.refresh_soon()
        await asyncio.sleep(LOOK_S)


async def watch_bounds(pipeline: _Pipeline, source: Source, starting: "asyncio.Future[None]") -> None:
    """Drain the pipeline when all logs are committed up to the ends of a bounded run, which Coverage has.

    Nothing but the end ends it: a broker that is away is waited for, as in a run without end.
    """
    loop = asyncio.get_running_loop()
    await _find_heads(source, starting)
    asked, landed_at = 0.0, 0.0
    while not pipeline.is_draining:
        await asyncio.sleep(LOOK_S)
        if pipeline.assigning or source.offering or loop.time() - asked < PEER_POLL_S:
            continue
        asked = loop.time()
        logs = {index: log_ for index, log_ in enumerate(source.logs) if not pipeline.has_stopped(index)}
        ends = {index: pipeline.coverage.until(log_) for index, log_ in logs.items()}
        known = {index: end.position for index, end in ends.items() if end is not None}
        behind = any(_is_behind(source, index, end) for index, end in known.items())
        if len(known) < len(ends) or await source.unfinished(known, pipeline.coverage):
            # Those without an end are read by other instances, which commit them, or wait for their brokers.
            if not behind:
                pipeline.commit_soon("end")
            pipeline.refresh_soon()
            continue
        landed_at = landed_at or loop.time()
        confirmed = not source.confirms or not await source.unfinished(known, Coverage())
        if confirmed or loop.time() - landed_at > CONFIRM_LIMIT_S:
            pipeline.drain("end")


class _Standstill:
    """Says what a run waits for that makes no progress, and stops these logs after ``limit_s``."""

    def __init__(self, source: Source, limit_s: float) -> None:
        self._source = source
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._seen: object = None
        self._since = self._tell_at = 0.0

    def look(self, unfinished: Collection[int], pipeline: _Pipeline) -> None:
        """Compare with the last look; what the sink still holds has limits and reasons of its own."""
        now = self._loop.time()
        seen = (unfinished, pipeline.figures.rows_received, pipeline.figures.commits)
        if seen != self._seen or pipeline.holds_records or not unfinished:
            self._seen, self._since, self._tell_at = seen, now, now + TOLD_S[0]
            return
        waited = now - self._since
        why = (
            "the broker does not deliver all records that it held at the start: another consumer reads them and has "
            "not acknowledged them, or their delivery is delayed"
        )
        if waited >= self._limit_s:
            for index in unfinished:
                self._source.stop(index, f"no progress for {waited:.0f} s: {why}")
        elif now >= self._tell_at:
            self._tell_at = now + TOLD_S[1]
            names = [str(self._source.logs[index]) for index in unfinished]
            log.warning(
                "the end waits for records",
                why=why,
                logs=names[:5],
                waiting=len(names),
                gives_up_in_s=round(self._limit_s - waited),
            )


async def unpublished(sink: SinkThread) -> list[str]:
    """Return why files that have landed are not published at the end; empty if all are.

    A table that takes no files is tried once more, and one whose service has not answered yet is waited for.
    """
    end = asyncio.get_running_loop().time() + PUBLISH_LIMIT_S
    while sink.unpublished or sink.publishing:
        waits = sink.publishing and asyncio.get_running_loop().time() < end
        try:
            await sink.look()
        except (Superseded, SinkFailedError) as exc:
            return [str(exc)]
        if not waits and (sink.unpublished or sink.publishing):
            why = sink.unpublished or f"its service has not answered within {PUBLISH_LIMIT_S:.0f} s"
            return [f"what has landed is not in the table: {why}"]
        if sink.publishing:
            await asyncio.sleep(LOOK_S)
    return []


async def _find_heads(source: Source, starting: "asyncio.Future[None]") -> Mapping[int, Position]:
    await asyncio.wait([starting])
    return await source.heads()


async def _patiently(source: Source, patience: Patience, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, stopping logs that cannot be read. Raises SourceFailed without a broker."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            _give_up_without_broker(source)
            patience.look()
            await asyncio.wait([task], timeout=LOOK_S)
        return task.result()
    finally:
        task.cancel()


def _is_behind(source: Source, index: int, head: Position) -> bool:
    """Return True if records before ``head`` were not received."""
    positions = positions_of(source.system)
    if not positions.ordered:
        return cast(UnorderedSource, source).is_behind(index, head)
    position = source.position(index)
    return position is None or positions.order(position) < positions.order(head)


def _give_up_without_broker(source: Source) -> None:
    since = source.unreachable_since
    if since is not None and asyncio.get_running_loop().time() - since > UNREACHABLE_LIMIT_S:
        why = source.unreachable_because
        raise SourceFailed(f"no broker could be reached for {UNREACHABLE_LIMIT_S:.0f} s{why and f': {why}'}")
