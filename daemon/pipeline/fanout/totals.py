"""The counts of all datasets of a fan-out together."""

from collections.abc import Callable, Collection
from operator import attrgetter
from typing import Any

from ..figures import PipelineFigures

_REMEMBERED = 10


class Totals:
    """The attributes of ``PipelineFigures`` as sums over datasets: see there."""

    def __init__(self, each: Callable[[], Collection[PipelineFigures]]) -> None:
        self._each = each

    def _sum(self, name: str) -> int:
        return sum(map(attrgetter(name), self._each()))

    @property
    def rows_received(self) -> int:
        """Records received."""
        return self._sum("rows_received")

    @property
    def bytes_received(self) -> int:
        """Bytes of their keys and values."""
        return self._sum("bytes_received")

    @property
    def dead_letters(self) -> int:
        """Dead letters."""
        return self._sum("dead_letters")

    @property
    def rows_committed(self) -> int:
        """Rows committed."""
        return self._sum("rows_committed")

    @property
    def commits(self) -> int:
        """Commits."""
        return self._sum("commits")

    @property
    def published(self) -> tuple[int, int]:
        """Files, and their bytes."""
        files = nbytes = 0
        for its_files, its_bytes in map(attrgetter("published"), self._each()):
            files, nbytes = files + its_files, nbytes + its_bytes
        return files, nbytes

    @property
    def first_row_at(self) -> tuple[float, float] | None:
        """See ``PipelineFigures``: the first of all."""
        return min((at for figures in self._each() if (at := figures.first_row_at) is not None), default=None)

    @property
    def last_commit_at(self) -> tuple[float, float] | None:
        """See ``PipelineFigures``: the last of all."""
        return max((at for figures in self._each() if (at := figures.last_commit_at) is not None), default=None)

    def status(self) -> dict[str, Any]:
        """Return what ``PipelineFigures.status`` does, with the last ten commits of all."""
        told: dict[str, Any] = {
            name: self._sum(name)
            for name in (
                "rows_received",
                "bytes_received",
                "dead_letters",
                "changed_times",
                "rows_committed",
                "commits",
            )
        }
        decoded = [figures.decoded for figures in self._each() if figures.decoded is not None]
        if decoded:
            names = decoded[0]._fields
            told["decoded"] = dict(zip(names, map(sum, zip(*decoded, strict=True)), strict=True))
        recent = [commit for figures in self._each() for commit in figures.recent()]
        told["recent_commits"] = sorted(recent, key=lambda commit: commit["s_ago"])[:_REMEMBERED]
        return told
