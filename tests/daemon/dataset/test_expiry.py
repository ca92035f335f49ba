"""Expiry: old commits lose their files, the log says so, and whatever interrupts it is made good by the next call."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Position
from fastwire_daemon.dataset.commitlog.entry import STAGING, entry_name
from fastwire_daemon.dataset.expiry import expire
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DatasetDamagedError, DatasetMismatchError
from tests.support import rolls
from tests.support.store import LocalBucket

DAY = 86_400.0
START = 1_800_000_000.0


class Clock(Disk):
    """The real disk at a time that a test sets; ``fails`` is called with each path that is deleted."""

    def __init__(self) -> None:
        self.seconds = START
        self.fails: Callable[[str], None] = lambda path: None

    def now(self) -> float:
        return self.seconds

    def unlink(self, path: str) -> bool:
        self.fails(path)
        return super().unlink(path)


@pytest.fixture
def disk() -> Clock:
    return Clock()


@pytest.fixture
def dataset(tmp_path: Path, disk: Clock, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six commits of two rows, one a day, each in a folder and the second with dead letters; a checkpoint at 4."""
    monkeypatch.setattr(DatasetWriter, "checkpoint_every", 4)
    path = tmp_path / "orders"
    writer = rolls.writer(path, disk, partition_by="day")
    writer.open()
    for day in range(6):
        files = [rolls.stage(writer, [2 * day, 2 * day + 1], f"dt=2026-01-0{day + 1}/")]
        if day == 1:
            writer.add_dead_letters([DeadLetter(rolls.log(), Position(rolls.LEDGER, 2), "odd", b"x", 3)])
        writer.commit(files, [rolls.span(2 * day - 1, 2 * day + 1)])
        disk.seconds += DAY
    writer.close()
    return path


def tree(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file())


def test_old_commits_go_and_nothing_lands_twice(dataset: Path, disk: Clock) -> None:
    # Six days have passed: the commits are 6, 5, 4, 3, 2 and 1 days old.
    found = expire(dataset, 3.5 * DAY, disk)
    assert (found.number, found.entries, found.files, found.rows, found.dead_letters, found.deleted) == (
        3,
        3,
        3,
        6,
        1,
        4,
    )
    assert rolls.rows(dataset) == list(range(6, 12))
    assert not list((dataset / "_fastwire/diverted").iterdir())
    assert rolls.entry(dataset, 7).expired == 3
    report = verify(dataset, strict=True, deep=True)
    assert report.ok and report.removed == [] and report.expired_files == 4 and report.undeleted == []
    assert report.rows == 12 and report.counted_rows == 6 and report.dead_letters == 1
    assert "4 files had expired when they were deleted" in report.proven
    writer = rolls.writer(dataset, disk, partition_by="day")
    assert rolls.end_of(writer.open()) == 11
    with pytest.raises(ValueError, match="overlaps"):
        writer.open().add(rolls.span(-1, 3))
    writer.commit([rolls.stage(writer, [12], "dt=2026-01-01/")], [rolls.span(11, 12)])
    writer.close()
    assert sorted(rolls.rows(dataset)) == list(range(6, 13)) and verify(dataset, strict=True).ok


def test_a_dry_run_says_the_same_and_changes_nothing(dataset: Path, disk: Clock) -> None:
    before = tree(dataset)
    told = expire(dataset, 3.5 * DAY, disk, dry_run=True)
    assert tree(dataset) == before
    assert told == expire(dataset, 3.5 * DAY, disk) and told.deleted == 4


def test_nothing_is_old_enough(dataset: Path, disk: Clock) -> None:
    before = tree(dataset)
    found = expire(dataset, 30 * DAY, disk)
    assert (found.number, found.entries, found.deleted) == (0, 0, 0)
    assert tree(dataset) == before


def test_a_second_call_adds_no_entry(dataset: Path, disk: Clock) -> None:
    expire(dataset, 0.5 * DAY, disk)
    disk.seconds += DAY
    found = expire(dataset, 0.5 * DAY, disk)
    assert (found.number, found.entries, found.files, found.deleted) == (6, 0, 0, 0)
    assert rolls.entries(dataset) == 7 and rolls.rows(dataset) == []


def test_it_ends_before_a_commit_that_is_not_old(dataset: Path, disk: Clock) -> None:
    """A clock that was wrong for a while, and a time that cannot be read, keep what is behind them."""
    for at in (rolls.entry(dataset, 6).at, "yesterday"):
        rolls.rewrite(dataset, 2, at=at)
        assert expire(dataset, 1.5 * DAY, disk, dry_run=True).number == 1


@pytest.mark.parametrize("step", ["staging-made", "log-read", "expiry-linked", "expiry-synced", "expired"])
def test_a_crash_at_each_step_is_made_good(dataset: Path, disk: Clock, step: str) -> None:
    with pytest.raises(rolls.Stopped):
        expire(dataset, 3.5 * DAY, disk, reached=rolls.stop_at(step))
    assert verify(dataset, strict=True).ok
    writer = rolls.writer(dataset, disk, partition_by="day")
    assert rolls.end_of(writer.open()) == 11
    writer.close()
    expire(dataset, 3.5 * DAY, disk)
    assert rolls.rows(dataset) == list(range(6, 12)) and rolls.staging(dataset) == []
    assert sum(rolls.entry(dataset, number).expired == 3 for number in range(1, rolls.entries(dataset) + 1)) == 1
    assert verify(dataset, strict=True, deep=True).ok


def test_a_deletion_that_fails_is_continued(dataset: Path, disk: Clock) -> None:
    gone: list[str] = []

    def fail_at_third(path: str) -> None:
        if "/_fastwire/staging/" not in path and "/.fastwire-" not in path and "/newest/" not in path:
            gone.append(os.path.relpath(path, dataset))
            if len(gone) == 3:
                raise OSError(errno.EROFS, "read-only file system", path)

    disk.fails = fail_at_third
    with pytest.raises(OSError, match="read-only"):
        expire(dataset, 3.5 * DAY, disk)
    assert gone[0] == "dt=2026-01-01/000000000001-0.jsonl", "from the oldest on"
    report = verify(dataset, strict=True)
    assert report.ok and report.expired_files == 2
    assert report.undeleted == ["_fastwire/diverted/000000000002-1.dead", "dt=2026-01-03/000000000003-0.jsonl"]
    disk.fails = lambda path: None
    found = expire(dataset, 3.5 * DAY, disk)
    assert (found.number, found.entries, found.files, found.deleted) == (3, 0, 0, 2)
    assert rolls.rows(dataset) == list(range(6, 12)) and rolls.entries(dataset) == 7
    assert verify(dataset, strict=True).undeleted == []


def test_beside_a_writer_with_an_open_roll(dataset: Path, disk: Clock) -> None:
    writer = rolls.writer(dataset, disk, partition_by="day")
    writer.open()
    staged = rolls.stage(writer, [12], "dt=2026-01-01/")
    expire(dataset, 0.5 * DAY, disk)
    assert rolls.rows(dataset) == []
    writer.commit([staged], [rolls.span(11, 12)])
    assert rolls.rows(dataset) == [12] and rolls.entries(dataset) == 8
    writer.close()
    assert verify(dataset, strict=True).ok


def test_files_that_are_committed_and_not_published_are_published_first(dataset: Path, disk: Clock) -> None:
    writer = rolls.writer(dataset, disk, rolls.stop_at("log-synced"), partition_by="day")
    writer.open()
    with pytest.raises(rolls.Stopped):
        writer.commit([rolls.stage(writer, [12], "dt=2026-01-01/")], [rolls.span(11, 12)])
    writer.close()
    disk.seconds += DAY
    found = expire(dataset, 0.5 * DAY, disk)
    assert (found.files, found.deleted) == (7, 8)
    again = rolls.writer(dataset, disk, partition_by="day")
    assert rolls.end_of(again.open()) == 12
    again.close()
    assert rolls.rows(dataset) == [] and verify(dataset, strict=True).ok


def test_a_staged_copy_keeps_its_commit(dataset: Path, disk: Clock) -> None:
    """A backup that was made while files were published has both names: a writer would publish it again (R13)."""
    entry = rolls.entry(dataset, 2)
    staged = dataset / next(entry.moves(2, "jsonl"))[0]
    staged.parent.mkdir()
    os.link(dataset / "dt=2026-01-02/000000000002-0.jsonl", staged)
    assert expire(dataset, 0.5 * DAY, disk, dry_run=True).number == 1
    # Its writer is dead: opening the dataset clears its staging.
    assert expire(dataset, 0.5 * DAY, disk).number > 1
    assert not (dataset / STAGING / entry.writer).exists()


def test_verify_beside_it(dataset: Path, disk: Clock) -> None:
    """The log says after ``verify`` has read it that a file has expired, and the file is gone before it is checked."""

    class Slow(Clock):
        def size(self, path: str) -> int | None:
            if path.endswith("000000000001-0.jsonl") and rolls.entries(dataset) == 6:
                expire(dataset, 0.5 * DAY, disk)
            return super().size(path)

    report = verify(dataset, strict=True, medium=Slow())
    assert report.ok and report.expired_files > 0 and rolls.entries(dataset) == 7


def test_an_entry_that_expires_itself_is_damage(dataset: Path, disk: Clock) -> None:
    rolls.rewrite(dataset, 3, expired=3)
    with pytest.raises(DatasetDamagedError, match="expires entries that come after it"):
        expire(dataset, 3.5 * DAY, disk, dry_run=True)
    assert [problem.kind for problem in verify(dataset).problems] == ["damaged"]


def test_no_dataset(tmp_path: Path, disk: Clock) -> None:
    for dry_run in (True, False):
        with pytest.raises(DatasetMismatchError, match="there is no dataset here"):
            expire(tmp_path / "none", DAY, disk, dry_run=dry_run)
    assert not (tmp_path / "none").exists()


def test_an_object_store(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)
    writer = DatasetWriter("", rolls.options(), bucket)
    writer.open()
    for first in (0, 10):
        rolls.land(writer, first - 1, first + 9)
    entry = replace(rolls.entry(tmp_path, 2))
    staged = next(entry.moves(2, "jsonl"))[0]
    bucket.copy("000000000002-0.jsonl", staged)
    assert expire("", -1, bucket).number == 1, "a live writer has a staged object of the second"
    assert rolls.rows(tmp_path) == list(range(10, 20))
    bucket.delete([staged])
    assert expire("", -1, bucket).number > 1
    assert rolls.rows(tmp_path) == []
    rolls.land(writer, 19, 20)
    writer.close()
    assert rolls.rows(tmp_path) == [20] and rolls.staging(tmp_path) == []
    report = verify("", medium=bucket, strict=True, deep=True)
    assert report.ok and report.expired_files == 2 and rolls.entry(tmp_path, 3).expired == 1
    assert (tmp_path / entry_name(1)).exists()
