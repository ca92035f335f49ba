"""The progress line: what it says, and that it says nothing off a terminal."""

import io
from functools import partial

from rich.console import Console

from fastwire_daemon.runtime.amounts import format_bytes
from fastwire_daemon.service.progress import Progress, ProgressFacts, progress_line


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_line() -> None:
    facts = ProgressFacts(1_234_567, 987_654_321, 12, 300_000_000, 536_870_912)
    assert progress_line(facts, 250_000.4) == (
        "1,234,567 rows  250,000 rows/s  988 MB  12 files  memory 300 MB of 537 MB"
    )
    assert progress_line(ProgressFacts(0, 0, 1, note="disk full"), 0) == "0 rows  0 rows/s  0 B  1 file  disk full"
    assert progress_line(ProgressFacts(5, 70), 2) == "5 rows  2 rows/s  70 B"


def test_bytes_for_eyes() -> None:
    given = (0, 999, 1000, 17_340, 99_949, 99_950, 999_499, 999_500, 10**9, 10**12, 12 * 10**15)
    assert [format_bytes(count) for count in given] == [
        "0 B", "999 B", "1.0 kB", "17.3 kB", "99.9 kB", "100 kB", "999 kB", "1.0 MB", "1.0 GB", "1.0 TB", "12000.0 TB",
    ]  # fmt: skip


def test_nothing_off_a_terminal() -> None:
    stream = io.StringIO()
    for console in (None, Console(file=stream)):
        progress = Progress(console)
        progress.show(lambda: ProgressFacts(1, 1, 1))
        progress.close()
    assert stream.getvalue() == ""


def test_the_rate_is_that_of_the_last_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress(Console(file=stream, force_terminal=True, width=100), clock)
    shown = []
    rows = 0
    for second in range(12):
        progress.show(partial(ProgressFacts, rows, 0, 0))
        shown.append(stream.getvalue().rpartition(" rows/s")[0].split()[-1])
        clock.now += 1
        rows += 1000 if second < 6 else 0
    assert stream.getvalue().rpartition("\x1b[?25")[2].startswith("h"), (
        "an abort would leave the terminal without cursor"
    )
    progress.close()
    assert shown[0] == "0"
    assert shown[1:7] == ["1,000"] * 6
    assert shown[7] == "800"
    assert shown[11] == "0"
    assert stream.getvalue().endswith("\n\x1b[?25h"), "the last line stays"
    progress.close()
