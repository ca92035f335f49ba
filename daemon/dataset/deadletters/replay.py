"""The dead letters of a dataset that wait to be written back to a topic, taken in hand and marked in its log."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from ...runtime.errors import DatasetMismatchError
from ..commitlog.deadletterfile import ERASED
from ..commitlog.entry import Replayed, Replaying
from ..origin import look_at
from ..place import storage_at
from ..staging import lives
from ..storage.bucket import Bucket
from ..storage.disk import Disk
from ..writer import DatasetWriter
from .intents import Intent, Replays
from .reader import DeadLetterName, KeptDeadLetter, dead_letters


class Replay:
    """The dead letters of a dataset that were not written back to a topic yet, their intents and their marks.

    As a context it opens the dataset as every writer does: files of dead writers are cleared. Several of them at once
    never have the same letter in hand. Raises the errors of ``dead_letters`` and of ``DatasetWriter``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        medium: Disk | Bucket | None = None,
        *,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._path = path
        self._medium = medium
        self.reached = reached
        """Called with each step of the writer, and of the command; see ``STEPS``."""

    def __enter__(self) -> Self:
        description = look_at(self._path, None, self._medium)
        if description is None:
            raise DatasetMismatchError(f"{self._path}: there is no dataset here")
        self.id = description.id
        """The id of the dataset."""
        self._writer = DatasetWriter(self._path, description.options, self._medium, self.reached)
        self._writer.open()
        self._storage = storage_at(self._path, self._medium)
        self._replays = Replays(self._storage)
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    @property
    def sender(self) -> str:
        """The name of this replay, which no other one has or had."""
        return self._writer.name

    def dead_letters(self, reason: str | None = None) -> Iterator[KeptDeadLetter]:
        """Yield the dead letters that are not marked, those with one reason if it is given; none that was erased."""
        for letter in dead_letters(self._path, self._medium):
            if not letter.replayed and letter.reason != ERASED and reason in (None, letter.kind):
                yield letter

    def abandoned(self) -> list[Intent]:
        """Return the open intents of others that have ended, killed or by an error, without closing them."""
        self._replays.look()
        return [each for each in self._replays.open.values() if not lives(self._storage, each.writer)]

    def free(self, dead_letters: Iterable[KeptDeadLetter]) -> tuple[list[KeptDeadLetter], int]:
        """Return those of the dead letters that are neither marked nor in hand, and the number of those in hand.

        Both are as of the last look at the log: another command may be faster.
        """
        unmarked = [letter for letter in dead_letters if not self._replays.is_marked(*letter.name)]
        free = [letter for letter in unmarked if not self._replays.is_held(*letter.name)]
        return free, len(unmarked) - len(free)

    def take(
        self, dead_letters: Iterable[KeptDeadLetter], url: str, topic: str, ends: Mapping[str, Any]
    ) -> Intent | None:
        """Record durably that these dead letters, which are in their order, are about to be written to a topic.

        ``ends`` is as in ``Replaying``. Returns None if another one was faster with some of them: none is in hand then,
        and ``free`` knows more.
        """
        names = _ranges(letter.name for letter in dead_letters)
        return self._intend(Replaying(url, topic, self.sender, names, ends))

    def take_over(self, intent: Intent) -> Intent | None:
        """Take over an abandoned intent as it is. Returns None if another one has done so, or has closed it."""
        return self._intend(intent.facts, closes=intent.number)

    def _intend(self, facts: Replaying, closes: int = 0) -> Intent | None:
        self._writer.note_replay(replaying=facts, closes=closes)
        self._replays.look()
        own = (each for each in self._replays.open.values() if each.writer == self.sender and each.facts == facts)
        return next(own, None)

    def close(self, intent: Intent, written: Iterable[DeadLetterName]) -> None:
        """Record durably that these dead letters of an intent, in order, are in its topic, and free the others."""
        self._writer.note_replay(replayed=_ranges(written), closes=intent.number)
        self._replays.look()

    def unmarked(self, intent: Intent) -> list[DeadLetterName]:
        """Return the dead letters of an intent that have no mark."""
        return list(self._replays.unmarked(intent))


def _ranges(names: Iterable[DeadLetterName]) -> tuple[Replayed, ...]:
    """Return dead letters, which are in their order, as ranges."""
    ranges: list[Replayed] = []
    for entry, number in names:
        if ranges and ranges[-1].entry == entry and ranges[-1].last == number - 1:
            ranges[-1] = ranges[-1]._replace(last=number)
        else:
            ranges.append(Replayed(entry, number, number))
    return tuple(ranges)
