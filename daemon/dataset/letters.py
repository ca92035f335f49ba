"""The dead letters of a dataset, read from the files that its log names."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Self

from ..runtime.errors import DatasetDamagedError, DatasetMismatchError
from .bucket import Bucket
from .chain import all_entries
from .disk import Disk
from .diverted import each_letter
from .log import Replayed
from .origin import look_at
from .place import storage_at
from .storage import Storage
from .writer import DatasetWriter

__all__ = ["KeptLetter", "Replay", "dead_letters"]


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """One dead letter of a commit."""

    entry: int
    """Number of the log entry."""
    at: str
    """Time of the commit, ISO 8601."""
    number: int
    """Number of the letter in its commit, from 0."""
    topic: str
    partition: str
    position: str
    reason: str
    rows: int
    payload: bytes
    replayed: bool = False
    """True if it was written back to a topic."""

    @property
    def value(self) -> bytes | None:
        """The value of the record that it was. Raises ValueError for an entry of a broker, which is no record."""
        if not (self.reason.startswith("TransformFailed: ") or " of the value" in self.reason):
            raise ValueError("it is a whole entry of the broker, not the value of a record")
        return None if not self.payload and self.kind == "NoValue" else self.payload

    @property
    def kind(self) -> str:
        """The name of the reason, without its details."""
        return self.reason.split(" ", 1)[0].rstrip(":")


def dead_letters(path: str | os.PathLike[str], medium: Disk | Bucket | None = None) -> Iterator[KeptLetter]:
    """Yield the dead letters of the dataset at ``path`` in the order of the commits; those that expired are left out.

    About 1 MiB of them is in memory at a time, or one that is larger. Raises DatasetMismatchError without a dataset,
    DatasetDamagedError for a file that is missing or cannot be read.
    """
    description = look_at(path, None, medium)
    storage = storage_at(path, medium, patient=False)
    if description is None:
        raise DatasetMismatchError(f"{storage.root}: there is no dataset here")
    expired = 0
    marks = _marks(storage)
    for number, entry in all_entries(storage):
        index = 0
        for staged, published in entry.moves(number, description.extension) if entry.letters else ():
            if not published.endswith(".dead"):
                continue
            file = _opened(storage, published, staged)
            if file is None:
                if number > expired:
                    expired = max(each.expired for _, each in all_entries(storage))
                if number > expired:
                    raise DatasetDamagedError(f"{storage.path(published)} of log entry {number} is missing")
                continue
            with file:
                try:
                    for row in each_letter(file):
                        replayed = any(first <= index <= last for first, last in marks.get(number, ()))
                        yield KeptLetter(number, entry.at, index, **row, replayed=replayed)
                        index += 1
                except (OSError, ValueError) as exc:  # pyarrow's errors are ValueErrors
                    raise DatasetDamagedError(f"{storage.path(published)} cannot be read: {exc}") from exc


def _marks(storage: Storage) -> dict[int, list[tuple[int, int]]]:
    """Return the numbers of the letters that were written back to a topic, as ranges by their entry."""
    marks: dict[int, list[tuple[int, int]]] = {}
    for _number, entry in all_entries(storage):
        for replayed in entry.replayed:
            marks.setdefault(replayed.entry, []).append((replayed.first, replayed.last))
    return marks


class Replay:
    """The dead letters of a dataset that are values and were not written back to a topic yet, and their marks.

    As a context it opens the dataset as every writer does: files of dead writers are cleared. Two of them at once may
    take the same letters. Raises the errors of ``dead_letters`` and of ``DatasetWriter``.
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
        self._reached = reached

    def __enter__(self) -> Self:
        description = look_at(self._path, None, self._medium)
        if description is None:
            raise DatasetMismatchError(f"{self._path}: there is no dataset here")
        self.id = description.id
        """The id of the dataset."""
        self._writer = DatasetWriter(self._path, description.options, self._medium, self._reached)
        self._writer.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def letters(self, reason: str | None = None) -> Iterator[KeptLetter]:
        """Yield the letters, those with one reason if it is given."""
        for letter in dead_letters(self._path, self._medium):
            if not letter.replayed and reason in (None, letter.kind):
                yield letter

    def mark(self, letters: Sequence[KeptLetter]) -> None:
        """Record durably that these letters, which are in their order, were written to a topic."""
        marks: list[Replayed] = []
        for letter in letters:
            if marks and marks[-1].entry == letter.entry and marks[-1].last == letter.number - 1:
                marks[-1] = marks[-1]._replace(last=letter.number)
            else:
                marks.append(Replayed(letter.entry, letter.number, letter.number))
        self._writer.mark_replayed(marks)


def _opened(storage: Storage, *names: str) -> BinaryIO | None:
    """Open the first of the names that exists: a commit is valid before its files are renamed."""
    for name in names:
        try:
            return storage.reader(name)
        except FileNotFoundError:
            continue
    return None
