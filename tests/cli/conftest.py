"""The command line called in this process, a file for it, and a broker with records."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastwire_daemon import cli
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.load import Load, fill
from tests.cli.program import GOOD, Run


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
        broker.create_topic("orders", 2)
        fill(broker.append, "orders", Load(records=40, partitions=2, batch=5), lambda: 1_700_000_000_000)
        yield broker
