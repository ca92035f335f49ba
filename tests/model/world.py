"""A disk with a page cache: what is written is seen at once, and survives a power cut only if it was synced.

The rules are the weakest that the protocol claims to stand on. Every operation on a folder is pending until that folder
is synced (a rename until the folder it leads into is), and a power cut keeps any subset of the pending ones. Content
that was not synced may be lost or torn. After a failed sync of a file, a later one succeeds without having done
anything; names in a folder whose sync failed stay pending.
"""

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Protocol

from fastwire_daemon.dataset.storage.disk import Disk


class Choices(Protocol):
    """The free choices of the world."""

    def choose(self, options: int) -> int: ...


class Node:
    """The file or folder behind a name."""


class File(Node):
    """Content as it is seen, and how much of it a power cut leaves for certain."""

    def __init__(self) -> None:
        self.content = b""
        self.durable = b""
        self.forgotten = False  # a sync has failed: later ones do nothing


class Folder(Node):
    """Names as they are seen, and those that a power cut leaves for certain."""

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


class Pending:
    """A change of names that may or may not survive: syncing ``folder`` makes it certain."""

    def __init__(self, folder: Folder, changes: list[tuple[Folder, str, Node | None, Node | None]]) -> None:
        self.folder = folder
        self.changes = changes  # (folder, name, what it leads to then, what it led to before)

    def apply(self) -> None:
        for folder, name, node, before in self.changes:
            if node is not None:
                folder.durable[name] = node
            elif folder.durable.get(name) is before:
                del folder.durable[name]


class Process:
    """Open files and locks end with it."""

    def __init__(self, name: str, step: Callable[[str, str], str | None]) -> None:
        self.name = name
        self.step = step  # called before each operation; returns a fault to suffer, or raises
        self.dead = False
        self.files: dict[int, tuple[File, str]] = {}
        self.locks: dict[int, File] = {}


class World:
    """The disk and what holds for all processes."""

    def __init__(self, *, locks_lie: bool = False) -> None:
        self.root = Folder()
        self.pending: list[Pending] = []
        self.locks_lie = locks_lie
        self.held: dict[File, Process] = {}
        self.handles = 0
        self.tokens = 0
        self.seconds = 1_800_000_000.0
        self.full = False
        self.mount: str | None = None  # a folder that nothing can be renamed or linked into from outside, nor out of
        self.late: list[tuple[str, Callable[[], object]]] = []  # requests to a store that are still under way
        self.on_link: Callable[[str], None] = lambda path: None
        self.on_rename: Callable[[str], None] = lambda path: None
        self.on_unlink: Callable[[str], None] = lambda path: None

    def new_name(self) -> str:
        self.tokens += 1
        return f"{self.tokens:016x}"

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in filter(None, path.split("/")):
            if not isinstance(node, Folder) or name not in node.names:
                return None
            node = node.names[name]
        return node

    def is_certain(self, path: str) -> bool:
        """Return whether the file and all its bytes survive a power cut."""
        node: Node = self.root
        steps: list[tuple[Folder, str]] = []
        for name in filter(None, path.split("/")):
            if not isinstance(node, Folder) or name not in node.durable:
                return False
            steps.append((node, name))
            node = node.durable[name]
        if not isinstance(node, File) or node.durable != node.content:
            return False
        return not any(
            after is None and (folder, name) in steps
            for change in self.pending
            for folder, name, after, _before in change.changes
        )

    def walk(self, folder: Folder, path: str = "") -> Iterator[tuple[str, File]]:
        for name, node in folder.names.items():
            if isinstance(node, Folder):
                yield from self.walk(node, f"{path}{name}/")
            elif isinstance(node, File):
                yield f"{path}{name}", node

    def sync_all(self) -> None:
        """Everything that is seen is certain from now on."""
        for change in self.pending:
            change.apply()
        self.pending = []
        for _path, file in self.walk(self.root):
            file.durable = file.content

    def cut_power(self, choices: Choices) -> None:
        """Everything that is not certain may be gone; no process survives."""
        if self.pending:
            fate = choices.choose(4)  # none, all, or each by itself
            for change in self.pending:
                if fate == 1 or (fate > 1 and choices.choose(2)):
                    change.apply()
            self.pending = []
        self._reload(self.root, choices)
        self.held.clear()

    def _reload(self, folder: Folder, choices: Choices) -> None:
        folder.names = dict(folder.durable)
        for node in folder.names.values():
            if isinstance(node, Folder):
                self._reload(node, choices)
            elif isinstance(node, File) and node.content != node.durable:
                keep = (len(node.durable), (len(node.durable) + len(node.content)) // 2, len(node.content))
                node.content = node.durable = node.content[: keep[choices.choose(3)]]
                node.forgotten = False


class SimDisk(Disk):
    """The simulated disk as one process sees it."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    # --- where things are

    def _step(self, kind: str, path: str) -> str | None:
        return self._process.step(kind, path)

    def _folder_of(self, path: str) -> tuple[Folder, str]:
        above, name = os.path.split(path)
        folder = self._world.find(above)
        if not isinstance(folder, Folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        return folder, name

    def _set(self, folder: Folder, name: str, node: Node | None) -> None:
        before = folder.names.get(name)
        if node is None:
            del folder.names[name]
        else:
            folder.names[name] = node
        self._world.pending.append(Pending(folder, [(folder, name, node, before)]))

    def _check_mount(self, source: str, target: str) -> None:
        if (mount := self._world.mount) and (f"{source}/".startswith(mount) != f"{target}/".startswith(mount)):
            raise OSError(errno.EXDEV, "another mount", target)

    def _full(self, path: str) -> None:
        if self._world.full:
            raise OSError(errno.ENOSPC, "no space", path)

    # --- files

    def create(self, path: str) -> int:
        self._step("create", path)
        self._full(path)
        folder, name = self._folder_of(path)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "exists", path)
        file = File()
        self._set(folder, name, file)
        return self._handle(file, path)

    def open(self, path: str) -> int:
        self._step("open", path)
        node = self._world.find(path)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return self._handle(node, path)

    def _handle(self, file: File, path: str) -> int:
        self._world.handles += 1
        self._process.files[self._world.handles] = (file, path)
        return self._world.handles

    def write(self, file: int, data: memoryview) -> int:
        node, path = self._process.files[file]
        self._step("write", path)
        self._full(path)
        node.content += bytes(data)
        return len(data)

    def close(self, file: int) -> None:
        self._process.files.pop(file, None)

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        failure: OSError | None = None
        for handle in files:
            file, path = self._process.files[handle]
            if fault := self._step("sync", path):
                file.forgotten = True
                failure = _sync_failure(fault, path)
            elif not file.forgotten:
                file.durable = file.content
        for path in folders:
            fault = self._step("sync-folder", path)
            node = self._world.find(path)
            if not isinstance(node, Folder):
                failure = FileNotFoundError(errno.ENOENT, "no such folder", path)
            elif fault:
                failure = _sync_failure(fault, path)
            else:
                self._sync_folder(node)
        if failure is not None:
            raise failure

    def _sync_folder(self, folder: Folder) -> None:
        kept = []
        for change in self._world.pending:
            if change.folder is folder:
                change.apply()
            else:
                kept.append(change)
        self._world.pending = kept

    def read(self, path: str) -> bytes | None:
        self._step("read", path)
        node = self._world.find(path)
        return node.content if isinstance(node, File) else None

    def pieces(self, path: str) -> Iterator[bytes]:
        self._step("read", path)
        node = self._world.find(path)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        yield node.content

    def reader(self, path: str) -> BinaryIO:
        return io.BytesIO(b"".join(self.pieces(path)))

    def link(self, source: str, target: str) -> None:
        fault = self._step("link", target)
        node = self._world.find(source)
        folder, name = self._folder_of(target)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "exists", target)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._check_mount(source, target)
        self._full(target)
        self._set(folder, name, node)
        self._world.on_link(target)
        if fault == "lie":
            # A network file system repeats a request whose answer was lost, and the second is refused.
            raise FileExistsError(errno.EEXIST, "exists", target)
        if fault == "fail":
            raise OSError(errno.EIO, "input/output error", target)

    def rename(self, source: str, target: str) -> None:
        self._step("rename", target)
        old_folder, old_name = self._folder_of(source)
        folder, name = self._folder_of(target)
        node = old_folder.names.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._check_mount(source, target)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, "exists", target)
        self._full(target)
        del old_folder.names[old_name]
        before = folder.names.get(name)
        folder.names[name] = node
        self._world.pending.append(Pending(folder, [(folder, name, node, before), (old_folder, old_name, None, node)]))
        self._world.on_rename(target)

    def replace(self, source: str, target: str) -> None:
        self._step("rename", target)
        old_folder, old_name = self._folder_of(source)
        folder, name = self._folder_of(target)
        node = old_folder.names.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        before = folder.names.get(name)
        del old_folder.names[old_name]
        folder.names[name] = node
        self._world.pending.append(Pending(folder, [(folder, name, node, before), (old_folder, old_name, None, node)]))
        self._world.on_rename(target)

    def exists(self, path: str) -> bool:
        self._step("exists", path)
        return self._world.find(path) is not None

    def size(self, path: str) -> int | None:
        node = self._world.find(path)
        return len(node.content) if isinstance(node, File) else None

    def touch(self, path: str) -> bool:
        self._step("touch", path)
        return self._world.find(path) is not None

    def unlink(self, path: str) -> bool:
        self._step("unlink", path)
        try:
            folder, name = self._folder_of(path)
        except FileNotFoundError:
            return False
        if name not in folder.names:
            return False
        self._set(folder, name, None)
        self._world.on_unlink(path)
        return True

    # --- folders

    def make_folder(self, path: str) -> bool:
        self._step("mkdir", path)
        folder, name = self._folder_of(path)
        if name in folder.names:
            return False
        self._full(path)
        self._set(folder, name, Folder())
        return True

    def remove_folder(self, path: str) -> bool:
        self._step("rmdir", path)
        node = self._world.find(path)
        if not isinstance(node, Folder) or node.names:
            return False
        folder, name = self._folder_of(path)
        self._set(folder, name, None)
        return True

    def names(self, folder: str) -> list[str]:
        self._step("list", folder)
        node = self._world.find(folder)
        return sorted(node.names) if isinstance(node, Folder) else []

    def walk(self, folder: str, below: str = "") -> Iterator[str]:
        self._step("list", folder)
        node = self._world.find(folder)
        if isinstance(node, Folder):
            yield from sorted(path for path, _file in self._world.walk(node))

    def is_folder(self, path: str) -> bool:
        return isinstance(self._world.find(path), Folder)

    def is_writable(self, path: str) -> bool:
        return self.is_folder(path)

    def device(self, path: str) -> int:
        if self._world.find(path) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return 1

    # --- the rest

    def lock(self, path: str) -> int | None:
        self._step("lock", path)
        folder, name = self._folder_of(path)
        node = folder.names.get(name)
        if node is None:
            node = File()
            self._set(folder, name, node)
        assert isinstance(node, File)
        holder = self._world.held.get(node)
        if holder is not None and not holder.dead and not self._world.locks_lie:
            return None
        self._world.held[node] = self._process
        self._world.handles += 1
        self._process.locks[self._world.handles] = node
        return self._world.handles

    def unlock(self, lock: int) -> None:
        self._step("unlock", "")
        node = self._process.locks.pop(lock, None)
        if node is not None and self._world.held.get(node) is self._process:
            del self._world.held[node]

    def now(self) -> float:
        return self._world.seconds

    def new_name(self) -> str:
        return self._world.new_name()

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        self._step("pause", "")
        return stop.is_set()


def _sync_failure(fault: str, path: str) -> OSError:
    if fault == "space":
        return OSError(errno.ENOSPC, "no space", path)
    return OSError(errno.EIO, "input/output error", path)
