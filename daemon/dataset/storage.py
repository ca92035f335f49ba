"""The operations of the commit protocol over a disk: put_new, publish, read, list, discard.

Names are relative to the dataset's folder and use "/". A folder is made durable together with the folders above it,
even if another process has created it: that process may have died before.
"""

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import NamedTuple

from ..runtime.errors import DatasetDamagedError, DatasetError, FolderRefusedError
from .disk import FOLDER_REFUSED, Disk
from .patience import Patience, PatientFile

__all__ = ["Check", "Storage", "probe"]

# A dataset by hour makes new folders for ever; beyond this many the cache of made folders is emptied.
_FOLDERS_REMEMBERED = 16_384
_OPEN_AT_ONCE = 128


class Storage:
    """A dataset's folder. Operations that need disk space wait for it by ``patience``."""

    def __init__(self, root: str, disk: Disk, patience: Patience) -> None:
        self.root = os.path.abspath(root)
        self.disk = disk
        self._patience = patience
        self._made: set[str] = set()
        self._witness: str | None = None
        self.sync_ns = 0
        """Nanoseconds spent in syncs so far."""

    def path(self, name: str) -> str:
        """Return the absolute path of ``name``; "" is the dataset's folder itself."""
        return f"{self.root}/{name}".rstrip("/")

    # --- reading

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        return self.disk.read(self.path(name))

    def list(self, folder: str) -> list[str]:
        """Return the names in ``folder``; an absent name is no proof that the file is missing."""
        return self.disk.names(self.path(folder))

    def exists(self, name: str) -> bool:
        """Return True if the name exists now."""
        return self.disk.exists(self.path(name))

    # --- writing

    def create(self, name: str) -> PatientFile:
        """Create a file in an existing folder. Raises FileExistsError."""
        return PatientFile(self.disk, self.path(name), self._patience)

    def write_synced(self, name: str, data: bytes) -> None:
        """Write a whole new file and make its content durable."""
        descriptor = self.write(name, data)
        try:
            self.sync([descriptor])
        finally:
            self.disk.close(descriptor)

    def write(self, name: str, data: bytes) -> int:
        """Write a whole new file and return its descriptor; the caller syncs and closes it."""
        path = self.path(name)
        descriptor = self._patience(lambda: self.disk.create(path), path)
        try:
            view = memoryview(data)
            while view:
                view = view[self._patience(lambda rest=view: self.disk.write(descriptor, rest), path) :]  # type: ignore[misc]
        except BaseException:
            self.disk.close(descriptor)
            raise
        return descriptor

    def sync_content(self, names: Sequence[str]) -> None:
        """Make the content of finished files durable. Raises FileNotFoundError."""
        for first in range(0, len(names), _OPEN_AT_ONCE):
            descriptors: list[int] = []
            try:
                for name in names[first : first + _OPEN_AT_ONCE]:
                    descriptors.append(self.disk.open(self.path(name)))
                self.sync(descriptors)
            finally:
                for descriptor in descriptors:
                    self.disk.close(descriptor)

    def sync(self, files: Iterable[int] = (), folders: Iterable[str] = ()) -> None:
        """Make contents and names durable. After an OSError the same file must not be synced again."""
        began = perf_counter_ns()
        self.disk.sync(list(files), [self.path(folder) for folder in sorted(folders)])
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

    def publish(self, staged: str, name: str) -> bool:
        """Move ``staged`` to ``name``; return False if another process has done that.

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
                f"{target} exists, and is not the file that the log of the dataset names: it was not replaced. "
                f"The committed file is {source}. Move the other one away, or restore the whole dataset"
            )
        self.sync_content([name])

    def discard(self, name: str) -> None:
        """Delete a file if it exists."""
        self.disk.unlink(self.path(name))

    def discard_folder(self, folder: str, last: str) -> None:
        """Delete a folder of files, ``last`` last; the folder stays if another process adds a file meanwhile."""
        for name in sorted(self.list(folder), key=lambda name: name == last):
            self.discard(f"{folder}/{name}")
        self.disk.remove_folder(self.path(folder))

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


class Check(NamedTuple):
    """One test of a file system: its name, its result, and an explanation."""

    check: str
    ok: bool
    detail: str


def probe(path: str, disk: Disk | None = None) -> list[Check]:
    """Test whether the file system under ``path`` has the guarantees that the commit protocol needs.

    The tests use a hidden folder that is removed afterwards, in the nearest existing folder if ``path`` does not exist
    yet; no dataset is created.
    """
    disk = disk or Disk()
    above = os.path.abspath(path)
    while not disk.is_folder(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    place = f"{above}/.fastwire-probe-{disk.new_name()}"
    checks: list[Check] = []
    try:
        disk.make_folder(place)
    except OSError as exc:
        return [Check("make a folder", False, f"{above}: {exc.strerror}")]
    try:
        for name, question in _QUESTIONS:
            try:
                detail = question(disk, place)
            except OSError as exc:
                checks.append(Check(name, False, f"{above}: {exc.strerror or exc}"))
            else:
                checks.append(Check(name, not detail, detail or above))
    finally:
        for name in ("a/file", "a/second", "b/moved", "lock"):
            disk.unlink(f"{place}/{name}")
        for name in ("/a", "/b", ""):
            disk.remove_folder(place + name)
    return checks


def _ask_write(disk: Disk, place: str) -> str:
    for name in ("a", "b"):
        disk.make_folder(f"{place}/{name}")
    file = disk.create(f"{place}/a/file")
    try:
        disk.write(file, memoryview(b"fastwire"))
        disk.sync([file])
    finally:
        disk.close(file)
    return ""


def _ask_link(disk: Disk, place: str) -> str:
    disk.link(f"{place}/a/file", f"{place}/a/second")
    return "" if disk.read(f"{place}/a/second") == b"fastwire" else "the second name shows another file"


def _ask_second_link(disk: Disk, place: str) -> str:
    try:
        disk.link(f"{place}/a/file", f"{place}/a/second")
    except FileExistsError:
        return ""
    return "a name that is taken was given again: two writers could both believe that they committed"


def _ask_rename(disk: Disk, place: str) -> str:
    disk.rename(f"{place}/a/file", f"{place}/b/moved")
    return "" if disk.read(f"{place}/b/moved") == b"fastwire" else "the moved file is not there"


def _ask_folder_sync(disk: Disk, place: str) -> str:
    disk.sync(folders=[f"{place}/a", f"{place}/b", place])
    return ""


def _ask_lock(disk: Disk, place: str) -> str:
    first = disk.lock(f"{place}/lock")
    if first is None:
        return "a new file is locked already"
    try:
        second = disk.lock(f"{place}/lock")
    finally:
        disk.unlock(first)
    if second is None:
        return ""
    disk.unlock(second)
    return "a lock was given twice: running writers will be taken for dead, and must start over"


_QUESTIONS: tuple[tuple[str, Callable[[Disk, str], str]], ...] = (
    ("write a file and sync it", _ask_write),
    ("link", _ask_link),
    ("second link refused", _ask_second_link),
    ("rename between folders", _ask_rename),
    ("sync a folder", _ask_folder_sync),
    ("lock a file", _ask_lock),
)
