"""Operations that wait while the disk is full or the store is away, so that no written data is lost."""

import io
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from crc32c import crc32c

from ...runtime.errors import SinkFailedError
from .disk import Disk

T = TypeVar("T")

# Encoders write headers of a few bytes; a system call for each would cost more than the copy. Many files may be open.
_GATHER_BYTES = 64 << 10
# The kernel begins to write what is older than half a minute, so a commit would wait for nearly all bytes of its files.
_BEGUN_BYTES = 8 << 20


class Medium(Protocol):
    """Target of an operation: says which of its failures waiting can help, and waits."""

    def lacks(self, exc: OSError) -> str | None:
        """Return what a failed operation waits for; None if waiting cannot help."""

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        """Wait for ``seconds``; return True as soon as ``stop`` is set."""


class Patience:
    """Repeats an operation that waiting can help, as ``medium`` says, until it succeeds or ``stop`` is set.

    ``on_full`` is called with a message when the wait begins and with None when it ends, on the thread that waits.
    Every other error is raised at once. ``retry_s`` is the interval in seconds.
    """

    def __init__(
        self,
        medium: Medium,
        on_full: Callable[[str | None], None] = lambda message: None,
        stop: threading.Event | None = None,
        retry_s: float = 1.0,
    ) -> None:
        self._medium = medium
        self._on_full = on_full
        self._stop = threading.Event() if stop is None else stop
        self._retry_s = retry_s

    def __call__(self, action: Callable[[], T], path: str) -> T:
        """Return the result of ``action``. Raises SinkFailedError if ``stop`` has ended the wait."""
        waiting = False
        while True:
            try:
                result = action()
            except OSError as exc:
                wanted = self._medium.lacks(exc)
                if wanted is None:
                    raise
                if not waiting:
                    self._on_full(f"{exc.strerror or exc}: {path}; waiting for {wanted}")
                    waiting = True
                if self._medium.pause(self._retry_s, self._stop):
                    raise SinkFailedError(f"stopped while waiting for {wanted} to write {path}") from exc
                continue
            if waiting:
                self._on_full(None)
            return result


class Impatience(Patience):
    """Tries an operation once, for work that may be skipped: a full disk is an error like any other."""

    def __call__(self, action: Callable[[], T], path: str) -> T:
        """Return the result of ``action``."""
        return action()


class PatientFile(io.RawIOBase):
    """A new file that is written sequentially; ``write`` takes all bytes, and waits while the disk is full.

    Written bytes reach the operating system at :meth:`flush` at the latest. After ``close`` writing raises ValueError
    and never reaches another file.
    """

    def __init__(self, disk: Disk, path: str, patience: Patience) -> None:
        super().__init__()
        self._disk = disk
        self._path = path
        self._patience = patience
        self._gathered = bytearray()
        self._size = 0
        self._given = 0  # bytes that the operating system has
        self._begun = 0  # those that it was told to write to the disk
        self.checksum = 0
        """CRC-32C of the bytes given to the operating system: of all bytes, after :meth:`flush`."""
        self._descriptor: int | None = patience(lambda: disk.create(path), path)

    @property
    def descriptor(self) -> int:
        """The file descriptor. Raises ValueError if the file is closed."""
        if self._descriptor is None:
            raise ValueError(f"{self._path} is closed")
        return self._descriptor

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._size

    def write(self, data: Any) -> int:
        """Write all of ``data``; may wait for a long time."""
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
        """Give the buffered bytes to the operating system."""
        if self._descriptor is not None:
            self._write_gathered(self._descriptor)

    def close(self) -> None:
        """Close without flushing: committed bytes were flushed and synced before, the rest is void."""
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
            self.checksum = crc32c(view[:written], self.checksum)
            self._given += written
            view = view[written:]
        if self._given - self._begun >= _BEGUN_BYTES:
            self._disk.begin_sync(descriptor, self._begun, self._given - self._begun)
            self._begun = self._given
