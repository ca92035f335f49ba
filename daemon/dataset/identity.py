"""The dataset that a writer has opened: its id and the newest log entry that the writer knows.

A path does not identify a dataset: a file system is unmounted, a folder is replaced or restored, a bucket is emptied.
So both facts outlive a failed writer, and are compared whenever it looks at the path again (R14). The same holds for
the table that the dataset is published in.
"""

from crc32c import crc32c

from ..runtime.errors import DatasetDamagedError, DatasetGoneError, DatasetMismatchError
from .commitlog.entry import entry_name
from .description import DESCRIPTION, Description, read_description
from .storage.base import Storage


class Identity:
    """The dataset in ``storage`` as one writer knows it; nothing until it has seen a description."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.published = 0
        """The log entry up to which the table of the dataset was seen to have its files; 0 for none."""
        self._id = ""
        self._number = 0
        self._tail = 0

    def compare(self, description: Description | None) -> None:
        """Compare the description that is at the path now.

        Raises DatasetGoneError if there is none, DatasetMismatchError if it is that of another dataset.
        """
        if description is None:
            if self._id:
                raise gone(self._storage)
        elif not self._id:
            self._id = description.id
        elif description.id != self._id:
            raise DatasetMismatchError(
                f"another dataset is at {self._storage.root} now: its id is {description.id}, and this process has "
                f"landed records in the one with the id {self._id}. Records that are in one of them would be missing "
                "in the other. Put the other one back, or restart the daemon to continue with what is there"
            )

    def compare_log(self) -> None:
        """Compare the newest entry that is known. Raises DatasetDamagedError if it is missing or another one."""
        if not self._number:
            return
        name = entry_name(self._number)
        data = self._storage.read(name)
        if data is None or crc32c(data) != self._tail:
            raise DatasetDamagedError(
                f"{self._storage.path(name)} {'is missing' if data is None else 'is another one'}, and this process "
                "has committed or read it: an older copy of the dataset was restored. What has landed since is not in "
                "it. Put the newer one back, or restart the daemon to continue with what is there"
            )

    def check_read(self) -> None:
        """Look for the dataset again after its log was read, which is empty where it is gone. Raises like `compare`."""
        data = self._storage.read(DESCRIPTION)
        self.compare(None if data is None else read_description(data, self._storage.root))

    def follow(self, number: int, tail: int) -> None:
        """Note a log entry that was read or committed, and the CRC-32C of its file."""
        if number > self._number:
            self._number, self._tail = number, tail

    def check_linked(self, before: int, tail: int) -> None:
        """Look for the entry ``before`` (0: none), whose CRC-32C is ``tail``, after the next one was linked.

        Raises DatasetGoneError where it is gone: the new one is in another place, or in an emptied one. In an emptied
        bucket the writer of ``before`` may ask once more for what it had no answer to, so the description has to be
        there, too; in a folder it finds no log.
        """
        data = self._storage.read(entry_name(before)) if before else None
        if before and (data is None or crc32c(data) != tail):
            raise gone(self._storage)
        if (not before or _is_store(self._storage)) and not self._storage.exists(DESCRIPTION):
            raise gone(self._storage)


def gone(storage: Storage) -> DatasetGoneError:
    """Return the error of a dataset that is not in its place any more."""
    what = "dataset is gone" if _is_store(storage) else "dataset's folder is gone"
    return DatasetGoneError(
        f"the {what}: {storage.root} has no {DESCRIPTION} of it or lacks its log. Nothing is created there, "
        "and no record is acknowledged. Put it back (is its file system mounted?): then landing continues"
    )


def _is_store(storage: Storage) -> bool:
    return "://" in storage.root
