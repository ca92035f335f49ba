"""Work at the leaders of partitions: each partition waits for its own leader, and for no other."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fastwire.errors import FastwireError

from ...net.backoff import Backoff
from ...runtime.logs import get_logger
from ...runtime.tasks import Tasks
from .stage import StagedPartition

AGAIN_S = 0.1  # before a second attempt
MOST_S = 1.0  # between two later attempts: the delay until a partition continues after it has a leader again
TELL_S = 2.0  # leaders move often; a partition that waits for longer is logged
TELL_AGAIN_S = 60.0

P = TypeVar("P", bound=StagedPartition)

log = get_logger("source")


class Freshness(Generic[P]):
    """The cluster's metadata, and whether they are ``old``; ``asked_at`` is when they last came, by loop time.

    ``leader`` returns the leader of a partition, at which it is worked on together with others, and raises
    FastwireError if it is not known. Callers that learn of a change set ``old``. ``ask`` updates the metadata,
    ``follow`` is called after an update.
    """

    def __init__(
        self, leader: Callable[[P], Hashable], ask: Callable[[], Awaitable[None]], follow: Callable[[], None]
    ) -> None:
        self.leader = leader
        self.old = False
        self.asked_at = 0.0
        self._ask = ask
        self._follow = follow
        self._loop = asyncio.get_running_loop()

    async def refresh(self) -> None:
        """Ask for the metadata, if they are old, and were not asked for a moment ago."""
        if self.old and self._loop.time() - self.asked_at >= AGAIN_S:
            await self._ask()
            self.old = False
            self.asked_at = self._loop.time()
            self._follow()


@dataclass(slots=True, eq=False)
class _Waiting:
    since: float
    due: float
    busy: bool = False
    error: str = ""
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=AGAIN_S, most_s=MOST_S))


class AtLeaders(Generic[P]):
    """Runs ``work`` for partitions at their leaders, and repeats it until it succeeds.

    ``work`` gets partitions of one leader, and returns those that failed with their errors. Failures are passed to
    ``failed``, and the work is repeated with newer metadata. ``name`` is for the log.
    """

    def __init__(
        self,
        name: str,
        freshness: Freshness[P],
        tasks: Tasks,
        work: Callable[[Collection[P]], Awaitable[Mapping[P, FastwireError]]],
        failed: Callable[[P, FastwireError], None] | None = None,
    ) -> None:
        self._name = name
        self._freshness = freshness
        self._tasks = tasks
        self._work = work
        self._on_failed = failed
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[P, _Waiting] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._logged_at: float | None = None

    def __contains__(self, partition: P) -> bool:
        return partition in self._waiting

    @property
    def failing(self) -> dict[P, str]:
        """The partitions whose last attempt failed and that wait for the next, with the error."""
        return {partition: one.error for partition, one in self._waiting.items() if one.error}

    def add(self, partitions: Iterable[P], delay_s: float = 0.0) -> None:
        """Schedule work for ``partitions`` in ``delay_s`` seconds. Running work for them does not count."""
        now = self._loop.time()
        for partition in partitions:
            known = self._waiting.get(partition)
            if known is None or known.busy:
                self._waiting[partition] = _Waiting(now, now + delay_s)
        self._wake.set()
        if self._waiting and (self._task is None or self._task.done()):
            self._task = self._tasks.run(self._run(), self._name)

    def drop(self, partition: P) -> None:
        """Cancel the work for ``partition``."""
        self._waiting.pop(partition, None)

    async def _run(self) -> None:
        while self._waiting:
            self._wake.clear()
            now = self._loop.time()
            due = {partition: one for partition, one in self._waiting.items() if not one.busy and one.due <= now}
            if due:
                try:
                    await self._freshness.refresh()
                except FastwireError as exc:
                    log.debug("cannot ask for leaders", error=str(exc))
                self._begin(due)
            self._tell()
            await self._rest()
        self._tell()

    def _begin(self, due: Mapping[P, _Waiting]) -> None:
        by_leader: dict[Hashable, dict[P, _Waiting]] = {}
        for partition, one in due.items():
            if self._waiting.get(partition) is not one:
                continue
            try:
                leader = self._freshness.leader(partition)
            except FastwireError as exc:
                self._failed(partition, one, exc)
            else:
                one.busy = True
                by_leader.setdefault(leader, {})[partition] = one
        for leader, asked in by_leader.items():
            self._tasks.run(self._do(asked), f"{self._name} at {leader}")

    async def _do(self, asked: Mapping[P, _Waiting]) -> None:
        try:
            failed = await self._work(asked.keys())
        except FastwireError as exc:
            failed = dict.fromkeys(asked, exc)
        for partition, one in asked.items():
            one.busy = False
            if self._waiting.get(partition) is not one:
                continue
            if partition in failed:
                self._failed(partition, one, failed[partition])
            else:
                del self._waiting[partition]
        self._wake.set()

    def _failed(self, partition: P, one: _Waiting, error: FastwireError) -> None:
        one.error = partition.error = str(error)
        one.due = self._loop.time() + one.backoff.next()
        self._freshness.old = True
        if self._on_failed is not None:
            self._on_failed(partition, error)

    async def _rest(self) -> None:
        """Wait until there is something to do."""
        due = min((one.due for one in self._waiting.values() if not one.busy), default=None)
        try:
            async with asyncio.timeout_at(due):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _tell(self) -> None:
        now = self._loop.time()
        stuck = [(where, one) for where, one in self._waiting.items() if one.error and now - one.since >= TELL_S]
        if not stuck and self._logged_at is not None:
            self._logged_at = None
            log.info("no partition waits any more", work=self._name)
        elif stuck and (self._logged_at is None or now - self._logged_at >= TELL_AGAIN_S):
            self._logged_at = now
            (first, one), *_ = stuck
            log.warning(
                "partitions cannot be read, retrying",
                partitions=len(stuck),
                first=str(first.log),
                error=one.error,
                waited_s=round(now - one.since, 1),
            )
