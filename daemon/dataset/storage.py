"""The verbs of the commit protocol over a disk: put_new, publish, read, list, discard.

Names are relative to the dataset's folder and use "/". A folder is made durable together with everything above it, also
when somebody else made it and may not have got round to that.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import NamedTuple

from ..errors import DatasetError
from .disk import Disk
from .patience import Patience, PatientFile

__all__ = ["Check", "Storage", "probe"]

# A dataset by hour makes new folders for ever; beyond this many the oldest knowledge is gathered anew.
_FOLDERS_REMEMBERED = 16_384
_OPEN_AT_ONCE = 128


class Storage:
    """A dataset's folder. Whatever needs space waits for it as ``patience`` says."""

    def __init__(self, root: str, disk: Disk, patience: Patience) -> None:
        self.root = os.path.abspath(root)
        self.disk = disk
        self._patience = patience
        self._made: set[str] = set()
        self.sync_ns = 0
        """Time that making things durable has taken, ever."""

    def path(self, name: str) -> str:
        """The absolute path of ``name``; "" is the dataset's folder itself."""
        return f"{self.root}/{name}".rstrip("/")

    # --- reading

    def read(self, name: str) -> bytes | None:
        """The content, or None."""
        return self.disk.read(self.path(name))

    def list(self, folder: str) -> list[str]:
        """Names in ``folder``; never proof that something is not there."""
        return self.disk.names(self.path(folder))

    def exists(self, name: str) -> bool:
        """Whether there is something of that name now."""
        return self.disk.exists(self.path(name))

    # --- writing

    def create(self, name: str) -> PatientFile:
        """A new file to be written; its folder exists."""
        return PatientFile(self.disk, self.path(name), self._patience)

    def write_synced(self, name: str, data: bytes) -> None:
        """Write a whole new file and make its content durable."""
        descriptor = self.write(name, data)
        try:
            self.sync([descriptor])
        finally:
            self.disk.close(descriptor)

    def write(self, name: str, data: bytes) -> int:
        """Write a whole new file; the caller syncs and closes it."""
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
        """Make contents and names durable; a failure is final (never sync the same thing again)."""
        began = perf_counter_ns()
        self.disk.sync(list(files), [self.path(folder) for folder in sorted(folders)])
        self.sync_ns += perf_counter_ns() - began

    def put_new(self, temporary: str, name: str, linked: Callable[[], None] = lambda: None) -> bool:
        """Give the synced file ``temporary`` the name ``name`` for good; False if that name is taken.

        ``linked`` is called between the two halves, when the name is there and could still be lost.
        """
        source, target = self.path(temporary), self.path(name)
        try:
            self._patience(lambda: self.disk.link(source, target), target)
        except FileExistsError:
            return False
        linked()
        self.sync(folders=[os.path.dirname(name)])
        return True

    def publish(self, staged: str, name: str) -> bool:
        """Move ``staged`` to ``name``; False if it is not staged any more: then somebody has published it."""
        source, target = self.path(staged), self.path(name)
        for attempt in range(3):
            try:
                self._patience(lambda: self.disk.rename(source, target), target)
            except FileNotFoundError:
                if not self.disk.exists(source):
                    return False
                if attempt == 2:
                    raise
                # Somebody took the folder away after it was made: archived, or expired.
                self._made.clear()
                self.make_folders([os.path.dirname(name)])
            else:
                return True
        raise AssertionError("unreachable")

    def discard(self, name: str) -> None:
        """Remove a file; fine if there is none."""
        self.disk.unlink(self.path(name))

    def discard_folder(self, folder: str, last: str) -> None:
        """Remove a folder of files, ``last`` last; what others put there meanwhile stays."""
        for name in sorted(self.list(folder), key=lambda name: name == last):
            self.discard(f"{folder}/{name}")
        self.disk.remove_folder(self.path(folder))

    # --- folders

    def make_folders(self, folders: Iterable[str]) -> None:
        """Make folders and those above them, and make all of that durable.

        What this process has not made or seen durable is synced even if it is there: whoever made it may have died
        before that. Raises DatasetError for a folder on another device, into which nothing could be renamed.
        """
        wanted = {folder for folder in folders if folder not in self._made}
        if not wanted:
            return
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
        for depth in sorted(levels):
            for folder in sorted(levels[depth]):
                path = self.path(folder)
                self._patience(lambda path=path: self.disk.make_folder(path), path)  # type: ignore[misc]
                if self.disk.device(path) != device:
                    raise DatasetError(f"{path} is on another device than {self.root}: files cannot be renamed into it")
            self.sync(folders={os.path.dirname(folder) for folder in levels[depth]})
            self._made |= levels[depth]

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
                pass  # not ours to look into; then whoever made the dataset's folder for us vouches for it
        self._made.add("")


class Check(NamedTuple):
    """One question to a folder, and its answer."""

    check: str
    ok: bool
    detail: str


def probe(path: str, disk: Disk | None = None) -> list[Check]:
    """Whether the file system under ``path`` keeps what the commit protocol asks of it.

    Works in a hidden folder of its own that is removed again, in the nearest existing folder if ``path`` does not exist
    yet; a dataset is not created.
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
