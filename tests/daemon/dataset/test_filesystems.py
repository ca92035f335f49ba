"""File systems that disturb a commit: folders go, links are repeated, every writer gets a lock."""

import errno
import os
from pathlib import Path

import pytest

from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.runtime.errors import DatasetError, FolderRefusedError, SinkFailedError
from tests.support import rolls
from tests.support.mounts import unshared


class RefusingDisk(Disk):
    """A network file system that repeats a link whose answer was lost."""

    def __init__(self) -> None:
        self.wanted = 0

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        if "/log/" in target:
            self.wanted -= 1
            if self.wanted == 0:
                super().link(source, target)


@pytest.mark.parametrize("wanted", [1, 2])
def test_a_link_that_is_reported_as_refused_was_ours(tmp_path: Path, wanted: int) -> None:
    disk = RefusingDisk()
    writer = rolls.writer(tmp_path, disk)
    writer.open()
    disk.wanted = wanted
    assert rolls.end_of(rolls.land(writer, -1, 0)) == 0
    assert rolls.end_of(rolls.land(writer, 0, 1)) == 1
    assert rolls.rows(tmp_path) == [0, 1] and rolls.entries(tmp_path) == 2
    writer.close()


def test_a_folder_that_was_archived_is_made_again(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, partition_by="day")
    writer.open()
    for number in range(3):
        staged = rolls.stage(writer, [number], "dt=2026-01-01/")
        writer.commit([staged], [rolls.span(number - 1, number)])
        if number == 0:
            os.rename(tmp_path / "dt=2026-01-01", tmp_path.parent / f"{tmp_path.name}-archive")
        assert (tmp_path / "dt=2026-01-01").exists() == (number != 0)
    assert rolls.rows(tmp_path) == [1, 2]
    writer.close()


def test_a_folder_that_vanishes_in_the_middle_of_a_commit_is_made_again(tmp_path: Path) -> None:
    def reached(step: str) -> None:
        if step == "log-synced" and (tmp_path / "dt=2026-01-01").exists():
            (tmp_path / "dt=2026-01-01").rmdir()

    writer = rolls.writer(tmp_path, reached=reached, partition_by="day")
    writer.open()
    staged = rolls.stage(writer, [0], "dt=2026-01-01/")
    writer.commit([staged], [rolls.span(-1, 0)])
    assert rolls.rows(tmp_path) == [0]
    writer.close()


class Overtaken(Disk):
    """Another process publishes each file at the very moment when this one would."""

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        super().rename(source, target)


def test_a_file_that_somebody_else_publishes_at_the_same_moment(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, Overtaken())
    writer.open()
    rolls.land(writer, -1, 0)
    rolls.land(writer, 0, 1)
    assert rolls.rows(tmp_path) == [0, 1]
    writer.close()


class Swept(Disk):
    """Another writer that clears up removes a new writer's folder before it has a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.swept: list[str] = []

    def lock(self, path: str) -> int | None:
        folder = os.path.dirname(path)
        if len(self.swept) < 2 and not os.listdir(folder):
            self.swept.append(folder)
            os.rmdir(folder)
        return super().lock(path)


def test_a_new_writer_whose_folder_is_taken_for_a_dead_ones(tmp_path: Path) -> None:
    disk = Swept()
    writer = rolls.writer(tmp_path, disk)
    writer.open()
    rolls.land(writer, -1, 0)
    assert rolls.rows(tmp_path) == [0]
    assert len(set(disk.swept)) == 2
    writer.close()


class LyingLocks(Disk):
    """A network file system that gives a lock to whoever asks."""

    def lock(self, path: str) -> int | None:
        return os.open(path, os.O_RDWR | os.O_CREAT)


def test_nobody_fences_itself(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, LyingLocks())
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    writer.open()
    rolls.land(writer, 0, 1)
    other = rolls.writer(tmp_path, LyingLocks())
    other.open()
    assert [len(rolls.entry(tmp_path, number).fence) for number in (1, 2, 3)] == [0, 0, 1]
    # It has lost what was not committed, and nothing else.
    with pytest.raises(SinkFailedError):
        rolls.land(writer, 1, 2)
    assert rolls.end_of(writer.open()) == 1
    rolls.land(writer, 1, 2)
    assert rolls.rows(tmp_path) == [0, 1, 2]
    writer.close()
    other.close()


class TwoMounts(Disk):
    """A bind mount or a project quota: one device, and nothing gets from one side to the other."""

    def __init__(self, other: str) -> None:
        self.other = other
        self.mounted = True

    def _check(self, source: str, target: str) -> None:
        if self.mounted and (self.other in f"{source}/") != (self.other in f"{target}/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)

    def link(self, source: str, target: str) -> None:
        self._check(source, target)
        super().link(source, target)

    def rename(self, source: str, target: str) -> None:
        self._check(source, target)
        super().rename(source, target)


@pytest.mark.parametrize(
    ("other", "named"),
    [("/_fastwire/", ""), ("/_fastwire/log/", "_fastwire/log"), ("/_fastwire/staging/", ""), ("/writer/", "")],
)
def test_another_mount_within_the_dataset_is_refused_at_open(tmp_path: Path, other: str, named: str) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    disk = TwoMounts(other)
    refused = rolls.writer(tmp_path, disk)
    if other == "/writer/":
        disk.mounted = False  # nothing of that name
        refused.open()
    else:
        with pytest.raises(
            (DatasetError, FolderRefusedError),
            match=f"{tmp_path / named!s}: files cannot be moved into it from .*staging/",
        ):
            refused.open()
    refused.close()
    assert rolls.rows(tmp_path) == [0] and sorted(file.name for file in tmp_path.iterdir())[1:] == ["_fastwire"]


def test_another_mount_is_refused_before_anything_is_committed(tmp_path: Path) -> None:
    (tmp_path / "dt=2026-01-01").mkdir()
    writer = rolls.writer(tmp_path, TwoMounts("/dt=2026-01-01/"), partition_by="day")
    writer.open()
    staged = rolls.stage(writer, [0], "dt=2026-01-01/")
    with pytest.raises(FolderRefusedError, match="dt=2026-01-01: files cannot be moved into it from"):
        writer.commit([staged], [rolls.span(-1, 0)])
    assert rolls.entries(tmp_path) == 0
    assert list((tmp_path / "dt=2026-01-01").iterdir()) == []


def test_a_mount_that_comes_between_commit_and_publication_loses_nothing(tmp_path: Path) -> None:
    disk = TwoMounts("/dt=2026-01-01/")
    disk.mounted = False

    def reached(step: str) -> None:
        disk.mounted = disk.mounted or step == "log-synced"

    writer = rolls.writer(tmp_path, disk, reached, partition_by="day")
    writer.open()
    staged = rolls.stage(writer, [0], "dt=2026-01-01/")
    with pytest.raises(DatasetError, match="a bind mount or a project quota"):
        writer.commit([staged], [rolls.span(-1, 0)])
    with pytest.raises((DatasetError, FolderRefusedError), match="a bind mount or a project quota"):
        writer.open()
    assert rolls.entries(tmp_path) == 1 and rolls.rows(tmp_path) == []
    disk.other = "nowhere"
    assert rolls.end_of(writer.open()) == 0
    assert rolls.rows(tmp_path) == [0]
    writer.close()


BOUND = """
import subprocess, sys
from pathlib import Path
from tests.support import rolls
from fastwire_daemon.runtime.errors import FolderRefusedError

path = Path(sys.argv[1])
writer = rolls.writer(path / "set", partition_by="day")
writer.open()
day = "dt=2026-01-01/"
writer.commit([rolls.stage(writer, [0], day)], [rolls.span(-1, 0)])
writer.close()
for bound in ("set/" + day, "set/_fastwire/log"):
    subprocess.run(["mount", "--bind", path / bound, path / bound], check=True)
    assert (path / bound).stat().st_dev == path.stat().st_dev
    try:
        writer.open()
        writer.commit([rolls.stage(writer, [1], day)], [rolls.span(0, 1)])
    except FolderRefusedError as exc:
        print(str(exc).split(": ")[0].removeprefix(f"{path}/"))
    subprocess.run(["umount", path / bound], check=True)
writer.open()
writer.commit([rolls.stage(writer, [1], day)], [rolls.span(0, 1)])
writer.close()
assert rolls.rows(path / "set") == [0, 1]
"""


def test_a_real_bind_mount(tmp_path: Path) -> None:
    done = unshared(BOUND, tmp_path)
    assert (done.stdout, done.stderr) == ("set/dt=2026-01-01\nset/_fastwire/log\n", "")


class TwoDevices(Disk):
    def device(self, path: str) -> int:
        return 2 if path.endswith("dt=2026-01-01") else 1


def test_another_device_is_refused_before_anything_is_committed(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, TwoDevices(), partition_by="day")
    writer.open()
    staged = rolls.stage(writer, [0], "dt=2026-01-01/")
    with pytest.raises(FolderRefusedError, match="dt=2026-01-01 is on another device than"):
        writer.commit([staged], [rolls.span(-1, 0)])
    assert rolls.entries(tmp_path) == 0
