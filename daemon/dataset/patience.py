"""A full disk is waited out: nothing that was written is lost, and whoever writes does not notice."""

import io
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import SinkFailedError
from .disk import DISK_FULL, Disk

__all__ = ["Impatience", "Patience", "PatientFile"]

T = TypeVar("T")

# Encoders write headers of a few bytes; a system call for each would cost more than the copy.
_GATHER_BYTES = 256 << 10


class Patience:
    """Repeats what fails for want of space until it succeeds or ``stop`` is set.

    ``on_full`` is called with a message when the waiting begins and with None when it is over, on the thread that
    waits. Only a full disk is waited for; every other failure is raised at once.
    """

    def __init__(
        self,
        disk: Disk,
        on_full: Callable[[str | None], None] = lambda message: None,
        stop: threading.Event | None = None,
        retry_s: float = 1.0,
    ) -> None:
        self._disk = disk
        self._on_full = on_full
        self._stop = threading.Event() if stop is None else stop
        self._retry_s = retry_s

    def __call__(self, action: Callable[[], T], path: str) -> T:
        """The result of ``action``. Raises SinkFailedError if the wait was ended."""
        waiting = False
        while True:
            try:
                result = action()
            except OSError as exc:
                if exc.errno not in DISK_FULL:
                    raise
                if not waiting:
                    self._on_full(f"{os.strerror(exc.errno or 0)}: {path}; waiting for space")
                    waiting = True
                if self._disk.pause(self._retry_s, self._stop):
                    raise SinkFailedError(f"stopped while waiting for space to write {path}") from exc
                continue
            if waiting:
                self._on_full(None)
            return result


class Impatience(Patience):
    """For what can be left undone: a full disk is a failure like any other."""

    def __call__(self, action: Callable[[], T], path: str) -> T:
        """The result of ``action``, tried once."""
        return action()


class PatientFile(io.RawIOBase):
    """A new file that is written front to back; its ``write`` takes everything, and waits when the disk is full.

    What is written reaches the disk with :meth:`flush` at the latest. Once it is closed, writing raises ValueError and
    never reaches another file.
    """

    def __init__(self, disk: Disk, path: str, patience: Patience) -> None:
        super().__init__()
        self._disk = disk
        self._path = path
        self._patience = patience
        self._gathered = bytearray()
        self._size = 0
        self._descriptor: int | None = patience(lambda: disk.create(path), path)

    @property
    def descriptor(self) -> int:
        """What the disk knows the file by. Raises ValueError if it is closed."""
        if self._descriptor is None:
            raise ValueError(f"{self._path} is closed")
        return self._descriptor

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._size

    def write(self, data: Any) -> int:
        """Take all of ``data``; may wait for a long time."""
        view = memoryview(data).cast("B")
        descriptor = self.descriptor
        self._size += len(view)
        if len(self._gathered) + len(view) < _GATHER_BYTES:
            self._gathered += view
            return len(view)
        self._write_gathered(descriptor)
        if len(view) < _GATHER_BYTES:
            self._gathered += view
        else:
            self._write_through(descriptor, view)
        return len(view)

    def flush(self) -> None:
        """Hand what is gathered to the operating system."""
        if self._descriptor is not None:
            self._write_gathered(self._descriptor)

    def close(self) -> None:
        """Close without flushing: what matters has been flushed and synced, the rest is void."""
        if not self.closed:
            descriptor, self._descriptor = self._descriptor, None
            self._gathered.clear()
            super().close()
            if descriptor is not None:
                self._disk.close(descriptor)

    def _write_gathered(self, descriptor: int) -> None:
        if self._gathered:
            data = bytes(self._gathered)
            self._gathered.clear()
            self._write_through(descriptor, memoryview(data))

    def _write_through(self, descriptor: int, view: memoryview) -> None:
        while view:
            written = self._patience(lambda rest=view: self._disk.write(descriptor, rest), self._path)  # type: ignore[misc]
            view = view[written:]
