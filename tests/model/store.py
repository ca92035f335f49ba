"""An object store whose requests can fail, lose their answer, or be carried out later; the client cannot tell which.

What it has acknowledged is durable. A create-only PUT is atomic. It lies in the same world as the simulated disk, so
that the same judge looks at it.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from fastwire_daemon.dataset.storage.bucket import Bucket, Found, StoreAwayError, Upload

from .world import File, Folder, Process, World

T = TypeVar("T")

CHANGES = ("create", "put", "copy", "delete")
"""Requests that change something."""
REQUESTS = (*CHANGES, "get", "head", "list")


class SimLease:
    def __init__(self, name: str) -> None:
        self.name = name

    def end(self) -> None:
        """There is no thread."""


class SimUpload(Upload):
    """A file of one part: its last call is the request."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._data = b""

    def write(self, part: bytes) -> None:
        self._data += part

    def close(self) -> None:
        self._send(self._data)


class SimBucket(Bucket):
    """The simulated store as one process sees it."""

    copies_later = False  # an object has its whole content or none

    def __init__(self, world: World, process: Process, root: str) -> None:
        self.url = root
        self._world = world
        self._process = process

    # --- requests

    def _ask(self, kind: str, name: str) -> None:
        if self._process.step(kind, name):
            raise StoreAwayError(f"{kind} {name}: no answer")

    def _change(self, kind: str, name: str, change: Callable[[], T]) -> T:
        return self._suffer(self._process.step(kind, name), kind, name, change)

    def _suffer(self, fault: str | None, kind: str, name: str, change: Callable[[], T]) -> T:
        if fault is None:
            return change()
        if fault == "unheard":
            change()
        elif fault.startswith("delay"):
            self._world.late.append((f"{self._process.name} {kind} {name}", change))
        raise StoreAwayError(f"{kind} {name}: {fault}")

    def _find(self, name: str) -> File | None:
        node = self._world.find(f"{self.url}/{name}")
        return node if isinstance(node, File) else None

    def _set(self, name: str, content: bytes) -> File:
        file = File()
        file.content = file.durable = content
        folder = self._world.root
        *parts, last = f"{self.url}/{name}".strip("/").split("/")
        for part in parts:
            below = folder.names.setdefault(part, Folder())
            assert isinstance(below, Folder)
            folder.durable[part] = below
            folder = below
        folder.names[last] = folder.durable[last] = file
        return file

    def _remove(self, name: str) -> None:
        path = f"{self.url}/{name}"
        while self._world.find(path) is not None and path != self.url:
            path, last = os.path.split(path)
            folder = self._world.find(path)
            assert isinstance(folder, Folder)
            del folder.names[last], folder.durable[last]
            if folder.names:
                return  # a folder is there as long as something is in it

    # --- reading

    def get(self, name: str) -> bytes | None:
        self._ask("get", name)
        file = self._find(name)
        return None if file is None else file.content

    def head(self, name: str) -> Found | None:
        self._ask("head", name)
        file = self._find(name)
        return None if file is None else Found(len(file.content), datetime.fromtimestamp(0, UTC))

    def part(self, name: str, start: int, size: int) -> bytes:
        self._ask("get", name)
        file = self._find(name)
        if file is None:
            raise FileNotFoundError(name)
        return file.content[start : start + size]

    def names(self, folder: str) -> list[str]:
        self._ask("list", folder)
        node = self._world.find(f"{self.url}/{folder}")
        return sorted(node.names) if isinstance(node, Folder) else []

    def pages(self, folder: str, behind: str = "") -> Iterator[list[str]]:
        self._ask("list", folder)
        node = self._world.find(f"{self.url}/{folder}")
        if isinstance(node, Folder):
            yield sorted(path for path, _file in self._world.walk(node) if path > behind)

    # --- writing

    def put(self, name: str, data: bytes) -> None:
        self._change("put", name, lambda: self._set(name, data))

    def upload(self, name: str) -> Upload:
        return SimUpload(lambda data: self.put(name, data))

    def create(self, name: str, data: bytes) -> bool:
        return self._change("create", name, lambda: self._create(name, data))

    def _create(self, name: str, data: bytes) -> bool:
        if self._find(name) is not None:
            return False
        file = self._set(name, data)
        if not self._process.dead:
            self._world.held[file] = self._process  # matters for locks only
        self._world.on_link(f"{self.url}/{name}")
        return True

    def copy(self, source: str, target: str) -> bool:
        fault = self._process.step("copy", target)
        if fault == "pending":
            # It is answered and carried out later, as Azure may do.
            self._world.late.append((f"{self._process.name} copy {target}", lambda: self._copy(source, target)))
            return self._find(source) is not None
        return self._suffer(fault, "copy", target, lambda: self._copy(source, target))

    def _copy(self, source: str, target: str) -> bool:
        file = self._find(source)
        if file is None:
            return False
        self._set(target, file.content)
        self._world.on_rename(f"{self.url}/{target}")
        return True

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._change("delete", name, lambda name=name: self._delete(name))  # type: ignore[misc]

    def _delete(self, name: str) -> None:
        if self._find(name) is not None:
            self._remove(name)
            self._world.on_unlink(f"{self.url}/{name}")

    def each(self, actions: Sequence[Callable[[], T]]) -> list[T]:
        return [action() for action in actions]

    # --- leases

    def renew(self, name: str, owner: bytes) -> SimLease:  # type: ignore[override]
        return SimLease(name)

    def is_abandoned(self, name: str, own: str) -> bool:
        self._ask("head", name)
        file = self._find(name)
        holder = None if file is None else self._world.held.get(file)
        return holder is None or holder.dead or self._world.locks_lie

    # --- the rest

    def now(self) -> float:
        return self._world.seconds

    def new_name(self) -> str:
        return self._world.new_name()

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        return self._process.step("pause", "") == "stop"
