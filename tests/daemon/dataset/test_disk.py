"""A full disk, a failing one, a read-only one: what is waited out, what is given up, and what is said about it."""

import errno
import io
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage import patience
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.dataset.storage.folder import FolderStorage
from fastwire_daemon.dataset.storage.patience import Impatience, Patience, PatientFile
from fastwire_daemon.dataset.storage.probe import Check, probe
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import DiskFullError, FatalDiskError, SinkFailedError
from tests.support import rolls
from tests.support.mounts import unshared


class FullDisk(Disk):
    """Has ``space`` operations left that need some; each pause makes room for one more."""

    def __init__(self, space: int = 1 << 60, code: int = errno.ENOSPC) -> None:
        self.space = space
        self.code = code
        self.pauses = 0
        self.on_pause: Callable[[], None] = lambda: None

    def _need(self, path: str) -> None:
        if self.space <= 0:
            raise OSError(self.code, os.strerror(self.code), path)
        self.space -= 1

    def create(self, path: str) -> int:
        self._need(path)
        return super().create(path)

    def write(self, file: int, data: memoryview) -> int:
        self._need("")
        return super().write(file, data[: max(1, len(data) // 2)])

    def link(self, source: str, target: str) -> None:
        self._need(target)
        super().link(source, target)

    def rename(self, source: str, target: str) -> None:
        self._need(target)
        super().rename(source, target)

    def make_folder(self, path: str) -> bool:
        self._need(path)
        return super().make_folder(path)

    def pause(self, seconds: float, stop: threading.Event) -> bool:
        self.pauses += 1
        self.space += 1
        self.on_pause()
        return stop.is_set()


class BegunDisk(Disk):
    """Notes the ranges that the kernel is to write before the sync."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[int, int]] = []
        self.written = 0

    def write(self, file: int, data: memoryview) -> int:
        self.written += (some := super().write(file, data[: 48 << 10]))
        return some

    def begin_sync(self, file: int, first: int, size: int) -> None:
        assert first + size == self.written, "all that the kernel has, and nothing else"
        self.begun.append((first, size))
        super().begin_sync(file, first, size)


def test_a_large_file_reaches_the_disk_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_BEGUN_BYTES", 128 << 10)
    disk = BegunDisk()
    storage = FolderStorage(str(tmp_path), disk, Patience(disk))
    piece = bytes(range(256)) * (5 << 6)  # 80 KiB
    with storage.create("large") as file:
        for _ in range(7):
            file.write(piece)
        file.write(b"end")
        file.flush()
        assert disk.begun == [(0, 160 << 10), (160 << 10, 160 << 10), (320 << 10, 160 << 10)]
        storage.sync([file])
    assert (tmp_path / "large").read_bytes() == piece * 7 + b"end"
    disk.begin_sync = lambda *_: pytest.fail("a small file is written by its sync")  # type: ignore[method-assign]
    storage.write_synced("small", piece)


def test_an_error_of_a_write_that_was_only_begun_is_left_to_the_sync(tmp_path: Path) -> None:
    disk = Disk()
    read, write = os.pipe()
    try:
        disk.begin_sync(write, 0, 1)
        with pytest.raises(OSError, match="Invalid argument"):
            disk.sync([write])
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_waited_out_wherever_it_is_met(tmp_path: Path, code: int) -> None:
    disk = FullDisk(0, code)
    said: list[str | None] = []
    writer = DatasetWriter(tmp_path / "orders", rolls.options(), disk, on_full=said.append)
    writer.open()
    for number in range(-1, 3):
        rolls.land(writer, number, number + 1)
    writer.close()
    assert rolls.rows(tmp_path / "orders") == [0, 1, 2, 3]
    assert disk.pauses > 20
    assert said[:2] == [f"{os.strerror(code)}: {tmp_path}/orders; waiting for space", None]
    assert said[::2] == [text for text in said if text] and set(said[1::2]) == {None}, "full, free, full, free"
    assert {text.split(": ")[1].split("/")[-1].split("; ")[0] for text in said if text} >= {
        "orders",
        "log",
        "1-dataset.part",
        "1-0.part",
        "2-entry.part",
        "dataset.json",
        "000000000001.json",
        "000000000004-0.jsonl",
    }


def test_the_wait_ends_when_somebody_stops_it(tmp_path: Path) -> None:
    disk, stop = FullDisk(), threading.Event()
    writer = DatasetWriter(tmp_path, rolls.options(), disk, stop=stop)
    writer.open()
    staged = rolls.stage(writer, range(10))
    disk.space = -10
    disk.on_pause = stop.set
    with pytest.raises(SinkFailedError, match=r"stopped while waiting for space to write .*/1-0\.part"):
        writer.commit([staged], [rolls.span(-1, 9)])
    assert disk.pauses == 1
    assert rolls.visible(tmp_path) == {}
    disk.space, disk.on_pause = 1 << 60, lambda: None
    stop.clear()
    assert rolls.end_of(writer.open()) == -1
    rolls.land(writer, -1, 9)
    assert rolls.rows(tmp_path) == list(range(10))
    writer.close()


def test_a_checkpoint_is_not_waited_for(tmp_path: Path) -> None:
    disk = FullDisk()
    writer = rolls.writer(tmp_path, disk)
    writer.checkpoint_every = 2
    writer.open()
    rolls.land(writer, -1, 0)
    rolls.land(writer, 0, 1)
    disk.space = 0
    writer.refresh()
    assert disk.pauses == 0 and not (tmp_path / "_fastwire/checkpoint").exists()
    disk.space = 1 << 60
    rolls.land(writer, 1, 2)
    rolls.land(writer, 2, 3)
    writer.refresh()
    assert [file.name for file in (tmp_path / "_fastwire/checkpoint").iterdir()] == ["000000000004.json"]
    writer.close()
    assert list((tmp_path / "_fastwire/staging").iterdir()) == []


def test_encoders_do_not_notice(tmp_path: Path) -> None:
    """pyarrow's own writer is dead after one failed write; through our file it never sees one."""
    disk = FullDisk(3)
    table = pa.table({"value": [os.urandom(1000) for _ in range(2000)]})
    file = PatientFile(disk, str(tmp_path / "x.parquet"), Patience(disk))
    pq.write_table(table, file)
    file.flush()
    file.close()
    assert disk.pauses > 3
    assert pq.read_table(tmp_path / "x.parquet") == table


def test_a_patient_file_is_a_file(tmp_path: Path) -> None:
    disk = Disk()
    file = PatientFile(disk, str(tmp_path / "x"), Patience(disk))
    assert isinstance(file, io.RawIOBase) and file.writable() and not file.readable() and not file.closed
    with io.TextIOWrapper(io.BufferedWriter(file)) as text:
        text.write("hello")
        text.flush()
        file.flush()
        assert (tmp_path / "x").read_text() == "hello"
    assert file.closed
    with pytest.raises(FileExistsError):
        PatientFile(disk, str(tmp_path / "x"), Patience(disk))


def test_other_failures_are_not_waited_for(tmp_path: Path) -> None:
    disk = FullDisk(0, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        PatientFile(disk, str(tmp_path / "x"), Patience(disk))
    assert disk.pauses == 0
    with pytest.raises(OSError, match="No space left"):
        PatientFile(FullDisk(0), str(tmp_path / "x"), Impatience(disk))


class BrokenDisk(Disk):
    """While ``broken`` names an operation, that one fails."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.broken = ""

    def __getattribute__(self, name: str) -> Any:
        get = object.__getattribute__
        if name == get(self, "__dict__").get("broken"):

            def refuse(*arguments: object, **more: object) -> None:
                raise OSError(self.code, os.strerror(self.code), str(arguments))

            return refuse
        return get(self, name)


# What a writer asks of the disk; a file system that turns read-only, breaks or has gone stale refuses any of it.
OPERATIONS = (
    "create",
    "write",
    "sync",
    "link",
    "rename",
    "touch",
    "read",
    "names",
    "exists",
    "unlink",
    "lock",
    "device",
)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_disk_that_refuses_for_a_while_loses_nothing(tmp_path: Path, operation: str, code: int) -> None:
    disk = BrokenDisk(code)
    writer = rolls.writer(tmp_path, disk)
    writer.open()
    rolls.land(writer, -1, 9)
    disk.broken = operation
    for _ in range(3):
        try:
            rolls.land(writer, (end := rolls.end_of(writer.coverage)), end + 2)
        except SinkFailedError:
            pass
        try:
            writer.open()
        except SinkFailedError as exc:
            assert os.strerror(code) in str(exc)  # noqa: PT017 - not every operation is needed
    disk.broken = ""
    end = rolls.end_of(writer.open())
    rolls.land(writer, end, 29)
    writer.close()
    assert rolls.rows(tmp_path) == list(range(30)) and verify(tmp_path, deep=True).ok


# --- failing syncs


class FailingDisk(Disk):
    """The sync number ``failing`` fails; a sync of several counts once."""

    def __init__(self, code: int = errno.EIO) -> None:
        self.code = code
        self.syncs = 0
        self.failing = 0
        self.failed: set[str | int] = set()

    def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
        self.syncs += 1
        if self.syncs == self.failing:
            raise OSError(self.code, os.strerror(self.code), (folders or ["a file"])[0])
        super().sync(files, folders)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_any_failed_sync_ends_the_writer_and_loses_nothing(tmp_path: Path, code: int) -> None:
    count = FailingDisk()
    writer = rolls.writer(tmp_path / "count", count)
    writer.open()
    before = count.syncs
    rolls.land(writer, -1, 0)
    rolls.land(writer, 0, 1)
    writer.close()
    failures = 0
    for failing in range(before + 1, count.syncs + 1):
        path = tmp_path / str(failing)
        disk = FailingDisk(code)
        disk.failing = failing
        writer = rolls.writer(path, disk)
        writer.open()
        while (end := rolls.end_of(writer.coverage)) < 1:
            try:
                rolls.land(writer, end, end + 1)
            except FatalDiskError as exc:
                failures += 1
                assert os.strerror(code) in str(exc)  # noqa: PT017 - the first or the second
                assert isinstance(exc, DiskFullError) == (code != errno.EIO)  # noqa: PT017
                with pytest.raises(SinkFailedError, match="is not open"):
                    rolls.stage(writer, [5])
                # Nothing is synced again before everything has been read again.
                writer.open()
        writer.close()
        assert rolls.rows(path) == [0, 1], failing
        assert len(rolls.visible(path)) == 2
    assert failures >= count.syncs - before - 1, "only a failure while closing has nobody to tell"


def test_a_roll_that_filled_the_disk_gives_its_space_back(tmp_path: Path) -> None:
    """Before the writer opens anew, which takes space itself."""
    disk = FailingDisk(errno.ENOSPC)
    writer = rolls.writer(tmp_path, disk)
    writer.open()
    staged = rolls.stage(writer, range(1000))
    disk.failing = disk.syncs + 1
    with pytest.raises(DiskFullError, match="No space left on device"):
        writer.commit([staged], [rolls.span(-1, 999)])
    assert [name for name in rolls.staging(tmp_path) if name.endswith("-0.part")] == []
    assert rolls.end_of(writer.open()) == -1
    rolls.land(writer, -1, 999)
    writer.close()
    assert rolls.rows(tmp_path) == list(range(1000))


def test_a_committed_roll_is_kept_when_the_log_does_not_reach_the_disk(tmp_path: Path) -> None:
    disk = FailingDisk(errno.ENOSPC)

    def reached(step: str) -> None:
        if step == "entry-linked":
            disk.failing = disk.syncs + 1

    writer = rolls.writer(tmp_path, disk, reached)
    writer.open()
    with pytest.raises(DiskFullError):
        rolls.land(writer, -1, 9)
    assert rolls.rows(tmp_path) == []
    assert rolls.end_of(writer.open()) == 9
    assert rolls.rows(tmp_path) == list(range(10))
    writer.close()


def test_all_of_a_sync_is_tried_and_the_first_failure_told(tmp_path: Path) -> None:
    disk = Disk()
    files = [disk.create(str(tmp_path / name)) for name in "abc"]
    disk.sync(files, [str(tmp_path)])
    disk.sync()
    with pytest.raises(FileNotFoundError):
        disk.sync(files, [str(tmp_path / "gone"), str(tmp_path)])
    disk.close(files[1])
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.sync(files)
    for file in (files[0], files[2]):
        disk.close(file)


def test_folders_are_made_durable_from_the_top(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(Disk):
        def sync(self, files: Sequence[int] = (), folders: Sequence[str] = ()) -> None:
            synced.extend(folders)

    disk = Watched()
    root = tmp_path / "a" / "b"
    storage = FolderStorage(str(root), disk, Patience(disk))
    storage.make_folders(["x/y", "x/z", ""])
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(root), str(root / "x")]
    synced.clear()
    storage.make_folders(["x/y", "x/z", "x"])
    assert synced == []
    storage.make_folders(["x/y/w"])
    assert synced == [str(root / "x/y")]
    # Another process trusts none of it: whoever made the folders may have died before their sync.
    synced.clear()
    FolderStorage(str(root), disk, Patience(disk)).make_folders(["x/y"])
    assert synced == [str(tmp_path / "a"), str(root), str(root / "x")]


def test_what_the_disk_says_of_what_is_not_there(tmp_path: Path) -> None:
    disk, gone = Disk(), str(tmp_path / "gone")
    assert disk.read(gone) is None and disk.size(gone) is None and not disk.exists(gone)
    assert not disk.touch(gone) and not disk.unlink(gone) and not disk.remove_folder(gone)
    assert disk.names(gone) == [] and list(disk.walk(gone)) == [] and not disk.is_folder(gone)
    assert disk.make_folder(gone) and not disk.make_folder(gone)
    (tmp_path / "gone" / "x").write_text("")
    assert not disk.remove_folder(gone)
    with pytest.raises(FileExistsError):
        disk.make_folder(f"{gone}/x")
    assert list(disk.walk(str(tmp_path))) == ["gone/x"]


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    disk, path = Disk(), str(tmp_path / "lock")
    first = disk.lock(path)
    assert first is not None and disk.lock(path) is None
    disk.unlock(first)
    second = disk.lock(path)
    assert second is not None
    disk.unlock(second)
    assert len({disk.new_name() for _ in range(100)}) == 100 and len(disk.new_name()) == 16


# --- what `check` asks


def test_probe_finds_a_sound_folder(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "not" / "yet"):
        checks = probe(str(path))
        assert [check.check for check in checks] == [
            "write a file and sync it",
            "link",
            "second link refused",
            "rename between folders",
            "sync a folder",
            "lock a file",
        ]
        assert all(check.ok and check.detail == str(tmp_path) for check in checks)
    assert list(tmp_path.iterdir()) == []


def test_probe_says_what_is_wrong(tmp_path: Path) -> None:
    class Odd(Disk):
        def link(self, source: str, target: str) -> None:
            if os.path.exists(target):
                os.unlink(target)
            super().link(source, target)

        def rename(self, source: str, target: str) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link", source)

        def lock(self, path: str) -> int | None:
            return os.open(path, os.O_RDWR | os.O_CREAT)

    failed = [check for check in probe(str(tmp_path), Odd()) if not check.ok]
    assert failed == [
        Check(
            "second link refused",
            False,
            "a name that is taken was given again: two writers could both believe that they committed",
        ),
        Check("rename between folders", False, f"{tmp_path}: Invalid cross-device link"),
        Check(
            "lock a file",
            False,
            "a lock was given twice: running writers will be taken for dead, and must start over",
        ),
    ]
    assert list(tmp_path.iterdir()) == []


# --- real ones

IN_TMPFS = """
import os, subprocess, sys, threading
from pathlib import Path
from typing import Any
from tests.support import rolls
from fastwire_daemon.dataset.storage.probe import probe
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import FatalDiskError

mount = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(mount)], check=True)
path = mount / "orders"
said = []
ballast = mount / "ballast"

def on_full(message):
    said.append(message)
    if message:
        ballast.unlink()

writer = DatasetWriter(path, rolls.options(), on_full=on_full)
writer.open()
rolls.land(writer, -1, 0)
for place in ("a file", "a log entry"):
    staged = rolls.stage(writer, range(1, 1000) if place == "a file" else [1000])
    if place == "a log entry":
        staged.finish()
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    start, end = (0, 999) if place == "a file" else (999, 1000)
    writer.commit([staged], [rolls.span(start, end)])
    assert said[-2].startswith("No space left on device: ") and said[-1] is None, said
assert rolls.rows(path) == list(range(1001)), rolls.visible(path).keys()
writer.close()
subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
for target in (path, mount / "new"):
    other = rolls.writer(target)
    try:
        other.open()
        rolls.stage(other, [1])
    except FatalDiskError as exc:
        assert str(exc).startswith(f"{target}: cannot ") and "Read-only file system" in str(exc), exc
    else:
        raise AssertionError("wrote to a read-only file system")
(check,) = probe(str(path))
assert not check.ok and check.detail == f"{path}: Read-only file system", check
print("done", len(said))
"""


def test_a_real_full_and_a_real_read_only_file_system(tmp_path: Path) -> None:
    done = unshared(IN_TMPFS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "done 4\n"
