"""The file system operations of a dataset. The only module of this package that calls the operating system.

All operations are small and synchronous, so that a simulated disk in tests can stop, fail or lose power between any
two of them.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any, BinaryIO

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
# Errors that concern one folder, and not the whole disk.
FOLDER_REFUSED = frozenset(
    {errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EMLINK}
)
# Enough to let a disk merge flushes; more only queue in the kernel.
_SYNC_THREADS = 8
_PIECE_BYTES = 1 << 20

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
# Linux 3.15, glibc 2.28; network file systems do not support it and return EINVAL.
_RENAMEAT2 = getattr(_LIBC, "renameat2", None)
_SYNC_FILE_RANGE_WRITE = 2
_SYNC_FILE_RANGE = getattr(_LIBC, "sync_file_range", None)
if _SYNC_FILE_RANGE is not None:
    _SYNC_FILE_RANGE.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_NO_SUCH_RENAME = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})


class Disk:
    """A local or network file system. Paths are absolute; errors are OSErrors with the path in them.

    Up to ``in_turn`` files and folders are synced one after the other by the caller, more of them by several threads.
    """

    _in_turn = 1  # also of a subclass that does not say it

    def __init__(self, in_turn: int = 1) -> None:
        self._in_turn = in_turn

    def create(self, path: str) -> int:
        """Create a file and return its descriptor for writing. Raises FileExistsError."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def open(self, path: str) -> int:
        """Open a file that another process has finished, to sync it. Raises FileNotFoundError."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, file: int, data: memoryview) -> int:
        """Write some of ``data`` at the end; return the number of bytes written."""
        return os.write(file, data)

    def begin_sync(self, file: int, first: int, size: int) -> None:
        """Let the kernel write these bytes to the disk now, so that a later :meth:`sync` waits for less.

        Nothing is durable by that, and an error is left to the sync, which reports it.
        """
        if _SYNC_FILE_RANGE is not None:
            _SYNC_FILE_RANGE(file, first, size, _SYNC_FILE_RANGE_WRITE)

    def close(self, file: int) -> None:
        """Close without syncing."""
        os.close(file)

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        """Make the contents of ``files`` and the names in ``folders`` durable.

        Raises the first failure, if there are several threads after all have been tried.
        """
        tasks: list[tuple[Callable[[Any], None], Any]] = [(os.fsync, file) for file in files]
        tasks += [(_sync_folder, folder) for folder in folders]
        if len(tasks) <= self._in_turn:
            for action, target in tasks:
                action(target)
        else:
            (action, target), *others = tasks
            # A thread costs more than most syncs: this one does its part.
            with ThreadPoolExecutor(min(_SYNC_THREADS, len(others)), "fsync") as threads:
                pending = [threads.submit(sync, of) for sync, of in others]
                action(target)
            for future in pending:
                future.result()

    def read(self, path: str) -> bytes | None:
        """Return the whole content; None if the file does not exist."""
        try:
            with open(path, "rb", buffering=0) as file:
                return file.readall()
        except FileNotFoundError:
            return None

    def reader(self, path: str) -> BinaryIO:
        """Open a file for reading, with random access. Raises FileNotFoundError."""
        return open(path, "rb")

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the content in pieces. Raises FileNotFoundError."""
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    def same(self, path: str, other: str) -> bool:
        """Return True if two files have the same bytes. Raises FileNotFoundError if one is missing."""
        sizes = self.size(path), self.size(other)
        if None in sizes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path, None, other)
        if sizes[0] != sizes[1]:
            return False
        return all(a == b for a, b in zip_longest(self.pieces(path), self.pieces(other)))

    def link(self, source: str, target: str) -> None:
        """Give the file a second name. Raises FileExistsError if that name is taken."""
        os.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """Move a file. Raises FileNotFoundError without a source or target folder, FileExistsError if it is taken."""
        if _RENAMEAT2 is not None:
            if not _RENAMEAT2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE):
                return
            code = ctypes.get_errno()
            if code not in _NO_SUCH_RENAME:
                raise OSError(code, os.strerror(code), source, None, target)
        # Only a writer that publishes the same source can take the name between the check and the rename.
        if os.path.lexists(target) and os.path.lexists(source):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), source, None, target)
        os.rename(source, target)

    def replace(self, source: str, target: str) -> None:
        """Move a file over another one. Raises FileNotFoundError without a source."""
        os.replace(source, target)

    def exists(self, path: str) -> bool:
        """Return True if the path exists."""
        return os.path.lexists(path)

    def size(self, path: str) -> int | None:
        """Return the size in bytes; None if the file does not exist."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def touch(self, path: str) -> bool:
        """Set the modification time to now; return False if the file does not exist."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def make_folder(self, path: str) -> bool:
        """Make one folder in an existing one; return False if it existed."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return False
        return True

    def is_writable(self, path: str) -> bool:
        """Return True if the path is a folder whose permissions allow to move files into it."""
        return os.access(path, os.W_OK | os.X_OK) and os.path.isdir(path)

    def remove_folder(self, path: str) -> bool:
        """Remove an empty folder; return False if it is not empty or does not exist."""
        try:
            os.rmdir(path)
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def unlink(self, path: str) -> bool:
        """Delete a file; return False if it does not exist."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """Return the names in ``folder``, sorted; empty if it does not exist."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def walk(self, folder: str, below: str = "") -> Iterator[str]:
        """Yield the names of all files in ``folder`` and below, relative to it; folders that vanish are skipped.

        A symbolic link is a file, also one to a folder: it could lead out of ``folder``, or back into it for ever.
        """
        try:
            with os.scandir(f"{folder}/{below}") as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self.walk(folder, f"{below}{entry.name}/")
            else:
                yield below + entry.name

    def is_folder(self, path: str) -> bool:
        """Return True if the path is a folder."""
        return os.path.isdir(path)

    def device(self, path: str) -> int:
        """Return the number of the device, within which files can be linked and renamed."""
        return os.stat(path).st_dev

    def lock(self, path: str) -> int | None:
        """Lock a file, created if necessary, until :meth:`unlock` or the end of the process; None if it is locked."""
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
        """Release a lock."""
        os.close(lock)

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return time.time()

    def new_name(self) -> str:
        """Return 16 random hex digits."""
        return secrets.token_hex(8)

    def lacks(self, exc: OSError) -> str | None:
        """Return what a failed operation waits for; None if waiting cannot help."""
        if exc.errno in DISK_FULL:
            return "space"
        return "a file descriptor (ulimit -n, LimitNOFILE=)" if exc.errno in NO_DESCRIPTOR else None

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        """Wait for ``seconds``; return True as soon as ``stop`` is set."""
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
