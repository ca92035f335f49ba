"""The dead letters of a roll, summed up by partition for the log."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Log, format_position

from ..runtime.logs import get_logger

__all__ = ["DeadLetterSums"]

MOST_TOLD = 10  # partitions that a commit names

log = get_logger("pipeline")


@dataclass(slots=True)
class _Sum:
    position: str
    reason: str
    dead_letters: int = 0
    records: int = 0


@dataclass(slots=True)
class DeadLetterSums:
    """Dead letters since the last commit: per partition the first one, and how many."""

    _by_log: dict[Log, _Sum] = field(default_factory=dict)

    def add(self, dead_letters: Iterable[DeadLetter]) -> None:
        """Count these."""
        for letter in dead_letters:
            known = self._by_log.get(letter.log)
            if known is None:
                at = letter.position if letter.start is None else letter.start
                known = _Sum(format_position(letter.log.system, at), letter.reason)
                self._by_log[letter.log] = known
            known.dead_letters += 1
            known.records += letter.rows

    def tell(self, pipeline: str) -> None:
        """Log what has been committed, and begin anew. ``records`` are those that the heads of the entries announce."""
        for place, (of, one) in enumerate(self._by_log.items()):
            if place == MOST_TOLD:
                log.warning(
                    "more partitions have dead letters", pipeline=pipeline, partitions=len(self._by_log) - place
                )
                break
            log.warning(
                "records cannot be decoded: kept as dead letters",
                pipeline=pipeline,
                topic=str(of),
                position=one.position,
                reason=one.reason,
                dead_letters=one.dead_letters,
                records=one.records,
            )
        self._by_log.clear()

    def clear(self) -> None:
        """Forget them: they are not committed."""
        self._by_log.clear()
