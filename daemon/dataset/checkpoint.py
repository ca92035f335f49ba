"""Checkpoints: Coverage up to a log entry, so that a start need not read the log from its beginning.

A function of the log alone: whoever writes checkpoint N writes the same bytes. One that is missing or damaged costs
time and nothing else.
"""

import re
from dataclasses import dataclass, field, replace

from fastwire.position import Coverage

from .log import CHECKPOINTS, LogEntry, pack, unpack
from .storage import Storage

__all__ = ["Checkpoint", "checkpoint_name", "newest_checkpoint"]

FORMAT = 1

_NAME = re.compile(r"([0-9]{12})\.json")


def checkpoint_name(number: int) -> str:
    """Where checkpoint ``number`` is, whether it exists or not."""
    return f"{CHECKPOINTS}/{number:012d}.json"


@dataclass(slots=True)
class Checkpoint:
    """The sum of log entries 1 to ``number``. ``rows``, ``files`` and ``nbytes`` are those of visible files."""

    number: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    rows: int = 0
    files: int = 0
    nbytes: int = 0

    def fold(self, entry: LogEntry) -> None:
        """Take in the next log entry. Raises ValueError, having changed nothing but Coverage, if it does not fit."""
        entry.fold_into(self.coverage)
        self.number += 1
        self.rows += entry.rows
        self.files += len(entry.files)
        self.nbytes += entry.nbytes

    def copy(self) -> "Checkpoint":
        """An independent one of the same value."""
        return replace(self, coverage=self.coverage.copy())

    def encode(self) -> bytes:
        """As the dataset holds it."""
        return pack(
            {
                "format": FORMAT,
                "number": self.number,
                "rows": self.rows,
                "files": self.files,
                "bytes": self.nbytes,
                "coverage": self.coverage.to_json(),
            }
        )

    @classmethod
    def decode(cls, data: bytes, number: int) -> "Checkpoint":
        """Read what :meth:`encode` wrote. Raises ValueError."""
        value = unpack(data)
        try:
            if value["format"] != FORMAT or value["number"] != number:
                raise ValueError(f"format {value['format']!r}, number {value['number']!r}")
            counts = [value[name] for name in ("rows", "files", "bytes")]
            if not all(isinstance(count, int) and count >= 0 for count in counts):
                raise ValueError("counts must be whole numbers")
            return cls(number, Coverage.from_json(value["coverage"]), *counts)
        except (KeyError, TypeError) as exc:
            raise ValueError(f"not a checkpoint: {exc}") from exc


def checkpoint_numbers(storage: Storage) -> list[int]:
    """Numbers of the checkpoints that a listing shows, in order."""
    return sorted(int(match[1]) for name in storage.list(CHECKPOINTS) if (match := _NAME.fullmatch(name)))


def newest_checkpoint(storage: Storage) -> Checkpoint:
    """The newest that can be read; the empty one if there is none."""
    for number in reversed(checkpoint_numbers(storage)):
        data = storage.read(checkpoint_name(number))
        try:
            if data is not None:
                return Checkpoint.decode(data, number)
        except ValueError:
            continue  # `verify` says so; the log knows everything that was in it
    return Checkpoint()
