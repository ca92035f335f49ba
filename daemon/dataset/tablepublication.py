"""Publishes the files of log entries in a Delta table: they become visible by a commit of the table.

The table notes in the same commit up to which log entry its files are those of the dataset. So whoever finds an entry
looks at the table first, and adds what it lacks: each file once, after a crash, and by any number of writers (R1).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fastwire.decode.evolution import Column

from ..runtime.errors import DatasetDamagedError
from .checkpoint import Checkpoint
from .delta import AddedFile, DeltaLog, Seen, TableRacedError, TableStoppedError, commit_name
from .description import Description
from .log import LogEntry, entry_name
from .publication import Publication
from .statistics import statistics_of
from .storage import Storage
from .tableschema import data_columns, field, partition_columns, partition_values, plain_type

__all__ = ["TablePublication", "check_fields", "table_of"]

# Limits of one commit of the table.
_MOST_ENTRIES, _MOST_FILES = 64, 2000
# Commits that are made durable at the first look: their writer may have died before its sync.
_LOOKED_BACK = 10
# Each race is lost to a commit of another process, so the table makes progress.
_MOST_RACES = 100


@dataclass(frozen=True, slots=True)
class _Pending:
    """A log entry that the table may lack; ``entry`` is None if it has to be read again."""

    number: int
    step: str
    entry: LogEntry | None
    types: tuple[Column, ...]


def table_of(storage: Storage, description: Description) -> DeltaLog:
    """Return the table of a dataset."""
    return DeltaLog(storage.root, storage.access, description.id)


def check_fields(seen: Seen, description: Description, types: Sequence[Column]) -> list[Column]:
    """Return the columns that the table lacks and may get. Raises TableStoppedError if it cannot take the files."""
    if seen.trouble:
        raise TableStoppedError(seen.trouble)
    levels = partition_columns(description.split, description.partition_by, description.level_types)
    if seen.partitions != tuple(column.name for column in levels):
        raise TableStoppedError(f"the table is partitioned by {', '.join(seen.partitions) or 'nothing'} now")
    first = {*description.columns, *(column.name for column in levels)}
    columns = (*data_columns(description.system, description.columns, types), *levels)
    lacking = []
    for column in columns:
        there = seen.fields.get(column.name)
        if there is None and column.name in first:
            raise TableStoppedError(f"the column {column.name} of the table is gone")
        if there is None:
            lacking.append(column)
        elif _plain(there["type"]) != plain_type(column):
            raise TableStoppedError(
                f"the column {column.name} of the table is {_plain(there['type'])}, and the files have "
                f"{plain_type(column)}"
            )
    if strict := [name for name, each in seen.fields.items() if not each["nullable"]]:
        raise TableStoppedError(f"the table takes no nulls in {', '.join(strict)}, which files may have or lack")
    return lacking


def _plain(type_: object) -> object:
    """Return a type without what says nothing about files: metadata, and whether nulls are allowed."""
    if not isinstance(type_, dict):
        return type_
    plain = {key: _plain(value) for key, value in type_.items()}
    if "fields" in plain:
        plain["fields"] = [
            {"name": each["name"], "type": _plain(each["type"]), "nullable": True, "metadata": {}}
            for each in type_["fields"]
        ]
    return plain | {key: True for key in ("containsNull", "valueContainsNull") if key in plain}


class TablePublication(Publication):
    """Publishes in the table of the dataset. ``state`` is the checkpoint up to which the log is not read again.

    What cannot be published stays staged, is pending, and is tried again by each :meth:`complete`.
    """

    def __init__(
        self, storage: Storage, description: Description, state: Checkpoint, reached: Callable[[str], None]
    ) -> None:
        super().__init__(storage, description.extension, reached)
        self._description = description
        self._table = table_of(storage, description)
        self._types = state.types or description.types
        self._begin = state.number
        self._had_files = state.files > 0
        self._last = state.number
        self.pending: list[_Pending] = []
        self._looked = False
        self._kept: int | None = None  # the log entry up to which the table had files; None: not looked at yet
        self._synced = -1  # version of the table up to which its commits are durable

    def publish(self, number: int, entry: LogEntry, step: str) -> None:
        """Take in hand durable log entry ``number``; :meth:`complete` publishes its files."""
        self._last = number
        self._types = entry.types or self._types
        if entry.files:
            held = entry if len(self.pending) < _MOST_ENTRIES else None
            self.pending.append(_Pending(number, step, held, self._types))
        else:
            super().publish(number, entry, step)

    def complete(self) -> None:
        """Publish all that is in hand, as far as the table takes it; ``stopped`` says why not."""
        if self._looked and not self.pending and not self.stopped:
            return
        try:
            self._catch_up()
            self.stopped = ""
        except TableStoppedError as exc:
            self._table.forget()
            self.stopped = str(exc)

    def _catch_up(self) -> None:
        races = 0
        while True:
            seen = self._look()
            if not self.pending:
                return
            try:
                if seen is None:
                    self._create()
                    continue
                batch = list(self._next())
                lacking = check_fields(seen, self._description, batch[-1][0].types)
                if lacking:
                    self._table.add_columns([field(column) for column in lacking])
                    self._reached("table-evolved")
                    continue
                self._add(seen, batch)
            except TableRacedError as exc:
                races += 1
                if races == _MOST_RACES:
                    raise TableStoppedError(f"the table has changed at each of {races} attempts: {exc}") from exc

    def _look(self) -> Seen | None:
        """Look at the table, and forget what it has."""
        seen = self._table.look()
        if seen is not None and not self._storage.exists(commit_name(seen.version)):
            self._table.forget()  # the library does not look whether what it knows is still there
            seen = self._table.look()
        upto = 0 if seen is None else seen.upto
        self._looked = True
        self._check_kept(upto)
        if seen is not None:
            self._sync_commits(seen.version)
            if upto > self._last and not self._storage.exists(entry_name(upto)):
                raise DatasetDamagedError(
                    f"the log of the dataset at {self._storage.root} ends with entry {self._last}, but its Delta table "
                    f"has files up to entry {upto}: the end of the log is lost. Restore the whole dataset"
                )
            if seen.trouble:
                raise TableStoppedError(seen.trouble)
        self.pending = [each for each in self.pending if each.number > upto]
        return seen

    def _check_kept(self, upto: int) -> None:
        """Refuse a table that lacks what was in it: files of entries before the checkpoint, or what was seen."""
        if self._kept is None:
            number = self._begin if self._had_files else 0
            while number > upto and not self._entry(number).files:
                number -= 1
            self._kept = number
        if upto < self._kept:
            has = f"has files up to log entry {upto} only" if upto else "is gone, or another one"
            raise TableStoppedError(
                f"the Delta table at {self._table.url} {has}, and those up to {self._kept} were in it: restore it"
            )
        self._kept = upto

    def _create(self) -> None:
        description = self._description
        levels = partition_columns(description.split, description.partition_by, description.level_types)
        columns = (*data_columns(description.system, description.columns, description.types), *levels)
        self._table.create([field(column) for column in columns], [column.name for column in levels])
        self._reached("table-created")

    def _next(self) -> Iterator[tuple[_Pending, LogEntry]]:
        """Yield the entries for one commit of the table."""
        files = 0
        for pending in self.pending[:_MOST_ENTRIES]:
            entry = pending.entry or self._entry(pending.number)
            files += len(entry.files)
            if files > _MOST_FILES and files > len(entry.files):
                return
            yield pending, entry

    def _entry(self, number: int) -> LogEntry:
        name = entry_name(number)
        data = self._storage.read(name)
        if data is None:
            raise DatasetDamagedError(f"{self._storage.path(name)} is missing: the log of the dataset has a hole")
        return LogEntry.decode(data, self._storage.path(name))

    def _add(self, seen: Seen, batch: Sequence[tuple[_Pending, LogEntry]]) -> None:
        for pending, entry in batch:
            super().publish(pending.number, entry, pending.step)
        # After a power cut the table must not name files that have not got their names.
        self.sync()
        files = [file for pending, entry in batch for file in self._described(pending.number, entry)]
        first, last = batch[0][0].number, batch[-1][0].number
        self._reached("table-ready")
        self._table.add(files, first, last)
        self._reached("table-committed")

    def _described(self, number: int, entry: LogEntry) -> Iterator[AddedFile]:
        description = self._description
        levels = partition_columns(description.split, description.partition_by, description.level_types)
        now_ms = int(self._storage.now() * 1000)
        for file, (_, name) in zip(entry.files, entry.moves(number, self._extension), strict=False):
            if self._storage.size(name) != file.nbytes:
                raise TableStoppedError(
                    f"{self._storage.path(name)}, which log entry {number} has landed, is missing or has another size: "
                    "restore it from a backup. It is not in the table, and neither is what came after it"
                )
            with self._storage.reader(name) as content:
                statistics = statistics_of(content, file.rows)
            yield AddedFile(name, file.nbytes, partition_values(file.directory, levels), now_ms, statistics)

    def _sync_commits(self, version: int) -> None:
        """Make the commits of the table up to ``version`` durable: the library does not."""
        first = max(self._synced + 1, version + 1 - _LOOKED_BACK, 0)
        names = [name for name in map(commit_name, range(first, version + 1)) if self._storage.exists(name)]
        if names:
            self._storage.sync_content(names)
            self._storage.sync(folders=[folder for folder in ("_delta_log",) if self._storage.has_folder(folder)])
        self._synced = version
