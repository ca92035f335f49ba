"""The dead letters of a dataset, read from the files that its log names."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from fastwire.reason import Reason

from ...runtime.errors import DatasetDamagedError, DatasetMismatchError
from ..commitlog.chain import all_entries
from ..commitlog.deadletterfile import each_dead_letter
from ..origin import look_at
from ..place import storage_at
from ..storage.base import Storage
from ..storage.bucket import Bucket
from ..storage.disk import Disk
from .intents import Replays
from .reasons import kind_of

NULL_VALUE = "(null value)"
"""Stands behind ``Reason.REFUSED`` for a record without a value, which differs from an empty one."""

DeadLetterName = tuple[int, int]
"""A dead letter of a dataset: the number of its log entry, and its own number in that commit."""


@dataclass(frozen=True, slots=True)
class KeptDeadLetter:
    """One dead letter of a commit."""

    entry: int
    """Number of the log entry."""
    at: str
    """Time of the commit, ISO 8601."""
    number: int
    """Number of the dead letter in its commit, from 0."""
    topic: str
    partition: str
    position: str
    reason: str
    rows: int
    payload: bytes
    replayed: bool = False
    """True if it was written back to a topic."""

    @property
    def name(self) -> DeadLetterName:
        """Its name in the dataset."""
        return self.entry, self.number

    @property
    def is_value(self) -> bool:
        """True if it is the value of a record, not an entry of a broker."""
        return self.kind in (Reason.TRANSFORM, Reason.REFUSED) or " of the value" in self.reason

    @property
    def value(self) -> bytes | None:
        """The value of the record that it was. Raises ValueError for an entry of a broker, which is no record."""
        if not self.is_value:
            raise ValueError("it is a whole entry of the broker, not the value of a record")
        null = self.kind == Reason.NO_VALUE or self.reason.startswith(f"{Reason.REFUSED} {NULL_VALUE}: ")
        return None if not self.payload and null else self.payload

    @property
    def kind(self) -> str:
        """The name of the reason, without its details."""
        return kind_of(self.reason)


def dead_letters(path: str | os.PathLike[str], medium: Disk | Bucket | None = None) -> Iterator[KeptDeadLetter]:
    """Yield the dead letters of the dataset at ``path`` in the order of the commits; those that expired are left out.

    About 1 MiB of them is in memory at a time, or one that is larger. Raises DatasetMismatchError without a dataset,
    DatasetDamagedError for a file that is missing or cannot be read.
    """
    description = look_at(path, None, medium)
    storage = storage_at(path, medium, patient=False)
    if description is None:
        raise DatasetMismatchError(f"{storage.root}: there is no dataset here")
    expired = 0
    replays = Replays(storage)
    for number, entry in all_entries(storage):
        index = 0
        for staged, published in entry.moves(number, description.extension) if entry.dead_letters else ():
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
                    for row in each_dead_letter(file):
                        yield KeptDeadLetter(number, entry.at, index, **row, replayed=replays.is_marked(number, index))
                        index += 1
                except (OSError, ValueError) as exc:  # pyarrow's errors are ValueErrors
                    raise DatasetDamagedError(f"{storage.path(published)} cannot be read: {exc}") from exc


def _opened(storage: Storage, *names: str) -> BinaryIO | None:
    """Open the first of the names that exists: a commit is valid before its files are renamed."""
    for name in names:
        try:
            return storage.reader(name)
        except FileNotFoundError:
            continue
    return None
