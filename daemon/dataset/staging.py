"""A writer's own folder: where files grow until they are published, under a lock that dies with the process."""

import os
import threading
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, cast

from .log import STAGING, DataFile, is_writer
from .patience import PatientFile
from .storage import Storage

__all__ = ["DeadWriters", "ForeignFile", "StagedFile", "Staging"]

_LOCK = "lock"
_FOREIGN = ".task"


class ForeignFile(NamedTuple):
    """A file that another process has finished in the staging folder, for ``directory`` of the dataset."""

    name: str
    directory: str
    rows: int
    nbytes: int


class StagedFile:
    """A file of the open roll. Its writer sets ``rows`` before the commit; whoever drops it calls :meth:`close`.

    Without ``file`` it is one that another process has finished: ``nbytes`` is its size.
    """

    def __init__(self, name: str, directory: str, index: int, file: PatientFile | None, nbytes: int = 0) -> None:
        self.name = name
        self.directory = directory
        self.index = index
        self.rows = 0
        self._file = file
        self._nbytes = nbytes

    @property
    def file(self) -> BinaryIO:
        """What an encoder writes to: everything is taken, and a full disk is waited out."""
        return cast(BinaryIO, self._file)

    @property
    def nbytes(self) -> int:
        """What was written so far."""
        return self._nbytes if self._file is None else self._file.tell()

    @property
    def descriptor(self) -> int | None:
        """What the disk knows the open file by; None if it is durable already."""
        return None if self._file is None else self._file.descriptor

    def finish(self) -> None:
        """Hand everything to the operating system; it is not durable yet."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close without flushing; harmless when closed already."""
        if self._file is not None:
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
        self._invited = False
        self.roll = 1
        storage.make_folders([STAGING])
        while True:
            self.writer = storage.disk.new_name()
            self.folder = f"{STAGING}/{self.writer}"
            storage.make_folders([self.folder])
            # Somebody clearing up may have seen the folder before it had a lock: holds that now, or has taken all away.
            try:
                lock = storage.disk.lock(storage.path(f"{self.folder}/{_LOCK}"))
            except FileNotFoundError:
                continue
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

    def invite(self) -> str:
        """What the names of files of the open roll by other processes begin with; they end with ``.task``.

        Between the two is whatever makes them unique, without a slash. A process that comes too late with a file of an
        earlier roll does no harm: nothing names it.
        """
        self._invited = True
        return f"{self.folder}/{self.roll}-"

    def adopt(self, files: Sequence[ForeignFile]) -> list[StagedFile]:
        """Take finished files of other processes into the open roll, and make their contents durable."""
        adopted = []
        for file in files:
            name = f"{self.folder}/{file.name}"
            if os.path.basename(file.name) != file.name or not file.name.startswith(f"{self.roll}-"):
                raise ValueError(f"{file.name!r} is no file of the open roll")
            size = self._storage.disk.size(self._storage.path(name))
            if size != file.nbytes:
                raise FileNotFoundError(f"{self._storage.path(name)} has {size} bytes and should have {file.nbytes}")
            with self._guard:
                index = self._index
                self._index += 1
                staged = StagedFile(f"{self.folder}/{self.roll}-{index}.part", file.directory, index, None, size)
                staged.rows = file.rows
                self._storage.publish(name, staged.name)
                self._open.append(staged)
            adopted.append(staged)
        self._storage.sync_content([staged.name for staged in adopted])
        return adopted

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
        if self._invited:
            # Of tasks that failed, or were run twice.
            for name in self._storage.list(self.folder):
                if name.startswith(f"{self.roll}-") and name.endswith(_FOREIGN):
                    self._storage.discard(f"{self.folder}/{name}")
            self._invited = False
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
