"""Binary search for the end of a batch about which its response does not say enough (spec: kafka 9).

A broker answers with the batch that contains the requested offset, or with the next one. An offset that is answered
with the same bytes lies within the batch; any other answer starts after it.
"""

from collections.abc import Sequence

from fastwire.kafka.reading.evidence import Run

_FIRST, _CHECKSUM = slice(8), slice(17, 21)  # of a batch: its first offset, and the checksum of what is behind it


class Doubt:
    """The search for the end of the batch that was received for offset ``start``.

    ``payload`` has the received bytes of the batch, all of them if ``whole``; ``detail`` describes what is wrong.
    ``base`` and ``claim`` are its first offset and its end by the head of an intact one, -1 of a damaged one.
    ``missed`` are bytes and details of the batches that the broker sent for ``start`` before, and does not send again,
    ``followed`` those of the damaged batches that came behind it.
    """

    def __init__(
        self,
        start: int,
        payload: bytes,
        detail: str,
        *,
        whole: bool = True,
        base: int = -1,
        claim: int = -1,
        missed: Sequence[tuple[bytes, str]] = (),
        followed: Sequence[tuple[bytes, str]] = (),
    ) -> None:
        self.start = start
        self.payload = payload
        self.detail = detail
        self.base = base
        self.missed = missed
        self._sent = [(payload, detail), *followed]
        self._claim = claim
        self._whole = whole
        self._within = start
        self._runs: list[Run] = []
        self._answer = b""
        self._behind = self._next = self._limit = start + 1

    def missed_before(self, payload: bytes) -> list[tuple[bytes, str]]:
        """Return bytes and details of the batches before the one that the broker sends for ``start`` now."""
        again = [at for at, (sent, _) in enumerate(self._sent) if _is_copy(sent, payload)]
        return [*self.missed, *self._sent[: again[0] if again else None]]

    def begin(self, end: int, runs: list[Run]) -> None:
        """Start the search; ``end`` is the end of the log, ``runs`` came with the batch."""
        self._behind = self._next = self._limit = end
        self.within(self.start, runs)

    def grown(self, end: int) -> None:
        """Record that the log ends at ``end`` now: what it has since the search began follows the batch."""
        if end > self._limit and self._next == self._limit:
            self._behind = self._next = end
        self._limit = max(self._limit, end)

    def within(self, offset: int, runs: list[Run]) -> None:
        """Record that the response for ``offset`` had the batch, among ``runs``."""
        self._within = offset
        self._runs = runs

    def other(self, offset: int, payload: bytes) -> None:
        """Record that the response for ``offset`` did not have the batch, but began with the one of ``payload``."""
        self._behind = self._next = offset
        self._answer = payload

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
        """Bytes and details of the batch, of the ``missed`` ones before it, and of those between it and its end."""
        found, unsure = [*self.missed, (self.payload, self.detail)], list[tuple[bytes, str]]()
        for run in self._runs:
            own = run.found[0][0] == self.payload  # whatever it claims
            if not own and self._behind <= run.base and run.end <= self._limit:
                return found + unsure
            for one in run.found:
                if one[0] == self._answer:
                    return found + unsure
                if one[0] != self.payload:
                    unsure.append(one)
            if not run.damaged:
                found += unsure
                unsure = []
        # A batch whose head has a wrong size is followed by parts of batches, which are no batches.
        return found + unsure if self._next == self._limit else found

    @property
    def _overlapped(self) -> list[Run]:
        """The intact batches that follow within its offsets by the broker's answers."""
        followed = [run for run in self._runs if not run.damaged and self.start <= run.base < self._behind]
        return [run for run in followed if all(payload != self.payload for payload, _ in run.found)]

    @property
    def _leaves_room(self) -> bool:
        """True if damaged batches between it and the next intact one have offsets behind its claim."""
        least = self._claim
        for run in self._runs:
            if run.damaged:
                least += run.least
            elif run.found[0][0] == self.payload:
                least = max(run.end, self._claim)
            else:
                return run.base >= least
        return True

    @property
    def confirmed(self) -> bool:
        """True if the batch ends where its head says, and what follows it claims none of its offsets, and has its own.

        A broker that looks for offsets in heads says no more than the head does.
        """
        found = self._behind - self._within <= 1 and self._behind == self._claim
        return self.base >= 0 and found and not self._overlapped and self._leaves_room

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


def _is_copy(one: bytes, other: bytes) -> bool:
    """Return whether both are one batch, of which one may have been damaged on the way: in its checksum or behind it.

    The shorter of two says how many bytes are compared.
    """
    size = min(len(one), len(other))
    parts = [(one[part], other[part]) for part in (_CHECKSUM, slice(_CHECKSUM.stop, size))]
    return one[_FIRST] == other[_FIRST] and any(mine == its for mine, its in parts)
