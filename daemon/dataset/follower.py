"""The commit log as one writer has read it: it follows the entries of others, and writes checkpoints."""

import os
from collections.abc import Callable

from crc32c import crc32c

from ..runtime.errors import DatasetDamagedError, FencedError
from .commitlog.chain import check_tail, entries_behind
from .commitlog.checkpoint import Checkpoint, checkpoint_name, write_checkpoint
from .commitlog.entry import LogEntry, entry_name
from .identity import Identity
from .publication import Publication
from .staging import Staging
from .storage.base import Storage


class LogFollower:
    """Reads the commit log of a dataset forward, and publishes the files of what it finds.

    Its writer is at work in ``_staging``, None while there is none; ``_state`` is what all entries so far add up to,
    and ``_tail`` the CRC-32C of the last one.
    """

    checkpoint_every = 64
    read_ahead = 64  # log entries for one sync of the log's folder

    def __init__(self, storage: Storage, extension: str, reached: Callable[[str], None]) -> None:
        self._storage = storage
        self._extension = extension
        self._reached = reached
        self._identity = Identity(storage)
        self._staging: Staging | None = None
        self._unread()

    def _unread(self) -> None:
        """Forget what was read."""
        self._state = Checkpoint()
        self._tail = 0
        self._due: Checkpoint | None = None
        self._publication = Publication(self._storage, self._extension, self._reached)

    def _follow(self, own: LogEntry | None = None) -> bool:
        """Read further to the end of the log (R1, R2); return True if ``own`` was in it.

        Each entry is made durable, then published, and only then added to Coverage.
        """
        found = False
        while entries := entries_behind(self._storage, self._state.number, self.read_ahead):
            self._identity.check_linked(self._state.number, self._tail)  # R14
            self._trust(range(self._state.number + 1, self._state.number + 1 + len(entries)))
            self._reached("entry-trusted")
            names = [self._storage.path(entry_name(self._state.number + 1 + at)) for at in range(len(entries))]
            expired = max(entry.expired for entry in map(LogEntry.decode, entries, names))  # held one at a time
            for data, name in zip(entries, names, strict=True):
                entry = LogEntry.decode(data, name)
                check_tail(entry, self._tail, name)
                # A store may carry out an upload after its file was published, expired and deleted (R13).
                if self._state.number >= expired:
                    self._publish_found(self._state.number + 1, entry)
                self._reached("entry-published")
                self._fold(entry, data)
                found = found or (own is not None and self._is_own(entry, own))
        self._publication.complete()
        return found

    def _trust(self, numbers: range) -> None:
        """Make found log entries durable: their writer may have died before its sync."""
        folders = {os.path.dirname(entry_name(number)) for number in (numbers[0], numbers[-1])}
        self._storage.make_folders(folders)
        self._storage.sync(folders=folders)

    def _is_own(self, entry: LogEntry, own: LogEntry) -> bool:
        return entry.writer == own.writer and entry.roll == own.roll

    def _publish_found(self, number: int, entry: LogEntry) -> None:
        self._publish(number, entry, "republished")

    def _publish(self, number: int, entry: LogEntry, step: str) -> None:
        self._publication.publish(number, entry, step, fresh=step == "published")

    def _fold(self, entry: LogEntry, data: bytes) -> None:
        try:
            self._state.fold(entry)
        except ValueError as exc:
            name = self._storage.path(entry_name(self._state.number + 1))
            raise DatasetDamagedError(f"{name} does not fit the log before it: {exc}") from exc
        self._tail = crc32c(data)
        self._identity.follow(self._state.number, self._tail)
        if self._state.number % self.checkpoint_every == 0:
            self._due = self._state.copy()
        if self._staging is not None and self._staging.writer in entry.fence:
            raise FencedError(
                f"another process has fenced this writer of {self._storage.root} (log entry {self._state.number})"
            )

    def _checkpoint(self) -> None:
        """Write the checkpoint that is due, if any (R4). It is done between commits, so that none waits for it."""
        if self._due is None or self._staging is None or self._publication.pending:
            return
        due, self._due = self._due, None
        name = checkpoint_name(due.number)
        if self._storage.exists(name):
            return
        self._publication.sync()
        temporary = self._staging.temporary("checkpoint")
        write_checkpoint(self._storage, due, temporary, lambda: self._reached("checkpoint-linked"))
        self._reached("checkpointed")
