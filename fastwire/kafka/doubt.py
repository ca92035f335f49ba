"""Binary search for the end of a damaged batch that no intact batch follows in its response (spec: kafka 9).

A broker answers with the batch that contains the requested offset, or with the next one. An offset that is answered
with the same damaged bytes lies within the batch; any other answer starts after it.
"""

__all__ = ["Doubt"]


class Doubt:
    """The search for the end of the damaged batch at ``start``.

    ``payload`` has the received bytes of the batch, all of them if ``whole``; ``detail`` describes the damage.
    """

    def __init__(self, start: int, payload: bytes, detail: str, *, whole: bool) -> None:
        self.payload = payload
        self.detail = detail
        self._whole = whole
        self._within = start
        self._behind = self._next = self._limit = start + 1

    def begin(self, end: int) -> None:
        """Start the search; ``end`` is the end of the log."""
        self._behind = self._next = self._limit = end

    def same(self, first: bytes) -> bool:
        """Return True if a response that begins with ``first`` begins with the damaged batch."""
        size = min(len(first), len(self.payload))
        return first[:size] == self.payload[:size]

    def within(self, offset: int) -> None:
        """Record that the response for ``offset`` was the damaged batch."""
        self._within = offset

    def other(self, offset: int, first: int) -> None:
        """Record that the response for ``offset`` was another batch, with first offset ``first``; -1 if that is
        unknown.
        """
        self._behind = self._next = first if self._within < first < offset else offset

    def followed(self, first: int) -> None:
        """Record that the batch after the damaged one begins at ``first``."""
        self._within, self._behind, self._next = first - 1, first, first

    def nothing(self, offset: int, end: int) -> None:
        """Record that the log, which ends at ``end``, has nothing from ``offset`` on."""
        self._behind, self._next = offset, end

    @property
    def hopeless(self) -> bool:
        """True if the batch is incomplete and nothing follows it: how much the broker has cut off is unknown."""
        return not self._whole and self.end is not None and self._next >= self._limit

    @property
    def ask(self) -> int:
        """The next offset to request."""
        return (self._within + self._behind) // 2

    @property
    def end(self) -> int | None:
        """The offset where reading continues; None while it is unknown."""
        return self._next if self._behind - self._within <= 1 else None
