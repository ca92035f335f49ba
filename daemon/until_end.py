"""``--until-end``: when everything has landed that the broker held at the start."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from fastwire.position import Coverage, Position

from .sources.base import Source, SourceFailed

__all__ = ["watch_end"]

END_POLL_S = 0.25
PEER_POLL_S = 1.0  # how often the broker is asked about logs that a peer reads
BUSY_POLL_S = 10.0  # the same while records come: with a thousand logs the answers would cost more than the records
CONFIRM_LIMIT_S = 10.0  # for acks that a broker does not, or cannot, tell us about
UNREACHABLE_LIMIT_S = 30.0  # without a broker for so long it gives up

T = TypeVar("T")


class _Pipeline(Protocol):
    coverage: Coverage
    rows_received: int

    @property
    def is_draining(self) -> bool: ...
    @property
    def queued(self) -> bool: ...
    def has_stopped(self, index: int) -> bool: ...
    def commit_soon(self, reason: str) -> None: ...
    def drain(self, reason: str) -> None: ...


async def watch_end(pipeline: _Pipeline, source: Source, starting: "asyncio.Future[None]") -> None:
    """Drain when everything up to the heads seen at the start has landed. Raises SourceFailed without a broker."""
    loop = asyncio.get_running_loop()
    heads = await _patiently(source, _find_heads(source, starting))
    asked, seen, landed_at = 0.0, -1, 0.0
    while not pipeline.is_draining:
        _give_up_without_broker(source)
        behind = any(_is_behind(pipeline, source, index, head) for index, head in heads.items())
        # What has been received is still on its way here for a moment.
        quiet, seen = seen == pipeline.rows_received, pipeline.rows_received
        settled = quiet and not pipeline.queued
        if not behind and settled:
            pipeline.commit_soon("end")
        # What a peer reads never arrives here; only the broker can tell when it is done.
        if (not behind and settled) or loop.time() - asked >= (PEER_POLL_S if quiet else BUSY_POLL_S):
            asked = loop.time()
            if not await source.unfinished(heads, pipeline.coverage):
                landed_at = landed_at or loop.time()
                # What has landed before we came wants its ack as well: wait until the broker's cursor says so.
                confirmed = not await source.unfinished(heads, Coverage())
                if confirmed or loop.time() - landed_at > CONFIRM_LIMIT_S:
                    pipeline.drain("end")
                    return
            if behind and not pipeline.queued:
                pipeline.commit_soon("end")
        await asyncio.sleep(END_POLL_S)


async def _find_heads(source: Source, starting: "asyncio.Future[None]") -> Mapping[int, Position]:
    await asyncio.wait([starting])
    return await source.heads()


async def _patiently(source: Source, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns, unless the broker stays away for too long."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            _give_up_without_broker(source)
            await asyncio.wait([task], timeout=END_POLL_S)
        return task.result()
    finally:
        task.cancel()


def _is_behind(pipeline: _Pipeline, source: Source, index: int, head: Position) -> bool:
    if pipeline.has_stopped(index):
        return False
    position = source.position(index)
    return position is None or position < head


def _give_up_without_broker(source: Source) -> None:
    since = source.unreachable_since
    if since is not None and asyncio.get_running_loop().time() - since > UNREACHABLE_LIMIT_S:
        why = source.unreachable_because
        raise SourceFailed(f"no broker could be reached for {UNREACHABLE_LIMIT_S:.0f} s{why and f': {why}'}")
