"""The command line called in this process, a file for it, and a broker with records."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastwire_daemon.cli import app as cli
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from tests.daemon.cli.orders import AnyBroker, add_orders
from tests.daemon.cli.program import GOOD, Run


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Call ``main`` as the console script does; returns exit code, stdout, stderr."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fastwire-consume", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("fastwire_daemon.cli.retry.PATIENCE_S", 0.0)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])  # what a command has set up ends with the test
    return call


@pytest.fixture
def good(tmp_path: Path) -> Path:
    token = tmp_path / "token"
    token.write_text("hunter2\n")
    file = tmp_path / "good.toml"
    file.write_text(GOOD.format(path=tmp_path / "data", token=token))
    return file


@pytest.fixture
def broker() -> Iterator[PulsarDevBroker]:
    """An embedded broker with 40 records in the two partitions of ``orders``."""
    with running(PulsarDevBroker()) as broker:
        add_orders(broker, "orders", 40, 2)
        yield broker


@pytest.fixture
def kafka() -> Iterator[KafkaDevBroker]:
    """The same of Kafka's."""
    with running(KafkaDevBroker()) as broker:
        add_orders(broker, "orders", 40, 2)
        yield broker


@pytest.fixture(params=["pulsar", "kafka"])
def any_broker(request: pytest.FixtureRequest) -> AnyBroker:
    """Each of them."""
    found: AnyBroker = request.getfixturevalue("broker" if request.param == "pulsar" else "kafka")
    return found
