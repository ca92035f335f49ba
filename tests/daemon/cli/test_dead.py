"""``dead``: the dead letters of a dataset for people and programs, and as files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Position
from fastwire_daemon.dataset.commitlog.entry import Replayed, Replaying
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from tests.daemon.cli.program import Run
from tests.support import rolls
from tests.support.nursery import shared

REASONS = ["Truncated at byte 3 of the value, in id", "Truncated at byte 9 of the value, in name", "checksum"]
PAYLOADS = [b"\x00\xff\x1b[31m", b'{"id": 5, ', b"x" * 100]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two commits, with two dead letters and one, and one without."""
    path = tmp_path / "orders"
    writer = rolls.writer(path)
    writer.open()
    for commit, numbers in enumerate(((0, 1), (2,), ())):
        dead_letters = [
            DeadLetter(rolls.log(), Position(rolls.LEDGER, i), REASONS[i], PAYLOADS[i], i + 1) for i in numbers
        ]
        if dead_letters:
            writer.add_dead_letters(dead_letters)
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
    assert (found["path"], found["dead_letters"], found["rows"]) == (str(dataset), 3, 6)
    assert found["found"][0] == {
        "reason": "Truncated", "topic": topic, "partition": "0", "dead_letters": 2, "rows": 3, "first": "7:0",
        "last": "7:1", "example": REASONS[0],
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
    index = [json.loads(line) for line in (folder / "dead-letters.jsonl").read_text().splitlines()]
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


OTHERS = ("found", "not_writable", "in_hand")

# --- written back to a topic

VALUES = [b'{"id": 1', b"\x00\xff", b"", b'{"id": "x"}']
OF_VALUES = [
    "InvalidJson at byte 8 of the value", "InvalidJson at byte 0 of the value", "NoValue at byte 0 of the value",
    "TransformFailed: Conversion Error: Could not convert string 'x' to INT32",
]  # fmt: skip


@pytest.fixture
def values(tmp_path: Path) -> Path:
    """Two commits with dead letters that are values, and a whole entry of a broker among them."""
    path = tmp_path / "values"
    writer = rolls.writer(path)
    writer.open()
    dead_letters = [
        DeadLetter(rolls.log(), Position(rolls.LEDGER, i), reason, value, 1)
        for i, (reason, value) in enumerate(zip(OF_VALUES, VALUES, strict=True))
    ]
    dead_letters.insert(1, DeadLetter(rolls.log(), Position(rolls.LEDGER, 9), "checksum", b"raw", 100))
    writer.add_dead_letters(dead_letters[:3])
    rolls.land(writer, -1, 9)
    writer.add_dead_letters(dead_letters[3:])
    rolls.land(writer, 9, 19)
    writer.close()
    return path


def landed(url: str) -> list[dict[str, Any]]:
    asked = ("tail", url, "mended", "--from", "earliest", "--until-end", "--format", "jsonl")
    said = shared().run(*asked)
    assert said.returncode == 0, said.stderr
    return [json.loads(line) for line in said.stdout.splitlines()]


def cells(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["value"] for row in rows]


@pytest.fixture(params=[KafkaDevBroker, PulsarDevBroker])
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaDevBroker | PulsarDevBroker]:
    with running(request.param()) as server:
        server.create_topic("mended", 1)
        yield server


def test_letters_are_written_to_a_topic_once(run: Run, values: Path, broker: KafkaDevBroker | PulsarDevBroker) -> None:
    code, out, err = run("dead", values, "--replay", broker.url, "mended", "--reason", "TransformFailed")
    assert (code, out, err) == (0, f"{values}: 1 dead letter written to mended and marked\n", "")
    assert json.loads(run("dead", values, "--json")[1])["replayed"] == 1
    code, out, _ = run("dead", values, "--replay", broker.url, "mended", "--json")
    assert json.loads(out) == {"path": str(values), "replayed": 3, "not_values": 1} | dict.fromkeys(OTHERS, 0)
    code, out, _ = run("dead", values, "--replay", broker.url, "mended")
    assert out.splitlines()[0] == f"{values}: 0 dead letters written to mended and marked"
    assert run("dead", values)[1].startswith(f"{values}: 5 dead letters, 104 rows, 4 of them written back to a topic\n")
    report = verify(values)
    assert (report.problems, report.dead_letters, report.replayed) == ([], 5, 4)
    rows = landed(broker.url)
    assert cells(rows) == ['{"id": "x"}', '{"id": 1', {"base64": "AP8="}, None]
    assert [header["value"].partition("/")[2] for row in rows for header in row["headers"][:1]] == [
        "2-1", "1-0", "1-2", "2-0",
    ]  # fmt: skip
    assert [row["headers"][1]["value"] for row in rows] == [OF_VALUES[i] for i in (3, 0, 1, 2)]


def test_marks_outlive_the_letters_and_wrong_ones_are_damage(values: Path) -> None:
    writer = rolls.writer(values)
    writer.open()
    writer.note_replay([Replayed(1, 0, 2)])
    writer.expire(2)
    writer.close()
    assert verify(values).problems == []
    writer.open()
    writer.note_replay([Replayed(99, 0, 0)])
    writer.close()
    (found,) = verify(values).problems
    assert (found.kind, found.text) == ("damaged", "marks dead letters of log entries that come after it")


@pytest.mark.parametrize("facts", [{"closes": 3}, {"replaying": Replaying("u", "t", "s", (Replayed(3, 0, 0),), {})}])
def test_an_intent_that_names_later_entries_is_damage(values: Path, facts: dict[str, Any]) -> None:
    writer = rolls.writer(values)
    writer.open()
    writer.note_replay(**facts)
    writer.close()
    (found,) = verify(values).problems
    assert (found.kind, found.text) == ("damaged", "marks dead letters of log entries that come after it")


def test_a_replay_stands_alone(run: Run, values: Path) -> None:
    code, _, err = run("dead", values, "--replay", "kafka://127.0.0.1:1", "mended", "--list")
    assert code == 2 and "--replay: stands alone" in err
    code, _, err = run("dead", values, "--replay", "kafka://127.0.0.1:1", "no topic")
    assert code == 2 and "--replay" in err
    code, _, err = run("dead", values.parent / "none", "--replay", "kafka://127.0.0.1:1", "mended")
    assert code == 78 and "there is no dataset here" in err
