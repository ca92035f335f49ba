"""Erasure of rows from a dataset: files are exchanged, one by one, for files of the same name without these rows.

The new files lie below ``_fastwire/erasing`` until a log entry names them with their checksums; only then do they take
the names of the old ones. An erasure that was interrupted is finished by the next one, which also deletes what no entry
names. One command is at work at a time, under a lock.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import zstandard
from crc32c import crc32c

from ...runtime.errors import DatasetDamagedError, DatasetError, DatasetMismatchError
from ..commitlog.chain import all_entries
from ..commitlog.entry import DEAD_LETTERS, ERASING, STAGING, Erased
from ..origin import look_at
from ..place import storage_at
from ..staging import lives
from ..storage.base import Storage
from ..storage.bucket import Bucket
from ..storage.disk import Disk
from ..writer import DatasetWriter
from .condition import Condition, ConditionError
from .rewrite import Rewriter, rewriter, rewriter_of_dead_letters

_LOCK = f"{ERASING}/lock-"
_AT_ONCE = 32  # files that one log entry names, and that lie twice on the disk
_LOOK_S = 0.2


@dataclass(slots=True)
class Erasure:
    """The result of ``erase``. ``files`` had ``rows`` rows that were meant, and ``dead_letters`` letters were emptied.

    ``finished`` files were left by an interrupted call. ``open_rolls`` files of writers at work were not committed yet:
    rows that are in them land behind this call. ``unread`` files could not be looked into, with the reasons. Unless
    ``known``, there are files, and none has all columns that the condition names.
    """

    path: str
    looked_into: int = 0
    files: int = 0
    rows: int = 0
    dead_letter_files: int = 0
    dead_letters: int = 0
    finished: int = 0
    open_rolls: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    known: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "path": self.path,
            "files_looked_into": self.looked_into,
            "files": self.files,
            "rows": self.rows,
            "dead_letter_files": self.dead_letter_files,
            "dead_letters": self.dead_letters,
            "finished_files": self.finished,
            "uncommitted_files": self.open_rolls,
            "unread_files": self.unread,
        }


@dataclass(frozen=True, slots=True)
class _State:
    """A state of a file by the log."""

    rows: int
    nbytes: int
    checksum: int | None


def erase(
    path: str | os.PathLike[str],
    condition: Condition,
    medium: Disk | Bucket | None = None,
    *,
    dry_run: bool = False,
    wait_s: float = 0.0,
    one_of_many: bool = False,
    make_writer: Callable[..., DatasetWriter] = DatasetWriter,
    make_rewriter: Callable[[str], Rewriter | None] = rewriter,
    reached: Callable[[str], None] = lambda step: None,
) -> Erasure:
    """Erase the rows of the dataset at ``path`` that ``condition`` means, and the payloads of dead letters that have
    one of its texts in them.

    It is safe beside running writers, readers and ``expire``. Files that are committed while it runs are looked into as
    well; for up to ``wait_s`` seconds it waits for the rolls that were open at its beginning. With ``dry_run`` nothing
    is changed. Of a table only the dead letters are looked into. ``reached`` is called with the steps "erasure-staged",
    "erasure-linked", "erasure-synced", "replaced:<i>" and "erased". Raises DatasetMismatchError without a dataset, for
    the format of a plug-in, and for a condition with a column that no file has unless the dataset is ``one_of_many``;
    ConditionError for a literal that a column cannot have; and the errors of :class:`DatasetWriter`.
    """
    description = look_at(path, None, medium)
    storage = storage_at(path, medium, patient=not dry_run)
    if description is None:
        raise DatasetMismatchError(f"{storage.root}: there is no dataset here")
    rewrite = None if description.table else make_rewriter(description.extension)
    if rewrite is None and not description.table:
        raise DatasetMismatchError(f"{storage.root}: fastwire cannot rewrite .{description.extension} files")
    if dry_run:
        found = Erasure(storage.root)
        _Pass(storage, description.extension, condition, rewrite, found, lenient=one_of_many).look()
        return found
    writer = make_writer(path, description.options, medium, reached)
    found = Erasure(storage.root)
    try:
        writer.open()
        _begin_alone(storage, writer)
        _finish(storage, description.extension, writer, found)
        open_rolls = _staged(storage, writer.name)
        end = monotonic() + wait_s
        work = _Pass(storage, description.extension, condition, rewrite, found, lenient=one_of_many)
        while True:
            # A roll that is gone now was committed before the log is read, or never will be.
            open_rolls &= _staged(storage, writer.name)
            work.run(writer, reached)
            if not open_rolls or monotonic() >= end:
                break
            sleep(_LOOK_S)
        found.open_rolls = len(open_rolls)
        reached("erased")
    finally:
        writer.close()
    return found


def _begin_alone(storage: Storage, writer: DatasetWriter) -> None:
    """Take the lock, which ends with ``writer``. Raises DatasetError if another command has it.

    Each lock has a number of its own, and names its writer. The newest one counts, and it stays: a command that was
    slow to take an older one finds it. The owner before has closed its writer or is fenced, and declares nothing more.
    """
    storage.make_folders([ERASING])
    before = _locks(storage)
    number = max(before, default=0) + 1
    owner = storage.read(before[number - 1]) if before else None
    mine, temporary = f"{_LOCK}{number}", f"{STAGING}/{writer.name}/erase"
    storage.write_synced(temporary, writer.name.encode())
    try:
        free = owner is None or not lives(storage, owner.decode())
        taken = free and storage.put_new(temporary, mine) and max(_locks(storage), default=0) == number
    finally:
        storage.discard(temporary)
    if not taken:
        raise DatasetError(f"{storage.root}: another erase is at work, or was interrupted less than two minutes ago")
    storage.discard(*before.values())


def _locks(storage: Storage) -> dict[int, str]:
    """Return the names of the locks by their numbers."""
    names = (f"{ERASING}/{name}" for name in storage.list(ERASING))
    return {int(name[len(_LOCK) :]): name for name in names if name.startswith(_LOCK)}


def _staged(storage: Storage, own: str) -> set[str]:
    """Return the files of open rolls of other writers."""
    return {name for name in storage.walk(STAGING) if name.endswith(".part") and not name.startswith(f"{own}/")}


def _finish(storage: Storage, extension: str, writer: DatasetWriter, found: Erasure) -> None:
    """Exchange the files of an interrupted erasure, and delete those that no log entry names."""
    names = (f"{ERASING}/{name}" for name in storage.list(ERASING))
    left = {name for name in names if not name.startswith(_LOCK)}
    if not left:
        return
    newest: dict[str, Erased] = {}
    sources: dict[str, str] = {}
    for number, entry in all_entries(storage):
        sources.update((name, source) for source, name in entry.moves(number, extension))
        newest.update((each.name, each) for each in entry.erased)
    mine = [each for each in newest.values() if each.staged in left]
    if mine:
        writer.refresh()  # makes the entries that say so durable: another process may have failed before its sync
        found.finished += _exchange(storage, mine, sources)
    storage.discard(*left)


def _exchange(
    storage: Storage,
    files: list[Erased],
    sources: Mapping[str, str],
    reached: Callable[[str], None] = lambda step: None,
) -> int:
    """Exchange the files; ``sources`` has by the name of a file that under which it was staged."""
    # In a store that object stays for a while, and its writer, if it is slow, would yet copy it over the new file.
    storage.discard(*(sources[each.name] for each in files))
    done = 0
    for number, each in enumerate(files):
        # One that is gone has expired.
        if storage.exists(each.name) and storage.replace(each.staged, each.name, each.nbytes):
            done += 1
        reached(f"replaced:{number}")
    folders = sorted({os.path.dirname(each.name) for each in files})
    storage.sync(folders=[folder for folder in folders if storage.has_folder(folder)])
    storage.discard(*(each.staged for each in files))
    return done


class _Pass:
    """Looks into all files that a log has, each of them once."""

    def __init__(
        self,
        storage: Storage,
        extension: str,
        condition: Condition,
        rewrite: Rewriter | None,
        found: Erasure,
        *,
        lenient: bool,
    ) -> None:
        self._storage = storage
        self._extension = extension
        self._condition = condition
        self._rewrite = rewrite
        self._found = found
        self._lenient = lenient
        self._sources: dict[str, str] = {}  # the name under which a file was staged
        self._seen: set[str] = set()
        self._looked = self._strange = 0  # files with rows, and those that lack a column of the condition
        self._named = 0

    def look(self) -> None:
        """Count what would be erased."""
        for name, states, meant in self._matching():
            del states
            self._count(name, meant)

    def run(self, writer: DatasetWriter, reached: Callable[[str], None]) -> None:
        """Erase from the files that were not looked into before."""
        batch: list[Erased] = []
        for name, states, meant in self._matching():
            batch.append(self._copy(name, states, writer))
            self._count(name, meant)
            if len(batch) == _AT_ONCE:
                self._land(batch, writer, reached)
                batch = []
        if batch:
            self._land(batch, writer, reached)

    def _count(self, name: str, meant: int) -> None:
        if name.startswith(DEAD_LETTERS):
            self._found.dead_letter_files += 1
            self._found.dead_letters += meant
        else:
            self._found.files += 1
            self._found.rows += meant

    def _matching(self) -> Iterator[tuple[str, list[_State], int]]:
        """Yield each file with rows that are meant, its states by the log from the newest on, and their number."""
        for name, states in self._files().items():
            if name in self._seen:
                continue
            letters = name.startswith(DEAD_LETTERS)
            how = rewriter_of_dead_letters if letters else self._rewrite
            if how is None or not self._storage.exists(name):
                continue  # of a table, or expired, or its writer has yet to give it the name: the next look will tell
            self._seen.add(name)
            try:
                with self._storage.reader(name) as file:
                    meant = how.look(file, self._condition)
            except FileNotFoundError:
                continue
            except ConditionError:
                raise
            except (OSError, ValueError, EOFError, pa.ArrowException, zstandard.ZstdError) as exc:
                self._found.unread[name] = str(exc)
                continue
            self._found.looked_into += 1
            self._looked += not letters
            self._strange += not letters and not meant.known
            if meant.rows:
                yield name, states, meant.rows
        self._found.known = not self._looked or self._looked > self._strange
        if not (self._found.known or self._lenient):  # a misspelt name would erase nothing, and say so in no other way
            raise DatasetMismatchError(f"{self._storage.root}: no file has all columns that the condition names")

    def _files(self) -> Mapping[str, list[_State]]:
        files: dict[str, list[_State]] = {}
        expired = 0
        for number, entry in all_entries(self._storage):
            expired = max(expired, entry.expired)
            moves = entry.moves(number, self._extension)
            for part, (source, name) in zip((*entry.files, *entry.dead_letters), moves, strict=True):
                self._sources[name] = source
                files[name] = [_State(part.rows, part.nbytes, part.checksum)]
            for each in entry.erased:
                files[each.name].insert(0, _State(each.rows, each.nbytes, each.checksum))
        return files

    def _copy(self, name: str, states: list[_State], writer: DatasetWriter) -> Erased:
        """Write the file without the rows that are meant, durably, under a name of its own."""
        if not self._is_known(name, states):
            writer.refresh()  # says so if another command has fenced this one, and then erased from the file
            raise DatasetDamagedError(
                f"{self._storage.path(name)} is not the file that the log names: it is not touched. Run verify --deep"
            )
        self._named += 1
        staged = f"{ERASING}/{writer.name}-{self._named}"
        how = rewriter_of_dead_letters if name.startswith(DEAD_LETTERS) else self._rewrite
        assert how is not None
        new = self._storage.create(staged)
        try:
            with self._storage.reader(name) as file:
                rows = how.copy(file, self._condition, new.write)
            new.flush()
            self._storage.sync([new])
            return Erased(name, staged, rows, new.tell(), new.checksum)
        finally:
            new.close()

    def _is_known(self, name: str, states: list[_State]) -> bool:
        """Return True if the file is in one of its states."""
        size, checksum = 0, 0
        for piece in self._storage.pieces(name):
            size, checksum = size + len(piece), crc32c(piece, checksum)
        return any(size == each.nbytes and each.checksum in (None, checksum) for each in states)

    def _land(self, batch: list[Erased], writer: DatasetWriter, reached: Callable[[str], None]) -> None:
        self._storage.sync(folders=[ERASING])
        reached("erasure-staged")
        writer.note_erasure(batch)
        _exchange(self._storage, batch, self._sources, reached)
