"""Protocols that lack one rule each. The checker must see every one of them fail, or it is no checker.

They are subclasses here and never switches in the product: what is left out is the one thing that each class overrides.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from fastwire.coverage import Coverage
from fastwire.decode.evolution import Column
from fastwire.position import Span
from fastwire_daemon.dataset.commitlog.checkpoint import Checkpoint, checkpoint_name
from fastwire_daemon.dataset.commitlog.entry import CHECKPOINTS, Erased, LogEntry, entry_name
from fastwire_daemon.dataset.commitlog.whole import noted_number
from fastwire_daemon.dataset.identity import Identity
from fastwire_daemon.dataset.staging import DeadWriters, StagedFile, Staging
from fastwire_daemon.dataset.storage.base import NewFile
from fastwire_daemon.dataset.storage.disk import DISK_FULL
from fastwire_daemon.dataset.storage.folder import FolderStorage
from fastwire_daemon.dataset.storage.patience import Patience

from .reader import Reader, Writer
from .run import SCENARIOS, Scenario
from .world import SimDisk


class LinkBelievedUnsynced(Writer):
    def _link_next(self, temporary: str, step: str) -> bool:
        name = entry_name(self._state.number + 1)
        self._storage.make_folders([os.path.dirname(name)])
        try:
            self._disk.link(self._storage.path(temporary), self._storage.path(name))
        except FileExistsError:
            return False
        return True


class FoundBelievedUnsynced(Writer):
    """R1 without its sync."""

    def _trust(self, numbers: range) -> None:
        pass


class FoundNotPublished(Writer):
    """R1 without publishing."""

    def _publish_found(self, number: int, entry: LogEntry) -> None:
        pass


class CheckpointBeforePublishing(Writer):
    """R4 off: a checkpoint as soon as its last entry is durable."""

    def _publish(self, number: int, entry: LogEntry, step: str) -> None:
        state = self._state.copy()
        state.fold(entry)
        if number % self.checkpoint_every == 0 and self._staging is not None:
            _write_checkpoint(self, self._staging, state)
        super()._publish(number, entry, step)


def _write_checkpoint(writer: Writer, staging: Staging, state: Checkpoint) -> None:
    storage = writer._storage
    storage.make_folders([CHECKPOINTS])
    temporary = staging.temporary("early")
    storage.write_synced(temporary, state.encode())
    storage.put_new(temporary, checkpoint_name(state.number))
    storage.discard(temporary)


class CheckpointBeforeSync(Writer):
    """R4 off, though published: a checkpoint while names of published files can still be lost."""

    def _checkpoint(self) -> None:
        unsynced, self._publication.unsynced = self._publication.unsynced, set()
        super()._checkpoint()
        self._publication.unsynced |= unsynced


class NoFence(Writer):
    """R5 off: staging of writers whose lock is free is deleted, and nobody is told."""

    def _fence_dead(self, staging: Staging) -> None:
        dead = DeadWriters(self._storage, staging.writer)
        try:
            self._publication.sync()
            dead.discard()
        finally:
            dead.release()


class OwnEntryNotRecognised(Writer):
    def _is_own(self, entry: LogEntry, own: LogEntry) -> bool:
        return False

    def _publish_found(self, number: int, entry: LogEntry) -> None:
        if self._staging is None or entry.writer != self._staging.writer:
            super()._publish_found(number, entry)


class LogCleared(Writer):
    """R6 off: log entries that a checkpoint holds are deleted."""

    def _checkpoint(self) -> None:
        due = self._due
        super()._checkpoint()
        if due is not None:
            for number in range(1, due.number + 1):
                self._storage.discard(entry_name(number))


class StagedNotCut(Reader):
    def _is_staged(self, partition: int, number: int) -> bool:
        return False


# --- beyond the ten


class StagingUnsynced(Writer):
    """The log entry is durable, the names of its files are not."""

    def _sync_staging(self, staging: Staging) -> None:
        pass


class FilesUnsynced(Writer):
    def _sync_roll(self, files: Sequence[NewFile]) -> None:
        super()._sync_roll(files[-1:])


class FailedSyncRepeated(Writer):
    """R7 off."""

    def _sync_roll(self, files: Sequence[NewFile]) -> None:
        try:
            super()._sync_roll(files)
        except OSError:
            super()._sync_roll(files)


class FullSyncRepeated(Writer):
    """R7 off where space is missing: as if a sync were like a write, to be repeated once there is some."""

    def _sync_roll(self, files: Sequence[NewFile]) -> None:
        try:
            super()._sync_roll(files)
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise
            super()._sync_roll(files)


class LaterBeforeEarlierSynced(Writer):
    """R9 off: files of an entry are published while those of earlier ones can still be taken back."""

    def _sync_roll(self, files: Sequence[NewFile]) -> None:
        self._storage.sync(files)

    def _publish(self, number: int, entry: LogEntry, step: str) -> None:
        unsynced, self._publication.unsynced = self._publication.unsynced, set()
        super()._publish(number, entry, step)
        self._publication.unsynced |= unsynced


class HoldsForgotten(Writer):
    """A span does not say that what lies before it was held."""

    def commit(self, files: Sequence[StagedFile], spans: Sequence[Span], **more: Any) -> Coverage:
        return super().commit(files, [replace(span, held_from=None) for span in spans], **more)


class OverlapIgnored(Writer):
    """R3 off."""

    def _fit(self, *_: Any) -> tuple[Column, ...]:
        return ()


class FilesNotSummed(Writer):
    """Log entries without the checksums of their files."""

    def _chained(self, entry: LogEntry) -> LogEntry:
        return super()._chained(replace(entry, files=tuple(replace(file, checksum=None) for file in entry.files)))


class EntriesNotChained(Writer):
    """Log entries without the checksum of the one before."""

    def _chained(self, entry: LogEntry) -> LogEntry:
        return entry


class LogNotChecked(Writer):
    """R11 off."""

    def _check_whole(self) -> None:
        pass


class HoleBelievedAtOnce(Writer):
    """R11 without a second look: an entry that another writer has just made is taken for one behind a hole."""

    def _follow_on(self) -> int:
        return self._state.number


class NotedBeforeCommit(Writer):
    """A note that is ahead of the log when its writer dies."""

    def _link_next(self, temporary: str, step: str) -> bool:
        try:
            self._disk.link(self._storage.path(temporary), self._storage.path(noted_number(self._state.number + 1)))
        except FileExistsError:
            pass
        return super()._link_next(temporary, step)


class PublishingReplaces(Writer):
    """R10 off: a visible file is replaced by another one that gets its name."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._storage = _ReplacingStorage(self._storage.root, self._disk, Patience(self._disk))

    def _check_names(self, entry: LogEntry) -> bool:
        return True


class _ReplacingStorage(FolderStorage):
    def publish(self, staged: str, name: str, nbytes: int, *, fresh: bool = False) -> bool:
        if self.exists(staged):
            self.discard(name)
        return super().publish(staged, name, nbytes, fresh=fresh)


class ExpiryNotDeclared(Writer):
    """R13 off: files are deleted, and the log does not say so."""

    def expire(self, number: int) -> None:
        pass


class ExpiryKept(Reader):
    """R13 off: it is not made durable that files were deleted."""

    def __init__(self, medium: SimDisk, *args: Any) -> None:
        medium.__class__ = _KeepsDeleted
        super().__init__(medium, *args)


class _KeepsDeleted(SimDisk):
    _deleted_in: frozenset[str] = frozenset()

    def unlink(self, path: str) -> bool:
        if "/_fastwire/" not in path:
            self._deleted_in = self._deleted_in | {os.path.dirname(path)}
        return super().unlink(path)

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        left, self._deleted_in = self._deleted_in, frozenset()
        super().sync(files, [folder for folder in folders if folder not in left])


class FoldersNotTried(Writer):
    """A folder is used without having tried whether files can be moved into it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._storage = _TrustingStorage(self._storage.root, self._disk, Patience(self._disk))


class _TrustingStorage(FolderStorage):
    def _refusal(self, folder: str) -> str | None:
        return None


class StagingDroppedUnsynced(Writer):
    """A staging folder goes while renames out of it can still be lost."""

    def close(self) -> None:
        self._publication.unsynced = set()
        super().close()


class LinkedTakenForVoid(Writer):
    """A failed roll is cleared away without a fence, although a link was tried for it."""

    def _leave(self, *, reopening: bool = False) -> None:
        self._linked = self._linked and not self._broken
        super()._leave(reopening=reopening)


class VoidDroppedUnsynced(Writer):
    """The staging of a void roll goes while renames of earlier rolls out of it can still be lost."""

    def _clear_void(self) -> None:
        self._publication.unsynced = set()
        super()._clear_void()


class IdentityForgotten(Writer):
    """R14 off: each opening takes what is at the path, and what is not staged counts as published."""

    def _forget(self) -> None:
        super()._forget()
        self._identity = Identity(self._storage)

    def _publish(self, number: int, entry: LogEntry, step: str) -> None:
        vars(self._publication)["_may_be_away"] = lambda *_: False
        super()._publish(number, entry, step)


class NewFoldersUnsynced(Writer):
    """A new folder is used before its name in the one above is durable."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._storage = _ForgetfulStorage(self._storage.root, self._disk, Patience(self._disk))


class _ForgetfulStorage(FolderStorage):
    def make_folders(self, folders: Iterable[str], *, published: bool = False) -> None:
        assert isinstance(self.disk, SimDisk)
        for folder in folders:
            path = "/data"
            for part in ["set", *filter(None, folder.split("/"))]:
                path += f"/{part}"
                if not self.disk.is_folder(path):
                    self.disk.make_folder(path)


class ErasureNotDeclared(Writer):
    """Files are exchanged, and no log entry says so."""

    def note_erasure(self, erased: Sequence[Erased]) -> None:
        pass


class ExchangeUnsynced(Reader):
    """A command that erases does not make the new names durable."""

    def __init__(self, medium: SimDisk, *args: Any) -> None:
        medium.__class__ = _KeepsReplaced
        super().__init__(medium, *args)


class _KeepsReplaced(SimDisk):
    _replaced_in: frozenset[str] = frozenset()

    def replace(self, source: str, target: str) -> None:
        self._replaced_in = self._replaced_in | {os.path.dirname(target)}
        super().replace(source, target)

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        left, self._replaced_in = self._replaced_in, frozenset()
        super().sync(files, [folder for folder in folders if folder not in left])


def with_writer(writer: type[Writer]) -> type[Reader]:
    """A reader with a weakened writer."""
    return type(f"{writer.__name__}Reader", (Reader,), {"writer_class": writer})


class Weakened:
    """One of them, and the scenarios in which it must fail."""

    def __init__(
        self,
        name: str,
        reader: type[Any],
        only: Callable[[Scenario], bool] | None = None,
        scenarios: Sequence[Scenario] = SCENARIOS,
        fate: str = "",
    ) -> None:
        self.name = name
        self.fate = fate  # the only one of single faults that is tried, if it is given
        self.reader = reader
        self.scenarios = [scenario for scenario in scenarios if only is None or only(scenario)]


WEAKENED = (
    Weakened("no sync before the link is believed", with_writer(LinkBelievedUnsynced)),
    Weakened("R1 without its sync", with_writer(FoundBelievedUnsynced)),
    Weakened("R1 without publishing", with_writer(FoundNotPublished)),
    Weakened("R4 off, without publishing", with_writer(CheckpointBeforePublishing)),
    Weakened("R4 off, with publishing", with_writer(CheckpointBeforeSync)),
    Weakened("R5 off, locks lie", with_writer(NoFence), lambda scenario: scenario.locks_lie),
    Weakened("R5 off, true locks", with_writer(NoFence), lambda scenario: not scenario.locks_lie),
    Weakened("own entry not recognised and not published", with_writer(OwnEntryNotRecognised)),
    Weakened("R6 off", with_writer(LogCleared)),
    Weakened("staged rows not cut", StagedNotCut),
    Weakened("staging folder not synced", with_writer(StagingUnsynced)),
    Weakened("files not synced", with_writer(FilesUnsynced)),
    Weakened("R7 off", with_writer(FailedSyncRepeated)),
    Weakened("R7 off for a full disk", with_writer(FullSyncRepeated), fate="space"),
    # Wants two entries in a row without a checkpoint, and the power cut there.
    Weakened(
        "R9 off",
        with_writer(LaterBeforeEarlierSynced),
        lambda scenario: scenario.ordered and scenario.partitions == 2,
        fate="cut even",
    ),
    Weakened("R3 off", with_writer(OverlapIgnored)),
    Weakened("files without checksums", with_writer(FilesNotSummed)),
    Weakened("log entries without a chain", with_writer(EntriesNotChained)),
    Weakened("folders not tried", with_writer(FoldersNotTried), lambda scenario: scenario.mounted),
    Weakened("R10 off", with_writer(PublishingReplaces)),
    Weakened("R11 off", with_writer(LogNotChecked), fate="lose newest"),
    Weakened("R11 without a second look", with_writer(HoleBelievedAtOnce)),
    Weakened("a note before the commit", with_writer(NotedBeforeCommit)),
    Weakened("R13 without an entry", with_writer(ExpiryNotDeclared), lambda scenario: scenario.expires),
    Weakened("R13 without a sync", ExpiryKept, lambda scenario: scenario.expires and not scenario.locks_lie),
    Weakened("an erasure without an entry", with_writer(ErasureNotDeclared), lambda scenario: scenario.erases),
    Weakened("an erasure without a sync", ExchangeUnsynced, lambda scenario: scenario.erases),
    Weakened("holes without a word", with_writer(HoldsForgotten), lambda scenario: bool(scenario.entries)),
    Weakened("staging dropped while renames are pending", with_writer(StagingDroppedUnsynced)),
    Weakened("a linked roll taken for void", with_writer(LinkedTakenForVoid)),
    Weakened("void staging dropped while renames are pending", with_writer(VoidDroppedUnsynced)),
    Weakened("new folders not synced", with_writer(NewFoldersUnsynced)),
    Weakened("R14 off", with_writer(IdentityForgotten)),
)
