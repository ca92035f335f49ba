"""One writer of a dataset: staging, the commit, and everything it has to do about the commits of others.

The order of the steps is the protocol; DESIGN.md gives the reasons and names the rules R1 to R9 that comments refer to.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from fastwire.position import Coverage, Log, OverlapError, Position, Span, UndeclaredGapError, format_position, order

from ..errors import (
    DatasetDamagedError,
    FatalDiskError,
    FencedError,
    SinkFailedError,
    Superseded,
)
from .checkpoint import Checkpoint, checkpoint_name, newest_checkpoint
from .description import DESCRIPTION, DatasetOptions, Description, read_description
from .disk import DISK_FULL, Disk
from .level import check_directory
from .log import CHECKPOINTS, DIVERTED, Letter, LogEntry, count_letters, entry_name
from .patience import Impatience, Patience
from .staging import DeadWriters, ForeignFile, StagedFile, Staging
from .storage import Storage

__all__ = ["STEPS", "DatasetWriter"]

STEPS = (
    # open, or the first roll of a new dataset
    "staging-made",
    "dataset-created",
    "log-read",
    "fence-linked",
    "fence-synced",
    "staging-cleared",
    # commit; "published:0" stands for "published:<i>" of each file
    "files-finished",
    "folders-made",
    "files-synced",
    "staging-synced",
    "entry-linked",
    "log-synced",
    "published:0",
    "committed",
    # an entry that another writer, or an earlier process, has linked; "republished:<i>" likewise
    "entry-trusted",
    "republished:0",
    "entry-published",
    # on the way into the next roll
    "checkpoint-linked",
    "checkpointed",
)


class DatasetWriter:
    """Writes rolls into the dataset at ``path`` and tells what has landed.

    All methods block and are called from one thread, except that encoders on several may call :meth:`stage` and write
    its files. Every method may raise

    * Superseded: another writer has landed some of the roll; it is void and deleted;
    * SinkFailedError: what was not committed is void; only :meth:`open` and :meth:`close` work now;
    * DatasetError: opening again will not help.

    ``reached`` is called with each step of ``STEPS``; ``on_full`` and ``stop`` are those of :class:`Patience`.
    """

    checkpoint_every = 64
    read_ahead = 64  # log entries for one sync of the log's folder; each is held in memory

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: DatasetOptions,
        disk: Disk | None = None,
        reached: Callable[[str], None] = lambda step: None,
        *,
        on_full: Callable[[str | None], None] = lambda message: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._disk = disk or Disk()
        self._options = options
        self._reached = reached
        self._storage = Storage(os.fspath(path), self._disk, Patience(self._disk, on_full, stop))
        self._guard = threading.RLock()  # encoders stage on their threads
        self._description: Description | None = None
        self._staging: Staging | None = None
        self._broken = True  # until open
        self._forget()

    def _forget(self) -> None:
        self._state = Checkpoint()
        # Folders with files of known log entries whose names may not be durable yet.
        self._unsynced: set[str] = set()
        self._due: Checkpoint | None = None

    # --- what it knows

    @property
    def exists(self) -> bool:
        """Whether the dataset exists, as far as seen; :meth:`open` looks, the first roll creates it."""
        return self._description is not None

    @property
    def sync_ns(self) -> int:
        """Nanoseconds that making things durable has taken so far."""
        return self._storage.sync_ns

    @property
    def cluster(self) -> str:
        """The cluster that logs are named by: that of the dataset's creation, whatever the configuration says now."""
        return self._options.cluster if self._description is None else self._description.cluster

    @property
    def coverage(self) -> Coverage:
        """What has landed, as far as the log was read. A copy."""
        return self._state.coverage.copy()

    @property
    def entries(self) -> int:
        """The number of the last log entry that was read or written."""
        return self._state.number

    # --- open and close

    def open(self) -> Coverage:
        """Read the log to its end, publish what was committed, fence the dead; return what has landed.

        A dataset that does not exist is left alone: the first staged file or commit creates it. Raises
        DatasetMismatchError if it was created with other settings.
        """
        with self._guard:
            self.close()
            self._forget()
            self._description = None
            self._broken = False
            with self._failing("open"):
                if self._look():
                    self._enter()
            return self.coverage

    def close(self) -> None:
        """Drop what is not committed and let go of the dataset. Never raises for a disk's sake."""
        with self._guard:
            staging = self._staging
            if staging is not None:
                self._leave(staging)

    def _leave(self, staging: Staging) -> None:
        try:
            if not self._broken:
                # Only what is certainly void is deleted: after a failure the next open finds out.
                self._checkpoint()
                # A rename out of the folder must not be lost together with the folder.
                self._sync_published()
                staging.discard()
        except (OSError, SinkFailedError):
            pass
        finally:
            self._staging = None
            self._broken = True
            staging.release()

    # --- rolls

    def stage(self, directory: str = "") -> StagedFile:
        """Open a new file of the roll; it will be published into ``directory`` (see :func:`level_directory`)."""
        check_directory(directory, self._options.level_keys)
        with self._failing("stage a file"):
            with self._guard:
                staging = self._entered()
            return staging.open_file(directory)

    def invite(self) -> str:
        """Open the roll to files by other processes: the absolute path that their names begin with.

        The rest of a name is theirs, without a slash, and ends with ``.task``. They write a file to its end, sync it
        and say so to whoever calls :meth:`adopt`.
        """
        with self._guard, self._failing("stage files of others"):
            return self._storage.path(self._entered().invite())

    def adopt(self, files: Sequence[ForeignFile]) -> list[StagedFile]:
        """Take such files into the roll. What nobody names is deleted with it."""
        with self._guard, self._failing("take files of others"):
            for file in files:
                check_directory(file.directory, self._options.level_keys)
            return self._entered().adopt(files)

    def commit(
        self,
        files: Sequence[StagedFile],
        spans: Sequence[Span],
        *,
        diverted: Sequence[Letter] = (),
        filtered: int = 0,
        floors: Mapping[Log, Position] | None = None,
    ) -> Coverage:
        """Land the roll: ``files`` with the rows of ``spans``; return all that has landed, which may be acked.

        ``diverted`` entries are kept beside the log, ``filtered`` rows were dropped on purpose; together with the rows
        of the files they are the rows of the spans. ``floors`` are positions up to which a broker has confirmed our
        acks. Staged files that are not among ``files`` are deleted. Without anything to land: :meth:`refresh`.

        Raises ValueError for what no reader can have been given: a source that is read in order has jumped
        (UndeclaredGapError), the rows do not add up. Nothing is written then, but the writer must be opened again.
        """
        if not (files or spans or diverted or filtered or floors):
            return self.refresh()
        with self._guard, self._failing("commit"):
            staging = self._entered()
            if not staging.owns(files):
                raise ValueError("a staged file belongs to another roll")
            given, kept = sum(span.rows for span in spans), sum(file.rows for file in files)
            if given != kept + filtered:
                raise ValueError(f"{given} rows were given, but {kept} are in files and {filtered} were filtered")
            self._land(staging, files, spans, diverted, filtered, floors or {})
            return self.coverage

    def refresh(self) -> Coverage:
        """Read what others have committed since; return what has landed.

        To be called before the first fetch of a partition that was just assigned, so that little is read in vain.
        """
        with self._guard, self._failing("refresh"):
            if self._staging is not None:
                self._checkpoint()
                self._follow()
            elif self._look():
                self._enter()
            return self.coverage

    # --- entering

    def _look(self) -> bool:
        """Whether there is a dataset; checked against the options when it is seen for the first time."""
        data = self._storage.read(DESCRIPTION)
        if data is None:
            return False
        self._description = read_description(data, self._storage.root)
        self._description.check(self._options, self._storage.root)
        return True

    def _entered(self) -> Staging:
        """The staging folder of this writer; creates the dataset if need be."""
        if self._staging is None:
            if not self._look():
                self._create()
            self._enter()
            if len(self._state.coverage) or self.cluster != self._options.cluster:
                # What the caller decided without a dataset (where to start, its cluster's name) is void.
                self.close()
                raise Superseded(f"another writer has created the dataset at {self._storage.root}; open it again")
        self._checkpoint()
        assert self._staging is not None
        return self._staging

    def _create(self) -> None:
        staging = self._begin()
        description = Description.of(self._options, id=self._disk.new_name(), created=self._time())
        temporary = staging.temporary("dataset")
        self._storage.write_synced(temporary, description.encode())
        self._storage.put_new(temporary, DESCRIPTION)
        self._reached("dataset-created")
        self._storage.discard(temporary)
        # Somebody else may have been quicker, with other options.
        if not self._look():
            raise FatalDiskError(f"{self._storage.path(DESCRIPTION)} was created and is not there")

    def _begin(self) -> Staging:
        if self._staging is None:
            self._staging = Staging(self._storage)
            self._reached("staging-made")
        return self._staging

    def _enter(self) -> None:
        staging = self._begin()
        self._state = newest_checkpoint(self._storage)
        self._follow()
        self._reached("log-read")
        self._fence_dead(staging)

    def _fence_dead(self, staging: Staging) -> None:
        """R5: what dead writers left is deleted only after the log says that it is void."""
        dead = DeadWriters(self._storage, staging.writer)
        try:
            if dead.names:
                entry = LogEntry(writer=staging.writer, roll=staging.roll, at=self._time(), fence=dead.names)
                self._commit_fence(staging, entry)
                self._sync_published()  # as in close
                dead.discard()
                self._reached("staging-cleared")
        finally:
            dead.release()

    def _commit_fence(self, staging: Staging, entry: LogEntry) -> None:
        temporary = staging.temporary("entry")
        self._storage.write_synced(temporary, entry.encode())
        while not self._link_next(temporary, "fence-linked"):
            # Whatever a dead writer committed in the meantime is published before its staging goes.
            if self._follow(entry):
                break
        else:
            self._reached("fence-synced")
            self._fold(entry)
        staging.end_roll()
        self._storage.discard(temporary)

    # --- the commit

    def _land(
        self,
        staging: Staging,
        files: Sequence[StagedFile],
        spans: Sequence[Span],
        diverted: Sequence[Letter],
        filtered: int,
        floors: Mapping[Log, Position],
    ) -> None:
        self._fit(staging, spans, floors)
        # Step 1: everything that the log entry will speak of is durable before it exists.
        letters = self._stage_letters(staging, diverted)
        staged = [*files, *letters]
        for file in staged:
            file.finish()
        entry = LogEntry(
            writer=staging.writer,
            roll=staging.roll,
            at=self._time(),
            files=tuple(file.described() for file in files),
            letters=tuple(file.described() for file in letters),
            spans=tuple(spans),
            diverted=count_letters(diverted),
            filtered=filtered,
            floors=tuple(floors.items()),
            shared=self._options.shared,
        )
        temporary = staging.temporary("entry")
        data = entry.encode()
        LogEntry.decode(data, temporary)  # what cannot be read must never get into the log
        descriptor = self._storage.write(temporary, data)
        try:
            self._reached("files-finished")
            self._storage.make_folders(entry.folders)
            self._reached("folders-made")
            self._sync_roll([*(file.descriptor for file in staged if file.descriptor is not None), descriptor])
        finally:
            self._disk.close(descriptor)
        for file in staged:
            file.close()
        self._reached("files-synced")
        self._sync_staging(staging)
        self._reached("staging-synced")
        # Step 2: the link decides.
        while not self._link_next(temporary, "entry-linked"):
            if self._follow(entry):
                break  # it was there all along: a link that was reported as refused
            self._fit(staging, spans, floors)
        else:
            self._reached("log-synced")
            # Step 3: visible.
            self._publish(self._state.number + 1, entry, "published")
            self._fold(entry)
        self._reached("committed")
        self._tidy(staging, temporary)

    def _link_next(self, temporary: str, step: str) -> bool:
        name = entry_name(self._state.number + 1)
        self._storage.make_folders([os.path.dirname(name)])
        return self._storage.put_new(temporary, name, lambda: self._reached(step))

    def _stage_letters(self, staging: Staging, diverted: Sequence[Letter]) -> list[StagedFile]:
        if not diverted:
            return []
        from .diverted import encode_letters  # pyarrow, and hardly ever needed

        file = staging.open_file(f"{DIVERTED}/")
        file.file.write(encode_letters(diverted))
        file.rows = sum(letter.rows for letter in diverted)
        return [file]

    def _sync_roll(self, descriptors: Sequence[int]) -> None:
        # R9 costs nothing here: the folders of the last commit are synced beside the files of this one.
        folders, self._unsynced = self._unsynced, set()
        self._storage.sync(descriptors, self._present(folders))

    def _sync_staging(self, staging: Staging) -> None:
        self._storage.sync(folders=[staging.folder])

    def _fit(self, staging: Staging, spans: Sequence[Span], floors: Mapping[Log, Position]) -> None:
        """R3: nothing of the roll may have landed already; then it is void as after a crash."""
        trial = self._state.coverage.copy()
        try:
            for span in spans:
                if not self._options.shared:
                    _check_chain(trial, span)
                trial.add(span)
        except OverlapError as exc:
            self._storage.discard(staging.temporary("entry"))
            staging.end_roll()
            raise Superseded(f"{self._storage.root}: another writer was first: {exc}") from exc
        for log, floor in floors.items():
            trial.settle(log, floor)

    def _tidy(self, staging: Staging, temporary: str) -> None:
        """Delete what a landed roll leaves behind; if that fails, the next process clears it away."""
        try:
            staging.end_roll()
            self._storage.discard(temporary)
        except OSError:
            pass

    # --- the log

    def _follow(self, own: LogEntry | None = None) -> bool:
        """R1 and R2: read on to the end of the log; return whether ``own`` was in it.

        What is found is made durable, then published, and only then believed.
        """
        found = False
        while entries := self._read_ahead():
            self._trust(range(self._state.number + 1, self._state.number + 1 + len(entries)))
            self._reached("entry-trusted")
            for entry in entries:
                self._publish_found(self._state.number + 1, entry)
                self._reached("entry-published")
                self._fold(entry)
                found = found or (own is not None and self._is_own(entry, own))
        return found

    def _read_ahead(self) -> list[LogEntry]:
        entries: list[LogEntry] = []
        while len(entries) < self.read_ahead:
            name = entry_name(self._state.number + 1 + len(entries))
            data = self._storage.read(name)
            if data is None:
                break
            entries.append(LogEntry.decode(data, self._storage.path(name)))
        return entries

    def _trust(self, numbers: range) -> None:
        """Whoever linked these may have died before they were durable."""
        folders = {os.path.dirname(entry_name(number)) for number in (numbers[0], numbers[-1])}
        self._storage.make_folders(folders)
        self._storage.sync(folders=folders)

    def _is_own(self, entry: LogEntry, own: LogEntry) -> bool:
        return entry.writer == own.writer and entry.roll == own.roll

    def _publish_found(self, number: int, entry: LogEntry) -> None:
        self._publish(number, entry, "republished")

    def _publish(self, number: int, entry: LogEntry, step: str) -> None:
        """Make the files of a durable log entry visible, those that nobody has made so yet."""
        extension = self._options.extension
        ready = False
        for i, (staged, name) in enumerate(entry.moves(number, extension)):
            # Spark ignores files that look old, and this one may have waited.
            if self._disk.touch(self._storage.path(staged)):
                if not ready:
                    # R9: a power cut must not take the files of earlier entries back and leave these.
                    self._sync_published()
                    self._storage.make_folders(entry.folders)
                    ready = True
                self._storage.publish(staged, name)
            self._reached(f"{step}:{i}")
        self._unsynced |= entry.folders

    def _sync_published(self) -> None:
        folders, self._unsynced = self._unsynced, set()
        if folders:
            self._storage.sync(folders=self._present(folders))

    def _present(self, folders: set[str]) -> set[str]:
        """Folders that somebody took away need no sync: what was in them is gone on purpose."""
        return {folder for folder in folders if self._storage.exists(folder)}

    def _fold(self, entry: LogEntry) -> None:
        try:
            self._state.fold(entry)
        except ValueError as exc:
            name = self._storage.path(entry_name(self._state.number + 1))
            raise DatasetDamagedError(f"{name} does not fit the log before it: {exc}") from exc
        if self._state.number % self.checkpoint_every == 0:
            self._due = self._state.copy()
        if self._staging is not None and self._staging.writer in entry.fence:
            raise FencedError(
                f"another process took this writer of {self._storage.root} for dead (log entry {self._state.number})"
            )

    def _checkpoint(self) -> None:
        """R4: write the checkpoint that is due, if any. Between commits, so that none waits for it."""
        due, self._due = self._due, None
        if due is None or self._staging is None:
            return
        name = checkpoint_name(due.number)
        if self._storage.exists(name):
            return
        self._sync_published()
        # It can be left undone: the next one holds the same and more.
        storage = Storage(self._storage.root, self._disk, Impatience(self._disk))
        temporary = self._staging.temporary("checkpoint")
        try:
            storage.make_folders([CHECKPOINTS])
            storage.write_synced(temporary, due.encode())
            storage.put_new(temporary, name, lambda: self._reached("checkpoint-linked"))
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise
        storage.discard(temporary)
        self._reached("checkpointed")

    # --- failures

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        """R7: after a failure nothing is tried again with what this writer believes."""
        if self._broken:
            raise SinkFailedError(f"the writer of {self._storage.root} is not open")
        try:
            yield
        except Superseded:
            raise
        except OSError as exc:
            self._broken = True
            raise FatalDiskError(f"{self._storage.root}: cannot {doing}: {exc}") from exc
        except BaseException:
            self._broken = True
            raise

    def _time(self) -> str:
        return datetime.fromtimestamp(self._disk.now(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_chain(coverage: Coverage, span: Span) -> None:
    """Raise UndeclaredGapError if a source that is read in order has skipped something without saying so.

    Only where all that has landed was read in order: behind a Shared subscription there may be holes.
    """
    log, system = span.log, span.log.system
    begin, end = coverage.start(log), coverage.end(log)
    if begin is None or end is None or system == "tubemq":
        return
    intervals = coverage.intervals(log)
    if len(intervals) > 1 or (intervals and intervals[0][0] != begin):
        return
    behind = span.start if span.held_from is None else min(span.start, span.held_from)
    if order(system, end) < order(system, behind) < order(system, span.reach):
        raise UndeclaredGapError(
            f"{log}: a roll starts at {format_position(system, span.start)}, but what has landed ends at "
            f"{format_position(system, end)}, and no gap was declared"
        )
