"""``run --from --until --into``: what they change of a configuration, and what they refuse."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config import Config, End, Start, load_config
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.service import service
from tests.daemon.cli.orders import AnyBroker, add_orders
from tests.daemon.cli.program import Run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that would run."""
    calls: list[Config] = []

    def run_service(config: Config, **options: Any) -> int:
        calls.append(config)
        return 0

    monkeypatch.setattr(service, "run_service", run_service)
    monkeypatch.setattr("fastwire_daemon.runtime.logs.configure", lambda **options: None)
    return calls


def test_a_run_between_two_times(run: Run, good: Path, asked: list[Config]) -> None:
    times = "--from", "2024-01-01T00:00:00Z", "--until", "2024-01-02T00:00:00Z"
    assert run("run", good, "-p", "orders", *times) == (0, "", "")
    (config,) = asked
    assert list(config.pipelines) == ["orders"]
    pipeline = config.pipelines["orders"]
    assert (str(pipeline.source.start), str(pipeline.source.end)) == (times[1], times[3])
    assert pipeline.source.subscription == "fastwire-orders"  # type: ignore[attr-defined]
    assert config.daemon.http is not None
    assert config.path is None  # SIGHUP would read a file that says otherwise


def test_a_run_into_another_dataset(run: Run, good: Path, asked: list[Config], tmp_path: Path) -> None:
    for more in ((), ("--group", "other")):
        assert run("run", good, "-p", "orders", "--until", "now", "--into", tmp_path / "again", *more)[0] == 0
    one, other = (config.pipelines["orders"] for config in asked)
    assert one.source.end == End()
    assert one.source.start == Start("earliest")
    assert one.sink.path == tmp_path / "again"
    assert one.sink.create
    own, named = one.source.subscription, other.source.subscription  # type: ignore[attr-defined]
    assert own.startswith("fastwire-orders-")
    assert named == "other"
    assert asked[0].daemon.http is None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--into", "x"], "needs one pipeline"),
        (["-p", "look", "--into", "x"], "needs a dataset at a path"),
        (["-p", "orders", "--group", "x"], "is for a run with --into"),
    ],
)
def test_what_is_refused(run: Run, good: Path, asked: list[Config], arguments: list[str], why: str) -> None:
    code, _, err = run("run", good, *arguments)
    assert (code, asked) == (2, [])
    assert why in err


def test_the_dataset_itself_is_refused(run: Run, good: Path, asked: list[Config]) -> None:
    path = load_config(good).pipelines["orders"].sink.path
    code, _, err = run("run", good, "-p", "orders", "--into", path)
    assert (code, asked) == (2, [])
    assert "is the dataset of the pipeline itself" in err


@pytest.mark.parametrize("option", ["--from", "--until"])
def test_a_place_that_is_none_is_an_error_of_the_configuration(
    run: Run, good: Path, asked: list[Config], option: str
) -> None:
    code, _, err = run("run", good, option, "yesterday")
    assert (code, asked) == (78, [])
    assert "yesterday" in err


@pytest.mark.parametrize("system", ["pulsar", "kafka"])
def test_a_day_lands_again_beside_a_group_that_reads(run: Run, tmp_path: Path, system: str) -> None:
    broker: AnyBroker = KafkaDevBroker() if system == "kafka" else PulsarDevBroker()
    with running(broker):
        add_orders(broker, "orders", 40, 2)
        config = tmp_path / "orders.toml"
        config.write_text(
            f'[daemon]\nhttp = ""\n[pipelines.orders.source]\nurl = "{broker.url}"\ntopics = ["orders"]\n'
            'subscription = "live"\nstart = "latest"\n'
            f'[pipelines.orders.sink]\ntype = "jsonl"\npath = "{tmp_path / "live"}"\n'
        )
        assert run("run", config, "--until-end")[0] == 0
        backlog = broker.backlog("orders", "live")
        between = "--from", "2023-11-14T22:13:20Z", "--until", "2023-11-14T22:13:21Z"
        command = "run", config, "-p", "orders", *between, "--into", tmp_path / "again"
        assert run(*command)[0] == 0
        add_orders(broker, "more", 1, 1)
        assert run(*command)[0] == 0  # nothing is left, and nothing lands twice
        assert broker.backlog("orders", "live") == backlog
        assert run("run", config, "-p", "orders", *between[:3], between[1], "--into", tmp_path / "none")[0] == 0
    files = (tmp_path / "again").glob("*.jsonl")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(rows) == 40
    assert not list((tmp_path / "none").glob("*.jsonl"))
    report = verify(tmp_path / "again")
    assert report.ok, report
