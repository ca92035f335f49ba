"""``verify``: what is proven, what is wrong, and its exit code."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fastwire.position import Log
from fastwire_daemon.dataset.proof.findings import NEXT_STEPS, Problem
from fastwire_daemon.dataset.proof.report import LogReport, VerifyReport
from tests.daemon.cli.program import Run


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> VerifyReport:
    """Let ``verify`` find these problems from now on."""
    found = VerifyReport("/data", strict=False, system="pulsar", entries=12, files=3, rows=123_456, nbytes=7_890_123)
    log = Log("pulsar", "here", "persistent://public/default/orders", "0", "0")
    found.logs = [LogReport(log, "-1:-1", "12:34", rows=123_456)]
    found.proven, found.trusted = ["the log has all entries from 1 to 12"], ["the broker delivered every record"]
    found.unproven = ["the bytes of 3 files"]

    def answer(path: str, strict: bool, *, deep: bool, medium: None, catalog: None) -> VerifyReport:
        found.path, found.strict, found.deep = path, strict, deep
        return found

    monkeypatch.setattr("fastwire_daemon.dataset.proof.verify.verify", answer)
    return found


def test_verify_says_what_is_proven(run: Run, report: VerifyReport) -> None:
    assert run("verify", "/data") == (
        0,
        """\
/data: sound
proven from the files and the log
  the log has all entries from 1 to 12
taken on trust
  the broker delivered every record
not checked
  the bytes of 3 files
content
  123,456 rows in 3 files, 7.9 MB
  12 log entries, of pulsar
partitions
  persistent://public/default/orders 0: the beginning to 12:34, 123,456 rows
""",
        "",
    )
    assert not report.strict and not report.deep
    assert run("verify", "/data", "--deep")[0] == 0 and report.deep


def test_a_topic_without_partitions_has_no_number(run: Run, report: VerifyReport) -> None:
    (only,) = report.logs
    only.log = replace(only.log, partition="-1")
    only.rows = report.entries = 1
    lines = run("verify", "/data")[1].splitlines()
    assert lines[-3] == "  1 log entry, of pulsar"
    assert lines[-1] == "  persistent://public/default/orders: the beginning to 12:34, 1 row"


def test_verify_says_what_is_wrong(run: Run, report: VerifyReport) -> None:
    report.problems = [Problem("stray", "x.parquet", "no log entry names this file")]
    report.proven = report.trusted = report.unproven = []
    report.dead_letters, report.dead_letter_rows, report.filtered = 2, 5, 7
    report.pending, report.removed = ["a"], ["b", "c"]
    code, out, err = run("verify", "/data", "--strict")
    assert (code, err) == (1, "")
    assert report.strict
    assert (
        out
        == """\
/data: 1 problem
problems
  stray: x.parquet: no log entry names this file
to do
  stray: Move the file out of the dataset, because readers count its rows; if a log entry is lost, restore that
content
  123,456 rows in 3 files, 7.9 MB
  12 log entries, of pulsar
  2 dead letters with 5 rows
  7 rows filtered on purpose
  1 file committed and not published yet
  2 files removed after the commit
partitions
  persistent://public/default/orders 0: the beginning to 12:34, 123,456 rows
"""
    )
    report.problems *= 25
    out = run("verify", "/data")[1]
    assert out.startswith("/data: 25 problems\n")
    assert "file\n  … and 5 more\nto do\n  stray: Move the" in out and out.count("Move the") == 1


def test_verify_as_json(run: Run, report: VerifyReport) -> None:
    report.problems = [Problem("stray", "x.parquet", "no log entry names this file")]
    code, out, err = run("verify", "/data", "--json")
    assert (code, err, out.count("\n")) == (1, "", 1)
    assert json.loads(out) == report.to_json()


def test_verify_where_nothing_is(run: Run, tmp_path: Path) -> None:
    code, out, err = run("verify", tmp_path)
    assert (code, err) == (1, "")
    assert out == (
        f"{tmp_path}: 1 problem\nproblems\n  no-dataset: _fastwire/dataset.json: there is no dataset here\n"
        f"to do\n  no-dataset: {NEXT_STEPS['no-dataset']}\n"
    )


def test_logs_of_a_topic_that_was_made_again_are_told_apart(run: Run, report: VerifyReport) -> None:
    first = report.logs[0]
    report.logs.append(replace(first, log=replace(first.log, incarnation="1"), start="-1:-1", end="3:4", rows=5))
    report.logs.append(replace(first, log=replace(first.log, partition="1"), rows=1))
    assert (
        run("verify", "/data")[1].partition("\npartitions\n")[2]
        == """\
  persistent://public/default/orders 0 (incarnation 0): the beginning to 12:34, 123,456 rows
  persistent://public/default/orders 0 (incarnation 1): the beginning to 3:4, 5 rows
  persistent://public/default/orders 1: the beginning to 12:34, 1 row
"""
    )
