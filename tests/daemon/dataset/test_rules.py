"""Rules of the commit that the simulated disk cannot break: R2 (listings may lag) and R8 (what a writer deletes)."""

import re
from pathlib import Path

import pytest

from fastwire_daemon.dataset.storage.disk import Disk
from tests.support import rolls


class LaggingDisk(Disk):
    """A network file system whose listings do not show the newest log entry yet."""

    def names(self, path: str) -> list[str]:
        found = sorted(super().names(path))
        return found[:-1] if re.search(r"/_fastwire/log/\d{9}$", path) else found


def test_the_end_of_the_log_is_not_taken_from_a_listing(tmp_path: Path) -> None:
    first = rolls.writer(tmp_path)
    first.open()
    for end in range(3):
        rolls.land(first, end - 1, end)
    first.close()
    assert len(LaggingDisk().names(str(tmp_path / "_fastwire/log/000000000"))) == rolls.entries(tmp_path) - 1
    second = rolls.writer(tmp_path, LaggingDisk())
    assert rolls.end_of(second.open()) == 2
    rolls.land(second, 2, 3)
    second.close()
    assert rolls.rows(tmp_path) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["notes.txt", "p=7/mine.parquet", "_fastwire/staging/lost+found/x", "_fastwire/mine"])
def test_what_is_not_the_writers_own_stays(tmp_path: Path, name: str) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    strange = tmp_path / name
    strange.parent.mkdir(parents=True, exist_ok=True)
    strange.write_bytes(b"of somebody else")
    rolls.stage(writer, [1, 2])  # void at the close
    writer.close()
    again = rolls.writer(tmp_path)
    again.open()
    rolls.land(again, 0, 1)
    again.close()
    assert strange.read_bytes() == b"of somebody else"
    assert rolls.rows(tmp_path) == [0, 1]
