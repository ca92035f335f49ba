"""``run``: what it passes on, how it ends, and what is said about a failure."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire_daemon.cli.check.checks import refusals
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.runtime.errors import DatasetMismatchError
from fastwire_daemon.service import service
from fastwire_daemon.systems.source import SourceFailed
from tests.daemon.cli.orders import add_orders
from tests.daemon.cli.program import GOOD, PROGRAM, Run
from tests.support.nursery import shared


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The calls of run_service, which returns ``code``."""
    calls: list[dict[str, Any]] = []

    def run_service(config: Any, **options: Any) -> int:
        calls.append({"config": config, **options})
        return 0

    monkeypatch.setattr(service, "run_service", run_service)
    monkeypatch.setattr("fastwire_daemon.runtime.logs.configure", lambda **options: calls.append(options))
    return calls


def test_run_passes_its_options_on(run: Run, good: Path, asked: list[dict[str, Any]]) -> None:
    assert run("run", good, "--pipeline", "look", "-p", "orders", "--until-end", "--max-records", "7") == (0, "", "")
    logging, call = asked
    assert logging == {"level": "info"}
    assert call.pop("config").path == good
    assert call.pop("refusals") is refusals
    assert call == {"pipelines": ["look", "orders"], "until_end": True, "max_records": 7}


def test_run_without_options(run: Run, good: Path, asked: list[dict[str, Any]]) -> None:
    assert run("run", good, "-v")[0] == 0
    logging, call = asked
    assert logging == {"level": "debug"}
    del call["config"], call["refusals"]
    assert call in ({"pipelines": None, "until_end": False, "max_records": None},)


def test_run_knows_its_pipelines(run: Run, good: Path, asked: list[dict[str, Any]]) -> None:
    code, _, err = run("run", good, "--pipeline", "order")
    assert code == 2
    assert err.endswith('Invalid value for --pipeline: no pipeline is called "order", did you mean "orders"?\n')
    code, _, err = run("run", good, "--pipeline", "xyz")
    assert err.endswith('no pipeline is called "xyz": the pipelines are orders, look\n')
    assert not asked


@pytest.mark.parametrize("code", [0, 1, 78])
def test_the_exit_code_of_the_service_is_ours(run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(service, "run_service", lambda config, **options: code)
    assert run("run", good)[0] == code


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_bad_configuration_is_78(run: Run, tmp_path: Path, command: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[daemon]\nmemry = "1GiB"\nhttp = 5\n[pipelines]\n')
    assert run(command, file) == (
        78,
        "",
        (
            f'{file}:2: daemon.memry: unknown key, did you mean "memory"?\n'
            f'{file}:3: daemon.http: must be a string such as "127.0.0.1:8650", not a number\n'
            f"{file}:4: pipelines: is required: at least one [pipelines.NAME.source] with its [pipelines.NAME.sink]\n"
            "the configuration has 3 mistakes\n"
        ),
    )
    file.write_text("a =")
    code, out, err = run(command, file)
    assert (code, out) == (78, "")
    assert err == f"{file}:1: is not TOML: Invalid value\n"
    missing = tmp_path / "no.toml"
    assert run(command, missing) == (
        78,
        "",
        f"{missing}: cannot read the configuration: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("failure", "code", "text"),
    [
        (FastwireError("no broker"), 1, "no broker\n"),
        (SourceFailed("the topic is gone"), 1, "the topic is gone\n"),
        (SourceFailed("no such listener", configuration=True), 78, "no such listener\n"),
        (DatasetMismatchError("/data has other columns"), 78, "/data has other columns\n"),
        (PermissionError(13, "Permission denied", "/data"), 1, "/data: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "No space left on device\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failures_are_told_without_a_traceback(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, code: int, text: str
) -> None:
    def fail(config: Any, **options: Any) -> int:
        raise failure

    monkeypatch.setattr(service, "run_service", fail)
    assert run("run", good) == (code, "", text)


def test_a_fault_of_ours_shows_its_traceback(run: Run, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: Any, **options: Any) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(service, "run_service", fail)
    code, out, err = run("run", good)
    assert (code, out) == (1, "")
    line = json.loads(err)
    assert (line["level"], line["event"]) == ("error", "failed because of an internal error")
    assert line["error"] == "ZeroDivisionError: division by zero"
    assert "test_run.py" in line["traceback"]


def configured(broker: PulsarDevBroker, folder: Path) -> Path:
    """Write a configuration that lands the topic ``orders`` of ``broker`` as Parquet; return its path."""
    config = folder / "orders.toml"
    text = (
        GOOD.partition("[pipelines.look")[0]
        .format(path=folder / "data", token="")
        .replace('"orders", "refunds"', '"orders"')
    )
    config.write_text('daemon.http = ""\n' + text.replace("pulsar://127.0.0.1:6650", broker.url))
    return config


def test_run_check_and_verify_on_a_broker(broker: PulsarDevBroker, tmp_path: Path) -> None:
    """As a user types them: every process of its own, and what each says."""
    config = configured(broker, tmp_path)

    def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)

    checked = command("check", config, "--connect")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"  broker   {broker.url} answers and accepts the credentials\n" in checked.stdout
    assert "  topic    persistent://public/default/orders: 2 partitions\n" in checked.stdout
    assert checked.stdout.endswith("\nall checks passed\n")
    assert broker.subscriptions("orders-partition-0") == []

    ran = command("run", config, "--until-end")
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert sum(line["rows"] for line in lines if line["event"] == "committed") == 40
    assert [broker.backlog(f"orders-partition-{index}", "fastwire-orders") for index in (0, 1)] == [0, 0]

    verified = command("verify", tmp_path / "data", "--json")
    assert (verified.returncode, verified.stderr) == (0, "")
    assert json.loads(verified.stdout)["counted_rows"] == 40
    assert broker.violations == []


def test_a_kafka_cluster_with_another_id_is_78(kafka: KafkaDevBroker, good: Path) -> None:
    text = 'daemon.http = ""\n' + good.read_text().partition("[pipelines.look")[0]
    text = text.replace('"orders", "refunds"', '"orders"').replace("subscription = ", "group = ")

    def ran(broker: KafkaDevBroker) -> "subprocess.CompletedProcess[str]":
        good.write_text(text.replace("pulsar://127.0.0.1:6650", broker.url))
        return shared().run("run", good, "--until-end")

    first = ran(kafka)
    assert first.returncode == 0, first.stderr
    with running(KafkaDevBroker(KafkaOptions(cluster_id="another"))) as other:
        add_orders(other, "orders", 40, 2)
        refused = ran(other)
        assert other.offsets("fastwire-orders") == {}
    assert refused.returncode == 78, refused.stderr
    assert "records of the cluster whose id is fastwire-dev, but that at" in refused.stderr
    assert "has the id another" in refused.stderr
    with running(KafkaDevBroker()) as moved:  # other hosts, the same cluster
        add_orders(moved, "orders", 40, 2)
        again = ran(moved)
        assert "holds records of the cluster" not in again.stderr


def test_a_taken_http_address_is_1(broker: PulsarDevBroker, good: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        good.write_text(f'daemon.http = "127.0.0.1:{port}"\n' + good.read_text())
        ran = shared().run("run", good)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == (
        f'daemon.http = "127.0.0.1:{port}" is taken by another process: choose another address, or "" for no '
        f"HTTP server\n"
    )


def test_the_level_of_the_log_is_an_option(run: Run, good: Path, asked: list[dict[str, Any]]) -> None:
    assert run("run", good, "--log-level", "warning")[0] == 0
    assert asked[0] == {"level": "warning"}
    code, _, err = run("run", good, "--log-level", "loud")
    assert code == 2
    assert "'loud' is not one of 'debug', 'info', 'warning', 'error'" in err


def test_sigusr1_switches_to_debug_and_back(broker: PulsarDevBroker, tmp_path: Path) -> None:
    file = configured(broker, tmp_path)
    with subprocess.Popen([*PROGRAM, "run", file], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = map(json.loads, process.stderr)
        next(line for line in lines if line["event"] == "connected")
        levels = []
        for _ in range(2):
            process.send_signal(signal.SIGUSR1)
            levels.append(next(line for line in lines if line["event"] == "the level of the log changes")["level_"])
        process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert levels == ["debug", "info"]
    assert process.returncode == 0
    assert rest[-1]["event"] == "ended"


def test_on_a_terminal_the_last_line_is_a_sentence(broker: PulsarDevBroker, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen([*PROGRAM, "run", configured(broker, tmp_path), "--until-end"], stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    assert process.returncode == 0
    # The progress line is cleared before each other line, and at the end, when the cursor goes up to it.
    kept = shown.decode().replace("\r\n", "\n").replace("\x1b[?25h", "")
    kept = re.sub(r"[^\n]*\n\r\x1b\[1A\x1b\[2K|[^\n]*\r\x1b\[2K", "", kept)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", kept).splitlines()[-1]
    assert re.search(
        r"orders has ended: 40 rows committed \(.*B\) in \d+ files? \(.*\), .* rows/s, .* of CPU a row", last
    ), last
    assert "{" not in last
