"""The judges themselves: an audit that finds nothing proves nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.crash.preload import Clock, failing_fsync, full_disk, library
from tests.crash.readers import Watch, misordered
from tests.crash.space import SmallDisk
from tests.stores.place import FolderPlace
from tests.support.sequence_audit import assert_each_once, assert_in_order, numbered

pytestmark = pytest.mark.crash


def put(folder: Path, name: str, numbers: list[int], **columns: list[int]) -> None:
    """One data file with numbered records."""
    folder.mkdir(exist_ok=True)
    table = pa.table({"value": [numbered(number) for number in numbers], **columns})
    pq.write_table(table, folder / ".new")
    (folder / ".new").rename(folder / name)


def test_audit_counts_each_record(tmp_path: Path) -> None:
    put(tmp_path, "000000000001-0.parquet", [0, 1, 2])
    put(tmp_path, "000000000002-0.parquet", [3, 4])
    assert_each_once(tmp_path, 5)
    with pytest.raises(AssertionError, match=r"of 6 records 1 are missing \(5\)"):
        assert_each_once(tmp_path, 6)
    with pytest.raises(AssertionError, match=r"1 were never produced \(4\)"):
        assert_each_once(tmp_path, 4)
    put(tmp_path, "000000000003-0.parquet", [2])
    with pytest.raises(AssertionError, match=r"1 landed more than once \(2\)"):
        assert_each_once(tmp_path, 5)


def test_audit_of_order(tmp_path: Path) -> None:
    place = {"topic": [0, 0], "partition": [1, 1], "ledger": [5, 5], "offset": [7, 7], "batchIndex": [0, 1]}
    put(tmp_path, "000000000002-0.parquet", [0, 1], **place)
    assert_in_order(tmp_path)
    put(tmp_path, "000000000003-0.parquet", [2, 3], **{**place, "offset": [6, 8]})
    with pytest.raises(AssertionError, match="stands behind"):
        assert_in_order(tmp_path)


def test_listings_are_judged() -> None:
    first, second, late = "000000000001-0.parquet", "000000000002-0.parquet", "000000000002-1.parquet"
    everything = [first, second, late, "000000000003-0.parquet"]
    assert misordered([[], [first], [first, late], [first, second, late], everything], everything) == []
    assert misordered([[second]], everything) == [f"log entry 2 was visible before ['{first}']"]
    assert misordered([[first, second], [first]], everything) == [f"gone again: ['{second}']"]


def test_readers_see_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Watch(FolderPlace(path), tmp_path / "report.json") as watch:
        put(path, "000000000001-0.parquet", [0, 1])
        put(path, "000000000003-0.parquet", [1, 2])
        (path / "000000000004-0.parquet").write_bytes(b"PAR1 and no more")
        watch.wait_for_rounds(2)
        put(path, "000000000002-0.parquet", [3])
        wrong = "\n".join(watch.finish())
    for reader in ("DuckDB", "Polars", "pyarrow"):
        assert f"{reader}: " in wrong


def test_fsync_fails_once_and_only_there(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "def flush(name):\n"
        "    file = os.open(name, os.O_CREAT | os.O_WRONLY)\n"
        "    try: os.fsync(file)\n"
        "    except OSError as error: return error.errno\n"
        "    return 0\n"
        "print([flush(name) for name in sys.argv[1:]])\n"
    )
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    env = {**os.environ, "LD_PRELOAD": str(library(tmp_path)), **failing_fsync(inside, 2)}
    names = [str(inside / "a"), str(outside), str(inside / "b"), str(inside / "c")]
    said = subprocess.run([sys.executable, "-c", code, *names], env=env, check=True, capture_output=True, text=True)
    assert said.stdout == "[0, 0, 5, 0]\n"


def test_disk_is_full_for_a_moment(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
        "for _ in range(4):\n"
        "    try: print(os.write(file, b'12345678'))\n"
        "    except OSError as error: print(error.errno)\n"
    )
    env = {**os.environ, "LD_PRELOAD": str(library(tmp_path)), **full_disk("-entry.part")}
    command = [sys.executable, "-c", code, str(tmp_path / "1-entry.part")]
    said = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["4", "28", "28", "8"]


def test_clock_jumps_in_the_child_alone(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    code = "import time\nwhile input():\n    print(int(time.time()), int(time.monotonic()), flush=True)\n"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_PRELOAD": str(library(tmp_path)), **clock.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    readings = []
    for ahead in (0, 1_000_000, -1_000_000):
        clock.set_ahead(ahead)
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write("go\n")
        child.stdin.flush()
        wall, steady = map(int, child.stdout.readline().split())
        readings.append((wall - ahead, steady))
    child.communicate("\n")
    walls, steadies = zip(*readings, strict=True)
    assert max(walls) - min(walls) < 60
    assert max(steadies) - min(steadies) < 60


def test_small_disk_is_small_and_nobody_elses(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 1) as disk:
        with pytest.raises(OSError, match="No space left"):
            (disk.seen / "filler").write_bytes(bytes(2 << 20))
        assert not (disk.path / "filler").exists()
        listed = subprocess.run([*disk.prefix, "ls", str(disk.path)], check=True, capture_output=True, text=True)
        assert listed.stdout == "filler\n"
        disk.remount("ro")
        with pytest.raises(OSError, match="Read-only"):
            (disk.seen / "filler").unlink()
