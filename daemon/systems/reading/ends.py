"""Ends of a bounded run: the position behind which nothing of a log lands, and the run that it belongs to."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span, Until, positions_of

from ...config import End
from ..source import First, LogStopped

_NOW = "now "


class Ends:
    """Resolves the ends of logs for the key ``end`` of a source; None: the pipeline has no end.

    An end is committed with the log's first position, so that a restart ends at the same place. A run up to "now" goes
    on after a restart until every log has reached its end; a later start begins another run.
    """

    def __init__(self, end: End | None) -> None:
        self._end = end
        self._run = ""  # the name of this run, once a log was looked at

    async def add(
        self,
        index: int,
        log: Log,
        first: First | None,
        coverage: Coverage,
        *,
        name: str,
        now: Callable[[], Position | None],
        at: Callable[[datetime], Awaitable[Position]] | None = None,
    ) -> First | None:
        """Return ``first`` with the end of its log; None if nothing needs a commit.

        ``name`` is the partition's name in a table of positions. ``now`` returns the end of the log, None for an empty
        one, and ``at`` the position before the first record of a time or later (None: the brokers find none by its
        time). Raises LogStopped if a table does not name the log, and what ``at`` raises.
        """
        end = self._end
        if end is None:
            return first
        known = coverage.until(log)
        run = self._run or self._name(end, coverage)
        self._run = run
        if known is not None and known.run == run:
            return first
        landed = first.span.reach if first is not None else coverage.end(log)
        assert landed is not None  # ``resolve`` has returned the first position of an unknown log
        if end.positions:
            if name not in end.positions:
                raise LogStopped(f"{log}: end names no position for {name}", "start")
            position = end.positions[name]
        elif end.time is not None:
            assert at is not None, "the configuration refuses a time"
            position = await at(end.time)
        else:
            position = now() or landed
        until = Until(position, run)
        if first is None:
            return First(index, Span(log, landed, landed, 0, until=until))
        span = first.span
        return First(index, Span(log, span.start, span.end, span.rows, span.gap, until=until), first.progress)

    def until(self, log: Log, coverage: Coverage) -> Position | None:
        """Return where a log ends; None if there is no end."""
        until = None if self._end is None else coverage.until(log)
        return None if until is None else until.position

    @staticmethod
    def _name(end: End, coverage: Coverage) -> str:
        if not end.is_now:
            return end.run
        begun = [log for log in coverage.logs() if (one := coverage.until(log)) and one.run.startswith(_NOW)]
        runs = {log: until.run for log in begun if (until := coverage.until(log)) is not None}
        newest = max(runs.values(), default="")
        if any(run == newest and not reached(coverage, log) for log, run in runs.items()):
            return newest
        return _NOW + datetime.now(UTC).isoformat(timespec="microseconds")


def reached(coverage: Coverage, log: Log) -> bool:
    """Return True if everything before the end of the newest bounded run in ``log`` has landed."""
    until, landed = coverage.until(log), coverage.end(log)
    if until is None or landed is None:
        return False
    positions = positions_of(log.system)
    if positions.ordered:
        return positions.order(landed) >= positions.order(until.position)
    return landed.a >= until.position.a
