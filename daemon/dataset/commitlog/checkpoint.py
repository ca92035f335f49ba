"""Checkpoints: Coverage up to a log entry, so that a start need not read the log from its beginning.

A checkpoint depends on the log alone: every writer writes the same bytes for checkpoint N. A missing or damaged one
costs only time.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fastwire.coverage import Coverage
from fastwire.decode.evolution import Column, columns_from_json, columns_to_json

from ..storage.base import Storage
from ..storage.disk import DISK_FULL
from .entry import (
    CHECKPOINTS,
    LogEntry,
    ends_from_json,
    ends_to_json,
    pack,
    unpack,
    witnesses_from_json,
    witnesses_to_json,
)

FORMAT = 1

_NAME = re.compile(r"([0-9]{12})\.json")


def checkpoint_name(number: int) -> str:
    """Return the file name of checkpoint ``number``, which may not exist."""
    return f"{CHECKPOINTS}/{number:012d}.json"


@dataclass(slots=True)
class Checkpoint:
    """The sum of log entries 1 to ``number``. ``rows``, ``files`` and ``nbytes`` count the published files.

    ``types`` are the columns of decoded values, if an entry has changed them.
    """

    number: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    rows: int = 0
    files: int = 0
    nbytes: int = 0
    types: tuple[Column, ...] = ()

    def fold(self, entry: LogEntry) -> None:
        """Add the next log entry. Raises ValueError if it does not fit; then only Coverage may have changed."""
        entry.fold_into(self.coverage)
        self.number += 1
        self.rows += entry.rows
        self.files += len(entry.files)
        self.nbytes += entry.nbytes
        self.types = entry.types or self.types

    def copy(self) -> "Checkpoint":
        """Return an independent copy."""
        return replace(self, coverage=self.coverage.copy())

    def encode(self) -> bytes:
        """Return the content of the checkpoint's file."""
        value = {
            "format": FORMAT,
            "number": self.number,
            "rows": self.rows,
            "files": self.files,
            "bytes": self.nbytes,
            "coverage": self.coverage.to_json(),
        }
        if self.types:
            value["types"] = columns_to_json(self.types)
        if witnesses := witnesses_to_json((log, self.coverage.witness(log)) for log in self.coverage.logs()):
            value["witnesses"] = witnesses
        if ends := ends_to_json((log, self.coverage.until(log)) for log in self.coverage.logs()):
            value["ends"] = ends
        return pack(value)

    @classmethod
    def decode(cls, data: bytes, number: int) -> "Checkpoint":
        """Decode the content of the file of checkpoint ``number``. Raises ValueError."""
        value = unpack(data)
        try:
            if value["format"] != FORMAT or value["number"] != number:
                raise ValueError(f"format {value['format']!r}, number {value['number']!r}")
            counts = [value[name] for name in ("rows", "files", "bytes")]
            if not all(isinstance(count, int) and count >= 0 for count in counts):
                raise ValueError("counts must be whole numbers")
            types = columns_from_json(value.get("types", []))
            rows, files, nbytes = counts
            coverage = Coverage.from_json(value["coverage"])
            for log, witness in witnesses_from_json(value.get("witnesses", {})).items():
                coverage.recall(log, witness)
            for log, until in ends_from_json(value.get("ends", {})).items():
                coverage.end_at(log, until)
            return cls(number, coverage, rows, files, nbytes, types)
        except (KeyError, TypeError) as exc:
            raise ValueError(f"not a checkpoint: {exc}") from exc


def checkpoint_numbers(storage: Storage) -> list[int]:
    """Return the numbers of the checkpoints in the folder, in order."""
    return sorted(int(match[1]) for name in storage.list(CHECKPOINTS) if (match := _NAME.fullmatch(name)))


def newest_checkpoint(storage: Storage) -> Checkpoint:
    """Return the newest readable checkpoint; the empty one if there is none."""
    for number in reversed(checkpoint_numbers(storage)):
        data = storage.read(checkpoint_name(number))
        try:
            if data is not None:
                return Checkpoint.decode(data, number)
        except ValueError:
            continue  # `verify` reports it; the log has all of its content
    return Checkpoint()


def write_checkpoint(storage: Storage, due: Checkpoint, temporary: str, linked: Callable[[], None]) -> None:
    """Write ``due`` by way of the file ``temporary``; ``linked`` is that of :meth:`Storage.put_new`.

    On a full disk the checkpoint is skipped: the next one contains the same and more.
    """
    hasty = storage.hasty()
    try:
        hasty.make_folders([CHECKPOINTS])
        hasty.write_synced(temporary, due.encode())
        hasty.put_new(temporary, checkpoint_name(due.number), linked)
    except OSError as exc:
        if exc.errno not in DISK_FULL:
            raise
    hasty.discard(temporary)
