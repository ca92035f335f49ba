"""``dead``: the dead letters of a dataset for people and programs, and as files."""

import json
from pathlib import Path

import pytest

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Position
from tests.daemon.cli.program import Run
from tests.support import rolls

REASONS = ["Truncated at byte 3 of the value, in id", "Truncated at byte 9 of the value, in name", "checksum"]
PAYLOADS = [b"\x00\xff\x1b[31m", b'{"id": 5, ', b"x" * 100]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two commits, with two dead letters and one, and one without."""
    path = tmp_path / "orders"
    writer = rolls.writer(path)
    writer.open()
    for commit, numbers in enumerate(((0, 1), (2,), ())):
        letters = [DeadLetter(rolls.log(), Position(rolls.LEDGER, i), REASONS[i], PAYLOADS[i], i + 1) for i in numbers]
        if letters:
            writer.divert(letters)
        rolls.land(writer, 10 * commit - 1, 10 * commit + 9)
    writer.close()
    return path


def test_sums_by_reason_and_partition(run: Run, dataset: Path) -> None:
    topic = rolls.log().topic
    code, out, err = run("dead", dataset)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{dataset}: 3 dead letters, 6 rows",
        f"          2  Truncated  {topic} [0] 7:0 to 7:1",
        f"             {REASONS[0]}",
        f"          1  checksum  {topic} [0] 7:2",
        "             checksum",
    ]
    found = json.loads(run("dead", dataset, "--json")[1])
    assert (found["path"], found["letters"], found["rows"]) == (str(dataset), 3, 6)
    assert found["found"][0] == {
        "reason": "Truncated", "topic": topic, "partition": "0", "letters": 2, "rows": 3, "first": "7:0", "last": "7:1",
        "example": REASONS[0],
    }  # fmt: skip


def test_each_one_with_its_first_bytes(run: Run, dataset: Path) -> None:
    code, out, _ = run("dead", dataset, "--list")
    lines = out.splitlines()
    assert code == 0
    assert [line.split(" bytes: ")[1] for line in lines[:3]] == [
        "00 ff 1b 5b 33 31 6d", '{"id": 5, ', f"{'x' * 48} …",
    ]  # fmt: skip
    assert [line.split("  ")[0] for line in lines[:3]] == ["1-0", "1-1", "2-0"]
    code, out, _ = run("dead", dataset, "--list", "--json", "--reason", "checksum")
    (line,) = map(json.loads, out.splitlines())
    assert (line["entry"], line["position"], line["bytes"], line["rows"]) == (2, "7:2", 100, 3)


def test_raw_bytes_as_files(run: Run, dataset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert run("dead", dataset, "--write", folder)[0] == 0
    index = [json.loads(line) for line in (folder / "letters.jsonl").read_text().splitlines()]
    assert [(folder / each["file"]).read_bytes() for each in index] == PAYLOADS
    assert [each["reason"] for each in index] == REASONS
    code, _, err = run("dead", dataset, "--write", folder)
    assert code == 2 and "is not an empty folder" in err


def test_expired_letters_are_left_out_and_missing_ones_are_damage(run: Run, dataset: Path) -> None:
    first, _ = sorted((dataset / "_fastwire/diverted").iterdir())
    first.unlink()
    code, _, err = run("dead", dataset)
    assert code == 1 and err.endswith(f"{first} of log entry 1 is missing\n")
    writer = rolls.writer(dataset)
    writer.open()
    writer.expire(1)
    writer.close()
    assert run("dead", dataset)[1].startswith(f"{dataset}: 1 dead letter, 3 rows\n")


def test_no_dataset(run: Run, tmp_path: Path) -> None:
    assert run("dead", tmp_path) == (78, "", f"{tmp_path}: there is no dataset here\n")
