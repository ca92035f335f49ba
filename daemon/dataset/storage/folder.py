"""The storage of a dataset in a folder of a file system.

A folder is made durable together with the folders above it, even if another process has created it: that process may
have died before.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import BinaryIO, cast

from ...runtime.errors import DatasetDamagedError, DatasetError, FolderRefusedError
from .base import NewFile
from .disk import FOLDER_REFUSED, Disk
from .patience import Impatience, Patience, PatientFile

# A dataset by hour makes new folders for ever; beyond this many the cache of made folders is emptied.
_FOLDERS_REMEMBERED = 16_384
_OPEN_AT_ONCE = 128


class FolderStorage:
    """A ``Storage`` in a folder. Operations that need disk space wait for it by ``patience``."""

    def __init__(self, root: str, disk: Disk, patience: Patience) -> None:
        self.root = os.path.abspath(root)
        self.access: Mapping[str, str] = {}
        self.disk = disk
        self._patience = patience
        self._made: set[str] = set()
        self._witness: str | None = None
        self.sync_ns = 0
        """Nanoseconds spent in syncs so far."""

    def hasty(self) -> "FolderStorage":
        """Return a storage of the same folder whose operations do not wait for disk space."""
        return FolderStorage(self.root, self.disk, Impatience(self.disk))

    def path(self, name: str) -> str:
        """Return the absolute path of ``name``; "" is the dataset's folder itself."""
        return f"{self.root}/{name}".rstrip("/")

    def now(self) -> float:
        """Return the time in seconds since 1970."""
        return self.disk.now()

    def new_name(self) -> str:
        """Return 16 random hex digits."""
        return self.disk.new_name()

    # --- reading

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        return self.disk.read(self.path(name))

    def list(self, folder: str) -> list[str]:
        """Return the names in ``folder``; an absent name is no proof that the file is missing."""
        return self.disk.names(self.path(folder))

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the names of all files in ``folder`` and below, relative to it."""
        return self.disk.walk(self.path(folder))

    def exists(self, name: str) -> bool:
        """Return True if the name exists now."""
        return self.disk.exists(self.path(name))

    def has_folder(self, name: str) -> bool:
        """Return True if the folder exists."""
        return self.disk.exists(self.path(name))

    def size(self, name: str) -> int | None:
        """Return the size in bytes; None if the file does not exist."""
        return self.disk.size(self.path(name))

    def reader(self, name: str) -> BinaryIO:
        """Open a file for reading, with random access. Raises FileNotFoundError."""
        return self.disk.reader(self.path(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content in pieces. Raises FileNotFoundError."""
        return self.disk.pieces(self.path(name))

    # --- writing

    def create(self, name: str) -> PatientFile:
        """Create a file in an existing folder. Raises FileExistsError."""
        return PatientFile(self.disk, self.path(name), self._patience)

    def write(self, name: str, data: bytes) -> PatientFile:
        """Write a whole new file; the caller syncs and closes it."""
        file = self.create(name)
        try:
            file.write(data)
            file.flush()
        except BaseException:
            file.close()
            raise
        return file

    def write_synced(self, name: str, data: bytes) -> None:
        """Write a whole new file and make its content durable."""
        with self.write(name, data) as file:
            self.sync([file])

    def sync_content(self, names: Sequence[str]) -> None:
        """Make the content of finished files durable. Raises FileNotFoundError."""
        for first in range(0, len(names), _OPEN_AT_ONCE):
            descriptors: list[int] = []
            try:
                for name in names[first : first + _OPEN_AT_ONCE]:
                    descriptors.append(self.disk.open(self.path(name)))
                self._sync(descriptors)
            finally:
                for descriptor in descriptors:
                    self.disk.close(descriptor)

    def sync(self, files: Iterable[NewFile] = (), folders: Iterable[str] = ()) -> None:
        """Make contents and names durable. After an OSError the same file must not be synced again."""
        self._sync([cast(PatientFile, file).descriptor for file in files], folders)

    def _sync(self, descriptors: Sequence[int], folders: Iterable[str] = ()) -> None:
        began = perf_counter_ns()
        self.disk.sync(descriptors, [self.path(folder) for folder in sorted(folders)])
        self.sync_ns += perf_counter_ns() - began

    def put_new(self, temporary: str, name: str, linked: Callable[[], None] = lambda: None) -> bool:
        """Link the synced file ``temporary`` as ``name`` and make that durable; return False if the name is taken.

        ``linked`` is called between link and sync, when the name exists and is not durable yet.
        """
        source, target = self.path(temporary), self.path(name)
        try:
            self._patience(lambda: self.disk.link(source, target), target)
        except FileExistsError:
            return False
        except OSError as exc:
            raise self._unreachable(exc, source, target) from exc
        linked()
        self.sync(folders=[os.path.dirname(name)])
        return True

    def note(self, temporary: str, name: str) -> None:
        """Move ``temporary`` to ``name``, which is not made durable. Raises FileExistsError."""
        self.disk.rename(self.path(temporary), self.path(name))

    def freshen(self, staged: str, *, fresh: bool = False) -> bool:
        """Give a staged file the present time, because readers may ignore old ones; return False if it is gone."""
        return self.disk.touch(self.path(staged))

    def publish(self, staged: str, name: str, nbytes: int, *, fresh: bool = False) -> bool:
        """Move ``staged`` to ``name``; return False if another process has done that. A move needs no second look.

        Raises DatasetDamagedError, without a change, if another file has that name.
        """
        source, target = self.path(staged), self.path(name)
        for attempt in range(3):
            try:
                self._patience(lambda: self.disk.rename(source, target), target)
            except FileExistsError:
                self._check_published(staged, name)
                return False
            except FileNotFoundError:
                if not self.disk.exists(source):
                    return False
                if attempt == 2:
                    raise
                # The folder was removed after it was made: archived, or expired.
                self._made.clear()
                self.make_folders([os.path.dirname(name)])
            except OSError as exc:
                raise self._unreachable(exc, source, target) from exc
            else:
                return True
        raise AssertionError("unreachable")

    def _check_published(self, staged: str, name: str) -> None:
        """Check that both names have the same content: a backup made while publishing may contain both."""
        source, target = self.path(staged), self.path(name)
        try:
            same = self.disk.same(source, target)
        except FileNotFoundError:
            return  # it was published meanwhile, or removed afterwards
        if not same:
            raise DatasetDamagedError(
                f"{target} exists, and is not the file that the commit log names: it was not replaced. "
                f"The committed file is {source}. Move the other one away, or restore the whole dataset"
            )
        self.sync_content([name])

    def replace(self, staged: str, name: str, nbytes: int) -> bool:
        """Move ``staged`` over ``name``; return False if it is gone."""
        try:
            self.disk.replace(self.path(staged), self.path(name))
        except FileNotFoundError:
            return False
        return True

    def discard(self, *names: str) -> None:
        """Delete files, as far as they exist."""
        for name in names:
            self.disk.unlink(self.path(name))

    def discard_folder(self, folder: str, last: str) -> None:
        """Delete a folder of files, ``last`` last; the folder stays if another process adds a file meanwhile."""
        for name in sorted(self.list(folder), key=lambda name: name == last):
            self.discard(f"{folder}/{name}")
        self.disk.remove_folder(self.path(folder))

    # --- locks

    def hold(self, name: str) -> int | None:
        """Lock the file ``name`` until :meth:`release` or the end of the process; None if it is locked.

        Raises FileNotFoundError if its folder is gone.
        """
        return self.disk.lock(self.path(name))

    def take_over(self, name: str) -> int | None:
        """Lock the file ``name`` of a writer that is dead; None if the writer lives. Raises FileNotFoundError."""
        return self.disk.lock(self.path(name))

    def release(self, hold: int) -> None:
        """Release a lock."""
        self.disk.unlock(hold)

    # --- folders

    def forget(self) -> None:
        """Empty the cache of made folders: they may have been mounted or removed since."""
        self._made.clear()
        self._witness = None

    def make_folders(self, folders: Iterable[str], *, published: bool = False) -> None:
        """Make folders and those above them, and make all of them durable.

        A folder that this process has not made durable is synced even if it exists: the process that made it may have
        died before its sync. Raises FolderRefusedError, after making all others, for folders that cannot be made, that
        are on another device or mount, or (``published``) that are not writable: files cannot be renamed into them.
        """
        # Permissions may have changed, and a file that cannot be published after its commit blocks all others.
        wanted = {
            each
            for each in folders
            if each not in self._made or (published and not self.disk.is_writable(self.path(each)))
        }
        if not wanted:
            return
        self._made -= wanted
        if len(self._made) + len(wanted) > _FOLDERS_REMEMBERED:
            self._made.clear()
        if "" not in self._made:
            self._make_root()
        levels: dict[int, set[str]] = {}
        for folder in wanted:
            while folder and folder not in self._made:
                levels.setdefault(folder.count("/"), set()).add(folder)
                folder = os.path.dirname(folder)
        device = self.disk.device(self.root)
        refused: dict[str, str] = {}
        for depth in sorted(levels):
            made = set()
            for folder in sorted(levels[depth]):
                if os.path.dirname(folder) in refused:
                    refused[folder] = refused[os.path.dirname(folder)]
                elif reason := self._make_folder(folder, device, published and folder in wanted):
                    refused |= reason
                else:
                    made.add(folder)
            if made:
                self.sync(folders={os.path.dirname(folder) for folder in made})
                self._made |= made
        if refused:
            raise FolderRefusedError(refused)

    def _make_folder(self, folder: str, device: int, published: bool) -> dict[str, str]:
        """Make one folder; return {} or the reason of the failure, by the folder that causes it."""
        path = self.path(folder)
        try:
            made = self._patience(lambda: self.disk.make_folder(path), path)
        except OSError as exc:
            if exc.errno not in FOLDER_REFUSED:
                raise
            blamed = os.path.dirname(folder) if exc.errno in (errno.EACCES, errno.EPERM, errno.EMLINK) else folder
            return {blamed: f"cannot make the folder {path}: {exc.strerror}"}
        if self.disk.device(path) != device:
            return {folder: f"{path} is on another device than {self.root}: files cannot be renamed into it"}
        if published and not self.disk.is_writable(path):
            # A read-only file system concerns all folders, not only this one.
            return {folder if self.disk.is_writable(self.root) else "": f"the folder {path} is not writable"}
        reason = None if made else self._refusal(folder)
        return {folder: reason} if reason else {}

    def reach_from(self, witness: str) -> None:
        """Use ``witness``, a file in the staging folder, to test that files can be moved into each existing folder.

        Raises DatasetError if it cannot be moved into the dataset's folder.
        """
        self._witness = witness
        if reason := self._refusal(""):
            raise DatasetError(reason)

    def _refusal(self, folder: str) -> str | None:
        """Return the reason why no file can be renamed into a folder, tested by a hard link; None if none is found.

        Bind mounts and project quotas refuse both operations although the device is the same.
        """
        if self._witness is None:
            return None
        source = self.path(self._witness)
        target = f"{self.path(folder)}/.fastwire-{os.path.basename(os.path.dirname(self._witness))}"
        try:
            self._patience(lambda: self.disk.link(source, target), target)
        except FileExistsError:
            pass
        except OSError as exc:
            if exc.errno == errno.EXDEV:
                return _two_file_systems(source, target)
            if exc.errno not in FOLDER_REFUSED:
                raise
            return None  # permissions are checked elsewhere
        self.disk.unlink(target)
        return None

    def _unreachable(self, exc: OSError, source: str, target: str) -> Exception:
        return DatasetError(_two_file_systems(source, target)) if exc.errno == errno.EXDEV else exc

    def _make_root(self) -> None:
        missing = []
        path = self.root
        while not self.disk.is_folder(path):
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            self._patience(lambda path=path: self.disk.make_folder(path), path)  # type: ignore[misc]
            self.disk.sync(folders=[os.path.dirname(path)])
        if not missing:
            try:
                self.disk.sync(folders=[os.path.dirname(self.root)])
            except PermissionError:
                pass  # the parent is not accessible; then the process that made the dataset's folder has to sync it
        self._made.add("")


def _two_file_systems(source: str, target: str) -> str:
    return (
        f"{os.path.dirname(target)}: files cannot be moved into it from {os.path.dirname(source)}. Both are on one "
        "device, but the kernel takes them for two file systems: a bind mount or a project quota between them. All "
        "folders of a dataset must be in one"
    )
