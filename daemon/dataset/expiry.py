"""Deletion of old files of a dataset, declared by a log entry before it begins.

Whole commits expire, from the oldest on. The entry says up to which one; only then are their files deleted. Log entries
stay, and with them Coverage, so that nothing lands twice. A deletion that was interrupted is finished by the next one.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

from ..runtime.errors import DatasetDamagedError, DatasetMismatchError
from .commitlog.chain import all_entries
from .commitlog.entry import DEAD_LETTERS, STAGING, entry_name
from .commitlog.whole import parents, visible
from .origin import look_at
from .place import storage_at
from .storage.base import Storage
from .storage.bucket import Bucket
from .storage.disk import Disk
from .writer import DatasetWriter

_DELETED_AT_ONCE = 1000


@dataclass(slots=True)
class Expired:
    """The result of ``expire``: what this call declares expired, and the number of files that it deletes.

    All log entries up to ``number`` have expired, also by earlier calls (0: none). ``files`` are data files with their
    ``rows`` and ``nbytes``, ``dead_letters`` files of dead letters. ``deleted`` counts both, also those that an
    earlier call has left.
    """

    path: str
    number: int = 0
    entries: int = 0
    files: int = 0
    rows: int = 0
    nbytes: int = 0
    dead_letters: int = 0
    deleted: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "path": self.path,
            "expired_up_to": self.number,
            "entries": self.entries,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.nbytes,
            "dead_letter_files": self.dead_letters,
            "deleted_files": self.deleted,
        }


def expire(
    path: str | os.PathLike[str],
    older_s: float,
    medium: Disk | Bucket | None = None,
    *,
    dry_run: bool = False,
    make_writer: Callable[..., DatasetWriter] = DatasetWriter,
    reached: Callable[[str], None] = lambda step: None,
) -> Expired:
    """Delete the files of the dataset at ``path`` that were committed more than ``older_s`` seconds ago.

    An entry expires only together with all earlier ones. It is safe beside running writers. With ``dry_run`` nothing is
    changed, and the result is that of a call without it. ``reached`` is called with the steps "expiry-linked",
    "expiry-synced" and "expired". Raises DatasetMismatchError without a dataset, and the errors of
    :class:`DatasetWriter`.
    """
    description = look_at(path, None, medium)
    storage = storage_at(path, medium, patient=not dry_run)
    if description is None:
        raise DatasetMismatchError(f"{storage.root}: there is no dataset here")
    if description.table:
        raise DatasetMismatchError(
            f"{storage.root} is a table: delete rows by DELETE in the table, and then their files by its upkeep"
        )
    if dry_run:
        before, until = _bounds(storage, older_s)
        return _find(storage, description.extension, before, until)[0]
    writer = make_writer(path, description.options, medium, reached)
    try:
        writer.open()  # this also publishes what dead writers have committed, and clears their staging
        before, until = _bounds(storage, older_s)
        found, names, folders = _find(storage, description.extension, before, until)
        if found.number > before:
            writer.expire(found.number)
        elif names:
            writer.refresh()  # makes the entry that says so durable: another process may have failed before its sync
    finally:
        writer.close()
    for first in range(0, len(names), _DELETED_AT_ONCE):
        storage.discard(*names[first : first + _DELETED_AT_ONCE])
    # Also folders in which an earlier call has deleted, which may have ended before its sync.
    storage.sync(folders=[folder for folder in sorted(folders) if storage.has_folder(folder)])
    reached("expired")
    return found


def _bounds(storage: Storage, older_s: float) -> tuple[int, int]:
    """Return the numbers up to which the entries have expired before, and up to which they are old enough now."""
    since = storage.now() - older_s
    before = 0
    old: list[list[str]] = []  # the staged names of the files of each entry that is old enough, from the first on
    for number, entry in all_entries(storage):
        if entry.expired >= number:
            raise DatasetDamagedError(f"{storage.path(entry_name(number))} expires entries that come after it")
        before = max(before, entry.expired)
        if len(old) == number - 1 and _seconds(entry.at) < since:
            old.append([source for source, _name in entry.moves(0, "")])
    # Only a file that is staged now can be published again (R13). The look comes after the entries were read: their
    # files were staged before, so one that is missing has been published, and not one that comes later.
    staged = {f"{STAGING}/{name}" for name in storage.walk(STAGING)}
    published = takewhile(staged.isdisjoint, old)
    return before, sum(1 for _ in published)


def _find(storage: Storage, extension: str, before: int, until: int) -> tuple[Expired, list[str], set[str]]:
    """Return the result for entries up to ``until``, the files to delete, from the oldest on, and all their folders."""
    there = {*visible(storage), *(f"{DEAD_LETTERS}/{name}" for name in storage.list(DEAD_LETTERS))}

    def linked(name: str) -> bool:
        return any(parent in there for parent in parents(name))  # a folder that was replaced by a link to one

    names: list[str] = []
    folders: set[str] = set()
    new = Expired(storage.root)
    for number, entry in all_entries(storage):
        if number > max(before, until):
            break
        moved = [name for _staged, name in entry.moves(number, extension)]
        names += (name for name in moved if name in there or (linked(name) and storage.exists(name)))
        folders.update(map(os.path.dirname, moved))
        if number > before:
            new.entries += 1
            new.files += len(entry.files)
            new.rows += entry.rows
            new.nbytes += entry.nbytes
            new.dead_letters += len(entry.dead_letters)
    found = new if new.files or new.dead_letters else Expired(storage.root)
    found.number = until if found is new else before
    found.deleted = len(names)
    return found, names, folders


def _seconds(at: str) -> float:
    """Return the time of a commit in seconds since 1970; one that cannot be read is in the future."""
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return float("inf")
