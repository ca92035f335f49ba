"""Ends of batches that the tables of a job have: a checkpoint that is older than its table plans them again.

The job keeps them in a file, each as the end of one batch whose ``init`` are the beginnings of the logs. A batch that
begins before such an end ends there, so no batch has records of which a table has only some.
"""

import json
from pathlib import Path

from fastwire.errors import FastwireError
from fastwire.position import positions_of

from .offsets import Offsets, read_offsets


class LandedEnds:
    """The ends in the file at ``path``, in their order; none if it is "" or there is no file."""

    def __init__(self, path: str, system: str) -> None:
        self._ends: list[Offsets] = []
        try:
            documents = json.loads(Path(path).read_text(encoding="utf-8")) if path else []
            self._ends = [read_offsets(each, system) for each in documents]
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as exc:
            raise FastwireError(f"{path} cannot be read: {exc}. The next start of the job writes it again") from None

    def beginning(self) -> Offsets | None:
        """Return the beginning of the first batch of a query that has lost its first batch; None if it is a new one."""
        if not self._ends:
            return None
        first = self._ends[0]
        return Offsets(first.system, first.init or {}, init=first.init, incarnations=first.incarnations)

    def behind(self, begun: Offsets, *, first: bool) -> Offsets | None:
        """Return the end of the batch that begins at ``begun``; None if all that has landed lies before it.

        With ``first`` it is the first batch of the query.
        """
        while self._ends:
            if (found := _end(begun, self._ends[0], first=first)) is not None:
                return found
            del self._ends[0]
        return None


def _end(begun: Offsets, landed: Offsets, *, first: bool) -> Offsets | None:
    precedes = positions_of(begun.system).precedes
    starts = landed.init or {}
    anew = {
        each: starts[each]
        for each in landed.positions
        if each not in begun.positions
        or landed.incarnations.get(each.topic, "") != begun.incarnations.get(each.topic, "")
    }
    known = {**begun.positions, **anew}
    ends = {each: end for each, end in landed.positions.items() if precedes(known[each], end)}
    if not ends:
        return None
    positions = {**known, **ends}
    incarnations = {**begun.incarnations, **landed.incarnations}
    if first:
        return Offsets(begun.system, positions, init=known, incarnations=incarnations)
    return Offsets(begun.system, positions, new=anew, incarnations=incarnations)
