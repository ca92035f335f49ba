"""The kinds of problems that ``verify`` finds, with a remedy for each."""

from dataclasses import dataclass

_RESTORE_FILE = (
    "Restore the file from a backup. Without one, read its records again from the broker into a dataset at a new path; "
    "the log entry says which they are"
)
_RESTORE_ALL = "Stop the pipelines that write here and restore the whole dataset from a backup, or use a new path"

NEXT_STEPS = {
    "no-dataset": "Check the path, and whether its file system is mounted; a pipeline that runs creates the dataset",
    "format": "Use a version of fastwire that knows this format",
    "damaged": _RESTORE_ALL,
    "log-hole": f"{_RESTORE_ALL}; `run` refuses it as it is",
    "log-end": f"{_RESTORE_ALL}; `run` refuses it as it is, and says how to go on without what is lost",
    "chain": f"{_RESTORE_ALL}; `run` refuses it as it is",
    "overlap": "Drop duplicates when reading, by topic, partition and position, or land the topic again at a new path",
    "gap": "If the broker still has the records, land them by a second pipeline at a new path (see source.start)",
    "sum": "Compare the files of this log entry with the topic, and report the fault to the makers of fastwire",
    "missing": "Restore the file from a backup. If it was taken away on purpose, this ends with the next checkpoint",
    "removed": "Nothing, if it was taken away on purpose; otherwise restore it from a backup",
    "stray": "Move the file out of the dataset, because readers count its rows; if a log entry is lost, restore that",
    "unreadable": _RESTORE_FILE,
    "rows": _RESTORE_FILE,
    "size": _RESTORE_FILE,
    "positions": _RESTORE_FILE,
    "content": _RESTORE_FILE,
    "erased": "Run `fastwire-consume erase` again, with the same condition",
    "table": "Do what the text says. What has landed and is not in the table stays staged, and is added when it can be",
    "checkpoint": "Remove the file: a writer makes the next checkpoint from the log",
}
"""The remedy, by kind."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A violation of the dataset's invariants.

    ``kind`` is one of: no-dataset, format (a later one), damaged, log-hole (the log lacks a number), log-end (it has
    lost its newest entries), chain (a log entry was written after another one than the one before it), overlap
    (committed twice), gap (positions skipped without a declared gap), sum (rows neither in files nor filtered),
    missing, removed (only if strict), stray, unreadable, rows, size, positions, content (a file that differs from its
    log entry), erased (it holds rows that a log entry has erased), checkpoint, table (it has not what has landed).
    ``where`` is the file or log, ``text`` the description.
    """

    kind: str
    where: str
    text: str

    @property
    def todo(self) -> str:
        """The remedy for this kind of problem."""
        return NEXT_STEPS[self.kind]
