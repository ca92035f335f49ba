"""Checks at open that no log entry is missing, and the note of the newest entry that reveals a lost end of the log.

The log alone cannot show that its last entries are missing. So each writer keeps a second name of the last entry that
it has committed in ``_fastwire/newest``. The note costs one rename, is never synced, and is made after the commit: it
may be behind the log after a crash, and is never ahead of it.
"""

import re
from collections.abc import Callable, Iterator

from ...runtime.errors import DatasetDamagedError
from ..storage.base import Storage
from .entry import LOG, entry_name

NEWEST = "_fastwire/newest"

_FOLDER = re.compile("[0-9]{9}")
_ENTRY = re.compile(r"([0-9]{12})\.json")
_PER_FOLDER = 1000
_DATA_FILE = r"[0-9]{12}-[0-9]+\."


def noted_number(number: int) -> str:
    """Return the file name of the note that log entry ``number`` was committed."""
    return f"{NEWEST}/{number:012d}.json"


def noted_numbers(storage: Storage) -> list[int]:
    """Return the numbers of the noted log entries, in order; empty in datasets of older versions."""
    return _numbers(storage, NEWEST)


class Notes:
    """The notes of one writer: at most one file, replaced with each commit."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._own = 0

    def prune(self) -> None:
        """Remove all notes but the newest."""
        self._storage.make_folders([NEWEST])
        for number in noted_numbers(self._storage)[:-1]:
            self._storage.discard(noted_number(number))

    def take(self, temporary: str, number: int) -> list[str]:
        """Note that log entry ``number`` is durable, by giving that name to ``temporary``, which has its content.

        Returns the files to delete. An OSError is ignored: the note stays behind the log, and the commit is valid.
        """
        try:
            self._storage.note(temporary, noted_number(number))
        except OSError:
            return [temporary]
        before, self._own = self._own, number
        return [noted_number(before)] if before else []


def check_whole(storage: Storage, last: int, extension: str, follow: Callable[[], int]) -> None:
    """Raise DatasetDamagedError if the commit log lacks any entry.

    ``last`` is the last entry that was read. ``follow`` reads further and returns the number of the last entry.
    """
    last = _check_end(storage, last, follow)
    _check_numbers(storage, last)
    if not last:
        _check_not_emptied(storage, extension, follow)


def _check_end(storage: Storage, last: int, follow: Callable[[], int]) -> int:
    """Look for a hole after entry ``last``, and for a lost end; return the last entry's number.

    Other writers commit meanwhile, but an entry has its name only after the one before it has one.
    """
    while (known := max(_newest_linked(storage), *noted_numbers(storage)[-1:], 0)) > last:
        before, last = last, follow()
        if last == before:
            raise DatasetDamagedError(_missing(storage, last + 1, known))
    return last


def _check_numbers(storage: Storage, last: int) -> None:
    """Look for each of the log entries 1 to ``last``; only names are read."""
    for folder in range(last // _PER_FOLDER + 1):
        first = max(1, folder * _PER_FOLDER)
        end = min(last, folder * _PER_FOLDER + _PER_FOLDER - 1)
        present = set(_numbers(storage, f"{LOG}/{folder:09d}"))
        for number in range(first, end + 1):
            # A listing does not prove that a file is missing.
            if number not in present and not storage.exists(entry_name(number)):
                raise DatasetDamagedError(_missing(storage, number, last))


def _check_not_emptied(storage: Storage, extension: str, follow: Callable[[], int]) -> None:
    """Look for data files, which an empty log does not have."""
    wanted = re.compile(_DATA_FILE + re.escape(extension))
    for name in visible(storage):
        if wanted.fullmatch(name.rpartition("/")[2]):
            if not follow():
                raise DatasetDamagedError(
                    f"{storage.path(name)} is a data file, but the commit log, {storage.path(LOG)}, is empty: "
                    "the log is lost. Restore the whole dataset from a backup, or use a new path; nothing was written"
                )
            return


def visible(storage: Storage) -> Iterator[str]:
    """Yield the files that plain readers read: those without a name or folder that begins with "_" or ".".

    A symbolic link to a folder is one name.
    """
    for name in storage.walk(""):
        if not any(part.startswith(("_", ".")) for part in name.split("/")):
            yield name


def parents(name: str) -> Iterator[str]:
    """Yield the folders of a file, the nearest first."""
    while name := name.rpartition("/")[0]:
        yield name


def _numbers(storage: Storage, folder: str) -> list[int]:
    return sorted(int(match[1]) for name in storage.list(folder) if (match := _ENTRY.fullmatch(name)))


def _newest_linked(storage: Storage) -> int:
    """The greatest number in the log; 0 if it is empty."""
    for folder in reversed(storage.list(LOG)):
        if _FOLDER.fullmatch(folder) and (numbers := _numbers(storage, f"{LOG}/{folder}")):
            return numbers[-1]
    return 0


def _missing(storage: Storage, number: int, known: int) -> str:
    path = storage.path(entry_name(number))
    if _newest_linked(storage) > number:
        return (
            f"{path} is missing, but there are later log entries, up to {known}: the commit log has a hole. "
            "Restore the whole dataset from a backup, or use a new path; nothing was written"
        )
    note = storage.path(noted_number(known))
    return (
        f"the commit log ends with entry {number - 1}, but {known} was committed: {note} is a copy of it. "
        "The end of the log is lost. Restore the whole dataset from a backup. To go on without what is lost, remove "
        f"{storage.path(NEWEST)}: the broker does not send again what was acknowledged; nothing was written"
    )
