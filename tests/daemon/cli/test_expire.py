"""``expire``: what it prints, for people and for programs, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.daemon.cli.program import Run
from tests.support import rolls


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two commits of ten rows each, made just now."""
    path = tmp_path / "orders"
    writer = rolls.writer(path)
    writer.open()
    for first in (0, 10):
        rolls.land(writer, first - 1, first + 9)
    writer.close()
    return path


def test_what_would_go_and_what_goes(run: Run, dataset: Path) -> None:
    assert run("expire", dataset, "--older", "0s", "--dry-run") == (
        0,
        f"{dataset}: 2 log entries would expire: 20 rows in 2 files, 270 B\n  2 files would be deleted\n",
        "",
    )
    assert len(rolls.rows(dataset)) == 20
    code, out, err = run("expire", dataset, "--older", "0s", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "path": str(dataset),
        "expired_up_to": 2,
        "entries": 2,
        "files": 2,
        "rows": 20,
        "bytes": 270,
        "dead_letter_files": 0,
        "deleted_files": 2,
        "dry_run": False,
    }
    assert rolls.rows(dataset) == []
    code, out, _ = run("verify", dataset, "--strict")
    assert code == 0 and "\n  2 files expired and deleted\n" in out
    assert run("expire", dataset, "--older", "0s")[1].endswith(
        ": 0 log entries expired: 0 rows in 0 files, 0 B\n  0 files deleted\n"
    )


def test_what_is_not_deleted_yet_is_told(run: Run, dataset: Path) -> None:
    writer = rolls.writer(dataset)
    writer.open()
    writer.expire(1)
    writer.close()
    code, out, _ = run("verify", dataset, "--strict")
    assert code == 0 and "\n  1 file expired and not deleted: run expire again\n" in out


def test_nothing_is_that_old(run: Run, dataset: Path) -> None:
    code, out, _ = run("expire", dataset, "--older", "30d")
    assert code == 0 and out.endswith("  0 files deleted\n")
    assert len(rolls.rows(dataset)) == 20


@pytest.mark.parametrize("older", ["30", "-1d", "month", ""])
def test_an_age_has_a_unit(run: Run, dataset: Path, older: str) -> None:
    code, _, err = run("expire", dataset, "--older", older)
    assert code == 2 and "Invalid value for --older" in err
    assert len(rolls.rows(dataset)) == 20


def test_an_age_is_required(run: Run, dataset: Path) -> None:
    assert run("expire", dataset)[0] == 2


def test_no_dataset(run: Run, tmp_path: Path) -> None:
    assert run("expire", tmp_path, "--older", "1d") == (78, "", f"{tmp_path}: there is no dataset here\n")
