"""Makes the files of durable log entries visible, in the order of the log (R9)."""

from collections.abc import Callable, Sequence

from ..runtime.errors import DatasetDamagedError
from .commitlog.entry import LogEntry, entry_name
from .identity import gone
from .storage.base import Storage


class Publication:
    """Publishes files, and remembers the folders whose new names may not be durable yet.

    ``extension`` is that of the files. ``reached`` is called with each step.
    """

    stopped = ""
    """The reason why files cannot be published now, for the user; "" without one."""
    late = False
    """True while a request of the publishing is under way whose answer was not waited for."""

    def __init__(self, storage: Storage, extension: str, reached: Callable[[str], None]) -> None:
        self._storage = storage
        self._extension = extension
        self._reached = reached
        self.pending: Sequence[object] = ()
        """Durable log entries whose files cannot be published now; they stay staged."""
        self.unsynced: set[str] = set()
        """Folders with files of known log entries whose names may not be durable yet."""

    def publish(self, number: int, entry: LogEntry, step: str, *, fresh: bool = False) -> None:
        """Publish the files of durable log entry ``number``, unless another writer has done so.

        ``fresh``: its names were seen to be free just now. Raises DatasetDamagedError if such a file is gone, and
        DatasetGoneError if the dataset is.
        """
        ready = False

        def move(staged: str, name: str, nbytes: int) -> bool:
            nonlocal ready
            # Spark ignores files that look old, and this one may have been staged for a long time.
            if not self._storage.freshen(staged, fresh=fresh):
                return False
            if not ready:
                # R9: after a power cut these files must not be visible without those of earlier entries.
                self.sync()
                self._storage.make_folders(entry.folders)
                ready = True
            return self._storage.publish(staged, name, nbytes, fresh=fresh)

        sizes = [file.nbytes for file in (*entry.files, *entry.dead_letters)]
        for i, ((staged, name), nbytes) in enumerate(zip(entry.moves(number, self._extension), sizes, strict=True)):
            moved = move(staged, name, nbytes)
            if not moved and self._may_be_away(number, name):
                moved = move(staged, name, nbytes)
            if fresh and not moved and self._is_lost(number, name):
                raise DatasetDamagedError(
                    f"{self._storage.path(name)}, a file of log entry {number}, was deleted before it was visible, and "
                    "not by fastwire: its records are committed and lost. What deletes files below _fastwire?"
                )
            self._reached(f"{step}:{i}")
        self.unsynced |= entry.folders

    def _may_be_away(self, number: int, name: str) -> bool:
        """Return True if a file that is not staged is not visible either.

        It was published, and has expired or was archived; or the dataset was not in its place for a moment, and then
        its records must not count as landed (R14). Raises DatasetGoneError if the dataset is not there by now.
        """
        if self._storage.exists(name):
            return False
        if not self._storage.exists(entry_name(number)):
            raise gone(self._storage)
        return True

    def _is_lost(self, number: int, name: str) -> bool:
        """Return True if a file is neither visible nor, as a later entry would show, published and expired."""
        return not self._storage.exists(name) and not self._storage.exists(entry_name(number + 1))

    def complete(self) -> None:
        """End the publishing of the entries in hand, as far as it is possible."""

    def finish(self) -> None:
        """Wait for a request that is under way, for a while."""

    def sync(self) -> None:
        """Make all published names durable."""
        if self.unsynced:
            self._storage.sync(folders=self.take())

    def take(self) -> set[str]:
        """Return the folders that the caller has to sync; one that was removed on purpose needs no sync."""
        folders, self.unsynced = self.unsynced, set()
        return {folder for folder in folders if self._storage.has_folder(folder)}
