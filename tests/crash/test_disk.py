"""Disks that are full, that fail to sync, and that may not be written."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.crash.preload import failing_fsync, full_disk
from tests.crash.scene import Scene
from tests.crash.space import SmallDisk
from tests.stores.place import FolderPlace
from tests.support.nursery import Nursery
from tests.support.waiting import eventually

pytestmark = pytest.mark.crash


def scene_on(disk: SmallDisk, dev_scene: Callable[..., Scene], **options: Any) -> Scene:
    """A scene whose dataset is on the small disk."""
    scene: Scene = dev_scene(**options)
    object.__setattr__(scene.job, "path", disk.path / "data")
    scene.place = FolderPlace(disk.seen / "data")
    return scene


@contextmanager
def freed_after(disk: SmallDisk, seconds: float) -> Iterator[None]:
    """Delete the filler after a while, and before the disk goes."""
    timer = threading.Timer(seconds, lambda: os.unlink(disk.seen / "filler"))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_full_disk_in_the_middle_of_a_file_is_waited_out(dev_scene: Callable[..., Scene], tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 6) as disk:
        scene = scene_on(disk, dev_scene, sink={"compression": "none"})
        scene.feed.size = 1000
        scene.feed.add(30)
        # One file of 3 MB does not fit beside the filler.
        (disk.seen / "filler").write_bytes(bytes(5 << 20))
        job = {"roll": {"rows": 100_000, "idle": "500ms"}}
        with scene.run(prefix=disk.prefix, job=job) as daemon:
            daemon.wait_for("No space left on device")
            assert disk.free == 0
            assert not list(scene.path.glob("*.parquet"))
            os.unlink(disk.seen / "filler")
            daemon.wait_done()
        scene.judge()


@pytest.mark.parametrize("step", ["log-read", "files-synced", "committed"])
def test_full_disk_when_a_log_entry_is_written_is_waited_out(
    dev_scene: Callable[..., Scene], tmp_path: Path, step: str
) -> None:
    with SmallDisk(tmp_path / "disk", 4) as disk:
        scene = scene_on(disk, dev_scene)
        scene.feed.add(20)
        scene.feed.add(4)
        script = {"at": step, "do": "fill", "folder": str(disk.path)}
        with scene.run(prefix=disk.prefix, script=script) as daemon:
            eventually(lambda: disk.free == 0 and (disk.seen / "filler").exists(), "a full disk")
            with freed_after(disk, 1.5):
                daemon.wait_done()
        scene.judge()


@pytest.mark.parametrize("within", ["-entry.part", "-dataset.part", "-0.part", "-checkpoint.part"])
def test_full_disk_in_the_middle_of_a_write_is_waited_out(
    dev_scene: Callable[..., Scene], tampered_nursery: Nursery, within: str
) -> None:
    """Half of it is written; then there is no space, twice."""
    scene = dev_scene()
    scene.feed.add(12)
    script = {"checkpoint_every": 1}
    with scene.run(env=full_disk(within), script=script, nursery=tampered_nursery) as daemon:
        daemon.wait_done()
    # A checkpoint can be left undone; for everything else the writer waits.
    waited = "No space left on device" in daemon.output and "waiting for space" in daemon.output
    assert waited or within == "-checkpoint.part", daemon.output
    scene.judge()


@pytest.mark.parametrize("first", [1, 7, 13])
def test_failed_fsync_is_never_believed(dev_scene: Callable[..., Scene], tampered_nursery: Nursery, first: int) -> None:
    """Any one of the first 18 fails; each time another one, on the same dataset."""
    scene = dev_scene()
    for nth in range(first, first + 6):
        scene.feed.add(6)
        with scene.run(env=failing_fsync(scene.path, nth), nursery=tampered_nursery) as daemon:
            # Opening again as after a crash, or giving up: both lose nothing.
            assert daemon.wait() in (0, 1), daemon.tail()
    scene.settle()
    scene.judge()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("first", [1, 5])
def test_full_disk_that_only_fsync_reports_is_waited_out(
    dev_scene: Callable[..., Scene], tampered_nursery: Nursery, first: int, code: int
) -> None:
    """Three in a row, at the start or in the middle: the daemon says so, opens anew and goes on."""
    scene = dev_scene()
    scene.feed.add(12)
    env = failing_fsync(scene.path, first, times=3, code=code)
    with scene.run(env=env, nursery=tampered_nursery) as daemon:
        daemon.wait_done()
    assert os.strerror(code) in daemon.output, daemon.output
    scene.judge()


@pytest.mark.parametrize("exists", [False, True])
def test_read_only_folder_is_waited_out_at_the_start(
    dev_scene: Callable[..., Scene], tmp_path: Path, exists: bool
) -> None:
    with SmallDisk(tmp_path / "disk", 8) as disk:
        scene = scene_on(disk, dev_scene)
        if exists:
            scene.feed.add(4)
            with scene.run(prefix=disk.prefix) as daemon:
                daemon.wait_done()
        scene.feed.add(4)
        disk.remount("ro")
        with scene.run(prefix=disk.prefix) as daemon:
            daemon.wait_for("Read-only file system")
            assert str(disk.path) in daemon.output
            assert scene.unacknowledged()
            disk.remount("rw")
            daemon.wait_done()
        scene.judge()
