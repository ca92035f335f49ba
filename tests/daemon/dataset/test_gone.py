"""A dataset that is no longer at its path: none is created there, and what comes back must be the same one."""

import shutil
from pathlib import Path

import pytest

from fastwire_daemon.dataset.commitlog.chain import tail_of
from fastwire_daemon.dataset.commitlog.entry import entry_name
from fastwire_daemon.dataset.description import DESCRIPTION
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.base import Storage
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.dataset.storage.folder import FolderStorage
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import (
    DatasetDamagedError,
    DatasetGoneError,
    DatasetMismatchError,
    SinkFailedError,
)
from tests.support import rolls, tables
from tests.support.store import LocalBucket


def begun(path: Path, medium: Bucket | None = None) -> DatasetWriter:
    """A writer that has landed ten rows."""
    writer = rolls.writer(path, medium)
    writer.open()
    rolls.land(writer, -1, 9)
    return writer


@pytest.mark.parametrize("when", ["idle", "with an open roll"])
def test_a_folder_that_is_gone_is_waited_for(tmp_path: Path, when: str) -> None:
    path, away = tmp_path / "set", tmp_path / "away"
    writer = begun(path)
    files = [rolls.stage(writer, range(10, 13))] if when == "with an open roll" else []
    path.rename(away)
    with pytest.raises(SinkFailedError):
        writer.commit(files or [rolls.stage(writer, range(10, 13))], [rolls.span(9, 12)])
    for attempt in (writer.open, writer.open):
        with pytest.raises(DatasetGoneError, match=r"folder is gone: .*/set has no"):
            attempt()
    assert not path.exists()
    away.rename(path)
    assert rolls.end_of(writer.open()) == 9
    rolls.land(writer, 9, 12)
    writer.close()
    assert rolls.rows(path) == list(range(13)) and verify(path).ok


def test_an_empty_mount_point_gets_nothing(tmp_path: Path) -> None:
    path, away = tmp_path / "set", tmp_path / "away"
    writer = begun(path)
    path.rename(away)
    path.mkdir()
    with pytest.raises(SinkFailedError):
        rolls.land(writer, 9, 12)
    with pytest.raises(DatasetGoneError):
        writer.open()
    assert list(path.iterdir()) == []
    writer.close()


def test_another_dataset_at_the_path_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set"
    writer = begun(path)
    path.rename(tmp_path / "away")
    other = begun(path)
    with pytest.raises(SinkFailedError):
        rolls.land(writer, 9, 12)
    with pytest.raises(DatasetMismatchError, match=r"another dataset is at .*/set now"):
        writer.open()
    writer.close()
    other.close()
    # A new process takes what is there.
    writer = rolls.writer(path)
    assert rolls.end_of(writer.open()) == 9
    writer.close()


def test_an_older_copy_at_the_path_is_refused(tmp_path: Path) -> None:
    path, copy = tmp_path / "set", tmp_path / "copy"
    writer = begun(path)
    shutil.copytree(path, copy)
    rolls.land(writer, 9, 12)
    shutil.rmtree(path)
    copy.rename(path)
    shutil.rmtree(path / "_fastwire/staging")
    with pytest.raises(SinkFailedError):
        rolls.land(writer, 12, 14)
    with pytest.raises(DatasetDamagedError, match=r"000000000002.json is missing, and this process has .* older copy"):
        writer.open()
    writer.close()


def test_a_copy_that_was_continued_by_another_process_is_refused(tmp_path: Path) -> None:
    path, copy = tmp_path / "set", tmp_path / "copy"
    writer = begun(path)
    shutil.copytree(path, copy)
    rolls.land(writer, 9, 12)
    other = rolls.writer(copy)
    other.open()
    rolls.land(other, 9, 10)
    rolls.land(other, 10, 11)
    other.close()
    shutil.rmtree(path)
    copy.rename(path)
    with pytest.raises(SinkFailedError):
        rolls.land(writer, 12, 14)
    with pytest.raises(DatasetDamagedError, match=r"000000000002.json is another one"):
        writer.open()
    writer.close()


def emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def test_nothing_lands_in_an_emptied_bucket(tmp_path: Path) -> None:
    path, backup = tmp_path / "bucket", tmp_path / "backup"
    writer = begun(path, LocalBucket(path))
    shutil.copytree(path, backup)
    emptied(path)
    with pytest.raises(DatasetGoneError, match=r"the dataset is gone: s3://bucket/orders has no"):
        rolls.land(writer, 9, 12)
    with pytest.raises(DatasetGoneError):
        writer.open()
    assert not (path / DESCRIPTION).exists() and rolls.rows(path) == []
    shutil.copytree(backup, path, dirs_exist_ok=True)
    # The entry that was linked in between is the next one of this log: its rows are read again only if it is gone.
    end = rolls.end_of(writer.open())
    rolls.land(writer, end, 15)
    writer.close()
    assert rolls.rows(path) == list(range(16))


@pytest.mark.parametrize("gone", [DESCRIPTION, entry_name(1)])
def test_a_first_entry_counts_only_beside_its_description(tmp_path: Path, gone: str) -> None:
    writer = rolls.writer(tmp_path, LocalBucket(tmp_path))
    writer.open()
    if gone == entry_name(1):
        rolls.land(writer, -1, 9)
    staged = rolls.stage(writer, range(10, 12))
    (tmp_path / gone).unlink()
    with pytest.raises(DatasetGoneError):
        writer.commit([staged], [rolls.span(-1 if gone == DESCRIPTION else 9, 11, rows=2)])
    writer.close()


def test_a_folder_that_vanishes_while_it_is_opened_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, away = tmp_path / "set", tmp_path / "away"
    begun(path).close()

    def vanished(storage: Storage, number: int) -> int:
        path.rename(away)
        path.mkdir()
        return tail_of(storage, number)

    monkeypatch.setattr("fastwire_daemon.dataset.writer.tail_of", vanished)
    writer = rolls.writer(path)
    with pytest.raises(DatasetGoneError):
        writer.open()
    assert list(path.iterdir()) == []
    writer.close()


def test_the_entry_before_in_an_emptied_bucket_is_not_enough(tmp_path: Path) -> None:
    """Its writer had no answer to the request to create it, and has asked again in the emptied bucket."""
    writer = begun(tmp_path, LocalBucket(tmp_path))
    name = entry_name(1)
    before = (tmp_path / name).read_bytes()
    emptied(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(before)
    with pytest.raises(DatasetGoneError):
        rolls.land(writer, 9, 12)
    writer.close()
    assert not (tmp_path / DESCRIPTION).exists() and rolls.rows(tmp_path) == []


def test_an_entry_of_another_process_in_an_emptied_bucket_is_not_followed(tmp_path: Path) -> None:
    bucket = LocalBucket(tmp_path)
    writer, other = begun(tmp_path, bucket), rolls.writer(tmp_path, bucket)
    other.open()
    staged = rolls.stage(other, range(10, 13))
    emptied(tmp_path)
    with pytest.raises(DatasetGoneError):
        other.commit([staged], [rolls.span(9, 12)])
    with pytest.raises(DatasetGoneError):
        writer.refresh()
    writer.close()
    other.close()


def test_a_table_that_is_gone_is_not_made_again_by_the_process_that_has_seen_it(tmp_path: Path) -> None:
    writer = tables.writer(tmp_path)
    writer.open()
    tables.land(writer, -1, 4)
    shutil.rmtree(tmp_path / "_delta_log")
    tables.land(writer, 4, 5)
    assert writer.stopped
    writer.open()
    assert "is gone, or another one" in writer.stopped
    assert not (tmp_path / "_delta_log").exists()
    writer.close()


@pytest.mark.parametrize("back", ["later", "at once"])
def test_an_entry_whose_file_is_out_of_reach_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: str
) -> None:
    """Its writer died before the file was visible, and the dataset is gone when another one is to publish it.

    A missing staged file is not taken for one that was published: a checkpoint would let its folder be deleted.
    """
    path, away = tmp_path / "set", tmp_path / "away"
    begun(path).close()
    other = rolls.writer(path)
    other.open()
    dead = rolls.writer(path, reached=rolls.stop_at("log-synced"))
    dead.open()
    with pytest.raises(rolls.Stopped):
        rolls.land(dead, 9, 12)
    freshen = FolderStorage.freshen

    def unmounted(storage: FolderStorage, staged: str, *, fresh: bool = False) -> bool:
        path.rename(away)
        found = freshen(storage, staged, fresh=fresh)
        if back == "at once":
            away.rename(path)
            monkeypatch.undo()
        return found

    monkeypatch.setattr(FolderStorage, "freshen", unmounted)
    if back == "later":
        with pytest.raises(DatasetGoneError):
            other.refresh()
        assert rolls.end_of(other.coverage) == 9
        monkeypatch.undo()
        away.rename(path)
        other.open()
    else:
        other.refresh()
    assert rolls.end_of(other.coverage) == 12 and rolls.rows(path) == list(range(13))
    other.close()
    dead.close()
    assert verify(path).ok
