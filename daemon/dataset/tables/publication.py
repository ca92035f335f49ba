"""Publishes the files of log entries in a table: they become visible by a commit of the table.

The table notes in the same commit up to which log entry its files are those of the dataset. So a writer that finds an
entry looks at the table first, and adds what it lacks: each file once, after a crash, by any number of writers (R1).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from fastwire.decode.evolution import Column

from ...runtime.errors import DatasetDamagedError
from ..commitlog.checkpoint import Checkpoint
from ..commitlog.entry import LogEntry, entry_name
from ..description import Description
from ..identity import Identity
from ..publication import Publication
from ..storage.base import Storage
from ..tableformat import AddedFile, PublishedTable, Seen, TableLateError, TableRacedError, TableStoppedError
from ..tableschema import data_columns, partition_columns, partition_values, with_fields

# Limits of one commit of the table.
_MOST_ENTRIES, _MOST_FILES = 64, 2000
# Each race is lost to a commit of another process, so the table makes progress.
_MOST_RACES = 100
# A request without an answer is told after so many seconds, and not waited for at the end.
_TOLD_S = 15.0


@dataclass(frozen=True, slots=True)
class _Pending:
    """A log entry that the table may lack; ``entry`` is None if it has to be read again.

    ``fresh``: it was committed just now, and its files were not touched yet.
    """

    number: int
    step: str
    entry: LogEntry | None
    types: tuple[Column, ...]
    fresh: bool


def check_fields(table: PublishedTable, seen: Seen, description: Description, types: Sequence[Column]) -> list[Column]:
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
        there, wanted = seen.types.get(column.name), table.type_of(column)
        if there is None and column.name in first:
            raise TableStoppedError(f"the column {column.name} of the table is gone")
        both = wanted if there is None else with_fields(there, wanted)
        if both != there and both is not None:
            lacking.append(column)
        elif both is None:
            raise TableStoppedError(f"the column {column.name} of the table is {there}, and the files have {wanted}")
    if seen.strict:
        raise TableStoppedError(f"the table takes no nulls in {', '.join(seen.strict)}, which files may have or lack")
    return lacking


class TablePublication(Publication):
    """Publishes in ``table``, that of the dataset. ``state`` is the checkpoint up to which the log is not read again.

    ``identity`` outlives this object: a table that the process has seen with files must not have fewer later.

    What cannot be published stays staged, is pending, and is tried again by each :meth:`complete`.
    """

    def __init__(
        self,
        storage: Storage,
        description: Description,
        table: PublishedTable,
        state: Checkpoint,
        identity: Identity,
        reached: Callable[[str], None],
    ) -> None:
        super().__init__(storage, description.extension, reached)
        self._description = description
        self._table = table
        self._identity = identity
        self._types = state.types or description.types
        self._begin = state.number
        self._had_files = state.files > 0
        self._last = state.number
        self.pending: list[_Pending] = []
        self._looked = False

    def publish(self, number: int, entry: LogEntry, step: str, *, fresh: bool = False) -> None:
        """Take in hand durable log entry ``number``; :meth:`complete` publishes its files."""
        self._last = number
        self._types = entry.types or self._types
        if entry.files:
            held = entry if len(self.pending) < _MOST_ENTRIES else None
            self.pending.append(_Pending(number, step, held, self._types, fresh))
        else:
            super().publish(number, entry, step, fresh=fresh)

    def complete(self) -> None:
        """Publish all that is in hand, as far as the table takes it; ``stopped`` says why not.

        Of a catalog that is slow it is ``late`` at first, and ``stopped`` after some seconds.
        """
        if not self._looked or self.pending or self.stopped or self.late:
            self._table.begin(late=self.late)
            self._try()

    def _try(self) -> None:
        self.late = False
        try:
            self._catch_up()
            self.stopped = ""
        except TableLateError as exc:
            self.late = True
            if exc.seconds >= _TOLD_S and not self.stopped:  # each reason is told once
                self.stopped = str(exc)
            self._age()
        except TableStoppedError as exc:
            self._table.forget()
            self.stopped = str(exc)
            self._age()

    def finish(self) -> None:
        """Wait for a request that is under way, unless it has taken long already."""
        while self.late and not self.stopped:
            self._table.begin(late=False)
            self._try()

    def _age(self) -> None:
        """Note that other processes may have published what is pending, and rewritten the table."""
        self.pending = [replace(each, fresh=False) for each in self.pending]

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
                lacking = check_fields(self._table, seen, self._description, batch[-1][0].types)
                if lacking:
                    self._table.add_columns(lacking)
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
        upto = 0 if seen is None else seen.upto
        self._looked = True
        self._check_kept(upto)
        if seen is not None:
            self._table.settle(seen.version)
            if upto > self._last and not self._storage.exists(entry_name(upto)):
                raise DatasetDamagedError(
                    f"the commit log at {self._storage.root} ends with entry {self._last}, but its "
                    f"{self._table.title} table has files up to entry {upto}: the end of the log is lost. Restore the "
                    "whole dataset"
                )
            if seen.trouble:
                raise TableStoppedError(seen.trouble)
        self.pending = [each for each in self.pending if each.number > upto]
        return seen

    def _check_kept(self, upto: int) -> None:
        """Refuse a table that lacks what was in it: files of entries before the checkpoint, or what was seen."""
        kept = self._identity.published
        if self._had_files:
            number = self._begin
            while number > max(upto, kept) and not self._entry(number).files:
                number -= 1
            kept = max(number, kept) if number > upto else kept
        if upto < kept:
            has = f"has files up to log entry {upto} only" if upto else "is gone, or another one"
            raise TableStoppedError(
                f"the {self._table.title} table at {self._table.url} {has}, and those up to {kept} were in it: "
                "restore it"
            )
        self._identity.published = upto

    def _create(self) -> None:
        description = self._description
        levels = partition_columns(description.split, description.partition_by, description.level_types)
        columns = (*data_columns(description.system, description.columns, description.types), *levels)
        self._table.create(columns, [column.name for column in levels])
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
            raise DatasetDamagedError(f"{self._storage.path(name)} is missing: the commit log has a hole")
        return LogEntry.decode(data, self._storage.path(name))

    def _add(self, seen: Seen, batch: Sequence[tuple[_Pending, LogEntry]]) -> None:
        for pending, entry in batch:
            super().publish(pending.number, entry, pending.step, fresh=pending.fresh)
        self._age()
        # After a power cut the table must not name files that have not got their names.
        self.sync()
        files = [file for pending, entry in batch for file in self._described(pending.number, entry)]
        first, last = batch[0][0].number, batch[-1][0].number
        self._reached("table-ready")
        self._table.add(files, first, last)
        # A table that has not noted it by the next look stops there, or it would get the files again.
        self._identity.published = last
        self._reached("table-committed")

    def _described(self, number: int, entry: LogEntry) -> Iterator[AddedFile]:
        description = self._description
        levels = partition_columns(description.split, description.partition_by, description.level_types)
        for file, (_, name) in zip(entry.files, entry.moves(number, self._extension), strict=False):
            if self._storage.size(name) != file.nbytes:
                raise TableStoppedError(
                    f"{self._storage.path(name)}, which log entry {number} has landed, is missing or has another size: "
                    "restore it from a backup. It is not in the table, and neither is what came after it"
                )
            yield AddedFile(name, file.nbytes, file.rows, partition_values(file.directory, levels))
