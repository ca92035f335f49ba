"""``erase``: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest

from tests.daemon.cli.program import Run
from tests.support import rolls


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "orders"
    writer = rolls.writer(path)
    writer.open()
    rolls.land(writer, -1, 9)
    writer.close()
    return path


def test_rows_are_erased(run: Run, dataset: Path) -> None:
    where = "--where", "value IN (3, 4)"
    assert run("erase", dataset, *where, "--dry-run")[:2] == (
        0,
        f"{dataset}: 2 rows would be erased from 1 file, of 1 looked into\n",
    )
    assert run("erase", dataset, *where)[:2] == (0, f"{dataset}: 2 rows erased from 1 file, of 1 looked into\n")
    assert rolls.rows(dataset) == [0, 1, 2, 5, 6, 7, 8, 9]
    code, out, _ = run("erase", dataset, *where, "--json")
    assert code == 0
    assert json.loads(out) == {
        "path": str(dataset),
        "files_looked_into": 1,
        "files": 0,
        "rows": 0,
        "dead_letter_files": 0,
        "dead_letters": 0,
        "finished_files": 0,
        "uncommitted_files": 0,
        "unread_files": {},
        "dry_run": False,
    }
    assert "2 rows erased" in run("verify", dataset)[1]


def test_open_rolls_end_it_with_1(run: Run, dataset: Path) -> None:
    writer = rolls.writer(dataset)
    writer.open()
    writer.commit([rolls.stage(writer, [10])], [rolls.span(9, 10)])
    rolls.stage(writer, [11])
    code, out, _ = run("erase", dataset, "--where", "value = 3")
    writer.close()
    assert code == 1
    assert "not committed yet, by writers at work: 1 file: run erase again behind their next commit" in out


@pytest.mark.parametrize("where", ["value", "value = 'a' OR value = 'b'"])
def test_a_condition_that_cannot_be_read(run: Run, dataset: Path, where: str) -> None:
    code, _, err = run("erase", dataset, "--where", where)
    assert code == 2
    assert "must be such as" in err


def test_a_column_that_no_file_has(run: Run, dataset: Path) -> None:
    code, _, err = run("erase", dataset, "--where", "valu = 3")
    assert code == 78
    assert "no file has all columns that the condition names" in err
