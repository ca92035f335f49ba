"""The daemon as a process: signals, reload, HTTP, one pipeline beside another."""

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.devbroker.pulsar.broker import PulsarDevBroker
from fastwire_daemon.load import Load, fill
from tests.crash.nursery import Nursery
from tests.real.daemon import Daemon, Job, verify

pytestmark = pytest.mark.crash

TOPIC = "persistent://public/default/service"


def produce(broker: PulsarDevBroker, first: int, records: int) -> None:
    fill(broker.append, TOPIC, Load(records=records, partitions=2, batch=10, first=first), lambda: 1_700_000_000_000)


@pytest.fixture
def job(dev_broker: PulsarDevBroker, tmp_path: Path) -> Job:
    dev_broker.create_topic(TOPIC, 2)
    produce(dev_broker, 0, 500)
    return Job(dev_broker.url, TOPIC, tmp_path / "data", roll={"idle": "200ms"})


def backlog(broker: PulsarDevBroker) -> int:
    return sum(broker.backlog(f"{TOPIC}-partition-{index}", "landing") for index in range(2))


def rows(path: Path) -> int:
    said = verify(path, "--json")
    assert said.returncode == 0, said.stdout
    return int(json.loads(said.stdout)["rows"])


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_commits_acknowledges_and_ends(
    dev_broker: PulsarDevBroker, job: Job, tmp_path: Path, nursery: Nursery, number: signal.Signals
) -> None:
    quiet = Job(dev_broker.url, TOPIC, job.path, roll={"idle": "1h", "age": "1h"})
    with Daemon("run", str(quiet.write(tmp_path)), log=tmp_path / "log", nursery=nursery) as daemon:
        until(lambda: daemon.log.exists() and '"first positions"' in daemon.output, "it did not start")
        until(lambda: all(unacked(dev_broker)), "nothing was delivered")
        time.sleep(0.3)  # the open chunk is handed on
        daemon.signal(number)
        daemon.wait_done()
    assert rows(job.path) == 500
    assert backlog(dev_broker) == 0
    assert [event["reason"] for event in daemon.events() if event["event"] == "committed"][-1] == "shutdown"


def unacked(broker: PulsarDevBroker) -> list[bool]:
    return [broker.unacked(f"{TOPIC}-partition-{index}", "landing") > 0 for index in range(2)]


def test_a_second_signal_aborts_and_loses_nothing(
    dev_broker: PulsarDevBroker, job: Job, tmp_path: Path, nursery: Nursery
) -> None:
    config = str(job.write(tmp_path))
    script = {"at": "files-finished", "nth": 2, "do": "sleep", "seconds": 60}
    with Daemon("run", config, log=tmp_path / "log", script=script, nursery=nursery) as daemon:
        until(lambda: any((job.path / "_fastwire" / "staging").glob("*/*.part")), "no file was staged")
        time.sleep(0.5)
        daemon.signal(signal.SIGTERM)
        daemon.wait_for('"draining"')
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 1
        assert daemon.events()[-1]["event"] == "aborted"
    with Daemon("run", config, "--until-end", log=tmp_path / "again", nursery=nursery) as daemon:
        daemon.wait_done()
    assert rows(job.path) == 500


def test_sighup_takes_a_new_configuration_over(
    dev_broker: PulsarDevBroker, job: Job, tmp_path: Path, nursery: Nursery
) -> None:
    config = job.write(tmp_path)
    with Daemon("run", str(config), log=tmp_path / "log", nursery=nursery) as daemon:
        until(lambda: job.path.exists() and rows(job.path) == 500, "nothing landed")
        config.write_text(job.text().replace("[pipelines.p.sink]\n", "[pipelines.p.sink]\npat = 3\n"))
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("the old one stays in force")
        config.write_text(job.text().replace('"200ms"', '"100ms"'))
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("configuration taken over")
        produce(dev_broker, 500, 100)
        until(lambda: rows(job.path) == 600, "nothing landed after the reload")
        daemon.signal(signal.SIGTERM)
        daemon.wait_done()


def test_one_pipeline_that_fails_does_not_take_the_other_with_it(
    dev_broker: PulsarDevBroker, job: Job, tmp_path: Path, nursery: Nursery
) -> None:
    other = job.text().partition("[pipelines.p.source]")[2].replace("pipelines.p.", "pipelines.q.")
    other = other.replace(TOPIC, "non-existent").replace(str(job.path), str(tmp_path / "other"))
    dev_broker.create_topic("persistent://public/default/non-existent", 0)
    (tmp_path / "other").write_text("a file, not a folder")
    config = job.write(tmp_path)
    config.write_text(job.text() + "\n[pipelines.q.source]" + other)
    with Daemon("run", str(config), "--until-end", log=tmp_path / "log", nursery=nursery) as daemon:
        assert daemon.wait() == 1
    assert rows(job.path) == 500
    failed = [event for event in daemon.events() if event["level"] == "error"]
    assert failed and all(event.get("pipeline") == "q" for event in failed), failed


def test_http_tells_how_it_is(dev_broker: PulsarDevBroker, job: Job, tmp_path: Path, nursery: Nursery) -> None:
    port = free_port()
    served = Job(dev_broker.url, TOPIC, job.path, roll={"idle": "200ms"}, daemon={"http": f"127.0.0.1:{port}"})

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()

    with Daemon("run", str(served.write(tmp_path)), log=tmp_path / "log", nursery=nursery) as daemon:
        until(lambda: job.path.exists() and rows(job.path) == 500, "nothing landed")
        assert get("/livez")[0] == 200
        until(lambda: get("/readyz")[0] == 200, "never ready")
        status: dict[str, Any] = json.loads(get("/status")[1])
        pipeline = status["pipelines"]["p"]
        assert pipeline["rows_committed"] == 500 and pipeline["state"] == "running"
        assert pipeline["source"]["partitions"] == {"reading": 2}
        metrics = get("/metrics")[1]
        assert 'fastwire_sink_committed_rows_total{pipeline="p"} 500.0' in metrics
        until(lambda: metric(get("/metrics")[1], "fastwire_source_granted_permits_total") >= 500, "no permits counted")
        until(lambda: metric(get("/metrics")[1], "fastwire_source_ack_receipts_total") >= 2, "no receipts counted")
        # A second daemon at the same address says so.
        with Daemon("run", str(served.write(tmp_path)), log=tmp_path / "second", nursery=nursery) as second:
            assert second.wait() == 1
            assert f'daemon.http = "127.0.0.1:{port}" is taken by another process' in second.output
        daemon.signal(signal.SIGTERM)
        daemon.wait_done()


def metric(text: str, name: str) -> float:
    line = next(line for line in text.splitlines() if line.startswith(name + "{"))
    return float(line.rpartition(" ")[2])


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_max_records_ends_behind_the_entry(
    dev_broker: PulsarDevBroker, job: Job, tmp_path: Path, nursery: Nursery
) -> None:
    config = str(job.write(tmp_path))
    with Daemon("run", config, "--max-records", "105", log=tmp_path / "log", nursery=nursery) as daemon:
        daemon.wait_done()
    assert rows(job.path) == 110  # entries of ten, from two partitions
    with Daemon("run", config, "--until-end", log=tmp_path / "again", nursery=nursery) as daemon:
        daemon.wait_done()
    assert rows(job.path) == 500
