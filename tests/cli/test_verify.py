"""``verify``: what is proven, what is wrong, and its exit code."""

import json
from pathlib import Path

import pytest

from fastwire.position import Log
from fastwire_daemon.dataset.verify import LogReport, Problem, VerifyReport
from tests.cli.program import Run


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> VerifyReport:
    """What ``verify`` finds from now on."""
    found = VerifyReport("/data", strict=False, system="pulsar", entries=12, files=3, rows=123_456, nbytes=7_890_123)
    log = Log("pulsar", "here", "persistent://public/default/orders", "0", "0")
    found.logs = [LogReport(log, "-1:-1", "12:34", rows=123_456)]
    found.proven, found.trusted = ["the log is whole: entries 1 to 12"], ["that a reader was given all"]

    def answer(path: Path, strict: bool) -> VerifyReport:
        found.path, found.strict = str(path), strict
        return found

    monkeypatch.setattr("fastwire_daemon.dataset.verify.verify", answer)
    return found


def test_verify_says_what_is_proven(run: Run, report: VerifyReport) -> None:
    assert run("verify", "/data") == (
        0,
        """\
/data: sound
  123,456 rows in 3 files, 7.9 MB, 12 log entries of pulsar
landed
  persistent://public/default/orders 0: -1:-1 to 12:34, 123,456 rows
proven
  the log is whole: entries 1 to 12
on the broker's word
  that a reader was given all
""",
        "",
    )
    assert not report.strict


def test_verify_says_what_is_wrong(run: Run, report: VerifyReport) -> None:
    report.problems = [Problem("stray", "x.parquet", "no log entry names this file")]
    report.proven = report.trusted = []
    report.diverted_entries, report.diverted_rows, report.filtered = 2, 5, 7
    report.pending, report.removed = ["a"], ["b", "c"]
    code, out, err = run("verify", "/data", "--strict")
    assert (code, err) == (1, "")
    assert report.strict
    assert (
        out
        == """\
/data: 1 problem
  123,456 rows in 3 files, 7.9 MB, 12 log entries of pulsar
  2 entries (5 rows) could not be decoded: diverted
  7 rows were filtered on purpose
  committed and about to appear: 1 file
  taken away since: 2 files
landed
  persistent://public/default/orders 0: -1:-1 to 12:34, 123,456 rows
problems
  stray: x.parquet: no log entry names this file
"""
    )
    report.problems *= 25
    out = run("verify", "/data")[1]
    assert out.startswith("/data: 25 problems\n")
    assert out.endswith("file\n  … and 5 more\n")


def test_verify_as_json(run: Run, report: VerifyReport) -> None:
    report.problems = [Problem("stray", "x.parquet", "no log entry names this file")]
    code, out, err = run("verify", "/data", "--json")
    assert (code, err, out.count("\n")) == (1, "", 1)
    assert json.loads(out) == report.to_json()


def test_verify_where_nothing_is(run: Run, tmp_path: Path) -> None:
    code, out, err = run("verify", tmp_path)
    assert (code, err) == (1, "")
    assert out == f"{tmp_path}: 1 problem\nproblems\n  no-dataset: _fastwire/dataset.json: there is no dataset here\n"
