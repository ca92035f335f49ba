"""Log lines about void rolls, and the pauses before a sink is opened again that has failed, or has no record yet."""

import asyncio
from collections.abc import Awaitable, Callable

from ..net.backoff import Backoff
from ..runtime.errors import DiskFullError, Diverged, FencedError, NoRecordYet, SinkFailedError, Superseded
from ..runtime.logs import get_logger
from ..runtime.metrics import PipelineMetrics
from .failure import PipelineFailed

FIRST_S, MOST_S = 0.5, 60.0
EMPTY_LOOK_S, MOST_LOOK_S = 5.0, 3600.0  # between two looks for the first record of empty topics

log = get_logger("pipeline")


class SinkFailures:
    """The failures of one pipeline's sink since its last commit of rows.

    ``wake`` interrupts a wait to call ``over``, which returns True to end it. ``limit_s`` is the time after which a
    failing sink is given up (None: never), by ``clock``, in seconds.
    """

    def __init__(
        self,
        pipeline: str,
        metrics: PipelineMetrics,
        wake: asyncio.Event,
        over: Callable[[], bool],
        clock: Callable[[], float],
        limit_s: float | None = None,
        look_s: float | None = None,
    ) -> None:
        self.waiting: str | None = None
        """The reason why the pipeline waits, as text for the status; None while it does not wait."""
        self.awaits = ""
        """The reason why there is nothing to land yet, also at the end; it is no failure. "" without one."""
        self._pipeline = pipeline
        self._metrics = metrics
        self._wake = wake
        self._over = over
        self._clock = clock
        self.limit_s = limit_s
        self.look_s = look_s
        """The longest pause between two looks for the first record of empty topics; None: these are an end."""
        self._since: float | None = None  # the first failure
        self._backoff = Backoff(first_s=FIRST_S, most_s=MOST_S)
        self._looks = Backoff(first_s=FIRST_S, most_s=MOST_LOOK_S)

    async def opened(self, open_sink: Callable[[], Awaitable[None]], on_empty: Callable[[NoRecordYet], None]) -> bool:
        """Await ``open_sink`` until it succeeds, with pauses; return False if it is over before there is a record.

        ``on_empty`` is called at each look that has found none. Raises PipelineFailed for a sink that is given up.
        """
        while True:
            try:
                await open_sink()
                self.awaits = ""
                return True
            except NoRecordYet as exc:
                on_empty(exc)
                self.awaits = str(exc)
                if self.look_s is None or self._over():
                    return False
                await self._pause(min(self.look_s, self._looks.next()))
            except (SinkFailedError, Superseded, OSError) as exc:
                self.awaits = ""
                if self._over() or self.ends(exc):
                    raise PipelineFailed(f"the sink cannot be opened: {exc}") from exc
                delay = self._delay()
                self._tell("the sink cannot be opened", exc, delay)
                await self.wait(delay, exc)

    def ends(self, exc: Exception) -> bool:
        """Note a failure; return True if the sink has failed for the whole limit.

        What a sink fails for later is retried at the start, too: nothing but time shows whether it was set up wrong.
        Conflicts with other writers and a full disk never end the pipeline.
        """
        if self.limit_s is None or isinstance(exc, Superseded | FencedError | Diverged | DiskFullError):
            return False
        if self._since is None:
            self._since = self._clock()
        return self._clock() - self._since >= self.limit_s

    def void(self, exc: Superseded | SinkFailedError | Diverged, *, retried: bool = True) -> float:
        """Log why the roll is void; return the seconds to wait before the sink is opened again.

        The result is 0 if another writer or the broker is the reason: then the sink has not failed.
        """
        if isinstance(exc, Diverged):
            log.error(
                "the broker has lost records that were not committed: the roll is dropped and its logs are read again",
                pipeline=self._pipeline,
                why=str(exc),
            )
            return 0.0
        if isinstance(exc, Superseded):
            self._metrics.superseded.inc()
            log.warning(
                "the roll is dropped, and what has not landed is read again", pipeline=self._pipeline, why=str(exc)
            )
            return 0.0
        self._metrics.failures.inc()
        delay = self._delay() if retried else 0.0
        self._tell("the sink failed; records that are not committed are read again", exc, delay)
        return delay

    def _delay(self) -> float:
        """Return the next pause, which is over by the limit."""
        delay = self._backoff.next()
        left = 0.0 if self.limit_s is None or self._since is None else self._since + self.limit_s - self._clock()
        return min(delay, left) if left > 0 else delay

    def _tell(self, event: str, exc: Exception, delay: float) -> None:
        again = {"retry_in_s": round(delay, 1)} if delay else {}
        log.error(event, pipeline=self._pipeline, why=str(exc), **again)

    def committed(self, rows: int) -> None:
        """Note a commit: the sink works. After one of rows the delay is the shortest again."""
        self._since = None
        if rows:
            self._backoff.reset()

    async def wait(self, seconds: float, why: object) -> None:
        """Wait for ``seconds``, or until ``over`` returns True; ``why`` goes into the status."""
        self.waiting = f"{why}; retrying after a pause"
        try:
            await self._pause(seconds)
        finally:
            self.waiting = None

    async def _pause(self, seconds: float) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while not self._over() and (left := until - clock()) > 0:
            self._wake.clear()
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                pass
