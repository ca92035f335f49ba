"""The notebook of the documents runs, cell by cell inside a loop as in Jupyter, on the embedded broker."""

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.server import running
from tests.support.nursery import shared
from tests.support.source_tree import ROOT

NOTEBOOK = ROOT / "docs" / "prompt.ipynb"
URL = "kafka://127.0.0.1:9092"


def code() -> list[str]:
    """Return the cells with code."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def shown(command: str) -> str:
    """Run a command of ours, which a notebook marks with a !, and return what it prints."""
    program, *arguments = shlex.split(command)
    assert program == "fastwire-consume"
    done = shared().run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_the_notebook_shows_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []

    async def run(url: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for cell in code():
            lines = cell.replace(URL, url).splitlines(keepends=True)
            exec("".join(line for line in lines if not line.startswith("!")), names)
            said.extend(shown(line[1:].format_map(names)) for line in lines if line.startswith("!"))
        return names

    with running(KafkaDevBroker(KafkaOptions())) as kafka:
        names = asyncio.run(run(kafka.url))
    assert (names["written"].records, names["rows"], names["seen"]) == (10_000, 10_000, 10_000)
    assert {"order", "city", "amount", "_partition", "_timestamp"} == set(names["frame"].columns)
    assert (names["frame"].height, names["largest"]) == (10_000, 49.5)
    assert [(city, count) for city, count, _ in names["by_city"]] == [
        ("Bern", 2500), ("Genève", 2500), ("Zürich", 2500), (None, 2500)
    ]  # fmt: skip
    counted, inferred = said
    assert sum(int(line.split(",")[1]) for line in counted.splitlines()[1:]) == 10_000
    assert "10,000 JSON objects" in inferred or "10000 JSON objects" in inferred


def test_the_notebook_is_as_it_is_kept() -> None:
    """The notebook is kept without results and counts, which differ from run to run."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    assert sum(URL in cell for cell in code()) == 1
