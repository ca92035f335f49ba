"""What a source promises its pipeline, for all four systems.

The pipeline owns the sink, Coverage and the decision to commit; the source owns connections, assignments, permits and
acks. They talk on the event loop's thread only: the source calls the plain methods of :class:`SourceEvents`, which
must not block, and the pipeline calls the methods of :class:`Source`. Logs are named by ``log_index``, the place in
``Source.logs``, as in chunks.

The life of one log::

    on_assigned([a])                   the broker would give us its records now; nothing was asked for yet
    coverage = refresh                 the pipeline reads the tail of the dataset's log (design: R1)
    firsts = await source.resolve([a], coverage)     first positions and declared gaps; may move the broker's cursor
    commit of [f.span for f in firsts] as marker rows, if there are any
    source.grant([a], coverage)        only now does the source ask for records
    on_chunk(chunk) ...                rows and spans, in order
    source.landed(coverage)            after each commit: acknowledged from here
    on_revoked([index], reason)        connection lost, closed by the broker, role lost: commit at once
    on_assigned([a2]) ...              again, with a new Assignment

``resolve`` may move the subscription's cursor, so a dataset that does not exist yet is created before the call: after
a crash the moved cursor looks like progress that somebody else has made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fastwire.errors import FastwireError

from ..budget import Level

if TYPE_CHECKING:
    from fastwire.columns.chunk import Chunk
    from fastwire.position import Coverage, Log, Position, Span

__all__ = [
    "Assignment",
    "First",
    "Level",
    "LogStopped",
    "Source",
    "SourceEvents",
    "SourceFailed",
]


class SourceFailed(FastwireError):  # noqa: N818 - a fact about the source, as Superseded is one about the roll
    """The source cannot go on at all: the first subscribe was refused for good, or the configuration cannot work.

    ``configuration`` is true where only a changed configuration helps (exit 78 instead of 1).
    """

    def __init__(self, message: str, *, configuration: bool = False) -> None:
        self.configuration = configuration
        super().__init__(message)


class LogStopped(FastwireError):  # noqa: N818 - a fact about the log
    """One log cannot go on; the others do. The message names what an operator has to change."""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The right to read one log until it is revoked. Identity counts: a later assignment is another object.

    ``head`` is the last position that the broker held when the log was assigned (None: nothing, or it does not say);
    ``cursor`` is the broker's durable cursor of our subscription, None where a system has none. ``progress`` says
    that the cursor stands behind the beginning: somebody has read and confirmed records under our name before.
    """

    index: int
    log: Log
    head: Position | None = None
    cursor: Position | None = None
    progress: bool = False


@dataclass(frozen=True, slots=True)
class First:
    """A span without rows that must be committed before records of its log are asked for.

    The first position of a log that Coverage does not know (``gap`` None), or a declared gap of a known one.
    ``progress``: taken from progress that the subscription has already made.
    """

    index: int
    span: Span
    progress: bool = False


class SourceEvents(Protocol):
    """What the source tells its pipeline. Called on the loop thread, in wire order for each connection."""

    def on_chunk(self, chunk: Chunk) -> bool:
        """Take ``chunk``, always; False = no room for another: reading pauses until ``Source.resume``.

        A few more may still come (the rest of what was read), never more than 8 MiB of payload for each connection.
        """

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """These logs are ours to read. Follow with refresh, ``resolve``, commit of the markers, ``grant``."""

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """These logs are not ours any more: commit at once what was received of them. Their last chunk came before.

        Told of logs that were granted; an assignment that ends before simply is not in force any more.
        """

    def on_diverged(self, index: int, reason: str) -> None:
        """The broker has lost records of this log that came and have not landed: drop the roll; ``Source.void``."""

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        """The broker delivers no more because ``unacked`` records wait for their ack: commit now and roll earlier.

        ``reason`` names the broker's setting.
        """

    def on_settled(self, index: int, floor: Position) -> None:
        """The broker holds everything up to ``floor`` for confirmed: ``Coverage.settle`` may forget the intervals."""

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """This log is given up until the daemon is restarted; the others go on."""

    def on_failed(self, error: SourceFailed) -> None:
        """The source is of no use any more; close it."""


class Source(Protocol):
    """Reads the logs of one pipeline from one cluster."""

    system: str
    logs: list[Log]
    """By log index; grows (new partitions), never shrinks or changes."""

    async def start(self, coverage: Coverage) -> None:
        """Connect, find the partitions, and subscribe to them in the background.

        Returns when the topics' partitions are known and ``logs`` is filled; assignments follow as events. Retries
        for ever while no broker answers; raises SourceFailed where trying again cannot help.
        """

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        """Find where logs unknown to ``coverage`` begin, and the gaps of known ones.

        May wait for the broker (a seek); chunks of other logs may come meanwhile, even if ``on_chunk`` has returned
        False, and no more than was granted. Assignments that were revoked meanwhile, or that stopped with an error,
        give nothing; ``grant`` ignores them, too.
        """

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        """Ask for the records of these logs. ``coverage`` holds their first positions, committed.

        An assignment that is not in force any more, or was granted before, is left out without a word.
        """

    def landed(self, coverage: Coverage) -> None:
        """``coverage`` is durable and published: acknowledge what of it has come to us."""

    def void(self) -> None:
        """The open roll is gone: forget what was staged, and let the broker send it again.

        The pipeline drops the chunks it still has; new assignments follow for every log.
        """

    def resume(self) -> None:
        """The pipeline has room for chunks again, after an ``on_chunk`` that returned False."""

    def on_budget(self, level: Level) -> None:
        """Memory has become scarce or free again (``budget.Budget`` calls this)."""

    def position(self, index: int) -> Position | None:
        """The last position that was received of this log, None before the first one."""

    async def heads(self) -> Mapping[int, Position]:
        """Wait until every log was subscribed once, and say where each ended then; empty logs are left out."""

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        """Which logs have not landed up to ``heads``, neither in ``coverage`` nor, by the broker's cursor, elsewhere.

        For ``--until-end``: a log that a peer reads (stand-by, Shared) ends when the broker's cursor passes its head.
        Asks the broker only about logs that ``coverage`` does not settle.
        """

    @property
    def unreachable_since(self) -> float | None:
        """Loop time since when no connection is up; None while there is one."""

    @property
    def unreachable_because(self) -> str:
        """Why the last attempt to connect has failed; "" if none was made, or it has not."""

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """Nanoseconds by stage so far: receive, scan, decompress, decode, and waits by look: room, permits."""

    def status(self) -> dict[str, Any]:
        """What ``/status`` shows: plain values, no secrets."""

    async def close(self, timeout: float) -> None:
        """Send what acks are waiting, with receipts where the broker gives them, close consumers and connections.

        Takes at most about ``timeout`` seconds. Chunks not handed on are dropped: drain before.
        """
