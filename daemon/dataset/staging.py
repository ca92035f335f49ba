"""A writer's own folder: where files grow until they are published, under a lock that dies with the process."""

import threading
from collections.abc import Sequence
from typing import BinaryIO, cast

from .log import STAGING, DataFile, is_writer
from .patience import PatientFile
from .storage import Storage

__all__ = ["DeadWriters", "StagedFile", "Staging"]

_LOCK = "lock"


class StagedFile:
    """A file of the open roll. Its writer sets ``rows`` before the commit; whoever drops it calls :meth:`close`."""

    def __init__(self, name: str, directory: str, index: int, file: PatientFile) -> None:
        self.name = name
        self.directory = directory
        self.index = index
        self.rows = 0
        self._file = file

    @property
    def file(self) -> BinaryIO:
        """What an encoder writes to: everything is taken, and a full disk is waited out."""
        return cast(BinaryIO, self._file)

    @property
    def nbytes(self) -> int:
        """What was written so far."""
        return self._file.tell()

    @property
    def descriptor(self) -> int:
        """What the disk knows the open file by."""
        return self._file.descriptor

    def finish(self) -> None:
        """Hand everything to the operating system; it is not durable yet."""
        self._file.flush()

    def close(self) -> None:
        """Close without flushing; harmless when closed already."""
        self._file.close()

    def described(self) -> DataFile:
        """As a log entry names it."""
        return DataFile(self.directory, self.index, self.rows, self.nbytes)


class Staging:
    """The folder and lock of one writer, and the numbers of its rolls and files.

    A name is never used twice: a late reader of an old log entry must not find another roll's file under it.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._guard = threading.Lock()  # encoders may be on several threads
        self._index = 0
        self._open: list[StagedFile] = []
        self.roll = 1
        storage.make_folders([STAGING])
        while True:
            self.writer = storage.disk.new_name()
            self.folder = f"{STAGING}/{self.writer}"
            storage.make_folders([self.folder])
            # None: somebody clearing up saw the folder before it had a lock, and holds that now.
            lock = storage.disk.lock(storage.path(f"{self.folder}/{_LOCK}"))
            if lock is not None:
                self._lock: int | None = lock
                return

    def open_file(self, directory: str) -> StagedFile:
        """A new file of the open roll, to be published into ``directory``."""
        with self._guard:
            index = self._index
            self._index += 1
            name = f"{self.folder}/{self.roll}-{index}.part"
            staged = StagedFile(name, directory, index, self._storage.create(name))
            self._open.append(staged)
        return staged

    def temporary(self, what: str) -> str:
        """The name for a file that will be linked under another one."""
        return f"{self.folder}/{self.roll}-{what}.part"

    def owns(self, files: Sequence[StagedFile]) -> bool:
        """Whether all ``files`` belong to the open roll."""
        return set(files) <= set(self._open)

    def end_roll(self) -> None:
        """The roll is committed and published, or void: delete what is left of it and begin the next."""
        with self._guard:
            left, self._open = self._open, []
            self.roll += 1
            self._index = 0
        for staged in left:
            staged.close()
            self._storage.discard(staged.name)

    def discard(self) -> None:
        """Delete the folder: nothing of this writer is needed any more."""
        self.end_roll()
        self._storage.discard_folder(self.folder, _LOCK)

    def release(self) -> None:
        """Close all files and let go of the lock; nothing is deleted, and for others this writer is dead."""
        for staged in self._open:
            staged.close()
        self._open = []
        lock, self._lock = self._lock, None
        if lock is not None:
            self._storage.disk.unlock(lock)


class DeadWriters:
    """Writers whose lock was free, held so that nobody else clears them away at the same time."""

    def __init__(self, storage: Storage, own: str) -> None:
        self._storage = storage
        self._locks: dict[str, int] = {}
        try:
            for writer in storage.list(STAGING):
                if writer == own or not is_writer(writer):
                    continue
                try:
                    lock = storage.disk.lock(storage.path(f"{STAGING}/{writer}/{_LOCK}"))
                except FileNotFoundError:
                    continue  # it has just left
                if lock is not None:
                    self._locks[writer] = lock
        except BaseException:
            self.release()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self._locks)

    def discard(self) -> None:
        """Delete their folders. Only after the log says that they are fenced."""
        for writer in self._locks:
            self._storage.discard_folder(f"{STAGING}/{writer}", _LOCK)

    def release(self) -> None:
        """Let go of their locks."""
        for lock in self._locks.values():
            self._storage.disk.unlock(lock)
        self._locks.clear()
