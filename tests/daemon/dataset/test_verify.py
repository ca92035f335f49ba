"""``verify`` proves sound datasets, and finds each kind of harm that can be done to one."""

import gzip
import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Gap, Log, Position, Span
from fastwire_daemon.dataset.commitlog.entry import DataFile, LogEntry, entry_name
from fastwire_daemon.dataset.expiry import expire
from fastwire_daemon.dataset.proof.findings import NEXT_STEPS
from fastwire_daemon.dataset.proof.report import VerifyReport
from fastwire_daemon.dataset.proof.tableaudit import TableAudit
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.writer import DatasetWriter
from tests.support import rolls


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six commits of two rows in two files each, dead letters in the last, a checkpoint at 4."""
    monkeypatch.setattr(DatasetWriter, "checkpoint_every", 4)
    path = tmp_path / "orders"
    writer = rolls.writer(path)
    writer.open()
    for number in range(-1, 11, 2):
        files = [rolls.stage(writer, [number + 1]), rolls.stage(writer, [number + 2])]
        dead_letters = [DeadLetter(rolls.log(), Position(rolls.LEDGER, 11), "odd", b"x", 3)] if number == 9 else []
        if dead_letters:
            writer.add_dead_letters(dead_letters)
        writer.commit(files, [rolls.span(number, number + 2, rows=2)])
    writer.close()
    return path


def kinds(report: VerifyReport) -> list[str]:
    return sorted(problem.kind for problem in report.problems)


def test_a_sound_dataset(dataset: Path) -> None:
    report = verify(dataset)
    assert report.ok and report.problems == []
    assert (report.entries, report.files, report.rows) == (6, 12, 12)
    assert (report.counted_files, report.counted_rows) == (12, 12)
    assert (report.dead_letters, report.dead_letter_rows) == (1, 3)
    (log,) = report.logs
    assert (log.start, log.end, log.rows, log.spans, log.intervals) == ("-1:-1", "7:11", 12, 6, [("-1:-1", "7:11")])
    assert report.proven == [
        "nothing landed twice: no spans of 1 partition overlap",
        "nothing is missing in 1 partition read in order: each span begins where the one before ended",
        "every row is in files, or was filtered on purpose",
        "the log has all entries from 1 to 6",
        "12 files with 12 rows are as the log describes them",
        "every byte of 12 files is as it was written (CRC-32C)",
    ]
    assert report.trusted == ["the broker delivered every record between the ends of each span"]
    assert verify(dataset, strict=True).ok
    value = json.loads(orjson.dumps(report.to_json()))
    assert value["ok"] and value["rows"] == 12 and value["logs"][0]["end"] == "7:11" and value["problems"] == []


def test_nothing_there(tmp_path: Path) -> None:
    report = verify(tmp_path / "orders")
    assert kinds(report) == ["no-dataset"] and not report.ok
    assert report.to_json()["problems"] == [
        {
            "kind": "no-dataset",
            "where": "_fastwire/dataset.json",
            "text": "there is no dataset here",
            "todo": NEXT_STEPS["no-dataset"],
        }
    ]


def test_an_empty_dataset(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    rolls.stage(writer, [1])
    report = verify(tmp_path)
    assert report.ok and "the log is empty" in report.proven
    assert report.trusted[-1] == "1 writer may hold staged files: they are not committed, and not checked"
    writer.close()


HARM: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a new file is gone": (lambda path: (path / "000000000005-0.jsonl").unlink(), ["missing"]),
    "dead letters are gone": (lambda path: shutil.rmtree(path / "_fastwire/diverted"), ["missing"]),
    "a stranger": (lambda path: (path / "000000000005-9.jsonl").write_text(""), ["stray"]),
    "a file under another name": (
        lambda path: os.renames(path / "000000000006-0.jsonl", path / "dt=2026-01-01" / "x.txt"),
        ["missing", "stray"],
    ),
    "a strange dead letter": (lambda path: (path / "_fastwire/diverted/x.dead").write_text(""), ["stray"]),
    "hidden files are nobody's business": (lambda path: (path / "_SUCCESS").write_text(""), []),
    "a row more": (lambda path: append(path / "000000000002-0.jsonl", b"{}\n"), ["size"]),
    "rows in place of bytes": (lambda path: (path / "000000000002-0.jsonl").write_bytes(b"\n" * 13), ["rows"]),
    "a torn file": (lambda path: cut(path / "000000000002-0.jsonl"), ["unreadable"]),
    "torn dead letters": (lambda path: cut(path / "_fastwire/diverted/000000000006-2.dead"), ["unreadable"]),
    "no description": (lambda path: (path / "_fastwire/dataset.json").unlink(), ["no-dataset"]),
    "a damaged description": (lambda path: (path / "_fastwire/dataset.json").write_text("{"), ["damaged"]),
    "a damaged checkpoint": (
        lambda path: (path / "_fastwire/checkpoint/000000000004.json").write_text("{"),
        ["checkpoint"],
    ),
    "a checkpoint of something else": (
        lambda path: replace_text(path / "_fastwire/checkpoint/000000000004.json", "7:7", "7:8"),
        ["checkpoint"],
    ),
    "a log entry is gone": (lambda path: (path / entry_name(6)).unlink(), ["log-end", "stray", "stray", "stray"]),
    "the newest roll is gone": (lambda path: lose_newest(path, 6), ["log-end"]),
    "a later format": (
        lambda path: replace_text(path / "_fastwire/dataset.json", '"format": 1', '"format": 2'),
        ["format"],
    ),
    "a damaged log entry": (
        lambda path: (path / entry_name(6)).write_text("{"),
        ["damaged", "stray", "stray", "stray"],
    ),
    "a span twice": (
        lambda path: rolls.rewrite(path, 6, spans=(rolls.span(8, 11, rows=2),)),
        ["overlap"],
    ),
    "a span that skips": (lambda path: rolls.rewrite(path, 6, spans=(rolls.span(10, 12, rows=2),)), ["gap"]),
    "a row that did not land": (lambda path: rolls.rewrite(path, 6, spans=(rolls.span(9, 12, rows=3),)), ["sum"]),
    "a span backwards": (lambda path: rolls.rewrite(path, 6, spans=(rolls.span(9, 8, rows=2),)), ["damaged"]),
    "a floor of nothing": (lambda path: rolls.rewrite(path, 6, floors=((rolls.log(9), Position(1, 1)),)), ["damaged"]),
    "a file that holds something else": (
        lambda path: rolls.rewrite(path, 6, files=(DataFile("", 0, 1, 14), DataFile("", 1, 2, 14))),
        ["rows", "sum"],
    ),
    "other dead letters": (
        lambda path: rolls.rewrite(
            path, 6, dead_letter_counts=tuple(replace(part, rows=9) for part in rolls.entry(path, 6).dead_letter_counts)
        ),
        ["rows"],
    ),
}  # fmt: skip


def lose_newest(path: Path, number: int) -> None:
    """A log entry and its files; only the note of it is left."""
    (path / entry_name(number)).unlink()
    for file in (*path.glob(f"{number:012d}-*"), *path.glob(f"_fastwire/diverted/{number:012d}-*")):
        file.unlink()


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as out:
        out.write(data)


def cut(file: Path) -> None:
    """Content lost, size kept."""
    size = file.stat().st_size
    os.truncate(file, size // 2)
    os.truncate(file, size)


def replace_text(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize("name", HARM)
def test_harm_is_seen(dataset: Path, name: str) -> None:
    do_harm, expected = HARM[name]
    do_harm(dataset)
    report = verify(dataset)
    assert kinds(report) == expected, report.problems
    assert report.ok == (expected == [])
    assert not expected or report.proven == []
    assert all(problem.todo == NEXT_STEPS[problem.kind] for problem in report.problems)
    orjson.dumps(report.to_json())


def test_every_kind_of_finding_has_a_next_step() -> None:
    rooms = [Path(each.__code__.co_filename) for each in (verify, TableAudit.compare)]
    source = "".join(room.read_text() for room in rooms)
    kinds = set(re.findall(r'(?:_problem|Problem)\(\s*"([a-z-]+)"', source))
    assert kinds == set(NEXT_STEPS)


def test_the_note_of_the_newest_entry_may_be_behind_or_missing(dataset: Path) -> None:
    """As after a kill between the commit and its note, and as in datasets of older versions."""
    note = dataset / "_fastwire/newest/000000000006.json"
    assert [file.name for file in note.parent.iterdir()] == [note.name]
    assert note.read_bytes() == (dataset / entry_name(6)).read_bytes()
    assert "their checkpoint" in verify(dataset).unproven[-1]
    note.rename(note.with_name("000000000005.json"))
    assert verify(dataset).ok
    shutil.rmtree(note.parent)
    assert verify(dataset).ok and "their checkpoint" not in verify(dataset).unproven[-1]


def test_links_to_folders_are_strays_that_nothing_follows(dataset: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "000000000001-0.jsonl").write_text("{}")
    (dataset / "loop").symlink_to(dataset)
    (dataset / "out").symlink_to(outside)
    (dataset / "nowhere").symlink_to(tmp_path / "gone")
    problems = verify(dataset).problems
    assert sorted((each.kind, each.where) for each in problems) == [
        ("stray", "loop"), ("stray", "nowhere"), ("stray", "out"),
    ]  # fmt: skip
    rolls.writer(dataset).open()  # the next writer is not led astray


def test_a_folder_of_files_may_be_a_link(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path / "data", split="topic")
    writer.open()
    writer.commit([rolls.stage(writer, [0], "t=a/")], [rolls.span(-1, 0)])
    writer.close()
    (tmp_path / "data" / "t=a").rename(tmp_path / "moved")
    (tmp_path / "data" / "t=a").symlink_to(tmp_path / "moved")
    assert verify(tmp_path / "data", strict=True).problems == []
    assert expire(tmp_path / "data", 0.0).deleted == 1
    assert list((tmp_path / "moved").iterdir()) == []


def test_a_hole_in_the_log(dataset: Path) -> None:
    (dataset / entry_name(3)).rename(dataset / "_fastwire/away")
    report = verify(dataset)
    problem = next(problem for problem in report.problems if problem.kind == "log-hole")
    assert problem.where == entry_name(3)
    assert problem.text == "is not there, but 3 later ones are, up to 000000000/000000000006.json"


def test_old_files_may_be_taken_away(dataset: Path) -> None:
    (dataset / "000000000004-0.jsonl").unlink()
    (dataset / "000000000001-1.jsonl").unlink()
    report = verify(dataset)
    assert report.ok and report.removed == ["000000000001-1.jsonl", "000000000004-0.jsonl"]
    assert (report.files, report.counted_files, report.counted_rows) == (12, 10, 10)
    assert "2 files that are gone were removed on purpose" in report.trusted
    assert kinds(verify(dataset, strict=True)) == ["removed", "removed"]
    (dataset / "000000000005-0.jsonl").unlink()
    assert kinds(verify(dataset)) == ["missing"]


def test_what_is_committed_and_not_published_is_pending(tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    def reached(step: str) -> None:
        if step == "log-synced":
            raise Stop

    writer = rolls.writer(tmp_path, reached=reached)
    writer.open()
    with pytest.raises(Stop):
        rolls.land(writer, -1, 1)
    report = verify(tmp_path)
    assert report.ok and report.pending == ["000000000001-0.jsonl"] and report.counted_rows == 0
    writer.close()


def test_gaps_filters_and_ledgers_are_told(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path)
    writer.open()
    log = rolls.log()
    writer.commit([rolls.stage(writer, [0])], [rolls.span(-1, 0)])
    gap = Span(log, Position(7, 0), Position(7, 0), 0, Gap(Position(7, 5), "retention"))
    writer.commit([rolls.stage(writer, [6])], [gap, rolls.span(5, 7)], filtered=1)
    writer.commit([rolls.stage(writer, [8])], [Span(log, Position(7, 7), Position(9, 0), 1)])
    report = verify(tmp_path)
    assert report.ok and report.filtered == 1
    assert report.logs[0].gaps == [("7:0", "7:5", "retention")] and report.logs[0].ledger_changes == 1
    assert report.proven[1].endswith("each span begins where the one before ended, but for 1 declared gap")
    assert report.trusted[1:3] == [
        "nothing lies between the last entry of a ledger and the first of the next (1 change of ledger)",
        "the broker did not have the records of 1 declared gap",
    ]
    writer.close()


def test_two_queries_on_one_table(tmp_path: Path) -> None:
    """As two jobs could write it before the commit looked at whose table it is."""
    writer = rolls.writer(tmp_path, system="spark")
    writer.open()
    for query in ("one", "two"):
        log = Log("spark", "orders", query, "-1")
        writer.commit([rolls.stage(writer, [0, 1])], [Span(log, Position(0, 0), Position(1, 0), 2)])
    writer.close()
    [problem] = verify(tmp_path).problems
    assert (problem.kind, problem.where) == ("overlap", entry_name(2))
    assert problem.text == "query two has written to the table of query one: rows may be there twice"


def test_shared_logs_may_have_holes(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, shared=True)
    writer.open()
    writer.commit([], [rolls.begun()])
    rolls.land(writer, 0, 2)
    rolls.land(writer, 5, 6)
    report = verify(tmp_path)
    assert report.ok and report.logs[0].shared
    assert report.logs[0].holes == [("-1:-1", "7:0"), ("7:2", "7:5")]
    assert any(text.startswith("the records of 2 holes in 1 shared partition") for text in report.trusted)
    writer.commit([], [], floors={rolls.log(): Position(7, 5)})
    report = verify(tmp_path)
    assert report.logs[0].holes == [] and "the broker needs no record below 1 confirmed position" in report.trusted
    writer.close()


def test_chains_of_other_systems(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, system="kafka")
    writer.open()
    log = Log("kafka", "id", "orders", "0", "Zm9v")
    for offset in range(3):
        writer.commit([rolls.stage(writer, [offset])], [Span(log, Position(offset, 1), Position(offset + 1, 1), 1)])
    assert verify(tmp_path).ok
    rolls.rewrite(tmp_path, 2, spans=(Span(log, Position(2, -1), Position(3, -1), 1),))
    report = verify(tmp_path)
    assert kinds(report) == ["gap"], "one mistake, one message"
    assert "a span starts at 2, but what has landed ends at 1" in report.problems[0].text
    writer.close()


def parquet(rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"value": list(range(rows))}), sink, row_group_size=2)
    return bytes(sink.getvalue())


def arrow(rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"value": list(range(rows))})
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, max_chunksize=2)
    return bytes(sink.getvalue())


def lines(rows: int) -> bytes:
    return b'{"value": 1}\n' * rows


FORMATS: dict[str, Callable[[int], bytes]] = {
    "parquet": parquet,
    "arrow": arrow,
    "jsonl": lines,
    "jsonl.gz": lambda rows: gzip.compress(lines(rows)),
    "jsonl.zst": lambda rows: zstandard.compress(lines(rows)),
}


@pytest.mark.parametrize("extension", FORMATS)
def test_rows_are_counted_in_each_format(tmp_path: Path, extension: str) -> None:
    writer = rolls.writer(tmp_path, extension=extension)
    writer.open()
    for rows, end in ((5, 4), (0, 5)):
        staged = writer.stage()
        staged.file.write(FORMATS[extension](rows))
        staged.rows = rows
        writer.commit([staged], [rolls.span(-1 if rows else 4, end, rows=rows)])
    report = verify(tmp_path)
    assert report.ok and (report.counted_files, report.counted_rows) == (2, 5)
    good = tmp_path / f"000000000001-0.{extension}"
    good.write_bytes(FORMATS[extension](4))
    rolls.rewrite(tmp_path, 1, files=(DataFile("", 0, 5, good.stat().st_size),))
    assert kinds(verify(tmp_path)) == ["rows"]
    good.write_bytes(FORMATS[extension](5)[:-3])
    rolls.rewrite(tmp_path, 1, files=(DataFile("", 0, 5, good.stat().st_size),))
    # A cut-off zstd stream looks like a shorter one.
    assert kinds(verify(tmp_path)) == ["rows" if extension == "jsonl.zst" else "unreadable"]
    writer.close()


def test_rows_of_a_foreign_format_are_not_counted_and_that_is_said(tmp_path: Path) -> None:
    writer = rolls.writer(tmp_path, extension="orc")
    writer.open()
    rolls.land(writer, -1, 2)
    report = verify(tmp_path)
    assert report.ok and ".orc files have as many rows as the log says" in report.trusted
    assert not any("files with" in text for text in report.proven)
    writer.close()


def test_beside_running_writers(tmp_path: Path) -> None:
    """Many looks while two writers commit: never a problem."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run(partition: int) -> None:
        try:
            writer = rolls.writer(tmp_path)
            writer.checkpoint_every = 3
            number = -1
            while not stop.is_set():
                if number < 0:
                    writer.open()
                    writer.commit([], [rolls.begun(partition)])
                rolls.land(writer, number, number + 1, partition)
                number += 1
            writer.close()
        except BaseException as exc:
            failures.append(exc)

    first = rolls.writer(tmp_path)
    first.open()
    first.commit([], [rolls.begun(9)])
    threads = [threading.Thread(target=run, args=(partition,)) for partition in (0, 1)]
    for thread in threads:
        thread.start()
    looks = [verify(tmp_path)]
    while not failures and (len(looks) < 30 or looks[-1].entries < 20):
        looks.append(verify(tmp_path))
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [problem for report in looks for problem in report.problems] == []
    last = verify(tmp_path)
    assert last.ok and last.counted_rows == last.rows
    first.close()


def test_an_entry_for_every_field_of_the_report(dataset: Path) -> None:
    value = verify(dataset).to_json()
    assert set(value) == {
        "path", "ok", "strict", "system", "problems", "log_entries", "files", "rows", "bytes", "counted_files",
        "counted_rows", "filtered_rows", "unselected_rows", "dead_letters", "dead_letter_rows", "replayed_entries",
        "pending_files", "removed_files", "logs", "sent_rows",
        "proven", "trusted", "unproven", "deep", "read_files", "placed_files", "expired_files", "undeleted_files",
        "erased_rows", "unerased_files",
        "table",
    }  # fmt: skip
    assert isinstance(LogEntry(writer="0" * 16, roll=1, at="").encode(), bytes)
