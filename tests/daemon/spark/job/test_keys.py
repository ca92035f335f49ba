"""Duplicates and late rows of a job, found by the keys beside its checkpoint, without a Spark."""

import io
import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastwire_daemon.runtime.errors import ConfigurationRefused
from fastwire_daemon.runtime.logs import configure
from fastwire_daemon.spark.job import keys as module
from fastwire_daemon.spark.job.checkpoint import keys_path
from fastwire_daemon.spark.job.keyed import KeyedRows
from fastwire_daemon.spark.job.keys import Keys
from fastwire_daemon.spark.job.split import Pieces

Row = tuple[str, int | None]  # key, and time in seconds
HOUR = 3600


def as_they_are() -> Pieces:
    """Rows without a key are bad."""

    def pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        known = batch.column("key").is_valid()
        yield batch.filter(known), batch.filter(batch.column("key").is_null())

    return pieces


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses its power."""
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)


ROWS = KeyedRows(("key",), ("place", "time"), "time", as_they_are)


@dataclass
class Frame:
    """The rows of some tasks, which run at once, in this process."""

    tasks: Sequence[pa.RecordBatch]

    def mapInArrow(self, task: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> "Frame":  # noqa: N802 - Spark's name
        return Frame([each for batch in self.tasks for each in task(iter([batch.slice(0, 3), batch.slice(3)]))])

    def collect(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for batch in self.tasks for row in batch.to_pylist()]


def frame_of(rows: Sequence[Row], tasks: int = 2) -> Frame:
    made = pa.record_batch(
        {
            "key": pa.array([key or None for key, _ in rows], pa.string()),
            "place": pa.array(range(len(rows)), pa.int32()),
            "time": pa.array([None if at is None else at * 1_000_000 for _, at in rows], pa.timestamp("us", "UTC")),
        }
    )
    step = len(rows) // tasks + 1
    return Frame([made.slice(at, step) for at in range(0, max(len(rows), 1), step)])


def passed(keys: Keys, frame: Frame, batch: int, *, keep: bool = True) -> list[str]:
    """Return the keys of the rows that stay."""
    found = keys.search(frame, batch)
    pieces = found.pieces()
    pairs = [pair for each in frame.tasks for pair in pieces(each)]
    assert {tuple(good.schema.names) for good, _ in pairs} == {("key",)}
    good = [key for each, _ in pairs for key in each.column("key").to_pylist()]
    assert (found.good, found.dead) == (len(good), sum(bad.num_rows for _, bad in pairs))
    assert found.good + found.dead + found.late + found.duplicates == sum(each.num_rows for each in frame.tasks)
    if keep:
        keys.keep(batch)
    return good


class Expected:
    """The same by a dictionary of all keys."""

    def __init__(self, delay: int) -> None:
        self._delay = delay
        self._times: dict[str, int] = {}
        self._newest: list[int | None] = [None, None]  # of all batches, and without the last one

    def passes(self, rows: Sequence[Row]) -> list[str]:
        late = None if self._newest[1] is None else self._newest[1] - self._delay
        timely = [(key, at) for key, at in rows if key and at is not None and (late is None or at > late)]
        found = []
        for key, at in timely:
            before = self._times.get(key)
            if before is None or (late is not None and before + self._delay <= late):
                found.append(key)
                self._times[key] = at
        times = [at for _, at in timely]
        newest = self._newest[0]
        self._newest = [max([*times, *([] if newest is None else [newest])], default=None), newest]
        return found


def job(folder: Path, rows: KeyedRows = ROWS, watermark: float = HOUR) -> Keys:
    return Keys(folder, rows, watermark)


@pytest.mark.parametrize("seed", range(4))
def test_rows_stay_as_by_a_dictionary_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever is kept in one file or many, at whichever batch the job begins again, and however often it runs."""
    dice = random.Random(seed)
    monkeypatch.setattr(module, "_CHUNK", dice.choice([2, 7, 50]))
    monkeypatch.setattr(module, "_FAN", dice.choice([2, 4]))
    keys, expected = job(tmp_path), Expected(HOUR)
    for batch in range(25):
        # One time for each key of a batch: which copy stays is not promised.
        times = {f"k{number}": (batch + dice.randrange(-14, 1)) * 600 for number in range(30)}
        names = [dice.choice([*times, ""]) for _ in range(dice.choice([0, 1, 5, 30]))]
        rows = [(name, times.get(name, 0)) for name in names]
        if dice.random() < 0.3:
            keys = job(tmp_path)
        if dice.random() < 0.3:
            passed(keys, frame_of(rows), batch, keep=dice.random() < 0.5)
        assert sorted(passed(keys, frame_of(rows, dice.choice([1, 3])), batch)) == sorted(expected.passes(rows))
    assert len([*keys_path(tmp_path).glob("*.npy")]) < 200


def test_a_checkpoint_that_falls_back_has_the_keys_of_its_batch(tmp_path: Path) -> None:
    keys = job(tmp_path)
    for batch, key in enumerate("abcd"):
        assert passed(keys, frame_of([(key, 0)]), batch) == [key]
    keys = job(tmp_path)
    assert passed(keys, frame_of([("a", 0), ("b", 0), ("c", 0)]), 2) == ["c"]
    assert not (keys_path(tmp_path) / "3.json").exists()
    assert passed(job(tmp_path), frame_of([("c", 0), ("d", 0)]), 3) == ["d"]
    assert passed(job(tmp_path), frame_of([("a", 0), ("d", 0)]), 0) == ["a", "d"]  # all of them


def test_files_without_a_use_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs whose keys are forgotten, and those that only batches long done had."""
    monkeypatch.setattr(module, "_KEPT", 3)
    keys = job(tmp_path)
    for batch in range(30):
        passed(keys, frame_of([(f"{batch}", batch * HOUR // 2)]), batch)
    folder = keys_path(tmp_path)
    assert {path.name for path in folder.glob("*.json")} == {"27.json", "28.json", "29.json"}
    assert not (folder / "marks").exists()
    assert len([*folder.glob("*.npy")]) < 12
    runs = json.loads((folder / "29.json").read_text())["runs"]
    assert sum(np.load(folder / name).shape[1] for name, *_ in runs) < 8


def test_marks_that_cannot_be_deleted_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, where a file that a task has open goes only when the task has ended."""
    monkeypatch.setattr("shutil.rmtree", lambda _path, **_options: None)
    keys = job(tmp_path)
    for batch, key in enumerate("bcd"):
        assert passed(keys, frame_of([("a", 0), (key, 0)]), batch)[-1] == key
    assert len([*(keys_path(tmp_path) / "marks").iterdir()]) > 3


@pytest.mark.parametrize("harm", ["document", "cut", "file", "bytes"])
def test_missing_or_damaged_keys_are_refused(tmp_path: Path, harm: str) -> None:
    keys = job(tmp_path)
    for batch in range(2):
        passed(keys, frame_of([(f"{batch}", 0)]), batch)
    folder = keys_path(tmp_path)
    if harm == "document":
        (folder / "1.json").unlink()
    elif harm == "cut":
        (folder / "1.json").write_text((folder / "1.json").read_text()[:-9])
    for path in folder.glob("*.npy"):
        if harm == "file":
            path.unlink()
        elif harm == "bytes":
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ConfigurationRefused, match=r"the keys behind batch 1, .* Restore the checkpoint, or delete"):
        job(tmp_path).search(frame_of([("0", 0)]), 2)


def test_a_job_that_begins_to_drop_duplicates_begins_without_keys(tmp_path: Path) -> None:
    """Also where its first batch is repeated, because the driver died before the batch was in Spark's checkpoint."""
    for _ in range(2):
        assert passed(job(tmp_path), frame_of([("a", 0), ("a", 0)]), 7) == ["a"]
    assert passed(job(tmp_path), frame_of([("a", 0), ("b", 0)]), 8) == ["b"]


@pytest.mark.parametrize(("batch", "warned"), [(0, False), (7, True)])
def test_missing_keys_of_earlier_records_are_told(tmp_path: Path, batch: int, warned: bool) -> None:
    """As of a checkpoint that was restored without them: once, and not where no batch was before."""
    root = logging.getLogger()
    before, level, stream = root.handlers[:], root.level, io.StringIO()
    configure(stream=stream, human=False)
    try:
        for each in (batch, batch, batch + 1):
            passed(job(tmp_path), frame_of([("a", 0)]), each)
    finally:
        root.handlers[:], root.level = before, level
    told = [
        json.loads(line)["batch"] for line in stream.getvalue().splitlines() if "no keys of earlier records" in line
    ]
    assert told == [batch] * warned


def test_a_key_of_other_columns_knows_no_value_of_the_old_one(tmp_path: Path) -> None:
    """Or a row with a new key would be taken for a duplicate; the order of the columns does not count."""

    def good(batch: int, *key: str) -> int:
        keys = job(tmp_path, KeyedRows(key, ("place", "time"), "time", as_they_are))
        times = pa.array([batch], pa.timestamp("us", "UTC"))
        row = {"key": ["a"], "shop": ["a"], "place": pa.array([batch], pa.int32()), "time": times}
        found = keys.search(Frame([pa.record_batch(row)]), batch)
        keys.keep(batch)
        return found.good

    assert [good(0, "key"), good(1, "shop"), good(2, "key", "shop"), good(3, "shop", "key")] == [1, 1, 1, 0]
    assert [good(4, "key"), good(5, "shop")] == [0, 0]


def test_rows_without_a_time_are_not_late(tmp_path: Path) -> None:
    keys = job(tmp_path)
    for batch in range(3):
        assert passed(keys, frame_of([(f"{batch}", batch * 9 * HOUR)]), batch) == [f"{batch}"]
    assert passed(keys, frame_of([("a", None), ("a", None), ("b", 0)]), 3) == ["a"]
    assert passed(keys, frame_of([("a", None)]), 4) == []


def test_keys_that_share_a_word_of_their_hash_are_two() -> None:
    columns = np.array([[5, 5, 5, 9], [1, 2, 3, 4], [100, 100, 7, 100]], np.uint64)
    run = module._Run("", 100, 0, columns)
    first, second = np.array([5, 5, 5, 9, 10], np.uint64), np.array([2, 3, 4, 4, 1], np.uint64)
    assert run.has(first, second, 50).tolist() == [True, False, False, True, False]
    assert run.has(first, second, 5).tolist() == [True, True, False, True, False]


def marks(column: pa.Array, *more: pa.Array) -> list[bytes]:
    names = [f"c{at}" for at in range(1 + len(more))]
    rows = KeyedRows(tuple(names), (), "time", secret=bytes(16))
    times = pa.array([0] * len(column), pa.timestamp("us"))
    found = rows.of(pa.RecordBatch.from_arrays([column, *more, times], [*names, "time"]))
    return [each.tobytes()[:16] for each in found]


# Beyond the years that Python has.
FAR = pa.struct([("at", pa.list_(pa.timestamp("us", "UTC")))])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 1, 2], pa.int16()),
        pa.array([1, 1, 2], pa.uint64()),
        pa.array([0.0, -0.0, 1.5]),
        pa.array([float("nan"), -float("nan"), 1.5]),
        pa.array([True, True, False]),
        pa.array(["a", "a", ""]),
        pa.array([b"a" * 9, b"a" * 9, b"a" * 8]),
        pa.array([3, 3, 4], pa.date32()),
        pa.array([3, 3, 4], pa.timestamp("us", "UTC")),
        pa.array([Decimal("1.10"), Decimal("1.10"), Decimal("1.11")]),
        pa.array([{"a": 1, "b": None}, {"a": 1, "b": None}, {"a": 1, "b": "None"}]),
        pa.array([[1, 2], [1, 2], [12]]),
        pa.array([{"at": [2**62]}, {"at": [2**62]}, {"at": [-(2**62)]}], FAR),
        pa.array([[("a", 1 << 30)], [("a", 1 << 30)], [("a", 7)]], pa.map_(pa.string(), pa.date32())),
        pa.array(["z", "a", "a", "b", "z"]).slice(1, 3),
        pa.array([9, 1, 1, 2], pa.int64()).slice(1),
    ],
    ids=lambda column: str(column.type),
)
def test_equal_cells_have_one_hash(column: pa.Array) -> None:
    one, same, other = marks(column)
    assert one == same != other


@pytest.mark.parametrize("others", [[], [2**62]], ids=["alone", "beside one that Python does not have"])
def test_the_hash_of_a_nested_key_stays_as_checkpoints_have_it(others: list[int]) -> None:
    """Or a second copy of each earlier record with a time in its key would land after an upgrade."""
    value = {"at": [datetime(2024, 2, 29, 12, tzinfo=UTC)]}
    column = pa.array([value, *({"at": [each]} for each in others)], FAR)
    text = repr(column.slice(0, 1).to_pylist()[0])
    assert marks(column)[0] == marks(pa.array([text]))[0]


def test_columns_of_a_key_do_not_run_into_each_other() -> None:
    assert len({*marks(pa.array(["ab", "a", "", "abc"]), pa.array(["c", "bc", "abc", ""]))}) == 4
    assert marks(pa.array([7], pa.int8())) == marks(pa.array([7], pa.int64()))
