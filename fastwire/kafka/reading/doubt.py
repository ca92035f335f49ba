"""Binary search for the end of a batch about which its response does not say enough (spec: kafka 9).

A broker answers with the batch that contains the requested offset, or with the next one. An offset that is answered
with the same bytes lies within the batch; any other answer starts after it.
"""

from fastwire.kafka.reading.evidence import Run

__all__ = ["Doubt"]


class Doubt:
    """The search for the end of the batch that was received for offset ``start``.

    ``payload`` has the received bytes of the batch, all of them if ``whole``; ``detail`` describes what is wrong.
    ``base`` and ``claim`` are its first offset and its end by the head of an intact one, -1 of a damaged one.
    """

    def __init__(
        self, start: int, payload: bytes, detail: str, *, whole: bool = True, base: int = -1, claim: int = -1
    ) -> None:
        self.start = start
        self.payload = payload
        self.detail = detail
        self.base = base
        self._claim = claim
        self._whole = whole
        self._within = start
        self._followed: list[Run] = []
        self._behind = self._next = self._limit = start + 1

    def begin(self, end: int, runs: list[Run]) -> None:
        """Start the search; ``end`` is the end of the log, ``runs`` came with the batch."""
        self._behind = self._next = self._limit = end
        self.within(self.start, runs)

    def within(self, offset: int, runs: list[Run]) -> None:
        """Record that the response for ``offset`` had the batch, among ``runs``."""
        self._within = offset
        self._followed = [run for run in runs if not run.damaged and run.base >= self.start]

    def other(self, offset: int) -> None:
        """Record that the response for ``offset`` did not have the batch."""
        self._behind = self._next = offset

    def nothing(self, offset: int, end: int) -> None:
        """Record that the log, which ends at ``end``, has nothing from ``offset`` on."""
        self._behind, self._next = offset, end

    @property
    def hopeless(self) -> bool:
        """True if the batch is incomplete and nothing follows it: how much the broker has cut off is unknown. Or if
        several intact batches follow within it, by the broker's answers.
        """
        torn = not self._whole and self._next >= self._limit
        return self.end is not None and (torn or any(run.count > 1 for run in self._overlapped))

    @property
    def found(self) -> list[tuple[bytes, str]]:
        """Bytes and details of the batch, and of those that follow it within its offsets by the broker's answers."""
        return [(self.payload, self.detail), *(one for run in self._overlapped for one in run.found)]

    @property
    def _overlapped(self) -> list[Run]:
        followed = [run for run in self._followed if run.base < self._behind]
        return [run for run in followed if all(payload != self.payload for payload, _ in run.found)]

    @property
    def confirmed(self) -> bool:
        """True if the batch ends where its head says."""
        return self.base >= 0 and self._behind - self._within <= 1 and self._behind == self._claim

    @property
    def ask(self) -> int:
        """The next offset to request: first those beside the end that an intact head claims."""
        for offset in (self._claim - 1, self._claim):
            if self._within < offset < self._behind:
                return offset
        return (self._within + self._behind) // 2

    @property
    def end(self) -> int | None:
        """The offset where reading continues; None while it is unknown."""
        return self._next if self._behind - self._within <= 1 else None
