"""The writer of a dataset: staging, commits, and the handling of other writers' commits.

The order of the steps is the protocol; DESIGN.md gives the reasons and names the rules R1 to R15 of the comments.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastwire.coverage import Coverage, OverlapError
from fastwire.decode.evolution import Column, added_types
from fastwire.decode.program import SchemaError
from fastwire.errors import FastwireError
from fastwire.position import Log, Position, Span

from ..runtime.errors import (
    DiskFullError,
    FatalDiskError,
    SinkFailedError,
    Superseded,
)
from .commitlog.chain import check_fit, names_are_free, tail_of
from .commitlog.checkpoint import Checkpoint, newest_checkpoint
from .commitlog.entry import DEAD_LETTERS, DeadLetterLike, Erased, LogEntry, Replayed, Replaying, entry_name, timestamp
from .commitlog.whole import Notes, check_whole
from .description import DESCRIPTION, DatasetOptions, Description
from .follower import LogFollower
from .level import check_directory
from .origin import Origin
from .place import publication_of, storage_at
from .staging import DeadWriters, ForeignFile, StagedFile, Staging
from .storage.base import NewFile
from .storage.bucket import Bucket
from .storage.disk import DISK_FULL, Disk
from .tableschema import misfit

if TYPE_CHECKING:
    from .commitlog.deadletterfile import DeadLetterFile


class DatasetWriter(LogFollower):
    """Writes rolls into the dataset at ``path`` and reports the committed Coverage.

    All methods block and are called from one thread, except that encoder threads may call :meth:`stage` and write its
    files. Every method may raise

    * Superseded: another writer has committed some records of the roll; it is void and deleted;
    * SinkFailedError: the open roll is void; only :meth:`open` and :meth:`close` work now;
    * DatasetError: opening again cannot help.

    ``reached`` is called with each step of ``STEPS``; ``on_full`` and ``stop`` are those of :class:`Patience`. With
    ``hasty`` commits do not wait for a catalog that is slow: see ``publishing``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: DatasetOptions,
        medium: Disk | Bucket | None = None,
        reached: Callable[[str], None] = lambda step: None,
        *,
        on_full: Callable[[str | None], None] = lambda message: None,
        stop: threading.Event | None = None,
        hasty: bool = False,
    ) -> None:
        super().__init__(storage_at(path, medium, on_full, stop), options.extension, reached)
        self._options = options
        self._hasty = hasty
        self._origin = Origin(self._storage, options)
        self._guard = threading.RLock()  # encoders stage on their threads
        self._description: Description | None = None
        self._dead_letters: DeadLetterFile | None = None  # of the open roll
        self._void: list[Staging] = []  # of rolls that failed before a log entry could name them
        self._broken = True  # until open
        self._forget()

    def _forget(self) -> None:
        self._storage.forget()
        self._unread()
        self._notes = Notes(self._storage)
        # True if this writer has tried to link a log entry: any, and that of the open roll.
        self._linked = self._linking = False

    # --- state

    @property
    def exists(self) -> bool:
        """True if the dataset existed at the last look; :meth:`open` looks, the first roll creates it."""
        return self._description is not None

    @property
    def id(self) -> str:
        """The unique name of the dataset; "" if there is none."""
        return "" if self._description is None else self._description.id

    @property
    def name(self) -> str:
        """The unique name of this writer, while it is open and there is a dataset."""
        return "" if self._staging is None else self._staging.writer

    @property
    def sync_ns(self) -> int:
        """Nanoseconds spent in syncs so far."""
        return self._storage.sync_ns

    @property
    def cluster(self) -> str:
        """The cluster name of all logs, fixed when the dataset was created."""
        return self._options.cluster if self._description is None else self._description.cluster

    @property
    def types(self) -> tuple[Column, ...]:
        """The columns of decoded values of all commits so far; () if there is no dataset."""
        return self._state.types or (() if self._description is None else self._description.types)

    @property
    def coverage(self) -> Coverage:
        """A copy of the committed Coverage, as far as the log was read."""
        return self._state.coverage.copy()

    @property
    def entries(self) -> int:
        """The number of the last log entry that was read or written."""
        return self._state.number

    @property
    def stopped(self) -> str:
        """The reason why committed files are not published for now; "" without one."""
        return self._publication.stopped

    @property
    def publishing(self) -> bool:
        """True while a catalog has not answered yet: :meth:`refresh` looks for its answer."""
        return self._publication.late

    # --- open and close

    def open(self) -> Coverage:
        """Read the log to its end, publish committed files, fence dead writers; return the committed Coverage.

        A dataset that does not exist is not created: the first staged file or commit creates it. Raises
        DatasetMismatchError if it was created with other settings.
        """
        with self._guard:
            self._leave(reopening=True)
            self._forget()
            self._description = None
            self._broken = False
            with self._failing("open"):
                if self._look():
                    self._enter()
            return self.coverage

    def close(self) -> None:
        """Drop the open roll and close the dataset. Errors of the disk are ignored."""
        with self._guard:
            if not self._broken:
                with suppress(OSError, FastwireError):
                    self._publication.finish()
            self._leave()
            while self._void:
                self._void.pop().release()  # the next process fences it

    def _leave(self, *, reopening: bool = False) -> None:
        staging = self._staging
        if staging is None:
            return
        # No entry names the broken roll, but files of earlier ones could still return here: see _clear_void.
        kept = reopening and self._broken and self._linked and not self._linking
        try:
            if not self._broken and not self._publication.pending:
                self._checkpoint()
                # A rename out of the folder must not be lost together with the folder.
                self._publication.sync()
                staging.discard()
            elif not self._linked:
                staging.discard()  # no log entry names a file in it
        except (OSError, SinkFailedError):
            pass
        finally:
            self._staging = self._dead_letters = None
            self._broken = True
            if kept:
                self._void.append(staging)
            else:
                staging.release()

    def _clear_void(self) -> None:
        """Delete own void rolls without a fence (R5): no link was tried, so no late log entry can name them."""
        while self._void and not self._publication.pending:
            self._publication.sync()  # as in close
            staging = self._void.pop()
            try:
                staging.discard()
            finally:
                staging.release()

    def begin_with(self, columns: tuple[str, ...], types: tuple[Column, ...]) -> None:
        """Set the columns of a dataset that this writer creates: see ``DatasetOptions``."""
        self._options = replace(self._options, columns=columns, types=types)
        self._origin = Origin(self._storage, self._options)

    # --- rolls

    def create(self) -> None:
        """Create the dataset if it does not exist, as the first staged file or commit does."""
        with self._guard, self._failing("create the dataset"):
            self._entered()

    def stage(self, directory: str = "") -> StagedFile:
        """Create a file of the roll, to be published into ``directory`` (see :func:`level_directory`)."""
        check_directory(directory, self._options.level_keys)
        with self._failing("stage a file"):
            with self._guard:
                staging = self._entered()
            return staging.open_file(directory)

    def settle(self, files: Sequence[StagedFile]) -> None:
        """Make written files durable and close them, so that a roll may have more files than can be open at once."""
        with self._failing("sync files"):
            for file in files:
                file.finish()
            self._storage.sync([file.unsynced for file in files if file.unsynced is not None])
            for file in files:
                file.settle()

    def invite(self) -> str:
        """Open the roll to files of other processes; return the absolute path that their names begin with.

        A process chooses the rest of the name, without a slash and with the end ``.task``. It writes and syncs the
        file, and reports it to the caller of :meth:`adopt`.
        """
        with self._guard, self._failing("stage files of others"):
            return self._storage.path(self._entered().invite())

    def adopt(self, files: Sequence[ForeignFile]) -> list[StagedFile]:
        """Take files of other processes into the roll; others with their prefix are deleted at its end."""
        with self._guard, self._failing("take files of others"):
            for file in files:
                check_directory(file.directory, self._options.level_keys)
            return self._entered().adopt(files)

    def add_dead_letters(self, dead_letters: Sequence[DeadLetterLike]) -> None:
        """Add dead letters to the roll; on return they are on disk and not in memory."""
        with self._failing("keep dead letters"):
            with self._guard:
                if self._dead_letters is None:
                    from .commitlog.deadletterfile import DeadLetterFile  # pyarrow, and hardly ever needed

                    self._dead_letters = DeadLetterFile(self._entered().open_file(f"{DEAD_LETTERS}/"))
                file = self._dead_letters
            file.add(dead_letters)

    @property
    def dead_letter_bytes(self) -> int:
        """Size of the open roll's dead letters on disk, in bytes. From any thread."""
        file = self._dead_letters
        return 0 if file is None else file.staged.nbytes

    def commit(
        self,
        files: Sequence[StagedFile],
        spans: Sequence[Span],
        *,
        filtered: int = 0,
        unselected: int = 0,
        sent: int = 0,
        floors: Mapping[Log, Position] | None = None,
        types: Sequence[Column] = (),
    ) -> Coverage:
        """Commit the roll: ``files`` with the rows of ``spans``; return the whole Coverage, which may be acked.

        Dead letters are committed with it. ``filtered`` rows were dropped on purpose, ``unselected`` ones by a query,
        ``sent`` ones are in a topic; together with the rows of the files they are the rows of the spans. ``types`` are
        the columns of decoded values in the files; the entry adds them to those of the dataset. ``floors`` are
        positions up to which a broker has confirmed all acks. Staged files that are not among ``files`` are deleted.
        Without anything to commit it is a :meth:`refresh`.

        Raises ValueError for an inconsistent roll: a source that is read in order has skipped positions
        (UndeclaredGapError), or the rows do not add up. Nothing is written then, but ``open`` must be called again.
        """
        if not (files or spans or self._dead_letters or filtered or floors):
            return self.refresh()
        with self._guard, self._failing("commit"):
            staging = self._entered()
            staging.check(files, sum(span.rows for span in spans), filtered + sent)
            self._land(staging, files, spans, (filtered, unselected, sent), floors or {}, types)
            return self.coverage

    def refresh(self) -> Coverage:
        """Read the commits of other writers; return the whole Coverage.

        Call it before the first fetch of a newly assigned partition, so that few records are read in vain.
        """
        with self._guard, self._failing("refresh"):
            if self._staging is not None:
                self._checkpoint()
                self._follow()
            elif self._look():
                self._enter()
            return self.coverage

    def identify(self, cluster_id: str) -> None:
        """Record the id of the source's cluster ("": none). Raises DatasetMismatchError if another one is recorded."""
        with self._guard, self._failing("identify the cluster"):
            self._origin.identify(cluster_id, self._entered().temporary)

    def routing(self, found: tuple[str, ...]) -> tuple[str, ...]:
        """Return the recorded facts about the partitions of a target; the first call records ``found``."""
        with self._guard, self._failing("record the partitions of the target"):
            return self._origin.routing(found, self._entered().temporary)

    def expire(self, number: int) -> None:
        """Declare the files of the log entries up to ``number`` expired. On return they may be deleted (R13)."""
        with self._guard, self._failing("expire files"):
            self._commit_bare(self._entered(), "expiry", expired=number)

    def note_erasure(self, erased: Sequence[Erased]) -> None:
        """Record that files of earlier entries are exchanged for durable ones without some rows.

        On return they may take their places.
        """
        with self._guard, self._failing("record an erasure"):
            self._commit_bare(self._entered(), "erasure", erased=tuple(erased))

    def note_replay(
        self, replayed: Sequence[Replayed] = (), replaying: Replaying | None = None, closes: int = 0
    ) -> None:
        """Record dead letters that were written back to a topic, or are about to be: see :class:`LogEntry`."""
        step = "replay" if replaying is None else "intent"
        with self._guard, self._failing("record a replay"):
            facts = {"replayed": tuple(replayed), "replaying": replaying, "closes": closes}
            self._commit_bare(self._entered(), step, **facts)

    # --- entering

    def _look(self) -> bool:
        """Return True if there is a dataset, after a comparison with the options."""
        found = self._origin.look()
        self._identity.compare(found)
        self._description = found
        return found is not None

    def _entered(self) -> Staging:
        """Return the staging folder of this writer; creates the dataset if necessary."""
        if self._staging is None:
            if not self._look():
                self._create()
            self._enter()
            if len(self._state.coverage) or self.cluster != self._options.cluster:
                # Decisions that the caller made without a dataset (first positions, cluster name) are void.
                self.close()
                raise Superseded(f"another writer has created the dataset at {self._storage.root}; open it again")
        self._checkpoint()
        assert self._staging is not None
        return self._staging

    def _create(self) -> None:
        staging = self._begin()
        description = Description.of(self._options, id=self._storage.new_name(), created=timestamp(self._storage.now()))
        temporary = staging.temporary("dataset")
        self._storage.write_synced(temporary, description.encode())
        self._storage.put_new(temporary, DESCRIPTION)
        self._reached("dataset-created")
        self._storage.discard(temporary)
        # Another writer may have created it first, with other options.
        if not self._look():
            raise FatalDiskError(f"{self._storage.path(DESCRIPTION)} was created, but it does not exist")

    def _begin(self) -> Staging:
        if self._staging is None:
            self._staging = Staging(self._storage)
            self._reached("staging-made")
        return self._staging

    def _enter(self) -> None:
        # Nothing is skipped that may have a fence of this writer: the checkpoint is older than its lock.
        self._state = newest_checkpoint(self._storage) if self._staging is None else Checkpoint()
        staging = self._begin()
        self._origin.record_hosts(staging.temporary)
        self._identity.compare_log()
        self._tail = tail_of(self._storage, self._state.number)
        assert self._description is not None
        self._publication = publication_of(
            self._storage,
            self._description,
            self._state,
            self._identity,
            self._reached,
            self._options.catalog,
            hasty=self._hasty,
        )
        self._follow()
        self._check_whole()
        self._identity.check_read()
        self._reached("log-read")
        self._notes.prune()
        self._clear_void()
        self._fence_dead(staging)

    def _check_whole(self) -> None:
        """Refuse a log that lacks an entry (R11)."""
        check_whole(self._storage, self._state.number, self._options.extension, self._follow_on)

    def _follow_on(self) -> int:
        self._follow()
        return self._state.number

    def _fence_dead(self, staging: Staging) -> None:
        """Delete the files of dead writers, after a log entry has fenced them (R5)."""
        if self._publication.pending:
            return  # they may be among them
        dead = DeadWriters(self._storage, staging.writer)
        try:
            if dead.names:
                self._commit_bare(staging, "fence", fence=dead.names)
            if dead.names and not self._publication.pending:
                self._publication.sync()  # as in close
                dead.discard()
                self._reached("staging-cleared")
        finally:
            dead.release()

    def _commit_bare(self, staging: Staging, step: str, **facts: Any) -> None:
        """Commit a log entry without files or spans, with other ``facts``."""
        entry = LogEntry(writer=staging.writer, roll=staging.roll, at=timestamp(self._storage.now()), **facts)
        temporary, data = staging.temporary("entry"), self._chained(entry).encode()
        self._storage.write_synced(temporary, data)
        while not self._link_next(temporary, f"{step}-linked"):
            # Commits of a dead writer in the meantime are published before its staging folder is deleted.
            if self._follow(entry):
                old = [temporary]
                break
            self._storage.discard(temporary)
            temporary, data = self._chain_anew(staging, entry)
        else:
            self._reached(f"{step}-synced")
            self._fold(entry, data)
            old = self._notes.take(temporary, self._state.number)
        self._end_roll(staging, old)

    # --- the commit

    def _land(
        self,
        staging: Staging,
        files: Sequence[StagedFile],
        spans: Sequence[Span],
        elsewhere: tuple[int, int, int],
        floors: Mapping[Log, Position],
        types: Sequence[Column],
    ) -> None:
        added = self._fit(staging, spans, floors, types)
        # Step 1: all files of the log entry are durable before it exists.
        if self._dead_letters is not None:
            self._dead_letters.finish()
        dead_letters = [] if self._dead_letters is None else [self._dead_letters.staged]
        staged = [*files, *dead_letters]
        for file in staged:
            file.finish()
        entry = LogEntry(
            writer=staging.writer,
            roll=staging.roll,
            at=timestamp(self._storage.now()),
            files=tuple(file.described() for file in files),
            dead_letters=tuple(file.described() for file in dead_letters),
            spans=tuple(spans),
            dead_letter_counts=() if self._dead_letters is None else self._dead_letters.dead_letter_counts,
            filtered=elsewhere[0],
            unselected=elsewhere[1],
            sent=elsewhere[2],
            floors=tuple(floors.items()),
            shared=self._options.shared,
            types=added,
        )
        temporary, data = staging.temporary("entry"), self._chained(entry).encode()
        LogEntry.decode(data, temporary)  # an entry that cannot be read must never get into the log
        entry_file = self._storage.write(temporary, data)
        try:
            self._reached("files-finished")
            self._storage.make_folders(entry.folders, published=True)
            self._reached("folders-made")
            self._sync_roll([*(file.unsynced for file in staged if file.unsynced is not None), entry_file])
        finally:
            entry_file.close()
        for file in staged:
            file.close()
        self._reached("files-synced")
        self._sync_staging(staging)
        self._reached("staging-synced")
        # Step 2: the link decides.
        self._linked = self._linking = True
        number = 0
        while not (self._check_names(entry) and self._link_next(temporary, "entry-linked")):
            if self._follow(entry):
                break  # the entry was linked, although the link was reported as refused
            self._storage.discard(temporary)
            entry = replace(entry, types=self._fit(staging, spans, floors, types))
            temporary, data = self._chain_anew(staging, entry)
        else:
            self._reached("log-synced")
            # Step 3: visible.
            self._publish(self._state.number + 1, entry, "published")
            self._publication.complete()
            self._fold(entry, data)
            number = self._state.number
        self._linking = False
        self._reached("committed")
        self._tidy(staging, temporary, number)

    def _check_names(self, entry: LogEntry) -> bool:
        """Return True if the names of its files are free (R10); False if another writer has linked the next entry."""
        return names_are_free(self._storage, entry, self._state.number + 1, self._options.extension)

    def _chained(self, entry: LogEntry) -> LogEntry:
        return replace(entry, before=self._tail)

    def _chain_anew(self, staging: Staging, entry: LogEntry) -> tuple[str, bytes]:
        """Write the entry again after another writer's entry; return its file and content."""
        temporary, data = staging.temporary(f"entry-{self._state.number + 1}"), self._chained(entry).encode()
        self._storage.write_synced(temporary, data)
        return temporary, data

    def _link_next(self, temporary: str, step: str) -> bool:
        name = entry_name(self._state.number + 1)
        self._storage.make_folders([os.path.dirname(name)])
        linked = self._storage.put_new(temporary, name, lambda: self._reached(step))
        self._identity.check_linked(self._state.number, self._tail)  # R14
        return linked

    def _sync_roll(self, files: Sequence[NewFile]) -> None:
        # R9 costs nothing here: the folders of the last commit are synced beside the files of this one.
        self._storage.sync(files, self._publication.take())

    def _sync_staging(self, staging: Staging) -> None:
        self._storage.sync(folders=[staging.folder])

    def _fit(
        self, staging: Staging, spans: Sequence[Span], floors: Mapping[Log, Position], types: Sequence[Column]
    ) -> tuple[Column, ...]:
        """Return the columns for the log entry. Raises Superseded, with the roll void, if it does not fit (R3)."""
        try:
            check_fit(
                self._state.coverage.copy(),
                spans,
                floors,
                ordered=not self._options.shared,
                single=self._options.system if self._options.single_log else "",
            )
            # A narrower column would do for a dataset; readers of a table refuse its files.
            if self._options.table and types and (why := misfit(self.types, types)):
                raise SchemaError("", why)
            widening = self._options.widens and not self._options.table
            return added_types(self.types, types, landing=True, widening=widening)
        except (OverlapError, SchemaError) as exc:
            self._end_roll(staging)
            raise Superseded(f"{self._storage.root}: another writer was first: {exc}") from exc

    def _end_roll(self, staging: Staging, old: Sequence[str] = (), *, kept: bool = False) -> None:
        self._dead_letters = None
        staging.end_roll(old, kept=kept)

    def _tidy(self, staging: Staging, temporary: str = "", number: int = 0) -> None:
        """Delete the remaining files of a roll, and note its entry; after a failure the next process does it."""
        try:
            old = self._notes.take(temporary, number) if number else [temporary] if temporary else []
            self._end_roll(staging, old, kept=bool(temporary and self._publication.pending))
        except OSError:
            pass

    # --- failures

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        """Mark this writer as broken after a failure: its state must not be used again (R7)."""
        if self._broken:
            raise SinkFailedError(f"the writer of {self._storage.root} is not open")
        try:
            yield
        except Superseded:
            raise
        except OSError as exc:
            self._broken = True
            if exc.errno not in DISK_FULL:
                raise FatalDiskError(f"{self._storage.root}: cannot {doing}: {exc}") from exc
            if self._staging is not None and not self._linking:
                self._tidy(self._staging)  # no log entry names the roll, and it may have filled the disk
            raise DiskFullError(f"{self._storage.root}: cannot {doing}: {exc}") from exc
        except BaseException:
            self._broken = True
            raise
