"""The staging folder of a writer: its unpublished files, under a lock that ends with the process."""

import os
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple, cast

from .commitlog.entry import STAGING, DataFile, is_writer
from .storage.base import NewFile, Storage

_LOCK = "lock"
_FOREIGN = ".task"


class ForeignFile(NamedTuple):
    """A file that another process has finished in the staging folder, to be published into ``directory``.

    ``checksum`` is the CRC-32C of its content, computed while it was written.
    """

    name: str
    directory: str
    rows: int
    nbytes: int
    checksum: int


class StagedFile:
    """A file of the open roll. Its writer sets ``rows`` before the commit, or calls :meth:`close` to drop it.

    Without ``file`` it was finished by another process: ``nbytes`` is its size.
    """

    def __init__(
        self, name: str, directory: str, index: int, file: NewFile | None, nbytes: int = 0, checksum: int = 0
    ) -> None:
        self.name = name
        self.directory = directory
        self.index = index
        self.rows = 0
        self._file = file
        self._nbytes = nbytes
        self._checksum = checksum

    @property
    def file(self) -> BinaryIO:
        """The file for an encoder: its ``write`` takes all bytes, and waits while the disk is full."""
        return cast(BinaryIO, self._file)

    @property
    def nbytes(self) -> int:
        """The number of bytes written so far."""
        return self._nbytes if self._file is None else self._file.tell()

    @property
    def unsynced(self) -> NewFile | None:
        """The open file; None if it is durable and closed."""
        return self._file

    def finish(self) -> None:
        """Give all bytes to the operating system; they are not durable yet."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close without flushing. May be called twice."""
        if self._file is not None:
            self._file.close()

    def settle(self) -> None:
        """Close the finished file, which is durable."""
        if self._file is not None:
            self._nbytes, self._checksum = self._file.tell(), self._file.checksum
            self._file.close()
            self._file = None

    def described(self) -> DataFile:
        """Return the finished file's description for a log entry."""
        checksum = self._checksum if self._file is None else self._file.checksum
        return DataFile(self.directory, self.index, self.rows, self.nbytes, checksum)


class Staging:
    """The folder and lock of one writer, and the numbers of its rolls and files.

    A file name is never reused: a late reader of an old log entry must not find the file of another roll.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._guard = threading.Lock()  # encoders may be on several threads
        self._index = 0
        self._open: list[StagedFile] = []
        self._invited = False
        self.roll = 1
        storage.make_folders([STAGING])
        while True:
            self.writer = storage.new_name()
            self.folder = f"{STAGING}/{self.writer}"
            storage.make_folders([self.folder])
            # Another writer may have found the folder before it had a lock, and now holds the lock or has deleted it.
            try:
                lock = storage.hold(f"{self.folder}/{_LOCK}")
            except FileNotFoundError:
                continue
            if lock is not None:
                self._lock: Any = lock
                break
        try:
            storage.reach_from(f"{self.folder}/{_LOCK}")
        except BaseException:
            self.release()
            raise

    def open_file(self, directory: str) -> StagedFile:
        """Create a file of the open roll, to be published into ``directory``."""
        with self._guard:
            index = self._index
            self._index += 1
            name = f"{self.folder}/{self.roll}-{index}.part"
            staged = StagedFile(name, directory, index, self._storage.create(name))
            self._open.append(staged)
        return staged

    def invite(self) -> str:
        """Return the prefix for names of other processes' files in the open roll; these names end with ``.task``.

        Between the two is a unique part without a slash. A late file of an earlier roll does no harm: no log entry
        names it.
        """
        self._invited = True
        return f"{self.folder}/{self.roll}-"

    def adopt(self, files: Sequence[ForeignFile]) -> list[StagedFile]:
        """Take finished files of other processes into the open roll, and make their contents durable.

        Raises ValueError for a file of another roll, FileNotFoundError for one that is missing or has another size.
        """
        adopted = []
        for file in files:
            name = f"{self.folder}/{file.name}"
            if os.path.basename(file.name) != file.name or not file.name.startswith(f"{self.roll}-"):
                raise ValueError(f"{file.name!r} is not a file of the open roll")
            size = self._storage.size(name)
            if size != file.nbytes:
                raise FileNotFoundError(f"{self._storage.path(name)} has {size} bytes and should have {file.nbytes}")
            with self._guard:
                index = self._index
                self._index += 1
                name_here = f"{self.folder}/{self.roll}-{index}.part"
                staged = StagedFile(name_here, file.directory, index, None, size, file.checksum)
                staged.rows = file.rows
                self._storage.publish(name, staged.name, size, fresh=True)
                self._open.append(staged)
            adopted.append(staged)
        self._storage.sync_content([staged.name for staged in adopted])
        return adopted

    def temporary(self, what: str) -> str:
        """Return the name of a temporary file that will be linked under another name."""
        return f"{self.folder}/{self.roll}-{what}.part"

    def check(self, files: Sequence[StagedFile], given: int, filtered: int) -> None:
        """Raise ValueError unless ``files`` belong to the open roll, and have the rows that were given and kept."""
        if not set(files) <= set(self._open):
            raise ValueError("a staged file belongs to another roll")
        kept = sum(file.rows for file in files)
        if given != kept + filtered:
            raise ValueError(f"{given} rows were given, but {kept} are in files and {filtered} were filtered")

    def end_roll(self, old: Sequence[str] = (), *, kept: bool = False) -> None:
        """Delete the remaining files of the roll, which is published or void, and ``old`` ones; begin the next.

        With ``kept`` it is committed and not published, and its files stay.
        """
        with self._guard:
            left, self._open = self._open, []
        if self._invited:
            # Files of tasks that failed, or were run twice.
            for name in self._storage.list(self.folder):
                if name.startswith(f"{self.roll}-") and name.endswith(_FOREIGN):
                    self._storage.discard(f"{self.folder}/{name}")
            self._invited = False
        self.roll += 1
        self._index = 0
        for staged in left:
            staged.close()
        self._storage.discard(*old, *(staged.name for staged in left if not kept))

    def discard(self) -> None:
        """Delete the folder of this writer, which has no unpublished files in the log."""
        self.end_roll()
        self._storage.discard_folder(self.folder, _LOCK)

    def release(self) -> None:
        """Close all files and release the lock without deleting files; other writers will fence this one."""
        for staged in self._open:
            staged.close()
        self._open = []
        lock, self._lock = self._lock, None
        if lock is not None:
            self._storage.release(lock)


class DeadWriters:
    """Dead writers, whose locks were free. The locks are held so that no other process clears them away meanwhile."""

    def __init__(self, storage: Storage, own: str) -> None:
        self._storage = storage
        self._locks: dict[str, Any] = {}
        try:
            for writer in storage.list(STAGING):
                if writer == own or not is_writer(writer):
                    continue
                try:
                    lock = storage.take_over(f"{STAGING}/{writer}/{_LOCK}")
                except FileNotFoundError:
                    continue  # the writer has just closed
                if lock is not None:
                    self._locks[writer] = lock
        except BaseException:
            self.release()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the dead writers, in order."""
        return tuple(self._locks)

    def discard(self) -> None:
        """Delete their folders. Allowed only after a log entry has fenced them."""
        for writer in self._locks:
            self._storage.discard_folder(f"{STAGING}/{writer}", _LOCK)

    def release(self) -> None:
        """Release their locks."""
        for lock in self._locks.values():
            self._storage.release(lock)
        self._locks.clear()


def lives(storage: Storage, writer: str) -> bool:
    """Return True if the writer of this name may be at work: it has neither closed, nor was it fenced and cleared."""
    return storage.exists(f"{STAGING}/{writer}/{_LOCK}")
