"""Protocols on an object store that lack one rule each, and stores that lack a guarantee: the checker must see it."""

from collections.abc import Callable, Iterator
from typing import Any

from fastwire_daemon.dataset.commitlog.entry import STAGING
from fastwire_daemon.dataset.identity import Identity
from fastwire_daemon.dataset.storage.bucket import StoreAwayError
from fastwire_daemon.dataset.storage.store import ObjectStorage

from .reader import Reader, Writer
from .run import STORE_SCENARIOS, Scenario
from .store import SimBucket
from .weakened import (
    ExpiryNotDeclared,
    FoundNotPublished,
    LogCleared,
    LogNotChecked,
    NoFence,
    OverlapIgnored,
    OwnEntryNotRecognised,
    Weakened,
    with_writer,
)


def _with(storage: type[ObjectStorage], writer: type[Writer] = Writer) -> type[Reader]:
    """A reader whose writer uses ``storage``."""

    class Weak(writer):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self._storage.__class__ = storage  # the origin of the dataset uses it, too

    return with_writer(Weak)


class UnknownTakenForCommitted(ObjectStorage):
    """R12 off: a create-only PUT without an answer is believed."""

    def _create(self, name: str, data: bytes) -> bool:
        try:
            return super()._create(name, data)
        except StoreAwayError:
            return True


class UnknownTakenForRefused(ObjectStorage):
    """R12 off: a create-only PUT without an answer is an error at once, and its roll is cleared away."""

    def put_new(self, temporary: str, name: str, linked: Callable[[], None] = lambda: None) -> bool:
        try:
            return self._create(name, self._temporaries[temporary])
        except StoreAwayError as exc:
            raise OSError("no answer") from exc


class UnknownDropped(Writer):
    """The other half: files of a roll whose entry may come late are deleted without a fence."""

    def _leave(self, *, reopening: bool = False) -> None:
        self._linked = False
        super()._leave(reopening=reopening)


class ExistsBelieved(ObjectStorage):
    """R12 off: "exists" is taken for the entry of another writer."""

    def _create(self, name: str, data: bytes) -> bool:
        return self._bucket.create(name, data)


class UnknownCopyBelieved(ObjectStorage):
    """A copy without an answer is taken for done, and its staged object goes."""

    def publish(self, staged: str, name: str, nbytes: int, *, fresh: bool = False) -> bool:
        try:
            return self._bucket.copy(staged, name)
        except StoreAwayError:
            return True


class AnswerBelieved(ObjectStorage):
    """A copy is taken for done because the store has said so."""

    def _check_copied(self, staged: str, name: str, nbytes: int) -> None:
        pass


class _LinkedBlindly(Identity):
    def check_linked(self, before: int, tail: int) -> None:
        pass


class EmptiedBelieved(Writer):
    """R14 without a look behind the link: an entry counts in a bucket that was emptied."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._identity = _LinkedBlindly(self._storage)


class StagedNotCopied(ObjectStorage):
    """A committed roll goes without having been copied to its visible names."""

    def freshen(self, staged: str, *, fresh: bool = False) -> bool:
        return False


class _ManyWin(SimBucket):
    def _create(self, name: str, data: bytes) -> bool:
        self._remove(name)
        return super()._create(name, data)


class ManyWin(Reader):
    """A store that ignores the condition of a create-only PUT, as some do."""

    def __init__(self, medium: SimBucket, *args: Any) -> None:
        medium.__class__ = _ManyWin
        super().__init__(medium, *args)


class _HidesStaging(SimBucket):
    def pages(self, folder: str, behind: str = "") -> Iterator[list[str]]:
        return iter(()) if folder == STAGING else super().pages(folder, behind)


class StagedExpire(Reader):
    """R13 off: files expire that a writer has staged, and may yet publish."""

    def __init__(self, medium: SimBucket, *args: Any) -> None:
        medium.__class__ = _HidesStaging
        super().__init__(medium, *args)


def _expires(scenario: Scenario) -> bool:
    return scenario.expires


def _lies(scenario: Scenario) -> bool:
    return scenario.locks_lie


WEAKENED_STORE = tuple(
    Weakened(f"store: {name}", reader, only, STORE_SCENARIOS)
    for name, reader, only in (
        ("R12 off, unknown taken for committed", _with(UnknownTakenForCommitted), None),
        ("R12 off, unknown taken for refused", _with(UnknownTakenForRefused, UnknownDropped), None),
        ("R12 off, exists taken for another's", _with(ExistsBelieved, OwnEntryNotRecognised), None),
        ("an unknown copy taken for done", _with(UnknownCopyBelieved), None),
        ("a copy taken for done by its answer", _with(AnswerBelieved), None),
        ("not published", _with(StagedNotCopied), None),
        ("R1 without publishing", with_writer(FoundNotPublished), None),
        ("R3 off", with_writer(OverlapIgnored), None),
        ("R5 off, leases lie", with_writer(NoFence), _lies),
        ("R5 off, true leases", with_writer(NoFence), lambda scenario: not _lies(scenario)),
        ("R6 off", with_writer(LogCleared), None),
        ("R11 off", with_writer(LogNotChecked), None),
        ("two create the same object", ManyWin, None),
        ("R14 without a look behind the link", with_writer(EmptiedBelieved), None),
        ("R13 without an entry", with_writer(ExpiryNotDeclared), _expires),
        ("R13 off, staged files expire", StagedExpire, _expires),
    )
)
