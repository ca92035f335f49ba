"""A new object of a dataset while it is written: its parts wait in local temporary files, not in memory."""

import io
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any

from crc32c import crc32c

from .bucket import PART_BYTES, Bucket, Upload
from .patience import Patience

# Up to this size a part waits in memory, and pieces of it are gathered. Hundreds of files may be open.
_MEMORY_BYTES = 64 << 10


class UploadedFile(io.RawIOBase):
    """A new object that is written sequentially; ``write`` takes all bytes, and sends each part that is full.

    The object exists after :meth:`complete`. The first part is sent again, as a new upload, as long as ``patience`` has
    it, which also waits for space for the temporary file. A later part that fails makes the whole file void: its error
    is raised, after the library has tried again for a while.
    """

    def __init__(self, bucket: Bucket, name: str, patience: Patience) -> None:
        super().__init__()
        self._bucket = bucket
        self._name = name
        self._patience = patience
        self._local = f"a temporary file in {gettempdir()} (TMPDIR) for {bucket.url}/{name}"
        self._part: IO[bytes] | None = None  # of the first bytes of the part
        self._kept = 0  # bytes in it
        self._memory = bytearray()  # those behind them
        self._upload: Upload | None = None
        self._size = 0
        self._complete = False
        self.checksum = 0
        """CRC-32C of the bytes written so far."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._size

    @property
    def _filled(self) -> int:
        return self._kept + len(self._memory)

    def write(self, data: Any) -> int:
        """Write all of ``data``; may wait for the store."""
        if self.closed:
            raise ValueError(f"{self._bucket.url}/{self._name} is closed")
        view = memoryview(data).cast("B")
        size = len(view)
        self.checksum = crc32c(view, self.checksum)
        self._size += size
        while view:
            taken = view[: PART_BYTES - self._filled]
            self._take_in(taken)
            view = view[len(taken) :]
            if self._filled == PART_BYTES:
                self._send()
        return size

    def complete(self) -> None:
        """Send what is left, and make the object exist. May be called twice."""
        if self._complete:
            return
        if self._upload is None:
            data = self._take()
            self._patience(lambda: self._begun(data).close(), f"{self._bucket.url}/{self._name}")
        else:
            if self._filled:
                self._send()
            self._upload.close()
        self._complete = True

    def close(self) -> None:
        """Close the file; what is not complete is void."""
        if self._part is not None:
            self._part.close()
        self._memory.clear()
        self._upload = None
        super().close()

    def _send(self) -> None:
        data = self._take()
        if self._upload is None:
            self._upload = self._patience(lambda: self._begun(data), f"{self._bucket.url}/{self._name}")
        else:
            self._upload.write(data)

    def _begun(self, data: bytes) -> Upload:
        upload = self._bucket.upload(self._name)
        upload.write(data)
        return upload

    # --- the part

    def _take_in(self, data: memoryview) -> None:
        if len(self._memory) + len(data) <= _MEMORY_BYTES:
            self._memory += data
            return
        gathered = bytes(self._memory)
        self._memory.clear()
        for piece in (memoryview(gathered), data):
            while piece:
                written = self._patience(lambda piece=piece: self._keep(piece), self._local)  # type: ignore[misc]
                self._kept += written
                piece = piece[written:]

    def _keep(self, data: memoryview) -> int:
        """Write some of ``data`` to the temporary file, behind what it has; return the number of bytes."""
        if self._part is None:
            self._part = TemporaryFile(buffering=0)  # noqa: SIM115 - closed with this file
        self._part.seek(self._kept)
        return self._part.write(data)

    def _take(self) -> bytes:
        """Return the part, and begin the next."""
        data = bytes(self._memory)
        if self._part is not None and self._kept:
            self._part.seek(0)
            data = self._part.read(self._kept) + data
            self._part.seek(0)
            self._part.truncate()
        self._kept = 0
        self._memory.clear()
        return data
