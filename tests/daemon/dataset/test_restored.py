"""Backups that were restored in part: nothing visible is replaced, and what is missing is named."""

import os
import shutil
from pathlib import Path

import pytest

from fastwire_daemon.dataset.commitlog.entry import entry_name
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.runtime.errors import DatasetDamagedError
from tests.support import rolls


def landed(path: Path, entries: int = 2) -> None:
    """So many log entries with a file of ten rows each."""
    writer = rolls.writer(path)
    writer.open()
    for first in range(0, 10 * entries, 10):
        rolls.land(writer, first - 1, first + 9)
    writer.close()


def test_a_log_without_its_end_is_refused_and_nothing_is_replaced(tmp_path: Path) -> None:
    landed(tmp_path)
    newest = tmp_path / entry_name(2)
    os.rename(newest, tmp_path / "saved")
    shutil.rmtree(tmp_path / "_fastwire/newest")  # as older versions leave it
    writer = rolls.writer(tmp_path)
    assert rolls.end_of(writer.open()) == 9
    with pytest.raises(DatasetDamagedError, match=r"000000000002-0.jsonl exists, but the commit log ends with entry 1"):
        rolls.land(writer, 9, 12)
    assert rolls.entries(tmp_path) == 1 and rolls.rows(tmp_path) == list(range(20))
    # With the rest of the backup it goes on.
    os.rename(tmp_path / "saved", newest)
    assert rolls.end_of(writer.open()) == 19
    rolls.land(writer, 19, 22)
    assert rolls.rows(tmp_path) == list(range(23))
    writer.close()


LOST = {
    "the first entry": ([1], "000000000001.json is missing, but there are later log entries, up to 5"),
    "the first two": ([1, 2], "000000000001.json is missing, but there are later log entries, up to 5"),
    "one in the middle": ([3], "000000000003.json is missing, but there are later log entries, up to 5"),
    "the newest": ([5], "ends with entry 4, but 5 was committed: .*newest/000000000005.json is a copy of it"),
    "all": ([1, 2, 3, 4, 5], "ends with entry 0, but 5 was committed"),
}


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("lost", LOST)
def test_a_log_that_lacks_entries_is_refused(
    tmp_path: Path, lost: str, checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, said = LOST[lost]
    if checkpoint:
        monkeypatch.setattr("fastwire_daemon.dataset.writer.DatasetWriter.checkpoint_every", 4)
    landed(tmp_path, 5)
    for number in numbers:
        (tmp_path / entry_name(number)).unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DatasetDamagedError, match="there is a checkpoint" if checkpoint and lost == "all" else said):
        rolls.writer(tmp_path).open()
    assert [path for path in sorted(tmp_path.rglob("*")) if "staging" not in path.parts] == [
        path for path in before if "staging" not in path.parts
    ]


def test_files_without_any_log_are_refused(tmp_path: Path) -> None:
    landed(tmp_path)
    shutil.rmtree(tmp_path / "_fastwire/newest")
    shutil.rmtree(tmp_path / "_fastwire/log")
    with pytest.raises(DatasetDamagedError, match=r"is a data file, but the commit log, .* is empty"):
        rolls.writer(tmp_path).open()
    shutil.rmtree(tmp_path / "_fastwire")
    writer = rolls.writer(tmp_path)
    writer.open()
    with pytest.raises(DatasetDamagedError, match="is empty: the log is lost"):
        rolls.land(writer, -1, 0)
    writer.close()


def test_other_files_beside_an_empty_log_are_let_be(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("{}")
    (tmp_path / ".000000000001-0.jsonl").write_text("{}")
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()


def test_a_lost_end_can_be_given_up_on_purpose(tmp_path: Path) -> None:
    landed(tmp_path)
    (tmp_path / entry_name(2)).unlink()
    (tmp_path / "000000000002-0.jsonl").unlink()
    with pytest.raises(DatasetDamagedError, match="To go on without what is lost, remove"):
        rolls.writer(tmp_path).open()
    shutil.rmtree(tmp_path / "_fastwire/newest")
    writer = rolls.writer(tmp_path)
    assert rolls.end_of(writer.open()) == 9
    rolls.land(writer, 9, 12)
    writer.close()


def test_each_writer_keeps_one_note_and_the_next_open_the_newest(tmp_path: Path) -> None:
    first, second = rolls.writer(tmp_path), rolls.writer(tmp_path)
    first.open()
    rolls.land(first, -1, 0)
    second.open()
    rolls.land(second, 0, 1)
    first.refresh()
    rolls.land(first, 1, 2)
    rolls.land(first, 2, 3)
    notes = tmp_path / "_fastwire/newest"
    assert sorted(file.name for file in notes.iterdir()) == ["000000000002.json", "000000000004.json"]
    first.close()
    second.close()
    second.open()
    assert [file.name for file in notes.iterdir()] == ["000000000004.json"]
    second.close()


@pytest.mark.parametrize("rename", ["the kernel refuses", "the kernel cannot refuse"])
def test_a_file_that_takes_the_name_after_the_commit_is_not_replaced(
    tmp_path: Path, rename: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rename == "the kernel cannot refuse":
        monkeypatch.setattr("fastwire_daemon.dataset.storage.disk._RENAMEAT2", None)
    target = tmp_path / "000000000001-0.jsonl"

    def reached(step: str) -> None:
        if step == "log-synced":
            target.write_text('{"value": -1}\n')

    writer = rolls.writer(tmp_path, reached=reached)
    writer.open()
    with pytest.raises(DatasetDamagedError, match="is not the file that the commit log names"):
        rolls.land(writer, -1, 0)
    assert rolls.rows(tmp_path) == [-1]
    with pytest.raises(DatasetDamagedError):
        rolls.writer(tmp_path).open()
    # The committed file is still there, and appears as soon as its name is free.
    target.unlink()
    assert rolls.end_of(writer.open()) == 0
    assert rolls.rows(tmp_path) == [0]
    writer.close()


def test_a_file_under_both_names_was_published(tmp_path: Path) -> None:
    """A backup that was made while a file was published may hold it twice."""
    writer = rolls.writer(tmp_path, reached=rolls.stop_at("log-synced"))
    writer.open()
    with pytest.raises(rolls.Stopped):
        rolls.land(writer, -1, 0)
    (staged,) = [name for name in rolls.staging(tmp_path) if name.endswith("1-0.part")]
    shutil.copyfile(tmp_path / "_fastwire/staging" / staged, tmp_path / "000000000001-0.jsonl")
    assert rolls.end_of(writer.open()) == 0
    rolls.land(writer, 0, 1)
    writer.close()
    assert rolls.rows(tmp_path) == [0, 1]
    assert rolls.staging(tmp_path) == []


class OldSystem(Disk):
    """Two names of one file: what a rename over itself leaves alone."""

    def rename(self, source: str, target: str) -> None:
        os.link(source, target)
        super().rename(source, target)


def test_two_names_of_one_file_are_one_publication(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, OldSystem())
    writer.open()
    rolls.land(writer, -1, 0)
    rolls.land(writer, 0, 1)
    writer.close()
    assert rolls.rows(tmp_path) == [0, 1] and rolls.staging(tmp_path) == []


@pytest.mark.parametrize("code", ["EINVAL", "ENOSYS"])
def test_a_file_system_without_that_rename(tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes
    import errno

    def refuse(*_: object) -> int:
        ctypes.set_errno(getattr(errno, code))
        return -1

    monkeypatch.setattr("fastwire_daemon.dataset.storage.disk._RENAMEAT2", refuse)
    landed(tmp_path)
    assert rolls.rows(tmp_path) == list(range(20))
    with pytest.raises(FileExistsError):
        Disk().rename(str(tmp_path / "000000000001-0.jsonl"), str(tmp_path / "000000000002-0.jsonl"))
    with pytest.raises(FileNotFoundError):
        Disk().rename(str(tmp_path / "gone"), str(tmp_path / "000000000002-0.jsonl"))
    assert rolls.rows(tmp_path) == list(range(20))
