"""The storage of a dataset in an object store.

A store has no folders, and what it has acknowledged is durable. A file is uploaded under a staged name, and the store
copies it to its visible one. R12: after any answer to a create-only PUT but success its effect is unknown, until the
object exists.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from time import perf_counter_ns
from typing import BinaryIO, cast

from ...runtime.errors import DatasetDamagedError
from .base import NewFile
from .bucket import PART_BYTES, Bucket, Lease, StoreAwayError
from .patience import Patience
from .upload import UploadedFile

_READ_BYTES = 256 << 10
_LOOKS = 5  # for a copy, before it is asked for again: the store may have given it up
_TAIL_BYTES = 64 << 10


class ObjectStorage:
    """A ``Storage`` in a bucket. Operations wait by ``patience`` while the store does not answer.

    Temporaries exist in memory only.
    """

    def __init__(self, bucket: Bucket, patience: Patience) -> None:
        self.root = bucket.url
        self.access = bucket.access
        self.sync_ns = 0
        self._bucket = bucket
        self._patience = patience
        self._temporaries: dict[str, bytes] = {}
        self._leases: dict[str, Lease] = {}

    def hasty(self) -> "ObjectStorage":
        """Return this storage: an outage of the store concerns all work alike."""
        return self

    def path(self, name: str) -> str:
        """Return the URL of ``name``; "" is the dataset itself."""
        return f"{self.root}/{name}".rstrip("/")

    def now(self) -> float:
        """Return the time of this machine in seconds since 1970."""
        return self._bucket.now()

    def new_name(self) -> str:
        """Return 16 random hex digits."""
        return self._bucket.new_name()

    def forget(self) -> None:
        """Forget the temporaries: those of a broken roll are void."""
        self._temporaries.clear()

    # --- reading

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, None if it does not exist."""
        return self._patience(lambda: self._bucket.get(name), self.path(name))

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the names of all objects in ``folder`` and below, relative to it.

        A listing that breaks off is continued behind the last name.
        """
        pages, last = self._bucket.pages(folder), ""

        def page() -> list[str] | None:
            nonlocal pages
            try:
                return next(pages, None)
            except OSError:
                pages = self._bucket.pages(folder, last)
                raise

        while (names := self._patience(page, self.path(folder))) is not None:
            yield from names
            last = names[-1] if names else last

    def exists(self, name: str) -> bool:
        """Return True if the name exists now."""
        return self.size(name) is not None

    def has_folder(self, name: str) -> bool:
        """Return False: no name has to be made durable."""
        return False

    def size(self, name: str) -> int | None:
        """Return the size in bytes; None if the object does not exist."""
        found = self._patience(lambda: self._bucket.head(name), self.path(name))
        return None if found is None else found.size

    def reader(self, name: str) -> BinaryIO:
        """Open an object for reading, with random access. Raises FileNotFoundError."""
        size = self.size(name)
        if size is None:
            raise FileNotFoundError(f"{self.path(name)} does not exist")
        return cast(BinaryIO, io.BufferedReader(_ObjectReader(partial(self._part, name), size), _READ_BYTES))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content in pieces. Raises FileNotFoundError."""
        size = self.size(name)
        if size is None:
            raise FileNotFoundError(f"{self.path(name)} does not exist")
        for start in range(0, size, PART_BYTES):
            yield self._part(name, start, min(PART_BYTES, size - start))

    def _part(self, name: str, start: int, size: int) -> bytes:
        return self._patience(lambda: self._bucket.part(name, start, size), self.path(name))

    # --- writing

    def create(self, name: str) -> UploadedFile:
        """Begin a new object, which exists after :meth:`sync`."""
        return UploadedFile(self._bucket, name, self._patience)

    def write(self, name: str, data: bytes) -> NewFile:
        """Keep a temporary; there is nothing to sync or to close."""
        self._temporaries[name] = data
        return _Kept()

    def write_synced(self, name: str, data: bytes) -> None:
        """Keep a temporary."""
        self._temporaries[name] = data

    def sync(self, files: Iterable[NewFile] = (), folders: Iterable[str] = ()) -> None:
        """Complete the uploads of ``files``."""
        began = perf_counter_ns()
        self._bucket.each([file.complete for file in files if isinstance(file, UploadedFile)])
        self.sync_ns += perf_counter_ns() - began

    def sync_content(self, names: Sequence[str]) -> None:
        """Do nothing: what is there is durable."""

    def put_new(self, temporary: str, name: str, linked: Callable[[], None] = lambda: None) -> bool:
        """Create ``name`` with the content of ``temporary``; return False if another content has that name (R12).

        An answer may be lost, a request may be carried out later, and one that the library or a proxy has repeated is
        answered by "exists". So the same request is sent until ``name`` exists, and its content decides.
        """
        data = self._temporaries[temporary]
        if not self._patience(lambda: self._create(name, data), self.path(name)):
            return False
        linked()
        return True

    def _create(self, name: str, data: bytes) -> bool:
        """Return True if ``name`` has this content, False if it has another one."""
        if self._bucket.create(name, data):
            return True
        found = self._bucket.get(name)
        if found is None:
            # Two requests were in each other's way, and neither has won yet.
            raise StoreAwayError(f"{self.path(name)} was refused as existing, and does not exist")
        return found == data

    def note(self, temporary: str, name: str) -> None:
        """Write ``name`` with the content of ``temporary``."""
        self._bucket.put(name, self._temporaries.pop(temporary))

    def freshen(self, staged: str, *, fresh: bool = False) -> bool:
        """Return False if the staged object is gone; its copy will be new."""
        return fresh or self.exists(staged)

    def publish(self, staged: str, name: str, nbytes: int, *, fresh: bool = False) -> bool:
        """Copy ``staged`` to ``name``; return False if another process has done that. The staged object stays.

        Returns when ``name`` has its ``nbytes``: some stores copy behind their answer, and an answer is no proof.
        Raises DatasetDamagedError, without a change, if another object has that name. An empty one is what a copy
        leaves that has not ended.
        """
        if not fresh and self.size(name):
            self._check_published(staged, name)
            return False
        return self.replace(staged, name, nbytes)

    def replace(self, staged: str, name: str, nbytes: int) -> bool:
        """Copy ``staged`` to ``name``, whatever that was; return False if it is gone."""
        # A request that is repeated, or carried out late, copies the same bytes, or finds the staged object gone.
        if not self._patience(lambda: self._bucket.copy(staged, name), self.path(name)):
            return False
        looks = count(1)

        def look() -> bool:
            # Another writer may have published it as well, and then it has expired.
            if next(looks) % _LOOKS == 0 and not self._bucket.copy(staged, name):
                return False
            self._check_copied(staged, name, nbytes)
            return True

        return self._patience(look, self.path(name))

    def _check_copied(self, staged: str, name: str, nbytes: int) -> None:
        """Raise StoreAwayError unless ``name`` has its ``nbytes``, and the last of them where a copy may be pending."""
        found = self._bucket.head(name)
        size = 0 if found is None else found.size
        tail = min(nbytes, _TAIL_BYTES) if self._bucket.copies_later else 0
        if size != nbytes:
            raise StoreAwayError(f"the copy has {size} of {nbytes} bytes")
        if tail and self._bucket.part(name, nbytes - tail, tail) != self._bucket.part(staged, nbytes - tail, tail):
            raise StoreAwayError("the copy has its size, and not its content")

    def _check_published(self, staged: str, name: str) -> None:
        """Check that both names have the same content: an earlier process may have died after its copy."""
        sizes = self.size(staged), self.size(name)
        if None in sizes:
            return  # it was published meanwhile, or removed afterwards
        try:
            if sizes[0] == sizes[1] and all(map(bytes.__eq__, self.pieces(staged), self.pieces(name))):
                return
        except FileNotFoundError:
            return
        if self.size(staged) is None:
            return  # an erasure has exchanged the file meanwhile, which takes the staged one away before
        raise DatasetDamagedError(
            f"{self.path(name)} exists, and is not the file that the commit log names: it was not replaced. "
            f"The committed file is {self.path(staged)}. Move the other one away, or restore the whole dataset"
        )

    def discard(self, *names: str) -> None:
        """Delete objects and temporaries, as far as they exist."""
        gone = [name for name in names if self._temporaries.pop(name, None) is None]
        if gone:
            self._patience(lambda: self._bucket.delete(gone), self.path(gone[0]))

    def discard_folder(self, folder: str, last: str) -> None:
        """Delete the objects below ``folder``, ``last`` last."""
        if lease := self._leases.pop(f"{folder}/{last}", None):
            lease.end()  # or a renewal would write it again
        self.discard(*(f"{folder}/{name}" for name in self.list(folder) if name != last))
        self.discard(f"{folder}/{last}")

    def make_folders(self, folders: Iterable[str], *, published: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def reach_from(self, witness: str) -> None:
        """Do nothing: all names of a bucket can be copied to each other."""

    # --- locks

    def hold(self, name: str) -> str | None:
        """Write the lock ``name`` and renew it until :meth:`release`; None if another owner's exists.

        Its content names the owner: after an answer that was lost the own lock exists (R12).
        """
        owner = self._bucket.new_name().encode()
        if not self._patience(lambda: self._create(name, owner), self.path(name)):
            return None
        self._leases[name] = self._bucket.renew(name, owner)
        return name

    def take_over(self, name: str) -> str | None:
        """Return ``name`` if the lock is old by the store's clock, or gone; None if its writer lives.

        Several writers may take over the same lock: each fences the dead writer, and clears up what is left.
        """
        own = next(reversed(self._leases), None)
        assert own is not None, "a writer takes over from others after it holds its own lock"
        return name if self._patience(lambda: self._bucket.is_abandoned(name, own), self.path(name)) else None

    def release(self, hold: str) -> None:
        """End the renewals of an own lock, and delete it: no writer owns what is left in its folder."""
        if lease := self._leases.pop(hold, None):
            lease.end()
            try:
                self._bucket.delete([hold])
            except OSError:
                pass  # it grows old

    def list(self, folder: str) -> list[str]:
        """Return the names of objects and folders in ``folder``."""
        return self._patience(lambda: self._bucket.names(folder), self.path(folder))


class _Kept:
    """The file of a temporary, whose content is complete."""

    checksum = 0

    def write(self, data: bytes, /) -> int:
        raise AssertionError("a temporary is written whole")

    def tell(self) -> int:
        raise AssertionError("a temporary is written whole")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class _ObjectReader(io.RawIOBase):
    """Random access to an object; ``read`` returns a range of it, given by its start and its size."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._read = read
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readall(self) -> bytes:
        size = self._size - self._position
        if size <= 0:
            return b""
        content = self._read(self._position, size)
        self._position += size
        return content

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), self._size - self._position)
        if size <= 0:
            return 0
        buffer[:size] = self._read(self._position, size)
        self._position += size
        return size
