"""The dead letters of a commit, summed up by partition, reason and field for the log."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Log, format_position

from ...runtime.logs import get_logger
from .reasons import field_of, kind_of

MOST_TOLD = 10  # lines of a commit
MOST_KEPT = 1000  # sums at a time; the dead letters of more are counted together

log = get_logger("pipeline")


@dataclass(slots=True)
class _Sum:
    position: str = ""
    why: str = ""
    dead_letters: int = 0
    records: int = 0


@dataclass(slots=True)
class DeadLetterSums:
    """Dead letters since the last commit: by partition, reason and field the first one, and how many."""

    _sums: dict[tuple[Log, str, str], _Sum] = field(default_factory=dict)
    _more: _Sum = field(default_factory=_Sum)

    def add(self, dead_letters: Iterable[DeadLetter]) -> None:
        """Count these."""
        for letter in dead_letters:
            key = letter.log, kind_of(letter.reason), field_of(letter.reason)
            known = self._sums.get(key, self._more if len(self._sums) >= MOST_KEPT else None)
            if known is None:
                at = letter.position if letter.start is None else letter.start
                known = self._sums[key] = _Sum(format_position(letter.log.system, at), letter.reason)
            known.dead_letters += 1
            known.records += letter.rows

    def _by_reason(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, reason, _), one in self._sums.items():
            found[reason] += one.dead_letters
        return found + Counter({"others": self._more.dead_letters})

    def tell(self, pipeline: str, *, kept: bool) -> Counter[str]:
        """Log what has been committed, and begin anew; return the number of dead letters by the name of the reason.

        ``kept``: the sink stores dead letters. The lines of a commit add up to all its dead letters and the records
        that the heads of their entries announce.
        """
        event = "records have become dead letters" if kept else "records cannot be decoded: the sink leaves them out"
        told = list(self._sums.items())
        for (of, reason, path), one in told[:MOST_TOLD]:
            log.warning(
                event,
                pipeline=pipeline,
                topic=of.topic,
                partition=of.partition,
                position=one.position,
                reason=reason,
                **({"field": path} if path else {}),
                why=one.why,
                dead_letters=one.dead_letters,
                records=one.records,
            )
        rest = [*(one for _, one in told[MOST_TOLD:]), self._more]
        if dead_letters := sum(one.dead_letters for one in rest):
            records = sum(one.records for one in rest)
            partitions = len({of for (of, _, _), _ in told[MOST_TOLD:]})
            log.warning(
                f"{event}, of more partitions or for more reasons",
                pipeline=pipeline,
                partitions=partitions,
                dead_letters=dead_letters,
                records=records,
            )
        reasons = self._by_reason()
        self.clear()
        return reasons

    def clear(self) -> None:
        """Forget them: they are not committed."""
        self._sums.clear()
        self._more = _Sum()
