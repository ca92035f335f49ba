"""The walk-through of docs/spark.md, from a broker to a table, and the notebook that goes on from there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers.ports import free_ports
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PORT = "6650"


@pytest.fixture
def port() -> str:
    [port] = free_ports(1)
    return str(port)


@pytest.fixture
def folder(tmp_path: Path, port: str) -> Path:
    """A folder with the examples as they are, but for the port."""
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    config = tmp_path / "conf/spark.toml"
    config.write_text(config.read_text().replace(PORT, port))
    return tmp_path


@pytest.fixture
def commands(port: str) -> Iterator[list[str]]:
    """Run the commands that follow the start of the broker."""
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```sh spark\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    broker, *rest = re.sub(r"\|\n", "| ", re.sub(r" +#.*", "", block)).splitlines()
    program = Path(sys.executable).with_name("fastwire-consume")
    arguments = broker.removesuffix(" &").split()[1:]
    with subprocess.Popen([program, *arguments, "--port", port], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"listening at pulsar://127.0.0.1:{port}\n"
            yield [command.replace(PORT, port) for command in rest]
        finally:
            process.terminate()


def said(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_five_commands_and_the_notebook(folder: Path, commands: list[str]) -> None:
    assert len(commands) == 4
    for command in commands:
        last = said(["bash", "-c", command], folder)
    assert "orders/table: sound\n" in last
    assert "100,000 rows" in last
    shown = said([sys.executable, "conf/spark_notebook.py"], folder)
    assert re.search(r"10000 rows tried, \d+ dead letters", shown), shown
    assert "oops" in shown
    assert re.search(r"^sound 100000 rows in \d+ batches$", shown, re.MULTILINE), shown
