"""The operations of a file system that a dataset stands on. The only module here that touches the operating system.

Everything is small and synchronous, so that a simulated disk can take this one's place in tests and stop, fail or lose
power between any two of them.
"""

import errno
import fcntl
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["DISK_FULL", "Disk"]

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

# Enough to let a disk merge flushes; more only queue in the kernel.
_SYNC_THREADS = 8


class Disk:
    """A local or network file system. Paths are absolute; errors are OSErrors with the path in them."""

    def create(self, path: str) -> int:
        """Open a new file for writing; FileExistsError if there is one."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open(self, path: str) -> int:
        """Open a file that another process has finished, to sync it; FileNotFoundError if there is none."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, file: int, data: memoryview) -> int:
        """Write some of ``data`` at the end, return how much."""
        return os.write(file, data)

    def close(self, file: int) -> None:
        """Close without syncing."""
        os.close(file)

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        """Make the contents of ``files`` and the names in ``folders`` durable, all at once.

        Raises the first failure after all have been tried.
        """
        tasks: list[tuple[Callable[[Any], None], Any]] = [(os.fsync, file) for file in files]
        tasks += [(_sync_folder, folder) for folder in folders]
        if len(tasks) == 1:
            tasks[0][0](tasks[0][1])
        elif tasks:
            with ThreadPoolExecutor(min(_SYNC_THREADS, len(tasks)), "fsync") as threads:
                pending = [threads.submit(action, target) for action, target in tasks]
            for future in pending:
                future.result()

    def read(self, path: str) -> bytes | None:
        """The whole content; None if there is no such file."""
        try:
            with open(path, "rb", buffering=0) as file:
                return file.readall()
        except FileNotFoundError:
            return None

    def link(self, source: str, target: str) -> None:
        """Give the file a second name; FileExistsError if that is taken."""
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """Move a file; FileNotFoundError if there is no source, or no folder for the target."""
        os.rename(source, target)

    def exists(self, path: str) -> bool:
        """Whether there is something of that name."""
        return os.path.lexists(path)

    def size(self, path: str) -> int | None:
        """Bytes of the file; None if there is no such file."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def touch(self, path: str) -> bool:
        """Set the modification time to now; False if there is no such file."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def make_folder(self, path: str) -> bool:
        """Make one folder in an existing one; False if it was there."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return False
        return True

    def remove_folder(self, path: str) -> bool:
        """Remove an empty folder; False if it is not empty or not there."""
        try:
            os.rmdir(path)
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def unlink(self, path: str) -> bool:
        """Remove a file; False if there is none."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """Names in ``folder``, sorted; empty if there is no such folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def walk(self, folder: str, below: str = "") -> Iterator[str]:
        """Names of all files in ``folder`` and its folders, relative to it; what goes away meanwhile is passed over."""
        try:
            with os.scandir(f"{folder}/{below}") as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir():
                yield from self.walk(folder, f"{below}{entry.name}/")
            else:
                yield below + entry.name

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder of that name."""
        return os.path.isdir(path)

    def device(self, path: str) -> int:
        """What names can be linked and renamed within."""
        return os.stat(path).st_dev

    def lock(self, path: str) -> int | None:
        """Take the lock on a file, made if need be, until :meth:`unlock` or the end of the process; None if held."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        return file

    def unlock(self, lock: int) -> None:
        """Let go of a lock."""
        os.close(lock)

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def new_name(self) -> str:
        """16 random hex digits."""
        return secrets.token_hex(8)

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        """Wait; True as soon as ``stop`` is set."""
        return stop.wait(seconds)


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError as exc:
        exc.filename = path
        raise
    finally:
        os.close(folder)
