"""``verify`` compares what files hold with what was written, and says what it has not compared."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from fastwire.position import Log, Position, Span
from fastwire.pulsar.columns import ROW
from fastwire_daemon.dataset.commitlog.entry import LogEntry, entry_name
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.proof.content import misplaced_rows
from fastwire_daemon.dataset.proof.report import VerifyReport
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.runtime.errors import DatasetDamagedError
from fastwire_daemon.sinks.dataset import DatasetSink
from fastwire_daemon.testing import Feed
from tests.support import rolls
from tests.support.source_tree import ROOT

OLD = ROOT / "tests/golden/dataset/without-checksums"
COMMITS = 6


def landed(path: Path, columns: tuple[str, ...] = ROW.names) -> list[Path]:
    """Some commits of 20 rows each; return the files."""
    options = DatasetOptions(system="pulsar", cluster="feed", columns=columns)
    sink, feed = DatasetSink(path, options, ParquetEncoder, compression="none"), Feed(rows=10)
    sink.open()
    for _ in range(COMMITS):
        sink.write(feed.chunk(2))
        sink.commit()
    sink.close()
    return sorted(path.glob("*.parquet"))


def kinds(report: VerifyReport) -> list[str]:
    return [problem.kind for problem in report.problems]


def test_what_is_proven_and_what_is_not(tmp_path: Path) -> None:
    landed(tmp_path)
    report = verify(tmp_path)
    assert report.ok and (report.counted_files, report.read_files, report.placed_files) == (COMMITS, 0, COMMITS)
    newest = (
        "whether log entry 6 is the newest and unchanged: if later entries and their files and their checkpoint were "
        "all deleted, no trace would remain"
    )
    assert report.unproven == ["the bytes of 6 files (verify --deep compares them)", newest]
    report = verify(tmp_path, deep=True)
    assert report.ok and report.read_files == COMMITS
    assert "every byte of 6 files is as it was written (CRC-32C)" in report.proven
    assert report.unproven == [newest]


def exchange(files: list[Path]) -> None:
    first, second = files[2], files[3]
    assert first.stat().st_size == second.stat().st_size
    os.rename(first, first.with_suffix(".x"))
    os.rename(second, first)
    os.rename(first.with_suffix(".x"), second)


def zero_pages(files: list[Path]) -> None:
    data = bytearray(files[2].read_bytes())
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[4:end] = bytes(end - 4)
    files[2].write_bytes(data)


def alter_value(files: list[Path]) -> None:
    value = pq.read_table(files[2]).column("value")[0].as_py()
    data = files[2].read_bytes()
    assert value in data
    files[2].write_bytes(data.replace(value, b"E" * len(value), 1))
    assert pq.read_table(files[2]).num_rows == 20


@pytest.mark.parametrize(
    ("harm", "deep", "found"),
    [
        (exchange, False, ["positions", "positions"]),
        (exchange, True, ["positions", "positions"]),
        (lambda files: shutil.copyfile(files[2], files[3]), False, ["positions"]),
        (zero_pages, True, ["content"]),
        (alter_value, True, ["content"]),
    ],
)
def test_harm_to_a_file_of_the_same_size(
    tmp_path: Path, harm: Callable[[list[Path]], object], deep: bool, found: list[str]
) -> None:
    harm(landed(tmp_path))
    report = verify(tmp_path, deep=deep)
    assert kinds(report) == found, report.problems


@pytest.mark.parametrize("columns", [("value",), ("value", "partition", "offset"), ("value", "offset")])
def test_a_copy_is_found_without_position_columns_by_reading(tmp_path: Path, columns: tuple[str, ...]) -> None:
    files = landed(tmp_path, columns)
    # Without the ledger nothing can be said of the file that begins at the earliest position.
    assert verify(tmp_path).placed_files == (COMMITS - 1 if "offset" in columns else 0)
    shutil.copyfile(files[2], files[3])
    assert kinds(verify(tmp_path)) == (["positions"] if "offset" in columns else [])
    assert kinds(verify(tmp_path, deep=True)) == (["positions"] if "offset" in columns else ["content"])


def test_files_of_lines_and_dead_letters_are_always_read(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    assert verify(tmp_path).read_files == 1
    (tmp_path / "000000000001-0.jsonl").write_text('{"value": 1}\n')
    assert kinds(verify(tmp_path)) == ["content"]


def span(partition: int, start: tuple[int, int], end: tuple[int, int], rows: int = 1, topic: str = "") -> Span:
    topic = topic or "persistent://public/default/feed"
    return Span(Log("pulsar", "feed", topic, str(partition)), Position(*start), Position(*end), rows)


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        # The file holds entry 1 of ledger 7 of both partitions.
        ([span(0, (7, 0), (7, 1)), span(1, (7, 0), (7, 1))], ""),
        ([span(0, (6, 5), (8, 0)), span(1, (7, 0), (7, 1))], ""),
        ([span(0, (7, 0), (7, 1))], "has rows of partition 0 to 1"),
        ([span(0, (7, 0), (7, 1)), span(1, (7, 0), (7, 1), rows=0)], "has rows of partition 0 to 1"),
        ([span(0, (7, 1), (7, 2)), span(1, (7, 1), (7, 2))], "has entries 7:1 to 7:1, outside of 7:1 to 7:2"),
        ([span(0, (7, -1), (7, 0)), span(1, (7, -1), (7, 0))], "has entries 7:1 to 7:1, outside of 7:-1 to 7:0"),
        ([span(0, (8, 0), (8, 1)), span(1, (8, 0), (8, 1))], "has entries 7:1 to 7:1, outside of 8:0 to 8:1"),
        ([span(0, (7, 0), (7, 1), topic="x"), span(1, (7, 0), (7, 1), topic="x")], "has rows of topic persistent:"),
    ],
)
def test_rows_are_compared_with_spans(tmp_path: Path, spans: list[Span], found: str) -> None:
    # Our own files have no statistics of the topic, because they cost 50 instructions a row.
    path = tmp_path / "rewritten"
    pq.write_table(pq.read_table(landed(tmp_path)[1], partitioning=None), path)
    with path.open("rb") as file:
        said = misplaced_rows(file, spans)
    assert said is not None and said.startswith(found) and bool(said) == bool(found)


def test_a_log_entry_that_is_not_the_one_before(tmp_path: Path) -> None:
    landed(tmp_path)
    name = tmp_path / entry_name(3)
    text = name.read_text()
    name.write_text(text.replace('"at":"20', '"at":"19'))
    report = verify(tmp_path)
    assert [(problem.kind, problem.where) for problem in report.problems] == [("chain", entry_name(4))]
    writer = rolls.writer(tmp_path, cluster="feed", columns=ROW.names, extension="parquet")
    with pytest.raises(DatasetDamagedError, match=r"000000000004\.json was written after another log entry"):
        writer.open()


def test_a_checkpoint_beyond_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire_daemon.dataset.writer.DatasetWriter.checkpoint_every", 2)
    writer = rolls.writer(tmp_path)
    writer.open()
    for number in range(-1, 3):
        rolls.land(writer, number, number + 1)
    writer.close()
    os.rename(tmp_path / entry_name(4), tmp_path / "_saved")
    assert kinds(verify(tmp_path)) == ["log-end", "log-end", "stray"]
    with pytest.raises(DatasetDamagedError, match=r"000000000004\.json is missing, and this process has committed"):
        writer.open()
    with pytest.raises(DatasetDamagedError, match=r"000000000004\.json is missing, but there is a checkpoint"):
        rolls.writer(tmp_path).open()
    os.rename(tmp_path / "_saved", tmp_path / entry_name(4))
    assert rolls.end_of(writer.open()) == 3
    writer.close()


def test_another_writer_between_two_entries_keeps_the_chain(tmp_path: Path) -> None:
    overtaken: list[bool] = []

    def reached(step: str) -> None:
        if step == "staging-synced" and not overtaken:
            overtaken.append(True)
            other = rolls.writer(tmp_path)
            other.open()
            other.commit([], [rolls.begun(1)])
            rolls.land(other, -1, 0, partition=1)
            other.close()

    writer = rolls.writer(tmp_path, reached=reached)
    writer.open()
    rolls.land(writer, -1, 0)
    rolls.land(writer, 0, 1)
    writer.close()
    assert rolls.staging(tmp_path) == []
    count = rolls.entries(tmp_path)
    assert count == 4
    for number in range(2, count + 1):
        assert rolls.entry(tmp_path, number).before == crc32c((tmp_path / entry_name(number - 1)).read_bytes())
    assert rolls.entry(tmp_path, 1).before == 0
    assert verify(tmp_path, deep=True).ok


# --- datasets of older versions


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Three log entries as an older version wrote them: no checksums."""
    return Path(shutil.copytree(OLD, tmp_path / "old"))


def test_an_old_dataset_is_read_and_continued(old: Path) -> None:
    assert "crc32c" not in (old / entry_name(2)).read_text()
    report = verify(old, deep=True)
    assert report.ok and (report.rows, report.counted_rows, report.read_files) == (6, 6, 0)
    assert report.unproven[:2] == [
        "the bytes of 3 files: an older version wrote them without a checksum",
        "whether a log entry was replaced: an older version wrote 3 of them without the checksum of the entry before",
    ]
    writer = rolls.writer(old)
    assert rolls.end_of(writer.open()) == 5
    rolls.land(writer, 5, 7)
    writer.close()
    assert rolls.rows(old) == list(range(8))
    report = verify(old, deep=True)
    assert report.ok and report.read_files == 1
    # The first entry with a checksum vouches for the last one without.
    (old / entry_name(3)).write_text((old / entry_name(3)).read_text().replace('"at":"20', '"at":"19'))
    assert kinds(verify(old)) == ["chain"]


def test_an_older_version_can_go_on_behind_a_new_entry(old: Path) -> None:
    """It ignores the keys that it does not know."""
    writer = rolls.writer(old)
    writer.open()
    rolls.land(writer, 5, 6)
    writer.close()
    entry = LogEntry(writer="0" * 16, roll=1, at="2026-01-01T00:00:00.000Z", spans=(rolls.span(6, 6),))
    (old / entry_name(5)).write_bytes(entry.encode())
    assert verify(old).ok
    assert rolls.end_of(writer.open()) == 6
    rolls.land(writer, 6, 7)
    assert rolls.entry(old, 6).before == crc32c((old / entry_name(5)).read_bytes())
    writer.close()


@pytest.mark.parametrize(
    "harm",
    [
        ('"crc32c":["', '"crc32c":["00000000","'),
        ('"crc32c":["', '"crc32c":["x'),
        ('"crc32c":["', '"crc32c":[7,"'),
        ('"before":"', '"before":"x'),
    ],
)
def test_checksums_that_are_none(tmp_path: Path, harm: tuple[str, str]) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.land(writer, -1, 0)
    writer.close()
    text = (tmp_path / entry_name(1)).read_text()
    assert harm[0] in text
    with pytest.raises(DatasetDamagedError):
        LogEntry.decode(text.replace(*harm).encode(), "it")
