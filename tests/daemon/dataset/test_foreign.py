"""Files of a roll that other processes have written: taken in, published and cleared away like our own."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from crc32c import crc32c

from fastwire.position import Log, Position, Span
from fastwire_daemon.dataset.commitlog.entry import entry_name
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.staging import ForeignFile
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.runtime.errors import SinkFailedError, Superseded
from fastwire_daemon.spark.job.task import FileLayout, write_rows
from tests.support import rolls

LOG = Log("spark", "orders", "query", "-1")


def batch(number: int, rows: int) -> Span:
    return Span(LOG, Position(number, 0), Position(number + 1, 0), rows)


def opened(path: Path) -> DatasetWriter:
    writer = rolls.writer(path, system="spark", cluster="orders", levels=("date",))
    writer.open()
    return writer


def write(place: str, name: str, rows: int, date: str = "2026-01-02") -> ForeignFile:
    """Write as a task does: a file with ``rows`` lines beside those of the writer."""
    data = b"".join(b'{"value": %d}\n' % number for number in range(rows))
    path = Path(f"{place}{name}.task")
    path.write_bytes(data)
    return ForeignFile(path.name, f"date={date}/", rows, len(data), crc32c(data))


def visible(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*.jsonl"))


def test_files_of_tasks_are_one_commit(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    place = writer.invite()
    files = [write(place, "a", 3), write(place, "b", 2, "2026-01-03")]
    write(place, "failed", 9)
    assert visible(tmp_path) == []
    coverage = writer.commit(writer.adopt(files), [batch(0, 5)])
    assert coverage.covers(LOG, Position(1, 0))
    assert visible(tmp_path) == ["date=2026-01-02/000000000001-0.jsonl", "date=2026-01-03/000000000001-1.jsonl"]
    assert [name for name in rolls.staging(tmp_path) if name.endswith((".task", ".part"))] == []
    writer.close()
    report = verify(tmp_path)
    assert report.ok, report.problems
    assert (report.rows, report.system) == (5, "spark")


def test_what_tasks_of_spark_write_has_checksums(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path / "table", system="spark", cluster="orders", levels=("date",), extension="parquet")
    bad = rolls.writer(tmp_path / "bad", system="spark", cluster="orders", extension="parquet")
    writer.open()
    bad.open()
    batch = pa.record_batch(
        {
            "value": list(range(10)),
            "date": ["2026-01-02", "2026-01-03"] * 5,
            "topic": ["orders"] * 10,  # columns of the records, not places of the batches
            "partition": [0] * 10,
        }
    )
    pieces = batch.slice(0, 9), pa.record_batch({"value": [9], "why": ["odd"]})
    layouts = FileLayout(writer.invite(), ("date",), "zstd"), FileLayout(bad.invite(), (), "zstd")
    run = write_rows(*layouts, lambda: lambda _batch: iter([pieces]))
    (report,) = run(iter([batch]))
    for table, is_dead in ((writer, False), (bad, True)):
        files = [ForeignFile(*list(row.values())[1:-1]) for row in report.to_pylist() if row["dead"] is is_dead]
        rows = sum(file.rows for file in files)
        table.commit(table.adopt(files), [Span(LOG, Position(0, 0), Position(1, 0), rows)])
        table.close()
    for path, count in ((tmp_path / "table", 2), (tmp_path / "bad", 1)):
        checked = verify(path, deep=True)
        assert checked.ok and checked.read_files == count, checked
        for file in path.rglob("*.parquet"):
            data = file.read_bytes()
            file.write_bytes(data[:4] + bytes([data[4] ^ 1]) + data[5:])
        assert [problem.kind for problem in verify(path, deep=True).problems] == ["content"] * count


def test_a_batch_lands_once(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.commit(writer.adopt([write(writer.invite(), "a", 3)]), [batch(0, 3)])
    with pytest.raises(Superseded):
        writer.commit(writer.adopt([write(writer.invite(), "b", 3)]), [batch(0, 3)])
    assert len(visible(tmp_path)) == 1
    assert [name for name in rolls.staging(tmp_path) if name.endswith(".part")] == []
    with pytest.raises(ValueError, match="no gap was declared"):
        writer.commit([], [batch(2, 0)])


def test_what_a_dead_writer_was_given_is_void(tmp_path: Path) -> None:
    dead = opened(tmp_path)
    dead.commit([], [batch(0, 0)])
    dead.adopt([write(dead.invite(), "a", 3)])
    late = dead.invite()
    dead._staging.release()  # type: ignore[union-attr]  # as if the process had ended
    writer = opened(tmp_path)
    assert rolls.entry(tmp_path, 2).fence
    with pytest.raises(FileNotFoundError):  # a task that outlives its driver
        write(late, "b", 1)
    writer.commit(writer.adopt([write(writer.invite(), "a", 3)]), [batch(1, 3)])
    assert visible(tmp_path) == ["date=2026-01-02/000000000003-0.jsonl"]
    assert os.path.exists(tmp_path / entry_name(3))


def test_a_file_that_is_not_what_was_said(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    file = write(writer.invite(), "a", 3)
    with pytest.raises(SinkFailedError, match="has 39 bytes and should have 40"):
        writer.adopt([file._replace(nbytes=40)])


@pytest.mark.parametrize("name", ["../1-a.task", "2-a.task", "lock"])
def test_names_stay_in_the_roll(tmp_path: Path, name: str) -> None:
    writer = opened(tmp_path)
    writer.invite()
    with pytest.raises(ValueError, match="is not a file of the open roll"):
        writer.adopt([ForeignFile(name, "date=1/", 1, 1, 0)])


def test_levels_hold_for_files_of_others(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    file = write(writer.invite(), "a", 3)
    with pytest.raises(ValueError, match="does not have the levels date"):
        writer.adopt([file._replace(directory="")])
