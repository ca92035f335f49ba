"""The operations of the commit protocol on the place where a dataset lies.

Names are relative to the dataset and use "/". A *temporary* is a small file with an unpublished name, which
:meth:`Storage.put_new` gives its final name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Protocol


class NewFile(Protocol):
    """A new file that is written sequentially; :meth:`Storage.sync` makes it durable."""

    @property
    def checksum(self) -> int:
        """CRC-32C of all bytes, after :meth:`flush`."""

    def write(self, data: Any, /) -> int:
        """Write all of ``data``; may wait for a long time."""

    def tell(self) -> int:
        """Return the number of bytes written so far."""

    def flush(self) -> None:
        """Hand over the buffered bytes; they are not durable yet."""

    def close(self) -> None:
        """Close the file; bytes that are not durable are void. May be called twice."""


class Storage(Protocol):
    """The place of a dataset. Errors are OSErrors, but where a method says otherwise.

    Operations wait where waiting helps (a full disk, a store that does not answer), and then raise SinkFailedError if
    the wait is ended.
    """

    root: str
    """The absolute path or the URL of the dataset."""
    access: Mapping[str, str]
    """Settings for other clients of the same place, secrets in clear text; empty for a folder."""
    sync_ns: int
    """Nanoseconds spent so far in making content and names durable."""

    def hasty(self) -> "Storage":
        """Return a storage of the same place for work that may be skipped: it does not wait for disk space."""

    def path(self, name: str) -> str:
        """Return the full path or URL of ``name``; "" is the dataset itself."""

    def now(self) -> float:
        """Return the time of this machine in seconds since 1970."""

    def new_name(self) -> str:
        """Return 16 random hex digits."""

    def forget(self) -> None:
        """Forget what is known of the place: it may have changed since."""

    # --- reading

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the names of all files in ``folder`` and below, relative to it. Links to folders are files."""

    def exists(self, name: str) -> bool:
        """Return True if the name exists now."""

    def has_folder(self, name: str) -> bool:
        """Return True if the folder exists and its names have to be made durable."""

    def size(self, name: str) -> int | None:
        """Return the size in bytes; None if the file does not exist."""

    def reader(self, name: str) -> BinaryIO:
        """Open a file for reading, with random access. Raises FileNotFoundError."""

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content in pieces. Raises FileNotFoundError."""

    # --- writing

    def create(self, name: str) -> NewFile:
        """Create a file in an existing folder."""

    def write(self, name: str, data: bytes) -> NewFile:
        """Write a whole temporary; the caller syncs and closes it."""

    def write_synced(self, name: str, data: bytes) -> None:
        """Write a whole temporary and make its content durable."""

    def sync(self, files: Iterable[NewFile] = (), folders: Iterable[str] = ()) -> None:
        """Make contents, and names in folders, durable. After an OSError the same file must not be synced again."""

    def sync_content(self, names: Sequence[str]) -> None:
        """Make the content of files durable that other processes have finished. Raises FileNotFoundError."""

    def put_new(self, temporary: str, name: str, linked: Callable[[], None] = lambda: None) -> bool:
        """Give the durable ``temporary`` the name ``name`` and make that durable; return False if the name is taken.

        The name is given to one caller at most, and at once with the whole content. ``linked`` is called when the name
        exists.
        """

    def note(self, temporary: str, name: str) -> None:
        """Give ``temporary`` the name ``name``, without making that durable."""

    def freshen(self, staged: str, *, fresh: bool = False) -> bool:
        """Prepare a staged file for :meth:`publish`; return False if it is gone. ``fresh``: it was written just now."""

    def publish(self, staged: str, name: str, nbytes: int, *, fresh: bool = False) -> bool:
        """Give the file ``staged`` its visible name, at once with the whole content; return False if it has that name.

        On return the visible file has its ``nbytes``, so the staged one may be deleted. ``fresh``: the name was seen to
        be free. Raises DatasetDamagedError, without a change, if another file has that name.
        """

    def replace(self, staged: str, name: str, nbytes: int) -> bool:
        """Let ``staged`` take the place of the file ``name``, at once with the whole content of ``nbytes``.

        Returns False if it has done so before, or is gone. The staged file may stay.
        """

    def discard(self, *names: str) -> None:
        """Delete files, as far as they exist."""

    def discard_folder(self, folder: str, last: str) -> None:
        """Delete a folder of files, ``last`` last; files that another process adds meanwhile may stay."""

    def make_folders(self, folders: Iterable[str], *, published: bool = False) -> None:
        """Make folders and those above them, and make all of them durable.

        Raises FolderRefusedError, after making all others, for folders that cannot be made or, if ``published``, that
        files cannot be moved into.
        """

    def reach_from(self, witness: str) -> None:
        """Use ``witness``, a staged file, to test that files can be published into each existing folder."""

    # --- locks

    def hold(self, name: str) -> Any:
        """Lock the file ``name`` until :meth:`release` or the end of the process; return None if it is locked.

        Raises FileNotFoundError if its folder was deleted meanwhile.
        """

    def take_over(self, name: str) -> Any:
        """Lock the file ``name`` of a writer that is dead; return None if it lives. Raises FileNotFoundError.

        An error costs a living writer its open roll, and no more.
        """

    def release(self, hold: Any) -> None:
        """Release a lock."""

    def list(self, folder: str) -> list[str]:
        """Return the names in ``folder``; an absent name is no proof that the file is missing."""
