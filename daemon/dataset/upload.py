"""A new object of a dataset while it is written: its parts wait in local temporary files, not in memory."""

import io
from tempfile import SpooledTemporaryFile
from typing import Any

from crc32c import crc32c

from .bucket import PART_BYTES, Bucket, Upload
from .patience import Patience

__all__ = ["UploadedFile"]

# Up to this size a part waits in memory. Hundreds of files may be open.
_MEMORY_BYTES = 64 << 10


class UploadedFile(io.RawIOBase):
    """A new object that is written sequentially; ``write`` takes all bytes, and sends each part that is full.

    The object exists after :meth:`complete`. A part that fails makes the whole file void: its error is raised, after
    the library has tried again for a while. An object of one part is sent again as long as ``patience`` has it.
    """

    def __init__(self, bucket: Bucket, name: str, patience: Patience) -> None:
        super().__init__()
        self._bucket = bucket
        self._name = name
        self._patience = patience
        self._part = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - closed with this file
        self._filled = 0
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
            self._part.write(taken)
            self._filled += len(taken)
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
            self._patience(lambda: self._send_whole(data), f"{self._bucket.url}/{self._name}")
        else:
            if self._filled:
                self._send()
            self._upload.close()
        self._complete = True

    def close(self) -> None:
        """Close the file; what is not complete is void."""
        self._part.close()
        self._upload = None
        super().close()

    def _send(self) -> None:
        if self._upload is None:
            self._upload = self._bucket.upload(self._name)
        self._upload.write(self._take())

    def _send_whole(self, data: bytes) -> None:
        upload = self._bucket.upload(self._name)
        upload.write(data)
        upload.close()

    def _take(self) -> bytes:
        """Return the part, and begin the next."""
        self._part.seek(0)
        data = self._part.read()
        self._part.seek(0)
        self._part.truncate()
        self._filled = 0
        return data
