"""The counts of a pipeline since its start, and its last commits, for metrics, logs and the status page."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any

from fastwire.columns.chunk import Chunk

from ..runtime.logs import get_logger
from ..runtime.metrics import PipelineMetrics
from ..sinks.base import Decoded
from .freshness import Freshness

_REMEMBERED = 10
_MOST_REASONS = 20  # in the status

_UNFIT = "times of records do not fit into 64 bits of microseconds: the nearest time that fits lands in their place"

log = get_logger("pipeline")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its rows, its published files with their size in bytes, its duration, and what has ended the roll."""

    rows: int
    files: int
    bytes: int
    seconds: float
    reason: str


class PipelineFigures:
    """Counts of rows, bytes (of keys and values), chunks, dead letters and commits; all are 0 at the start.

    ``dead_letter_reasons`` counts the committed dead letters by reason, ``published`` files and their bytes.
    ``decoded`` is None if no values are decoded; its dead letters are among those. ``changed_times`` are those
    of records that the column or the topic cannot hold. ``first_row_at`` and ``last_commit_at`` are None before the
    first row and the first commit with rows, else a pair: seconds of ``clock`` (monotonic), CPU seconds of the process.
    """

    def __init__(self, metrics: PipelineMetrics, clock: Callable[[], float]) -> None:
        self.rows_received = 0
        self.bytes_received = 0
        self.chunks_received = 0
        self.dead_letters = 0
        self.dead_letter_reasons: Counter[str] = Counter()
        self.changed_times = 0
        self.rows_committed = 0
        self.commits = 0
        self.published = (0, 0)
        self.decoded: Decoded | None = None
        self.first_row_at: tuple[float, float] | None = None
        self.last_commit_at: tuple[float, float] | None = None
        self.freshness = Freshness(metrics)
        self._metrics = metrics
        self._clock = clock
        self._last: deque[tuple[float, Commit]] = deque(maxlen=_REMEMBERED)
        self._unfit = False  # some chunk had times that its columns cannot hold
        self._by_sink = 0  # of changed_times, those of the sink
        self._told = (0, 0, 0)  # rows, bytes and chunks that the metrics have

    def received(self, chunk: Chunk) -> None:
        """Count a chunk of the source."""
        if self.first_row_at is None and chunk.rows:
            self.first_row_at = (self._clock(), process_time())
        self.rows_received += chunk.rows
        self.bytes_received += chunk.payload_bytes
        self.chunks_received += 1
        if chunk.dead_letters:
            self.dead_letters += len(chunk.dead_letters)
            self._metrics.dead_letters.inc(len(chunk.dead_letters))
        if chunk.unfit_times:
            if not self._unfit:
                log.warning(_UNFIT, times=chunk.unfit_times)
            self._unfit = True
            self._times_changed(chunk.unfit_times)

    def _times_changed(self, count: int) -> None:
        self.changed_times += count
        self._metrics.changed_times.inc(count)

    def committed(
        self,
        rows: int,
        published: tuple[int, int],
        seconds: float,
        reason: str,
        decoded: Decoded | None = None,
        newest_time: int | None = None,
    ) -> int:
        """Count a commit of ``rows`` records that has just ended; return the rows that landed.

        ``published`` is the sink's count of files and bytes since its start, ``decoded`` that of values: dead letters
        and filtered ones are no rows. ``newest_time`` is the latest timestamp of the records, in microseconds.
        """
        if decoded is not None:
            values, dead_letters, columns, filtered = (
                new - old for new, old in zip(decoded, self.decoded or Decoded(), strict=True)
            )
            self.decoded = decoded
            self.dead_letters += dead_letters
            rows -= dead_letters + filtered
            self._metrics.decoded(values, dead_letters, columns, filtered)
        self.rows_committed += rows
        self.commits += 1
        files, file_bytes = (new - old for new, old in zip(published, self.published, strict=True))
        self.published = published
        self._metrics.committed(seconds, rows, files, file_bytes)
        if rows:  # the first positions of new logs are committed before the first row arrives
            self.last_commit_at = (self._clock(), process_time())
            self.freshness.committed(newest_time)
            self._last.appendleft((self._clock(), Commit(rows, files, file_bytes, round(seconds, 3), reason)))
        return rows

    def tell(self, changed_times: int = 0) -> None:
        """Update the metrics of received records: a few times a second and not per chunk, which would cost too much.

        ``changed_times`` is what the sink has counted since its start.
        """
        if changed_times != self._by_sink:
            self._times_changed(changed_times - self._by_sink)
            self._by_sink = changed_times
        now = self.rows_received, self.bytes_received, self.chunks_received
        if now != self._told:
            self._metrics.received(*(new - old for new, old in zip(now, self._told, strict=True)))
            self._told = now

    def recent(self) -> list[dict[str, Any]]:
        """Return the last ten commits with rows as plain values, the newest first, with their age."""
        now = self._clock()
        return [{"s_ago": round(now - at, 1), **asdict(commit)} for at, commit in self._last]

    def status(self) -> dict[str, Any]:
        """Return the counts as plain values, and the ``recent`` commits."""
        return {
            "rows_received": self.rows_received,
            "bytes_received": self.bytes_received,
            "dead_letters": self.dead_letters,
            "dead_letter_reasons": dict(self.dead_letter_reasons.most_common(_MOST_REASONS)),
            "changed_times": self.changed_times,
            "rows_committed": self.rows_committed,
            "commits": self.commits,
            **self.freshness.status(),
            **({} if self.decoded is None else {"decoded": self.decoded._asdict()}),
            "recent_commits": self.recent(),
        }
