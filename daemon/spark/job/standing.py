"""Compares the records of a batch with what its table has, by positions and never by the number of the batch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from fastwire.coverage import Coverage
from fastwire.position import Log, Span, format_position, positions_of

from .planned import Planned


class Standing(NamedTuple):
    """``what`` a table has of a batch: "all", "none", "some" of it, or "unknown" if it remembers no positions of it.

    ``why`` says what does not fit where records of the batch have landed and others have not, or some are missing
    before it; "" otherwise. ``landed`` are the names of files that the table has.
    """

    what: Literal["all", "none", "some", "unknown"]
    why: str = ""
    landed: frozenset[str] = frozenset()


def standing_of(coverage: Coverage, planned: Planned, *, lags: bool = False) -> Standing:
    """Return what a table with ``coverage`` has of ``planned``. With ``lags`` batches before it may be missing."""
    full = planned.full
    known: dict[tuple[str, str], list[Log]] = {}
    systems = {span.log.system for span in full}
    for log in coverage.logs():
        if log.system in systems:
            known.setdefault((log.topic, log.partition), []).append(log)
    if not full or not known or all(_is_before(coverage, span) for span in full):
        return Standing("unknown")
    landed = [span for span in full if not coverage.uncovered(span)]
    if len(landed) == len(full):
        return Standing("all")
    if planned.files:
        if not known.keys() & {(span.log.topic, span.log.partition) for span in full}:
            return Standing("some", _elsewhere(known, full[0]))
        names = {name for name, span in planned.files.items() if not coverage.uncovered(span)}
        return Standing("some" if names else "none", "", frozenset(names))
    for span in full:
        logs = known.get((span.log.topic, span.log.partition), [])
        if lags and not coverage.overlaps(span):
            continue
        if why := _misfit(coverage, span, logs, begins=span.log in planned.begun):
            return Standing("some", why)
    return Standing("none")


def extended(coverage: Coverage, planned: Planned, table: Coverage) -> list[Span]:
    """Return the spans of ``planned`` for dead letters: from where ``coverage`` ends, or ``table`` begins.

    Batches without dead letters are not in ``coverage``; ``table`` has all of them.
    """
    found = []
    for span in planned.spans:
        start = coverage.end(span.log)
        if start is None:
            start = table.start(span.log)
        whole = span if start is None else replace(span, start=start)
        if span.log not in coverage or positions_of(span.log.system).precedes(whole.start, span.end):
            found.append(whole)
    return found


def _is_before(coverage: Coverage, span: Span) -> bool:
    """Return True if the span ends where the table begins to remember positions, or before."""
    start = coverage.start(span.log)
    return start is not None and not positions_of(span.log.system).precedes(start, span.end)


def _misfit(coverage: Coverage, span: Span, logs: Sequence[Log], *, begins: bool) -> str:
    """Return why ``span`` cannot follow what has landed of its partition, as ``logs``; "" if it can."""
    order = positions_of(span.log.system).order
    ends = [end for log in logs if (end := coverage.end(log)) is not None]
    if (span.log not in coverage and begins) or any(order(end) == order(span.start) for end in ends):
        return ""
    own = coverage.end(span.log)
    begin, upto, *last = (
        format_position(span.log.system, each) for each in (span.start, span.end, *([own] if own else ends[-1:]))
    )
    has = f"has it up to {last[0]}" if last else "has nothing of it"
    return f"it reads {span.log} from {begin} to {upto}, and the table {has}"


def _elsewhere(known: dict[tuple[str, str], list[Log]], span: Span) -> str:
    other = next(iter(known))[0]
    return f"it reads the dataset {span.log.topic}, and the table was made of the dataset {other}"
