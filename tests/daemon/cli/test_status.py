"""``status``: what it prints about a daemon, for people and for programs, and its exit codes."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config import HttpAddress
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.service.http import HttpServer
from tests.daemon.cli.program import PROGRAM, Run
from tests.support.fake_daemon import FakeDaemon
from tests.support.waiting import eventually

ORDERS: dict[str, Any] = {
    "state": "running",
    "error": None,
    "rows_received": 1_234_567,
    "bytes_received": 98_765_432,
    "rows_per_s": 12_345.6,
    "bytes_per_s": 987_654.3,
    "rows_committed": 1_200_000,
    "commits": 12,
    "dead_letters": 0,
    "roll": {"rows": 34_567, "bytes": 2_000_000},
    "waiting": None,
    "stages": {"limit": "encode", "setting": "sink.writers, sink.compression"},
    "stopped_partitions": {},
    "source": {
        "url": "pulsar://127.0.0.1:6650",
        "partitions": {"reading": 2},
        "errors": {},
        "connections": [{"broker": "127.0.0.1:6650", "ready": True}],
        "lag": {"backlog_entries": 1500, "behind_logs": 1, "known_logs": 2, "logs": {}},
    },
}


class ServedDaemon(FakeDaemon):
    """Such a daemon at an address."""

    def __init__(self, address: HttpAddress) -> None:
        super().__init__(orders=dict(ORDERS))
        self.address = address


@pytest.fixture
def told(tmp_path: Path) -> Iterator[ServedDaemon]:
    """The HTTP server of a daemon, at a unix socket, on a thread."""
    provider = ServedDaemon(HttpAddress(path=str(tmp_path / "http")))
    ready, end = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = HttpServer(provider.address, provider, lambda: b"")
        await server.start()
        ready.set()
        await end.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(60)
    yield provider
    loop.call_soon_threadsafe(end.set)
    thread.join()
    loop.close()


def test_the_lines(run: Run, told: ServedDaemon) -> None:
    code, out, err = run("status", told.address)
    assert (code, err) == (0, "")
    assert [line.rstrip() for line in out.splitlines()] == [
        f"{told.address} healthy",
        "  process  fastwire 1.2.3, pid 77",
        "  memory   16.0 MB of 64.0 MB",
        "orders",
        "  state        running",
        "  rate         12,346 rows/s, 988 kB/s",
        "  received     1,234,567 rows, 98.8 MB",
        "  committed    1,200,000 rows in 12 commits; 34,567 rows are not committed yet (2.0 MB)",
        "  source       pulsar://127.0.0.1:6650",
        "  partitions   2 reading",
        "  connections  1 of 1 ready",
        "  lag          1,500 entries not acknowledged; 1 of 2 partitions behind",
        "  limited by   encode; what helps: sink.writers, sink.compression",
    ]


def test_lines_end_with_their_text(run: Run, told: ServedDaemon) -> None:
    told.said["pipelines"]["orders"] |= {"stopped_partitions": {"orders 0": "a long reason" * 1000}}
    lines = run("status", told.address)[1].splitlines()
    assert max(map(len, lines)) > 13_000
    assert [line for line in lines if line != line.rstrip()] == []


def test_what_is_wrong_is_told(run: Run, told: ServedDaemon) -> None:
    told.said["health"] = "not ready"
    told.said["pipelines"]["orders"] |= {
        "state": "failed",
        "health": "not ready",
        "error": "the disk\x1b[2J is gone",
        "degraded": ["the sink waits: disk full", "1 of 2 partitions is stopped"],
        "recreated_partitions": {"orders 2": "another log"},
        "dead_letters": 3,
        "stopped_partitions": {"orders 0": "refused"},
        "source": {"errors": {"orders 1": "no leader"}, "connections": [{"ready": False}]},
    }
    code, out, _ = run("status", told.address)
    assert code == 3
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert f"{told.address} not ready" == lines[0]
    for line in (
        "error the disk\\x1b[2J is gone",
        "not ready the sink waits: disk full",
        "recreated orders 2: another log",
        "stopped orders 0: refused",
        "dead letters 3 since the start",
        "trouble orders 1: no leader",
        "connections 0 of 1 ready",
    ):
        assert line in lines
    told.said["health"] = "stuck"
    assert run("status", told.address, "--quiet") == (4, "", "")


def test_a_reason_that_many_partitions_have_is_told_once(run: Run, told: ServedDaemon) -> None:
    down = "cannot connect to a:9092: Connection refused"
    told.said["pipelines"]["orders"] |= {
        "unreadable_partitions": {f"orders {number}": down for number in range(99)} | {"orders 99": "no leader"},
        "source": {"errors": {f"orders partition {number}": down for number in range(200)} | {"refunds 0": "closed"}},
    }
    lines = [" ".join(line.split()) for line in run("status", told.address)[1].splitlines()]
    assert [line for line in lines if line.startswith(("unreadable", "trouble"))] == [
        f"unreadable orders 0, orders 1, orders 2, … (99 or more partitions): {down}",
        "unreadable orders 99: no leader",
        "trouble refunds 0: closed",
    ]


def test_of_a_thousand_datasets_those_that_do_not_land_are_told(run: Run, told: ServedDaemon) -> None:
    datasets: dict[str, Any] = {f"t{number}": {"state": "resting"} for number in range(1000)}
    for number in range(30):
        datasets[f"t{number}"] = {"state": "degraded", "degraded": ["the sink waits: disk full"]}
    datasets["u"] = {"state": "stopped", "error": "of another\x1b[2J cluster", "retry_in_s": None}
    told.said["pipelines"]["orders"] |= {
        "dataset_states": {"resting": 970, "degraded": 30, "stopped": 1},
        "datasets": datasets,
    }
    lines = [" ".join(line.split()) for line in run("status", told.address)[1].splitlines()]
    at = lines.index("datasets 1 stopped, 30 degraded, 970 resting")
    assert lines[at + 1 : at + 3] == [
        "stopped u: of another\\x1b[2J cluster",
        "degraded t0: the sink waits: disk full",
    ]
    assert lines[at + 21] == "and 11 more datasets: status --json has all of them"
    assert len(lines) < 40


def test_a_degraded_daemon_is_told_from_a_healthy_one(run: Run, told: ServedDaemon) -> None:
    told.said["health"] = told.said["pipelines"]["orders"]["health"] = "degraded"
    told.said["pipelines"]["orders"]["degraded"] = ["1 of 3 partitions is stopped"]
    code, out, _ = run("status", told.address)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, lines[0]) == (5, f"{told.address} degraded")
    assert "state running, degraded" in lines and "degraded 1 of 3 partitions is stopped" in lines


def test_one_object_for_programs(run: Run, told: ServedDaemon) -> None:
    code, out, _ = run("status", told.address, "--json")
    seen = json.loads(out)
    assert (code, seen["address"], seen["health"]) == (0, str(told.address), "healthy")
    assert seen["status"] == told.said


def test_an_older_daemon_knows_no_degraded_pipelines(run: Run, told: ServedDaemon) -> None:
    del told.said["health"]
    assert run("status", told.address, "--quiet")[0] == 0
    told.said["ready"] = False
    assert run("status", told.address, "--quiet")[0] == 3
    told.said["live"] = False
    assert run("status", told.address, "--quiet")[0] == 4


def test_another_version_has_other_keys(run: Run, told: ServedDaemon) -> None:
    told.said = {"live": True, "ready": True, "memory": 3, "pipelines": {"orders": {"roll": [], "source": {"lag": 1}}}}
    assert run("status", told.address)[0] == 0


def test_no_daemon(run: Run, tmp_path: Path) -> None:
    gone = f"unix:{tmp_path / 'gone'}"
    code, out, _ = run("status", gone, "--json")
    assert code == 1
    assert json.loads(out) == {
        "address": gone,
        "health": "no answer",
        "error": f"{gone}: No such file or directory",
    }
    assert run("status", gone)[1].splitlines() == [f"{gone} no answer", f"  error  {gone}: No such file or directory"]


@pytest.mark.parametrize("name", ["", "localhost", "https://localhost:8650", "127.0.0.1:0", "unix:rel", "no/such/file"])
def test_what_is_no_daemon_is_a_wrong_argument(run: Run, name: str) -> None:
    code, _, err = run("status", name)
    assert code == 2
    assert "Invalid value for DAEMON" in err


def test_a_daemon_by_its_configuration(
    run: Run, tmp_path: Path, good: Path, broker: PulsarDevBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = tmp_path / "http.sock"
    file = tmp_path / "orders.toml"
    landing = good.read_text().partition("[pipelines.look")[0].replace("pulsar://127.0.0.1:6650", broker.url)
    file.write_text(f'[daemon]\nhttp = "unix:{address}"\n{landing}'.replace('"orders", "refunds"', '"orders"'))
    assert run("status", file)[0] == 1
    with subprocess.Popen([*PROGRAM, "run", str(file)], stderr=subprocess.DEVNULL) as daemon:
        try:
            eventually(lambda: run("status", file, "-q")[0] == 0, "a healthy daemon")
            eventually(
                lambda: (
                    json.loads(run("status", file, "--json")[1])["status"]["pipelines"]["orders"]["rows_received"] == 40
                ),
                "all records",
            )
        finally:
            daemon.terminate()
    assert daemon.returncode == 0
    assert run("status", file)[0] == 1
    file.write_text(f'[daemon]\nhttp = ""\n{landing}')
    code, _, err = run("status", file)
    assert (code, err) == (78, f'{file}: daemon.http: is "": this daemon has no HTTP server to ask\n')


def test_how_fresh_it_is(run: Run, told: ServedDaemon) -> None:
    orders = told.said["pipelines"]["orders"]
    orders |= {"dead_letters": 3, "dead_letter_reasons": {"Truncated": 2, "NoValue": 1}}
    orders |= {"last_commit_s_ago": 65.4, "lag_s": 1234.0}
    orders["source"]["lag"] |= {"silent_topics": {"orders": {"silent_s": 900, "entries_per_hour": 1200}}}
    lines = [" ".join(line.split()) for line in run("status", told.address)[1].splitlines()]
    for line in (
        "dead letters 3 since the start: 2 Truncated, 1 NoValue",
        "last commit 65 s ago",
        "lag in time 1,234 s: the age of the newest record that has landed",
        "silent orders: hardly a record for 900 s, 1,200 an hour before",
    ):
        assert line in lines
