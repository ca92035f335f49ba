"""``top``: the screen for several daemons, its redrawing, and its end."""

import io
from typing import Any

import pytest
from rich.console import Console

from fastwire_daemon.cli.daemons import Daemon
from fastwire_daemon.cli.top.top import screen, watch
from fastwire_daemon.config import HttpAddress
from tests.daemon.cli.program import Run
from tests.support.fake_daemon import FakeDaemon

FIRST, SECOND = HttpAddress("127.0.0.1", 8650), HttpAddress(path="/run/second")


def lines(*daemons: Daemon, width: int = 110) -> list[str]:
    console = Console(file=io.StringIO(), width=width, record=True, highlight=False)
    console.print(screen(daemons))
    return [line.rstrip() for line in console.export_text().splitlines()]


def told(**changes: Any) -> Daemon:
    orders = {
        "state": "running",
        "rows_per_s": 12_345.6,
        "bytes_per_s": 987_654.3,
        "roll": {"rows": 34_567},
        "dead_letters": 3,
        "stages": {"limit": "encode"},
        "source": {"lag": {"backlog_entries": 1500}},
    }
    daemon = FakeDaemon(orders={**orders, **changes})
    daemon.said["warnings"] = [
        {"ts": f"2026-01-02T03:04:0{number}.678Z", "level": "warning", "event": "no \x1b[2J leader", "retry_s": 2}
        for number in range(5)
    ]
    return Daemon(FIRST, "healthy", daemon.said)


def test_the_screen() -> None:
    assert lines(told(), Daemon(SECOND, "no answer", {}, "unix:/run/second: No such file or directory")) == [
        "127.0.0.1:8650  healthy  memory 16.0 MB of 64.0 MB",
        "  pipeline  state    rows/s  bytes/s    lag  open roll  dead  limited by",
        "  orders    running  12,346   988 kB  1,500     34,567     3  encode",
        "  03:04:00 warning: no \\x1b[2J leader retry_s=2",
        "  03:04:01 warning: no \\x1b[2J leader retry_s=2",
        "  03:04:02 warning: no \\x1b[2J leader retry_s=2",
        "",
        "unix:/run/second  no answer  unix:/run/second: No such file or directory",
        "",
    ]


def test_troubles_have_lines() -> None:
    wrong = ["the sink waits: disk full"]
    refused = {f"orders {number}": "refused" for number in range(4)}
    text = lines(told(state="failed", error="gone", degraded=wrong, stopped_partitions=refused))
    assert "  orders: gone" in text and "  orders: the sink waits: disk full" in text
    assert "  orders: orders 0, orders 1, orders 2, … (4 partitions) stopped: refused" in text


def test_datasets_that_do_not_land_have_lines() -> None:
    datasets: dict[str, Any] = {f"t{number}": {"state": "resting"} for number in range(1000)}
    datasets["t7"] = {"state": "stopped", "error": "of another cluster", "retry_in_s": 4.6}
    text = lines(told(dataset_states={"resting": 999, "stopped": 1}, datasets=datasets))
    assert "  orders: datasets 1 stopped, 999 resting" in text
    assert "  orders: stopped t7: of another cluster; retried in 5 s" in text
    assert len(text) < 20
    assert not any("datasets" in line for line in lines(told(dataset_states={"resting": 1000}, datasets=datasets)))


def test_a_degraded_pipeline_is_not_just_running() -> None:
    assert lines(told(health="degraded"))[2].split()[:2] == ["orders", "degraded"]


def test_an_unknown_lag_is_not_none() -> None:
    assert "   ?  " in lines(told(source={"lag": None}))[2]


def test_a_narrow_terminal_cuts_lines_and_wraps_none() -> None:
    wide, narrow = lines(told()), lines(told(), width=60)
    assert len(wide) == len(narrow) and max(map(len, narrow)) <= 60


def test_another_version_has_other_keys() -> None:
    lines(Daemon(FIRST, "healthy", {"pipelines": {"orders": {}}, "warnings": [3]}))


def test_it_draws_until_it_is_interrupted() -> None:
    stream = io.StringIO()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    gone = [HttpAddress(path="/no/such/first"), HttpAddress(path="/no/such/second")]
    watch(gone, 0.5, 1.0, Console(file=stream, force_terminal=True, width=100, height=20), pause)
    assert pauses == [0.5] * 3
    drawn = stream.getvalue()
    assert drawn.count("unix:/no/such/first: No such file") == drawn.count("unix:/no/such/second: No such file") == 4
    assert drawn.rpartition("\x1b[?1049")[2].startswith("l"), "the screen of before is back"


def test_it_needs_a_terminal(run: Run) -> None:
    code, _, err = run("top")
    assert code == 2 and "top needs a terminal" in err


@pytest.mark.parametrize("arguments", [["nonsense"], ["127.0.0.1:8650", "nonsense"], ["--interval", "0"]])
def test_wrong_arguments(run: Run, arguments: list[str]) -> None:
    code, _, err = run("top", *arguments)
    assert code == 2 and "needs a terminal" not in err


def test_forty_columns_show_what_matters() -> None:
    console = Console(file=io.StringIO(), width=40, record=True, highlight=False)
    console.print(screen([told(health="degraded")], narrow=True))
    _, titles, row, *_ = (line.rstrip() for line in console.export_text().splitlines())
    assert titles.split() == ["pipeline", "state", "lag", "dead"]
    assert row.split() == ["orders", "degraded", "1,500", "3"]


def test_partitions_that_are_behind_have_their_last_hour() -> None:
    logs = {f"orders {each}": {"backlog_entries": 900 - each, "lag_history": [0, None, 450, 900]} for each in range(5)}
    logs["orders 1"] |= {"lag_history": None}  # of another version
    logs["orders 2"] |= {"backlog_entries": 0}
    text = lines(told(source={"lag": {"backlog_entries": 1500, "logs": logs}}))
    assert text[3:5] == ["  orders: orders 0 ▁ ▄█ 900 behind", "  orders: orders 1  899 behind"]
    assert text[5].startswith("  03:04:00 warning"), "the three with most, unless they have none"
