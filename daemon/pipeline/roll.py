"""Limits of a roll: bytes on disk, rows, age and idle time."""

from collections.abc import Collection
from dataclasses import dataclass, field

from fastwire.columns.chunk import DeadLetter

from ..dataset.deadletters.sums import DeadLetterSums


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """Limits of one roll: bytes on disk, rows with dead letters, seconds since its first chunk and its last row."""

    max_bytes: int = 128 * 2**20
    max_rows: int = 5_000_000
    max_age_s: float = 60.0
    max_idle_s: float = 10.0


@dataclass(slots=True)
class Roll:
    """The amounts written since the last commit. Times are seconds of the caller's monotonic clock."""

    policy: RollPolicy
    rows: int = 0
    chunks: int = 0
    dead_letters: int = 0
    dead_letter_sums: DeadLetterSums = field(default_factory=DeadLetterSums)
    first_at: float = field(default=0.0)
    last_at: float = field(default=0.0)
    newest_time: int | None = None
    """The latest timestamp of a record in the roll, in microseconds since 1970."""
    max_rows: int = 0
    """A lower limit than the policy's, set when a broker limits unacknowledged records; 0 = the policy's."""

    @property
    def empty(self) -> bool:
        """True if nothing was written, not even progress without rows."""
        return self.chunks == 0

    def wrote(
        self, rows: int, dead_letters: Collection[DeadLetter], now: float, newest_time: int | None = None
    ) -> None:
        """Add a chunk of ``rows`` rows and the dead letters ``dead_letters``, written at ``now``."""
        if self.chunks == 0:
            self.first_at = now
        self.chunks += 1
        self.rows += rows
        self.dead_letters += len(dead_letters)
        self.dead_letter_sums.add(dead_letters)
        if rows or dead_letters:
            self.last_at = now
        if newest_time is not None:
            self.newest_time = max(newest_time, self.newest_time or newest_time)

    def due(self, staged_bytes: int, now: float) -> str | None:
        """Return why the roll must end now, or None. Progress without rows waits for ``max_age_s``."""
        if self.empty:
            return None
        if self.rows + self.dead_letters >= (self.max_rows or self.policy.max_rows):
            return "rows"
        if staged_bytes >= self.policy.max_bytes:
            return "bytes"
        if now - self.first_at >= self.policy.max_age_s:
            return "age"
        if (self.rows or self.dead_letters) and now - self.last_at >= self.policy.max_idle_s:
            return "idle"
        return None

    def next_look(self, now: float) -> float | None:
        """Return the seconds until ``due`` can become true by time alone; None while the roll is empty."""
        if self.empty:
            return None
        at = self.first_at + self.policy.max_age_s
        if self.rows or self.dead_letters:
            at = min(at, self.last_at + self.policy.max_idle_s)
        return max(0.0, at - now)

    def limit_unacked(self, unacked: int) -> None:
        """End later rolls well before ``unacked`` records, at which the broker stops delivery."""
        limit = max(1, unacked * 4 // 5)
        self.max_rows = min(self.max_rows or limit, limit)

    def restart(self) -> None:
        """Begin an empty roll: the last one is committed or void."""
        self.dead_letter_sums.clear()
        self.rows = self.chunks = self.dead_letters = 0
        self.newest_time = None
