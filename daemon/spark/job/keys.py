"""The keys of the rows within a job's watermark, beside its checkpoint: what a row is a duplicate of.

The keys are sorted runs of 24 bytes a key, each a file that never changes, and for each batch a document names the runs
that stand behind it. A batch begins with those of the batch before, so it may run as often as Spark repeats it. A run
holds the hashes of keys and the times of their records; it is read where it is, so memory does not grow with it.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from ...runtime.errors import ConfigurationRefused
from ...runtime.logs import get_logger
from .checkpoint import keep, keys_path
from .keyed import MARK, MARKS_DDL, NO_TIME, KeyedRows, write_marks
from .split import Pieces

_log = get_logger("spark")
_CHUNK = 1 << 20  # rows, or keys, in memory at a time: some 100 B each
_KEPT = 100  # batches back to which a checkpoint may fall, as Spark keeps its own
_FAN = 4  # runs of about one size that become one


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a batch: ``pieces`` are those that stay, with ``good`` rows; the others are counted."""

    pieces: Callable[[], Pieces]
    good: int
    dead: int
    duplicates: int
    late: int


@dataclass(frozen=True, slots=True)
class _Run:
    """A file of keys: columns of the two words of their hashes, sorted by the first, and of their times."""

    name: str
    newest: int
    checksum: int
    columns: np.ndarray

    @property
    def rows(self) -> int:
        return int(self.columns.shape[1])

    @property
    def times(self) -> np.ndarray:
        times: np.ndarray = self.columns[2].view(np.int64)
        return times

    def has(self, first: np.ndarray, second: np.ndarray, after: int) -> np.ndarray:
        """Return which of the keys are here with a time behind ``after``."""
        found = np.zeros(len(first), bool)
        at = np.searchsorted(self.columns[0], first)
        left = np.arange(len(first))
        while True:  # more than once only where two keys have the same first word
            left = left[at[left] < self.rows]
            left = left[self.columns[0][at[left]] == first[left]]
            if not len(left):
                return found
            here = at[left]
            found[left] |= (self.columns[1][here] == second[left]) & (self.times[here] > after)
            at[left] += 1


class Keys:
    """The keys of one query with ``checkpoint``; two copies of a row are at most ``watermark`` seconds apart."""

    def __init__(self, checkpoint: Path, rows: KeyedRows, watermark: float) -> None:
        self._folder = keys_path(checkpoint)
        self._marks = self._folder / "marks"
        self._rows = rows
        self._delay = round(watermark * 1e6)
        self._batch: int | None = None  # whose end the fields below are
        self._secret = b""
        self._runs: list[_Run] = []
        # The newest time of all rows, and that of the batches before the last one: as Spark, a batch drops what was
        # late for the batch before it.
        self._newest: int | None = None
        self._before: int | None = None

    @property
    def _late(self) -> int | None:
        return None if self._before is None else self._before - self._delay

    @property
    def _forgotten(self) -> int:
        return NO_TIME if self._before is None else self._before - 2 * self._delay

    def search(self, frame: Any, batch: int) -> FoundRows:
        """Read the rows of ``batch``, and tell apart those that are late or have a key that is known.

        Raises ConfigurationRefused if the keys of the batch before are missing or damaged.
        """
        if self._batch is None or self._batch != batch - 1:
            self._load(batch)
        self._batch = None
        shutil.rmtree(self._marks, ignore_errors=True)
        self._marks.mkdir(parents=True, exist_ok=True)  # NFS keeps what a task of before has open
        late, forgotten = self._late, self._forgotten
        self._before = self._newest
        rows = replace(self._rows, secret=self._secret)
        files = frame.mapInArrow(write_marks(rows, str(self._marks)), MARKS_DDL).collect()
        behind, dropped = 0, []
        for marks in self._chunks([name for name, _, _ in files]):
            kept = marks
            if late is not None:
                kept = marks[(marks["time"] > late) | (marks["time"] == NO_TIME)]
                behind += len(marks) - len(kept)
            dropped.append(self._take(kept, batch, forgotten))
        again = np.concatenate(dropped, axis=1) if dropped else np.empty((2, 0), np.uint64)
        if late is not None:
            rows = replace(rows, late=late)
        if again.size:
            path = self._marks / "dropped.npy"
            np.save(path, again[:, np.argsort(again[0])])
            rows = replace(rows, dropped=str(path))
        seen = sum(good for _, good, _ in files)
        dead = sum(each for _, _, each in files)
        return FoundRows(rows.open, seen - behind - again.shape[1], dead, again.shape[1], behind)

    def _chunks(self, names: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the marks of some files in arrays of about the same size."""
        gathered: list[np.ndarray] = []
        size = 0
        for name in names:
            path = self._marks / name
            if not path.stat().st_size:
                continue
            marks = np.memmap(path, MARK, "r")
            for at in range(0, len(marks), _CHUNK):
                part = marks[at : at + _CHUNK]
                if gathered and size + len(part) > _CHUNK:
                    yield np.concatenate(gathered)
                    gathered, size = [], 0
                gathered.append(part)
                size += len(part)
        if gathered:
            yield np.concatenate(gathered)

    def _take(self, marks: np.ndarray, batch: int, after: int) -> np.ndarray:
        """Take the keys of rows that are new, and return two columns for the others: of the row, and of its key.

        A key is known if it has a time behind ``after``.
        """
        if not len(marks):
            return np.empty((2, 0), np.uint64)
        known = marks["time"][marks["time"] != NO_TIME]
        newest = int(known.max()) if len(known) else self._newest or 0
        times = np.where(marks["time"] == NO_TIME, newest, marks["time"])
        self._newest = newest if self._newest is None else max(self._newest, newest)
        first, second = np.ascontiguousarray(marks["first"]), np.ascontiguousarray(marks["second"])
        order = np.argsort(first)
        if np.any((np.diff(first[order]) == 0) & (np.diff(second[order]) != 0)):
            order = np.lexsort((second, first))
        first, second, times = first[order], second[order], times[order]
        again = np.zeros(len(first), bool)
        again[1:] = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
        for run in self._runs:
            again |= run.has(first, second, after)
        if not again.all():
            new = np.stack([column[~again] for column in (first, second, times.view(np.uint64))])
            self._runs.append(self._written(batch, new))
        return np.stack([marks["row"][order][again], first[again]])

    def keep(self, batch: int) -> None:
        """Make the keys behind ``batch`` durable."""
        self._merge(batch, self._forgotten)
        self._note(batch)
        self._batch = batch
        shutil.rmtree(self._marks, ignore_errors=True)
        self._drop_old(batch)

    def _note(self, batch: int) -> None:
        document = {
            "secret": self._secret.hex(),
            "newest": self._newest,
            "before": self._before,
            "runs": [[run.name, run.newest, run.checksum] for run in self._runs],
        }
        keep(self._folder / f"{batch}.json", json.dumps(document))

    def _merge(self, batch: int, after: int) -> None:
        """Make one run of several of about one size, without keys that are forgotten: up to the time ``after``."""
        self._runs = [run for run in self._runs if run.newest > after]
        while True:
            sizes: dict[int, list[_Run]] = {}
            for run in self._runs:
                sizes.setdefault(run.rows.bit_length() // 2, []).append(run)
            chosen = next((runs for _, runs in sorted(sizes.items()) if len(runs) >= _FAN), None)
            if chosen is None:
                return
            self._runs = [run for run in self._runs if run not in chosen]
            self._runs.append(self._merged(batch, chosen, after))

    def _merged(self, batch: int, runs: Sequence[_Run], after: int) -> _Run:
        rows = sum(int(np.count_nonzero(run.times > after)) for run in runs)
        path = self._folder / _name(batch)
        columns = np.lib.format.open_memmap(path, "w+", np.uint64, (3, rows))
        steps = np.linspace(0, 2**64 - 1, sum(run.rows for run in runs) // _CHUNK + 2)[1:-1].astype(np.uint64)
        bounds = [[0, *map(int, np.searchsorted(run.columns[0], steps)), run.rows] for run in runs]
        upto = 0
        for cuts in zip(*map(pairwise, bounds), strict=True):
            part = np.concatenate([run.columns[:, slice(*cut)] for run, cut in zip(runs, cuts, strict=True)], axis=1)
            part = part[:, part[2].view(np.int64) > after]
            columns[:, upto : upto + part.shape[1]] = part[:, np.argsort(part[0])]
            upto += part.shape[1]
        columns.flush()
        return self._synced(path)

    def _written(self, batch: int, columns: np.ndarray) -> _Run:
        path = self._folder / _name(batch)
        np.save(path, columns)
        return self._synced(path)

    def _synced(self, path: Path) -> _Run:
        with path.open("rb") as file:
            os.fsync(file.fileno())
        columns = np.load(path, mmap_mode="r")
        newest = int(columns[2].view(np.int64).max()) if columns.size else NO_TIME
        return _Run(path.name, newest, _checksum(path), columns)

    def _load(self, batch: int) -> None:
        """Take the keys behind the batch before ``batch``: none where the job has kept none so far."""
        path = self._folder / f"{batch - 1}.json"
        self._runs, self._newest, self._before = [], None, None
        self._secret = secrets.token_bytes(16)
        if not batch:
            return
        if not any(self._folder.glob("*.json")):
            _log.warning(
                "no keys of earlier records: a second copy of one of them lands",
                batch=batch,
                folder=str(self._folder),
                hint="if dedupe is not new here, restore the folder with the rest of the checkpoint",
            )
            self._note(batch - 1)  # what the batch begins with each time that it is repeated
            return
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            self._secret = bytes.fromhex(document["secret"])
            self._newest, self._before = document["newest"], document["before"]
            for name, newest, checksum in document["runs"]:
                file = self._folder / name
                if _checksum(file) != checksum:
                    raise ValueError(f"{file} is damaged")
                self._runs.append(_Run(name, newest, checksum, np.load(file, mmap_mode="r")))
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise ConfigurationRefused(
                f"the keys behind batch {batch - 1}, by which duplicates are dropped, cannot be read from {path}: "
                f"{exc}. Restore the checkpoint, or delete {self._folder}: the job then goes on without the keys of "
                "earlier records, and a second copy of one of them lands"
            ) from None

    def _drop_old(self, batch: int) -> None:
        """Delete the documents of batches long done and of a lost future, and files that none names."""
        named = set()
        for path in self._folder.glob("*.json"):
            if not batch - _KEPT < int(path.stem) <= batch:
                path.unlink()
                continue
            named |= {name for name, *_ in json.loads(path.read_text(encoding="utf-8"))["runs"]}
        for path in self._folder.glob("*.npy"):
            if path.name not in named:
                path.unlink()


def _name(batch: int) -> str:
    return f"{batch}-{secrets.token_hex(4)}.npy"


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            checksum = crc32c(data, checksum)
    return checksum
