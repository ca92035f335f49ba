"""Folders that cannot be written, and many of them: what a dataset's sink does, and what it costs at most."""

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire.position import Log
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.level import level_directory
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.runtime.errors import FolderRefusedError, LogRefusedError
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.testing import Feed
from tests.support import rolls
from tests.support.waiting import eventually

TOPIC = "persistent://public/default/feed"


def dataset(path: Path, disk: Disk | None = None, *, split: str = "none", partition_by: str = "none") -> DatasetSink:
    options = DatasetOptions(
        system="pulsar",
        cluster="feed",
        columns=("value", "timestamp"),
        split=split,
        partition_by=partition_by,
        extension="jsonl",
    )
    sink = DatasetSink(path, options, JsonlEncoder, medium=disk)
    sink.open()
    return sink


def _folder(split: str, partition: int) -> str:
    return level_directory(split, "none", topic=TOPIC, partition=str(partition)).rstrip("/")


class Locked(Disk):
    """One folder into which nothing can be written: ``told`` when it is looked at, or when one is made in it."""

    def __init__(self, folder: Path, *, told: bool) -> None:
        self.folder = str(folder)
        self.told = told

    def is_writable(self, path: str) -> bool:
        return super().is_writable(path) and not (self.told and path == self.folder)

    def make_folder(self, path: str) -> bool:
        if os.path.dirname(path) == self.folder and not os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().make_folder(path)


def _a_file(folder: Path) -> Disk:
    folder.parent.mkdir(parents=True)
    folder.touch()
    return Disk()


def _a_dead_end(folder: Path) -> Disk:
    folder.parent.mkdir(parents=True)
    folder.symlink_to("/no/such/folder")
    return Disk()


def _not_writable(folder: Path) -> Disk:
    folder.mkdir(parents=True)
    return Locked(folder, told=True)


def _nothing_made_in_it(folder: Path) -> Disk:
    folder.mkdir(parents=True)
    return Locked(folder, told=False)


@pytest.mark.parametrize("partition_by", ["none", "day"])
@pytest.mark.parametrize("spoil", [_a_file, _a_dead_end, _not_writable, _nothing_made_in_it])
def test_a_folder_that_cannot_be_written_is_a_matter_of_its_log_alone(
    tmp_path: Path, spoil: Callable[[Path], Disk], partition_by: str
) -> None:
    if spoil is _nothing_made_in_it and partition_by == "none":
        pytest.skip("nothing is made in it")
    bad = tmp_path / _folder("partition", 1)
    disk = spoil(bad)
    sink = dataset(tmp_path, disk, split="partition", partition_by=partition_by)
    feed = Feed(partitions=3, rows=5)
    sink.write(feed.chunk(6))
    with pytest.raises(LogRefusedError, match="p=1") as refused:
        sink.commit()
    assert [refused.value.concerns(log) for log in feed.logs] == [False, True, False]
    assert not refused.value.concerns(Log("pulsar", "feed", f"{TOPIC}s", "1"))
    # Without that log everything lands, and nothing was left behind.
    coverage = sink.open()
    again = Feed(partitions=1, rows=5, start=coverage)
    sink.write(again.chunk(2))
    assert sink.commit().end(again.logs[0]) is not None
    sink.close()
    assert rolls.entries(tmp_path) == 1


def test_the_folder_of_a_topic_is_a_matter_of_all_its_partitions(tmp_path: Path) -> None:
    (tmp_path / _folder("topic", 0)).touch()
    sink = dataset(tmp_path, split="partition")
    feed = Feed(partitions=3, rows=5)
    sink.write(feed.chunk(6))
    with pytest.raises(LogRefusedError) as refused:
        sink.commit()
    assert all(refused.value.concerns(log) for log in feed.logs)
    sink.close()


def test_all_folders_that_cannot_be_written_are_told_at_once(tmp_path: Path) -> None:
    for partition in (0, 2):
        (tmp_path / _folder("topic", 0)).mkdir(exist_ok=True)
        (tmp_path / _folder("partition", partition)).touch()
    sink = dataset(tmp_path, split="partition")
    feed = Feed(partitions=3, rows=5)
    sink.write(feed.chunk(6))
    with pytest.raises(LogRefusedError) as refused:
        sink.commit()
    assert [refused.value.concerns(log) for log in feed.logs] == [True, False, True]
    sink.close()


def test_a_folder_of_all_logs_is_nobodys_matter_alone(tmp_path: Path) -> None:
    feed = Feed(partitions=3, rows=5)
    day = level_directory("none", "day", timestamp_us=1_700_000_000_000_000)
    (tmp_path / day.rstrip("/")).touch()
    sink = dataset(tmp_path, partition_by="day")
    sink.write(feed.chunk(6))
    with pytest.raises(FolderRefusedError, match=r"cannot make the folder .*/dt=2023-11-14: File exists"):
        sink.commit()
    sink.close()


def test_the_datasets_own_folder_is_nobodys_matter_alone(tmp_path: Path) -> None:
    sink = dataset(tmp_path, Locked(tmp_path, told=False), split="topic")
    (tmp_path / "_fastwire").mkdir()
    feed = Feed(partitions=1, rows=5)
    sink.write(feed.chunk(1))
    with pytest.raises(LogRefusedError, match="Permission denied") as refused:
        sink.commit()
    assert not refused.value.concerns(feed.logs[0])
    sink.close()


class ReadOnly(Disk):
    """Becomes read-only between the last write and the commit."""

    readonly = False

    def is_writable(self, path: str) -> bool:
        return super().is_writable(path) and not self.readonly


def test_a_read_only_file_system_is_not_the_matter_of_one_log(tmp_path: Path) -> None:
    disk = ReadOnly()
    sink = dataset(tmp_path, disk, split="topic")
    feed = Feed(partitions=1, rows=5)
    sink.write(feed.chunk(1))
    sink.commit()
    sink.write(feed.chunk(1))
    disk.readonly = True
    with pytest.raises(LogRefusedError, match="is not writable") as refused:
        sink.commit()
    assert not refused.value.concerns(feed.logs[0])
    sink.close()


def test_permissions_are_looked_at_before_every_commit(tmp_path: Path) -> None:
    """A file that is linked and cannot be renamed would stop all logs."""
    disk = Locked(tmp_path / _folder("partition", 1), told=False)
    sink = dataset(tmp_path, disk, split="partition")
    feed = Feed(partitions=2, rows=5)
    sink.write(feed.chunk(4))
    sink.commit()
    disk.told = True
    sink.write(feed.chunk(4))
    with pytest.raises(LogRefusedError, match="is not writable"):
        sink.commit()
    disk.told = False
    coverage = sink.open()
    sink.write(Feed(partitions=2, rows=5, start=coverage).chunk(4))
    sink.commit()
    sink.close()
    assert rolls.entries(tmp_path) == 2


class CountingDisk(Disk):
    """Counts the files that are open for writing, and has only so many descriptors."""

    def __init__(self, descriptors: int = 1 << 30) -> None:
        self.open_now: set[int] = set()
        self.most = 0
        self.descriptors = descriptors
        self.pauses = 0

    def create(self, path: str) -> int:
        if len(self.open_now) >= self.descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        file = super().create(path)
        self.open_now.add(file)
        self.most = max(self.most, len(self.open_now))
        return file

    def close(self, file: int) -> None:
        self.open_now.discard(file)
        super().close(file)

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        self.pauses += 1
        self.descriptors += 1
        return stop.is_set()


HOUR_MS = 3_600_000


def _scattered(path: Path, disk: Disk, hours: int, *, gather_bytes: int = 32 << 20, writers: int = 1) -> DatasetSink:
    """A sink that was given one row for each of so many hours."""
    options = DatasetOptions(
        system="pulsar", cluster="feed", columns=("value", "timestamp"), partition_by="hour", extension="jsonl"
    )
    sink = DatasetSink(path, options, JsonlEncoder, medium=disk, gather_bytes=gather_bytes, writers=writers)
    sink.open()
    feed = Feed(partitions=1, rows=1, entry_ms=HOUR_MS)
    for _ in range(hours // 500):
        sink.write(feed.chunk(500))
    return sink


def _landed(path: Path) -> list[str]:
    """The values in all files, and where each is."""
    found = []
    for file in path.glob("dt=*/hh=*/*.jsonl"):
        found += [json.loads(line)["value"] for line in file.read_text().splitlines()]
    return sorted(found)


@pytest.mark.parametrize("writers", [1, 2])
def test_many_folders_have_few_files_open(tmp_path: Path, writers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (128, 128))
    disk = CountingDisk()
    sink = _scattered(tmp_path, disk, 2_000, writers=writers)
    coverage = sink.commit()
    assert disk.most <= 64 + 1, "half of what the process may have open; and the log entry"
    assert _landed(tmp_path) == sorted(f"0:{entry}:0" for entry in range(2_000))
    assert len(list(tmp_path.glob("dt=*/hh=*/*.jsonl"))) == 2_000, "one file for each hour"
    assert rolls.entries(tmp_path) == 1 and len(coverage) == 1
    sink.close()
    assert not disk.open_now


def test_what_many_folders_take_is_counted_and_ends_the_roll_in_time(tmp_path: Path) -> None:
    """In so little memory the rows of 4,000 folders cannot wait: files are ended for others, and the roll is to end."""
    sink = _scattered(tmp_path, Disk(), 500, gather_bytes=2 << 20)
    coverage = sink.commit()
    assert not sink.too_many_files
    feed = Feed(partitions=1, rows=1, entry_ms=HOUR_MS, start=coverage)
    most = 0
    for _ in range(8):
        sink.write(feed.chunk(500))
        most = max(most, sink.unpooled_bytes)
    eventually(lambda: sink.too_many_files, "the end of the roll is asked for")
    assert most < 4 << 20, "some KiB for each row that waits, and not a hundred for each folder"
    sink.commit()
    assert not sink.too_many_files
    assert len(_landed(tmp_path)) == len(set(_landed(tmp_path))) == 4_500
    sink.close()


def test_a_lack_of_descriptors_is_waited_out_and_told(tmp_path: Path) -> None:
    disk = CountingDisk(3)
    told: list[str] = []
    pause = disk.pause

    def look(seconds: float, stop: threading.Event) -> bool:
        told.append(str(sink.waiting))
        return pause(seconds, stop)

    disk.pause = look  # type: ignore[method-assign]
    options = DatasetOptions(
        system="pulsar", cluster="feed", columns=("value", "timestamp"), partition_by="hour", extension="jsonl"
    )
    sink = DatasetSink(tmp_path, options, JsonlEncoder, medium=disk)
    sink.open()
    sink.write(Feed(partitions=1, rows=1, entry_ms=HOUR_MS).chunk(10))
    sink.commit()
    assert told and "Too many open files" in told[0] and "waiting for a file descriptor (ulimit -n" in told[0]
    assert sink.waiting is None
    assert len(_landed(tmp_path)) == 10
    sink.close()
