"""The batches of a checkpoint, and its cleaning before Spark looks at it."""

import errno
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.position import Log, Position, Span
from fastwire_daemon.runtime.errors import ConfigurationRefused, DatasetError
from fastwire_daemon.spark.job.checkpoint import check_keys, claim, drop_cut_logs, drop_unbegun, keys_path, release
from fastwire_daemon.spark.job.planned import BrokerBatches, DatasetBatches
from tests.spark.landed import Landed


def plan(checkpoint: Path, batch: int, end: Mapping[str, Any]) -> None:
    path = checkpoint / "offsets" / str(batch)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"v1\n{{}}\n{json.dumps(end)}")


def kafka(p: Mapping[str, str], **more: Any) -> dict[str, Any]:
    return {"sys": "kafka", "v": 1, "p": {"t": p}, "inc": {"t": "id"}} | more


def log(partition: int, incarnation: str = "id") -> Log:
    return Log("kafka", "", "t", str(partition), incarnation)


def test_a_batch_of_brokers_is_the_range_between_two_ends(tmp_path: Path) -> None:
    plan(tmp_path, 0, kafka({"0": "9@1"}, init={"t": {"0": "4"}}))
    plan(tmp_path, 1, kafka({"0": "9@1", "1": "7"}, new={"t": {"1": "2"}}))
    batches = BrokerBatches(tmp_path)
    first, second = batches.of(0), batches.of(1)
    assert first.spans == (Span(log(0), Position(4, -1), Position(9, 1), 0),)
    assert first.begun == {log(0)}
    assert second.full == [Span(log(1), Position(2, -1), Position(7, -1), 0)]
    assert second.begun == {log(1)}
    with pytest.raises(ConfigurationRefused, match=r"offsets/2 does not say what batch 2 reads"):
        batches.of(2)


def test_a_batch_of_a_dataset_is_its_files(tmp_path: Path) -> None:
    landed = Landed(tmp_path / "landed ä")
    for number in range(4):
        landed.add([b"%d" % number])
    checkpoint = tmp_path / "checkpoint"
    folder = checkpoint / "sources" / "0"
    folder.mkdir(parents=True)

    def found(name: str, *files: tuple[int, int]) -> None:
        uri = (tmp_path / "landed ä").as_uri()
        entries = [{"path": f"{uri}/{number:012d}-0.parquet", "batchId": at} for number, at in files]
        (folder / name).write_text("\n".join(["v1", *map(json.dumps, entries)]))

    found("0", (1, 0))
    found("2.compact", (1, 0), (3, 1), (2, 1), (4, 2))
    for batch in range(3):
        plan(checkpoint, batch, {"logOffset": batch})
    batches = DatasetBatches(checkpoint, tmp_path / "landed ä")
    spans = [[(each.start, each.end) for each in batches.of(batch).spans] for batch in range(3)]
    assert spans == [
        [(Position(1, 0), Position(2, 0))],
        [(Position(2, 0), Position(4, 0))],
        [(Position(4, 0), Position(5, 0))],
    ]
    assert list(batches.of(1).files) == ["000000000003-0.parquet", "000000000002-0.parquet"]
    plan(checkpoint, 3, {"logOffset": 3})
    with pytest.raises(ConfigurationRefused, match=r"sources/0/3 is missing"):
        batches.of(3)
    found("3", (9, 3))
    with pytest.raises(DatasetError, match=r"000000000009-0.parquet is not a file that the daemon has landed"):
        batches.of(3)


def test_a_state_of_spark_is_refused_until_it_is_deleted(tmp_path: Path) -> None:
    """Keys that an earlier version has left to Spark would be forgotten without a word."""
    (tmp_path / "state" / "0" / "1").mkdir(parents=True)
    plan(tmp_path, 0, {"logOffset": 0})
    drop_unbegun(tmp_path)
    with pytest.raises(
        ConfigurationRefused, match=r"drop.* duplicates.*: delete .*/state, and the job goes on without"
    ):
        check_keys(tmp_path)
    keys_path(tmp_path).mkdir(parents=True)
    check_keys(tmp_path)
    keys_path(tmp_path).rmdir()
    (tmp_path / "offsets" / "0").unlink()
    drop_unbegun(tmp_path)  # of a job that never began
    assert not (tmp_path / "state").exists()
    check_keys(tmp_path)


@pytest.mark.parametrize(
    ("there", "left"),
    [
        (["offsets/.0.5f.tmp"], set()),  # killed while it was written: Spark begins where nothing is
        (["offsets/.0.5f.tmp", "offsets/..0.5f.tmp.crc", "offsets/.0.crc", "commits/.0.77.tmp"], set()),
        (
            ["offsets/0", "offsets/.0.crc", "offsets/.1.5f.tmp"],
            {"offsets/0", "offsets/.0.crc", "offsets/.1.5f.tmp"},
        ),
        (
            ["offsets/.0.5f.tmp", "commits/0", "commits/.0.crc"],
            {"commits/0", "commits/.0.crc"},
        ),  # no new job
    ],
)
def test_what_a_first_batch_has_left_that_was_never_planned_goes(
    tmp_path: Path, there: list[str], left: set[str]
) -> None:
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    drop_unbegun(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == left


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ({}, {"offsets/0", "offsets/1", "commits/0", "commits/1", "sources/0/0", "sources/0/1"}),
        (
            {"offsets/1": "v1\n{}\n-"},
            {"offsets/0", "offsets/1", "commits/0", "commits/1", "sources/0/0", "sources/0/1"},
        ),
        ({"offsets/1": ""}, {"offsets/0", "commits/0", "commits/1", "sources/0/0", "sources/0/1"}),
        ({"offsets/1": "v1\n{}\n"}, {"offsets/0", "commits/0", "commits/1", "sources/0/0", "sources/0/1"}),
        ({"commits/1": "v1"}, {"offsets/0", "offsets/1", "commits/0", "sources/0/0", "sources/0/1"}),
        ({"sources/0/1": 'v1\n{"path":'}, {"offsets/0", "commits/0", "sources/0/0"}),
        ({"sources/0/1": "", "offsets/1": ""}, {"offsets/0", "commits/0", "commits/1", "sources/0/0"}),
    ],
)
def test_logs_that_a_power_loss_has_cut_go(tmp_path: Path, cut: Mapping[str, str], left: set[str]) -> None:
    whole = {"offsets": 'v1\n{{}}\n{{"logOffset":{0}}}', "commits": "v1\n{{}}", "sources/0": "v1\n{{}}"}
    for number in range(2):
        for log, text in whole.items():
            (tmp_path / log).mkdir(parents=True, exist_ok=True)
            name = f"{log}/{number}"
            (tmp_path / name).write_text(cut.get(name, text.format(number)))
            (tmp_path / log / f".{number}.crc").touch()
    drop_cut_logs(tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name in files if not name.endswith(".crc")} == left
    assert {name.rpartition("/")[0] + f"/.{name.rpartition('/')[2]}.crc" for name in left} == files - left


def test_a_checkpoint_is_for_one_job_at_a_time(tmp_path: Path) -> None:
    """Until that one has ended, in whichever way."""
    checkpoint = tmp_path / "checkpoint"
    claimed = f"from pathlib import Path; from {claim.__module__} import claim; claim(Path({str(checkpoint)!r}))"
    subprocess.run([sys.executable, "-c", claimed], check=True, timeout=60)
    for _ in range(2):
        held = claim(checkpoint)
        assert held is not None
        with pytest.raises(FastwireError, match="another job that runs has the checkpoint at"):
            claim(checkpoint)
        release(held)


def test_a_file_system_without_locks_keeps_no_job_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert claim(tmp_path) is None
