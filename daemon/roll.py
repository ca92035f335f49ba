"""When a roll ends: bytes on disk, rows, age, idleness, or a request of the pipeline."""

from dataclasses import dataclass, field

__all__ = ["Roll", "RollPolicy"]


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """Limits of one roll: bytes on disk, rows, seconds since its first row and since its last one."""

    max_bytes: int = 128 * 2**20
    max_rows: int = 5_000_000
    max_age_s: float = 60.0
    max_idle_s: float = 10.0


@dataclass(slots=True)
class Roll:
    """What has been written since the last commit. Times are those of the caller's monotonic clock."""

    policy: RollPolicy
    rows: int = 0
    chunks: int = 0
    diverted: int = 0
    first_at: float = field(default=0.0)
    last_at: float = field(default=0.0)
    max_rows: int = 0
    """Lower than the policy's once a broker has refused to deliver more unacknowledged records; 0 = the policy's."""

    @property
    def empty(self) -> bool:
        """Nothing was written, not even progress without rows."""
        return self.chunks == 0

    def wrote(self, rows: int, diverted: int, now: float) -> None:
        """A chunk of so many rows went into the roll."""
        if self.chunks == 0:
            self.first_at = now
        self.chunks += 1
        self.rows += rows
        self.diverted += diverted
        if rows or diverted:
            self.last_at = now

    def due(self, staged_bytes: int, now: float) -> str | None:
        """Why the roll must end now, or None. Progress without rows waits for the age: at most one entry an age."""
        if self.empty:
            return None
        if self.rows >= (self.max_rows or self.policy.max_rows):
            return "rows"
        if staged_bytes >= self.policy.max_bytes:
            return "bytes"
        if now - self.first_at >= self.policy.max_age_s:
            return "age"
        if (self.rows or self.diverted) and now - self.last_at >= self.policy.max_idle_s:
            return "idle"
        return None

    def next_look(self, now: float) -> float | None:
        """Seconds until ``due`` can become true by time alone; None while the roll is empty."""
        if self.empty:
            return None
        at = self.first_at + self.policy.max_age_s
        if self.rows or self.diverted:
            at = min(at, self.last_at + self.policy.max_idle_s)
        return max(0.0, at - now)

    def limit_unacked(self, unacked: int) -> None:
        """The broker stops at ``unacked`` records: end later rolls well before that."""
        limit = max(1, unacked * 4 // 5)
        self.max_rows = min(self.max_rows or limit, limit)

    def restart(self) -> None:
        """The roll was committed or is void."""
        self.rows = self.chunks = self.diverted = 0
