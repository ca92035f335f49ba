"""Limits of a dataset's writer, and rolls or folders that cannot be written."""

import errno
import os
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from fastwire.position import Log, Position, Span
from fastwire_daemon.dataset.commitlog.entry import LogEntry, entry_name
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.runtime.errors import FatalDiskError
from tests.support import rolls


class Stubborn(Disk):
    """Refuses to sync while ``refusing``, or to make one folder, or to link an entry."""

    refusing = ""

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        if self.refusing == "sync" and len(files) > 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO), "a file")
        super().sync(files, folders)

    def link(self, source: str, target: str) -> None:
        if self.refusing == "link" and "-entry" in source:
            raise OSError(errno.EIO, os.strerror(errno.EIO), target)
        super().link(source, target)


def entries(path: Path) -> list[LogEntry]:
    found: list[LogEntry] = []
    while (file := path / entry_name(len(found) + 1)).exists():
        found.append(LogEntry.decode(file.read_bytes(), str(file)))
    return found


def staging(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "_fastwire/staging").iterdir())


@pytest.mark.parametrize("landed", [0, 2])
def test_a_roll_that_fails_again_and_again_leaves_nothing_behind(tmp_path: Path, landed: int) -> None:
    disk = Stubborn()
    writer = rolls.writer(tmp_path, disk)
    writer.open()
    for end in range(landed):
        rolls.land(writer, end - 1, end)
    disk.refusing = "sync"
    for _ in range(5):
        with pytest.raises(FatalDiskError):
            rolls.land(writer, landed - 1, landed)
        writer.open()
        assert len(staging(tmp_path)) <= 1, "only that of the writer that is open"
    assert len(entries(tmp_path)) == landed, "no entry, not even a fence, for what failed"
    disk.refusing = ""
    rolls.land(writer, landed - 1, landed)
    writer.close()
    assert rolls.rows(tmp_path) == list(range(landed + 1))
    assert not any(entry.fence for entry in entries(tmp_path))
    assert staging(tmp_path) == []


def test_a_roll_that_a_link_was_tried_for_is_fenced(tmp_path: Path) -> None:
    """A network file system may still do what it has reported as failed."""
    disk = Stubborn()
    writer = rolls.writer(tmp_path, disk)
    writer.open()
    rolls.land(writer, -1, 0)
    (before,) = staging(tmp_path)
    disk.refusing = "link"
    with pytest.raises(FatalDiskError):
        rolls.land(writer, 0, 1)
    disk.refusing = ""
    writer.open()
    assert [entry.fence for entry in entries(tmp_path)] == [(), (before,)]
    assert before not in staging(tmp_path)
    rolls.land(writer, 0, 1)
    writer.close()
    assert rolls.rows(tmp_path) == [0, 1]


def test_a_process_that_ends_with_a_failure_is_fenced_by_the_next(tmp_path: Path) -> None:
    disk = Stubborn()
    writer = rolls.writer(tmp_path, disk)
    writer.open()
    rolls.land(writer, -1, 0)
    disk.refusing = "sync"
    with pytest.raises(FatalDiskError):
        rolls.land(writer, 0, 1)
    left = staging(tmp_path)
    writer.close()
    other = rolls.writer(tmp_path)
    other.open()
    assert [entry.fence for entry in entries(tmp_path)] == [(), tuple(left)]
    rolls.land(other, 0, 1)
    other.close()
    assert rolls.rows(tmp_path) == [0, 1]
    assert staging(tmp_path) == []


def _peak(path: Path, spans: int, count: int) -> int:
    """Bytes that opening a dataset takes at most whose log has ``count`` entries of so many spans."""
    writer = rolls.writer(path)
    writer.open()
    writer.stage("").close()
    writer.close()
    (path / os.path.dirname(entry_name(1))).mkdir(parents=True, exist_ok=True)
    logs = [Log("pulsar", "broker:6650", "persistent://public/default/orders", str(i)) for i in range(spans)]
    for number in range(1, count + 1):
        start = Position(-1, -1) if number == 1 else Position(rolls.LEDGER, number - 1)
        landed = tuple(Span(log, start, Position(rolls.LEDGER, number), 0) for log in logs)
        entry = LogEntry(writer="0" * 16, roll=number, at="x", spans=landed)
        (path / entry_name(number)).write_bytes(entry.encode())
    writer = rolls.writer(path)
    tracemalloc.start()
    try:
        coverage = writer.open()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rolls.end_of(coverage, spans - 1) == count
    writer.close()
    return peak


def test_opening_holds_one_log_entry_at_a_time(tmp_path: Path) -> None:
    """Whatever the number of entries: decoded all at once, twenty of them take ten times as much as two."""
    assert _peak(tmp_path / "many", 3_000, 20) < 2 * _peak(tmp_path / "few", 3_000, 2)
