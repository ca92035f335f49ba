"""The contract between a source and its pipeline, for every system.

The pipeline owns the sink, Coverage and the decision to commit; the source owns connections, assignments, permits and
acks. They call each other on the event loop's thread only: the source calls the plain methods of :class:`SourceEvents`,
which must not block, and the pipeline calls the methods of :class:`Source`. Both name a log by its index in
``Source.logs``, as chunks do.

The life of one log::

    on_assigned([a])                   the broker is ready to deliver its records; the source requests none yet
    coverage = refresh                 the pipeline reads what other writers have committed (design: R1)
    firsts = await source.resolve([a], coverage)     first positions and declared gaps; may move the broker's cursor
    commit of [f.span for f in firsts], spans without rows, if there are any
    source.grant([a], coverage)        only now does the source request records
    on_chunk(chunk) ...                rows and spans, in order
    source.landed(coverage)            after each commit: the source acknowledges the committed positions
    on_revoked([index], reason)        the log is lost to this process: the pipeline commits at once
    on_assigned([a2]) ...              the broker delivers again, under a new Assignment

``resolve`` may move the subscription's cursor, so a dataset that does not exist yet is created before the call: after
a crash the moved cursor would look like progress of another consumer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fastwire.errors import FastwireError

from ..runtime.budget import Level
from ..runtime.health import StopReason

if TYPE_CHECKING:
    from fastwire.columns.chunk import Chunk
    from fastwire.coverage import Coverage
    from fastwire.position import Log, Position, Span

__all__ = [
    "Assignment",
    "First",
    "Level",
    "LogStopped",
    "ShareableSource",
    "Source",
    "SourceEvents",
    "SourceFailed",
    "StopReason",
    "UnorderedSource",
    "added_firsts",
    "unnamed_partitions",
]


class SourceFailed(FastwireError):  # noqa: N818 - a fact about the source, as Superseded is one about the roll
    """The source cannot continue: the broker has refused the first subscribe, or the configuration cannot work.

    ``configuration`` is true if only a changed configuration helps (exit code 78 instead of 1).
    """

    def __init__(self, message: str, *, configuration: bool = False) -> None:
        self.configuration = configuration
        super().__init__(message)


def unnamed_partitions(url: str, names: Iterable[str]) -> SourceFailed:
    """Return the error for a table ``start`` that leaves out partitions from which nothing has landed."""
    first, *more = sorted(names)
    others = f" and {len(more)} more" if more else ""
    return SourceFailed(f"{url}: start names no position for {first}{others}: it names all or none", configuration=True)


class LogStopped(FastwireError):  # noqa: N818 - a fact about the log
    """One log cannot be read any more; the others continue. The message names what an operator has to change.

    ``reason`` is the label of the metric of stopped partitions.
    """

    def __init__(self, message: str, reason: StopReason = "other") -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The right to read one log until it is revoked. Identity counts: a later assignment is another object.

    ``head`` is the last position that the broker held when the log was assigned (None: empty, or not reported);
    ``cursor`` is the subscription's durable cursor on the broker, None if the system has none. ``progress`` is true if
    the cursor is past the beginning: an earlier consumer of the subscription has acknowledged records.
    """

    index: int
    log: Log
    head: Position | None = None
    cursor: Position | None = None
    progress: bool = False


@dataclass(frozen=True, slots=True)
class First:
    """A span without rows that must be committed before records of its log are requested.

    It is the first position of a log that Coverage does not know (``gap`` None), or a declared gap of a known one.
    ``progress`` is true if the position is that of the subscription's cursor.
    """

    index: int
    span: Span
    progress: bool = False


class SourceEvents(Protocol):
    """The events of a source. Called on the loop's thread, in wire order for each connection."""

    def on_chunk(self, chunk: Chunk) -> bool:
        """Take ``chunk``; return False if there is no room for another: reading pauses until ``Source.resume``.

        A few more chunks may follow (the rest of the last read), at most 8 MiB of payload for each connection.
        """

    def on_grown(self) -> object:
        """Check the memory budget: a receive buffer has grown."""

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """Take on these logs: refresh, ``resolve``, commit of the markers, ``grant``."""

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """Commit at once the received records of these logs, which are not assigned any more. No chunk of them follows.

        Called for granted logs only; an assignment that ends before its grant just ceases to be in force.
        """

    def on_diverged(self, index: int, reason: str) -> None:
        """Drop the roll and call ``Source.void``: the broker has lost received records that are not committed."""

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        """Commit now and end later rolls earlier: the broker stops delivery until ``unacked`` records are acked.

        ``reason`` names the broker's setting.
        """

    def on_floor(self, index: int, floor: Position) -> None:
        """Note that the broker has confirmed all acks up to ``floor``, see ``Coverage.raise_floor``."""

    def on_unconfirmed(self, reason: str) -> None:
        """Commit what was received: the source requests nothing for some logs until that has landed."""

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """Note, and log, that this log is stopped until the pipeline is restarted; the others continue."""

    def on_failed(self, error: SourceFailed) -> None:
        """Close the source: it has failed."""


class ProgramEvents(SourceEvents):
    """The events of a source whose records are handed to a program: those that only a dataset needs do nothing."""

    def on_grown(self) -> object:
        """See ``SourceEvents``: nothing but the pool limits the memory."""

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        """See ``SourceEvents``: the program acknowledges when it does."""

    def on_floor(self, index: int, floor: Position) -> None:
        """See ``SourceEvents``: no Coverage is kept."""

    def on_unconfirmed(self, reason: str) -> None:
        """See ``SourceEvents``: nothing lands."""


class Source(Protocol):
    """Reads the logs of one pipeline from one cluster.

    A source that several pipelines share has an attribute ``indexes`` for each of them: a sequence of the indexes of
    the pipeline's own logs.
    """

    system: str
    logs: list[Log]
    """By log index; grows (new partitions), never shrinks or changes."""
    confirms: bool
    """True if the brokers keep the progress of consumers, so that they confirm acknowledgements."""

    @property
    def cluster_id(self) -> str:
        """The id that the cluster reports, known once a log was assigned; "" if it has none."""

    async def start(self, coverage: Coverage) -> None:
        """Connect, find the partitions, and subscribe to them in the background.

        Returns when the topics' partitions are known and ``logs`` is filled; assignments follow as events. Retries
        for ever while no broker answers; raises SourceFailed if a retry cannot help.
        """

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        """Return the first positions of logs unknown to ``coverage``, and the gaps of known ones.

        May wait for the broker (a seek); chunks of other logs may arrive meanwhile, even if ``on_chunk`` has returned
        False, but no more than were granted. Assignments that were revoked meanwhile, or that stopped with an error,
        are left out; ``grant`` ignores them, too.
        """

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        """Request the records of these logs. ``coverage`` has their first positions, committed.

        An assignment that is not in force any more, or was granted before, is ignored.
        """

    def landed(self, coverage: Coverage) -> None:
        """Acknowledge the received records of ``coverage``, which has landed."""

    def void(self) -> None:
        """Forget the records of the open roll, which is void, and let the broker send them again.

        The pipeline drops the chunks it still has; new assignments follow for every log.
        """

    def resume(self) -> None:
        """Read again: the pipeline has room for chunks after an ``on_chunk`` that returned False."""

    def on_budget(self, level: Level) -> None:
        """Adapt reading and requests to the memory level; a watcher of ``Budget``."""

    def position(self, index: int) -> Position | None:
        """Return the last received position of this log, None before the first one."""

    async def heads(self) -> Mapping[int, Position]:
        """Wait until every log was subscribed once, and return the last position of each then, without empty logs."""

    @property
    def offering(self) -> bool:
        """True while logs of this instance wait to be reported as assignments."""

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        """Return the logs that are not committed up to ``heads``, in ``coverage`` or by the broker's cursor.

        For ``--until-end``: a log that another consumer reads (stand-by, Shared) ends when the broker's cursor passes
        its head. Asks the broker only about logs that ``coverage`` does not answer for. Where that cursor is known it
        is the value of a mapping: a result that equals the last one is no progress.
        """

    def waiting(self) -> Mapping[int, str]:
        """Return the logs that cannot be read at the moment, with the reason, by log index."""

    def stop(self, index: int, why: str) -> None:
        """Stop reading a log; ``SourceEvents.on_stopped`` follows."""

    @property
    def standing_by(self) -> bool:
        """True if every log is subscribed and read by other instances: this one takes over when they end."""

    @property
    def unreachable_since(self) -> float | None:
        """The loop's time since which no connection is up; None while there is one."""

    @property
    def unreachable_because(self) -> str:
        """The reason why the last attempt to connect has failed; "" if none has."""

    @property
    def backlog(self) -> int | None:
        """The entries that the brokers hold and that are not acknowledged, when asked last; None if it is not known."""

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """Nanoseconds so far by stage of ``STAGES``: those of the event loop, and the sampled waits."""

    def status(self) -> dict[str, Any]:
        """Return the source's part of ``/status``: plain values, no secrets."""

    async def close(self, timeout: float) -> None:
        """Send the acks that wait, with receipts if the broker supports them, and close consumers and connections.

        Takes at most about ``timeout`` seconds. Chunks that were not passed on are dropped: drain before.
        """


class ShareableSource(Source, Protocol):
    """A source that several pipelines may share, each with logs of its own.

    Their calls of ``resolve`` overlap, and the Coverage that is passed is one object, which grows in place.
    """

    def landed(self, coverage: Coverage, indexes: Collection[int] | None = None) -> None:
        """See ``Source.landed``; nothing has changed since the last call but the logs ``indexes`` (None: any)."""

    def void(self, indexes: Collection[int] | None = None) -> None:
        """See ``Source.void``; with ``indexes`` for these logs only.

        Records of theirs that were received before arrive during such a call, with those of other logs.
        """

    def holds(self, assignment: Assignment) -> bool:
        """Return True while ``assignment`` is in force."""

    shared: bool
    """True. It tells such a source from others at run time."""


class UnorderedSource(Source, Protocol):
    """A source of a system whose positions have no order (``fastwire.position.Positions.ordered``)."""

    def is_behind(self, index: int, head: Position) -> bool:
        """Return True if records of a log before ``head`` may not have been received."""


async def added_firsts(source: Source, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
    """Resolve ``assignments``, add their first positions and gaps to ``coverage``, and return these.

    A log of which ``coverage`` has moved meanwhile is left out: another assignment of it was resolved before, such as
    one that begins at the end of a log that grows, or its records were acknowledged.
    """
    before = {each.log: coverage.end(each.log) for each in assignments}
    added = []
    for first in await source.resolve(assignments, coverage):
        if coverage.end(first.span.log) == before[first.span.log]:
            coverage.add(first.span)
            added.append(first)
    return added
