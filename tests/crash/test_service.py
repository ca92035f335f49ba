"""The daemon as a process: signals, reload, HTTP, one pipeline beside another."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config import load_config
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.service.http import HttpServer
from fastwire_daemon.service.service import run_service
from tests.brokers.ports import free_ports
from tests.crash.scene import Scene
from tests.real.daemon import Daemon, ask, verify
from tests.support.nursery import Nursery
from tests.support.sequence_audit import assert_each_once
from tests.support.waiting import eventually

pytestmark = pytest.mark.crash

FED = 500


# A session of a static member outlasts whatever a busy machine does to its heartbeats.
@pytest.fixture(params=["failover", "static"])
def scene(request: pytest.FixtureRequest, dev_scene: Callable[..., Scene]) -> Scene:
    """A topic of each system, five entries of 50 records in both of its partitions."""
    made = dev_scene(kind=request.param)
    made.feed.add(5)
    return made


# What the process does whatever its source is.
one_system = pytest.mark.parametrize("scene", ["failover"], indirect=True)


def rows(path: Path) -> int:
    said = verify(path, "--json")
    assert said.returncode == 0, said.stdout
    return int(json.loads(said.stdout)["rows"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_commits_acknowledges_and_ends(scene: Scene, tmp_path: Path, number: signal.Signals) -> None:
    address = tmp_path / "http"
    job = {"roll": {"idle": "1h", "age": "1h"}, "daemon": {"http": f"unix:{address}"}}

    with scene.run(until_end=False, job=job) as daemon:
        eventually(lambda: staged_rows(address) == FED, "everything came")
        assert scene.unacknowledged()
        daemon.signal(number)
        daemon.wait_done()
    assert [event["reason"] for event in daemon.events() if event["event"] == "committed"][-1] == "shutdown"
    scene.judge()


def test_a_second_signal_aborts_and_loses_nothing(scene: Scene) -> None:
    script = {"at": "files-finished", "nth": 2, "do": "sleep", "seconds": 60}
    with scene.run(until_end=False, script=script) as daemon:
        daemon.wait_for('"accident"')
        daemon.signal(signal.SIGTERM)
        daemon.wait_for('"draining"')
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 1
        assert daemon.events()[-1]["event"] == "aborted"
    scene.settle()
    scene.judge()


@pytest.mark.parametrize(("scene", "how"), [("failover", "signal"), ("static", "change")], indirect=["scene"])
def test_a_new_configuration_is_taken_over(scene: Scene, tmp_path: Path, nursery: Nursery, how: str) -> None:
    """At SIGHUP, or because the file has changed."""
    job = replace(scene.job, daemon={"reload": how})
    config = job.write(tmp_path)
    with Daemon("run", str(config), log=tmp_path / "log", nursery=nursery) as daemon:

        def replace_by(text: str) -> None:
            new = tmp_path / "new"
            new.write_text(text)
            new.rename(config)
            if how == "signal":
                daemon.signal(signal.SIGHUP)

        daemon.wait_for_rows(FED)
        replace_by(job.text().replace("[pipelines.p.sink]\n", "[pipelines.p.sink]\npat = 3\n"))
        daemon.wait_for("the old one stays in force")
        replace_by(job.text().replace('"200ms"', '"100ms"'))
        daemon.wait_for("configuration reloaded")
        scene.feed.add(1)
        daemon.wait_for_rows(scene.feed.count)
        daemon.signal(signal.SIGTERM)
        daemon.wait_done()
    scene.judge()


REFUSED = {
    "another shape of the dataset": ({"partition_by": "day"}, {}, "was created with"),
    "a place without a dataset": ({"path": "elsewhere"}, {}, "set sink.create = true"),
    "a schema that is no schema": ({}, {"format": "avro", "schema": "broken.avsc"}, "broken.avsc"),
    "a schema that is not there": ({}, {"format": "avro", "schema": "none.avsc"}, "none.avsc"),
}


@pytest.mark.parametrize("what", REFUSED)
@one_system
def test_a_reload_that_cannot_start_leaves_the_pipeline_alone(
    scene: Scene, tmp_path: Path, nursery: Nursery, what: str
) -> None:
    sink, decode, why = REFUSED[what]
    (tmp_path / "broken.avsc").write_text("no schema")
    sink = {key: str(tmp_path / value) if key == "path" else value for key, value in sink.items()}
    decode = {key: str(tmp_path / value) if key == "schema" else value for key, value in decode.items()}
    config = scene.job.write(tmp_path)
    with Daemon("run", str(config), log=tmp_path / "log", nursery=nursery) as daemon:
        daemon.wait_for_rows(FED)
        config.write_text(replace(scene.job, sink={**scene.job.sink, **sink}, decode=decode).text())
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("the old one stays in force")
        assert why in daemon.output
        assert '"draining"' not in daemon.output
        scene.feed.add(1)
        daemon.wait_for_rows(scene.feed.count)
        daemon.signal(signal.SIGTERM)
        daemon.wait_done()
    scene.judge()


@pytest.mark.parametrize(
    ("second", "why"),
    [({"path": "inner"}, "lies within sink.path of pipeline p"), ({}, "is also that of pipeline p")],
    ids=["a dataset within another", "a group on a topic twice"],
)
def test_a_reload_compares_pipelines_before_one_stops(
    dev_scene: Callable[..., Scene], tmp_path: Path, nursery: Nursery, second: dict[str, str], why: str
) -> None:
    scene = dev_scene(kind="static")
    scene.feed.add(5)
    config = scene.job.write(tmp_path)
    if second:
        other = replace(scene.job, subscription="other", path=scene.job.path / second["path"])
    else:
        other = replace(scene.job, path=tmp_path / "other")
    added = other.text().partition("[pipelines.p.source]")[2].replace("pipelines.p.", "pipelines.q.")
    with Daemon("run", str(config), log=tmp_path / "log", nursery=nursery) as daemon:
        daemon.wait_for_rows(FED)
        changed = scene.job.text().replace('"200ms"', '"100ms"')  # which would have it drained
        config.write_text(f"{changed}\n[pipelines.q.source]{added}")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("the old one stays in force")
        assert why in daemon.output
        assert '"draining"' not in daemon.output
        scene.feed.add(1)
        daemon.wait_for_rows(scene.feed.count)
        daemon.signal(signal.SIGTERM)
        daemon.wait_done()
    scene.judge()


@one_system
def test_a_failed_pipeline_that_is_removed_is_forgotten(scene: Scene, tmp_path: Path, nursery: Nursery) -> None:
    """Its failure neither keeps the process from being ready, nor is it the exit code."""
    address = tmp_path / "http"
    job = replace(scene.job, daemon={"http": f"unix:{address}"})
    second = replace(job, subscription="other", path=tmp_path / "other")
    with Daemon("run", str(second.write(tmp_path)), "--until-end", log=tmp_path / "first", nursery=nursery) as daemon:
        daemon.wait_done()
    other = replace(second, sink={**second.sink, "partition_by": "day"}).text()  # which is not its shape
    other = other.partition("[pipelines.p.source]")[2].replace("pipelines.p.", "pipelines.q.")
    config = job.write(tmp_path)
    config.write_text(job.text() + "\n[pipelines.q.source]" + other)
    with Daemon("run", str(config), log=tmp_path / "log", nursery=nursery) as daemon:
        daemon.wait_for_rows(FED)
        eventually(lambda: '"failed"' in ask(address, "/status"), "one has failed")
        assert ask(address, "/readyz") == "not ready\n"
        config.write_text(job.text())
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("configuration reloaded")
        assert list(json.loads(ask(address, "/status"))["pipelines"]) == ["p"]
        assert ask(address, "/readyz") == "ok\n"
        assert 'pipeline="q"' not in ask(address, "/metrics")
        daemon.end()


@pytest.mark.parametrize("kind", ["failover", "static"])
def test_many_reloads_leave_nothing_behind(
    dev_scene: Callable[..., Scene], tmp_path: Path, nursery: Nursery, kind: str
) -> None:
    scene = dev_scene(kind=kind)
    scene.feed.add(5)
    config = scene.job.write(tmp_path)

    def held() -> tuple[int, int]:
        """Open files and threads; those of a broker's connection and of a sink come and go with the pipeline."""
        process = Path(f"/proc/{daemon.process.pid}")
        return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))

    def reloaded(times: int) -> bool:
        return daemon.output.count("configuration reloaded") == times

    with Daemon("run", str(config), log=tmp_path / "log", nursery=nursery) as daemon:
        daemon.wait_for_rows(FED)
        seen = []
        for number in range(1, 13):
            config.write_text(replace(scene.job, roll={"idle": f"{200 + number}ms"}).text())
            daemon.signal(signal.SIGHUP)
            eventually(partial(reloaded, number), "it is reloaded")
            scene.feed.add(1)
            daemon.wait_for_rows(scene.feed.count)
            seen.append(held())
        files, threads = ({each[index] for each in seen} for index in (0, 1))
        assert max(files) - min(files) < 8 and max(threads) - min(threads) < 6, seen
        daemon.end()
    scene.judge()


@pytest.mark.parametrize("kind", ["failover", "static"])
def test_a_dataset_of_another_cluster_is_refused(dev_scene: Callable[..., Scene], kind: str) -> None:
    scene = dev_scene(kind=kind)
    del scene.job.source["cluster"]
    scene.feed.add(2)
    scene.settle()
    named = KafkaOptions(cluster_id="another")
    other: PulsarDevBroker | KafkaDevBroker = PulsarDevBroker() if kind == "failover" else KafkaDevBroker(named)
    with running(other):
        other.create_topic(scene.job.topic, scene.partitions)
        job = replace(scene.job, url=other.url)
        with scene.run(job={"url": other.url}) as daemon:
            assert daemon.wait() == 78, daemon.tail()
        hosts = [url.partition("://")[2] for url in (scene.job.url, other.url)]
        if isinstance(other, PulsarDevBroker):
            assert f"holds records of the cluster at {hosts[0]}, but source.url leads to {hosts[1]}" in daemon.output
            assert f'set source.cluster = \\"{hosts[0]}\\"' in daemon.output
            # Nobody has subscribed.
            assert not other.subscriptions(f"{job.topic}-partition-0")
            with scene.run(job={"url": other.url, "source": {**job.source, "cluster": hosts[0]}}) as daemon:
                daemon.wait_done()
        else:
            assert f"but that at {hosts[1]} has the id another" in daemon.output
        more = f"127.0.0.1:1,{scene.job.url.partition('://')[2]}"  # another list with one of the hosts
        with scene.run(job={"url": f"{scene.system.scheme}://{more}"}) as daemon:
            daemon.wait_done()


def staged_rows(address: Path) -> int:
    status = ask(address, "/status")
    return int(json.loads(status)["pipelines"]["p"]["roll"]["rows"]) if status else 0


@contextmanager
def draining_for_a_reload(
    scene: Scene, tmp_path: Path, nursery: Nursery, **accident: Any
) -> Iterator[tuple[Scene, Daemon, Path]]:
    """A daemon whose pipeline drains for a reload, with an accident; and its configuration."""
    scene.feed.add(10)
    address = tmp_path / "http"
    daemon_keys = {"drain_timeout": "8s", "http": f"unix:{address}"}
    job = replace(scene.job, roll={"idle": "1h", "age": "1h"}, daemon=daemon_keys)
    config = job.write(tmp_path)
    # The first commit is that of the first position.
    script = {"at": "files-finished", "nth": 2, **accident}
    with Daemon("run", str(config), log=tmp_path / "log", script=script, nursery=nursery) as daemon:
        eventually(lambda: staged_rows(address) == FED, "everything came")
        config.write_text(job.text().replace('idle = "1h"', 'idle = "200ms"'))
        daemon.signal(signal.SIGHUP)
        daemon.wait_for('"draining"')
        yield scene, daemon, config


@pytest.fixture(params=["failover", "static"])
def reloading(
    request: pytest.FixtureRequest, dev_scene: Callable[..., Scene], tmp_path: Path, nursery: Nursery
) -> Iterator[tuple[Scene, Daemon, Path]]:
    """A drain for a reload that takes two seconds."""
    scene = dev_scene(kind=request.param, partitions=1)
    with draining_for_a_reload(scene, tmp_path, nursery, do="sleep", seconds=2) as found:
        yield found


def test_a_drain_that_fails_during_a_reload_is_forgotten_when_the_pipeline_ends_well(
    dev_scene: Callable[..., Scene], tmp_path: Path, nursery: Nursery
) -> None:
    with draining_for_a_reload(dev_scene(partitions=1), tmp_path, nursery, do="fail") as (scene, daemon, _):
        daemon.wait_for("configuration reloaded")
        assert "the drain has not committed its last records" in daemon.output
        daemon.wait_for_rows(FED)
        daemon.signal(signal.SIGTERM)
        daemon.wait_done()
        scene.settle()
        scene.judge()


def test_a_signal_during_a_reload_ends_the_daemon(reloading: tuple[Scene, Daemon, Path]) -> None:
    scene, daemon, _ = reloading
    daemon.signal(signal.SIGTERM)
    daemon.wait_done()
    assert "the configuration is not reloaded" in daemon.output
    scene.settle()
    scene.judge()


def test_sighup_during_a_reload_is_not_forgotten(reloading: tuple[Scene, Daemon, Path]) -> None:
    scene, daemon, config = reloading
    config.write_text(config.read_text().replace('age = "1h"', 'age = "2h"'))
    daemon.signal(signal.SIGHUP)
    eventually(lambda: daemon.output.count("configuration reloaded") == 2, "it is read again")
    daemon.signal(signal.SIGHUP)
    daemon.signal(signal.SIGTERM)
    daemon.signal(signal.SIGHUP)  # while it drains: nothing is read any more
    daemon.wait_done()
    scene.settle()
    scene.judge()


@one_system
def test_a_signal_before_the_first_pipeline_starts_none(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(_server: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.01)

    async def stop(_server: object) -> None: ...

    monkeypatch.setattr(HttpServer, "start", start)
    monkeypatch.setattr(HttpServer, "stop", stop)
    job = replace(scene.job, daemon={"http": f"unix:{tmp_path / 'http'}", "drain_timeout": "2s"})
    assert run_service(load_config(job.write(tmp_path))) == 0
    assert not scene.path.exists()


@one_system
def test_one_pipeline_that_fails_does_not_take_the_other_with_it(
    scene: Scene, tmp_path: Path, nursery: Nursery
) -> None:
    """Two destinations of one topic: the folder of the second is a file."""
    other = replace(scene.job, subscription="other", path=tmp_path / "other").text()
    (tmp_path / "other").write_text("a file, not a folder")
    config = scene.job.write(tmp_path)
    other = other.partition("[pipelines.p.source]")[2].replace("pipelines.p.", "pipelines.q.")
    config.write_text(scene.job.text() + "\n[pipelines.q.source]" + other)
    with Daemon("run", str(config), "--until-end", log=tmp_path / "log", nursery=nursery) as daemon:
        assert daemon.wait() == 1
    assert_each_once(scene.path, FED)
    failed = [event for event in daemon.events() if event["level"] == "error"]
    assert failed and all(event.get("pipeline") == "q" for event in failed), failed


def test_http_tells_how_it_is(scene: Scene) -> None:
    (port,) = free_ports(1)
    job = {"daemon": {"http": f"127.0.0.1:{port}"}}

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()

    with scene.run(until_end=False, job=job) as daemon:
        daemon.wait_for_rows(FED)
        assert get("/livez")[0] == 200
        eventually(lambda: get("/readyz")[0] == 200, "it is ready")
        status: dict[str, Any] = json.loads(get("/status")[1])
        pipeline = status["pipelines"]["p"]
        assert pipeline["rows_committed"] == FED and pipeline["state"] == "running"
        assert pipeline["source"]["partitions"] == {"reading": 2}
        metrics = get("/metrics")[1]
        assert f'fastwire_sink_committed_rows_total{{pipeline="p"}} {FED}.0' in metrics
        if scene.system.scheme == "pulsar":
            names = {"fastwire_source_granted_permits_total": FED, "fastwire_source_ack_receipts_total": 2}
            eventually(
                lambda: all(metric(get("/metrics")[1], name) >= least for name, least in names.items()), str(names)
            )
        # A second daemon at the same address says so.
        with scene.run(job=job) as second:
            assert second.wait() == 1
            assert f'daemon.http = "127.0.0.1:{port}" is taken by another process' in second.output
        daemon.signal(signal.SIGTERM)
        daemon.wait_done()


def metric(text: str, name: str) -> float:
    line = next(line for line in text.splitlines() if line.startswith(name + "{"))
    return float(line.rpartition(" ")[2])


def test_max_records_ends_behind_the_entry(scene: Scene) -> None:
    with scene.run("--max-records", "105", until_end=False) as daemon:
        daemon.wait_done()
    assert rows(scene.path) == 150  # entries of 50, from two partitions
    scene.settle()
    scene.judge()
