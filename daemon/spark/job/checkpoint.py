"""A job's view of its checkpoint: the ends of its batches, and files of the job's own beside them."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastwire.errors import FastwireError

from ...dataset.storage.disk import Disk
from ...runtime.errors import ConfigurationRefused

_OFFSETS, _COMMITS, _FILES = "offsets", "commits", "sources/0"
_NO_OFFSET = "-"  # of a source without one
_STATE = "state"  # of operators of Spark's, which jobs have no more


def claim(checkpoint: Path) -> int | None:
    """Keep other jobs from the checkpoint until ``release``, or the end of the process; None where there are no locks.

    Raises FastwireError if another job that runs has it.
    """
    path = checkpoint / "fastwire" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = Disk().lock(str(path))
    except OSError as exc:
        if exc.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return None
    if lock is None:
        raise FastwireError(
            f"another job that runs has the checkpoint at {checkpoint}, which is for one job at a time. End that one "
            "first, or give this job a checkpoint and a table of its own"
        )
    return lock


def release(lock: int) -> None:
    """Leave the checkpoint of ``claim`` to other jobs."""
    Disk().unlock(lock)


def newest_batch(checkpoint: Path, *, done: bool = False) -> int | None:
    """Return the number of the last batch that was planned, or with ``done`` committed; None before the first one."""
    files = _batches(checkpoint / (_COMMITS if done else _OFFSETS))
    return max((int(file.name) for file in files), default=None)


def _batches(log: Path) -> list[Path]:
    """Return the files of a log of the checkpoint, each named by the number of its batch."""
    return [file for file in log.glob("[0-9]*") if file.name.isdecimal()]


def read_end(checkpoint: Path, batch: int) -> dict[str, Any]:
    """Return the end of ``batch``, as its source has given it to Spark. Raises ConfigurationRefused."""
    path = checkpoint / _OFFSETS / str(batch)
    try:
        # The file has a version, Spark's own metadata, and one line for each source.
        found = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
        if isinstance(found, dict):
            return found
    except (OSError, ValueError, IndexError):
        pass
    raise ConfigurationRefused(
        f"{path} does not say what batch {batch} reads: the job needs the checkpoint in a folder that its driver sees, "
        "with all its files. Restore them, or delete checkpoint and table"
    )


def read_origin(checkpoint: Path) -> str | None:
    """Return the source of the last batch: the name of a system, "" for a dataset, None if no batch was planned."""
    batch = newest_batch(checkpoint)
    try:
        return None if batch is None else str(read_end(checkpoint, batch).get("sys", ""))
    except ConfigurationRefused:
        return None  # truncated by a crash: Spark handles it


def files_between(checkpoint: Path, after: int, upto: int) -> Iterator[str]:
    """Yield the URIs of the files that Spark's source of files has found in its rounds behind ``after`` to ``upto``.

    Raises ConfigurationRefused if the checkpoint lacks one of them.
    """
    folder = checkpoint / _FILES
    compact = sorted(int(path.stem) for path in folder.glob("[0-9]*.compact") if path.stem.isdecimal())
    for number in range(after + 1, upto + 1):
        names = [str(number), *(f"{each}.compact" for each in compact if each >= number)]
        path = next((folder / name for name in names if (folder / name).exists()), None)
        if path is None:
            raise ConfigurationRefused(
                f"{folder / str(number)} is missing: the checkpoint does not say which files its last batch reads. "
                "Restore it, or delete checkpoint and table"
            )
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            entry = json.loads(line)
            if entry.get("batchId", number) == number:
                yield str(entry["path"])


def drop_cut_logs(checkpoint: Path) -> None:
    """Delete the newest files of Spark's logs if a power loss has cut them, which Spark does not sync and cannot read.

    The batch is planned again, and the tables know what of it has landed.
    """
    for log, lines in ((_FILES, 1), (_COMMITS, 2), (_OFFSETS, 3)):
        newest = max(_batches(checkpoint / log), key=lambda file: int(file.name), default=None)
        if newest is not None and not _is_whole(newest, lines):
            for file in (newest, newest.with_name(f".{newest.name}.crc")):
                file.unlink(missing_ok=True)
            if log == _FILES:
                _forget_rounds(checkpoint, int(newest.name))


def _is_whole(path: Path, lines: int) -> bool:
    """Return whether a file of a log has its version and so many lines at least, the last of which is JSON."""
    try:
        found = path.read_text(encoding="utf-8").splitlines()
        if len(found) > 1 and found[-1] != _NO_OFFSET:
            json.loads(found[-1])
    except ValueError:
        return False
    return len(found) >= lines and found[0].startswith("v")


def _forget_rounds(checkpoint: Path, number: int) -> None:
    """Delete the newest batch if it reads files of round ``number`` of the source, which is lost."""
    batch = newest_batch(checkpoint)
    path = checkpoint / _OFFSETS / str(batch)
    if batch is not None and _is_whole(path, 3) and read_end(checkpoint, batch).get("logOffset") == number:
        for log in (_OFFSETS, _COMMITS):
            for name in (str(batch), f".{batch}.crc"):
                (checkpoint / log / name).unlink(missing_ok=True)


def drop_unbegun(checkpoint: Path) -> None:
    """Delete what a driver has left that was killed before it had planned batch 0: Spark refuses to begin there."""
    if newest_batch(checkpoint) is not None:
        return
    shutil.rmtree(checkpoint / _STATE, ignore_errors=True)
    for log in (_OFFSETS, _COMMITS):
        left = list((checkpoint / log).glob("*"))
        if all(path.name.startswith(".") for path in left):
            for path in left:
                path.unlink(missing_ok=True)


def check_keys(checkpoint: Path) -> None:
    """Refuse the checkpoint of a job whose duplicates an earlier version has left to Spark, in a state of Spark's."""
    state = checkpoint / _STATE
    if state.exists() and not keys_path(checkpoint).exists():
        raise ConfigurationRefused(
            f"{state} has the keys of records by which an earlier version dropped duplicates, and this version keeps "
            f"its own: delete {state}, and the job goes on without the keys of earlier records, so that a second copy "
            "of one of them lands; or use a new checkpoint and a new path for the table"
        )


def landed_path(checkpoint: Path) -> Path:
    """Return the path of the positions that the tables had at the last start; Spark ignores unknown files."""
    return checkpoint / "fastwire" / "landed.json"


def keys_path(checkpoint: Path) -> Path:
    """Return the folder of the keys by which a job drops duplicates; Spark ignores unknown files."""
    return checkpoint / "fastwire" / "keys"


def split_path(checkpoint: Path) -> Path:
    """Return the path of the split settings of the last batch with dead letters; Spark ignores unknown files."""
    return checkpoint / "fastwire" / "split.json"


def read_split(checkpoint: Path) -> str | None:
    """Return the text stored by ``keep_split``, None if there is none."""
    try:
        return split_path(checkpoint).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def keep_split(checkpoint: Path, text: str) -> None:
    """Store ``text`` durably, unless the file holds it already."""
    if read_split(checkpoint) != text:
        keep(split_path(checkpoint), text)


def keep(path: Path, text: str) -> None:
    """Store ``text`` durably at ``path``, in a folder of the checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    for folder in path.parents[:3]:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
