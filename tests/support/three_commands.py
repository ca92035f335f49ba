"""From an empty folder and a topic of JSON to a typed table of Iceberg, by the commands that docs/infer.md prints."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.support.source_tree import ROOT

LIMIT_S = 300.0
NO_PORT = 'daemon.http = ""\n'
USUAL, TOPIC = "kafka://127.0.0.1:9092", "orders"


def printed_commands() -> list[list[str]]:
    """The arguments of the commands, as the document has them."""
    page = (ROOT / "docs" / "infer.md").read_text()
    (block,) = re.findall(r"## From a topic to a table in three commands\n.*?```sh[^\n]*\n(.*?)```", page, re.S)
    lines = [line for line in block.splitlines() if line.startswith("fastwire-consume") and "dev-broker" not in line]
    return [shlex.split(line)[1:] for line in lines]


def iceberg_table(url: str, topic: str, folder: Path) -> Table:
    """Run them in the empty ``folder`` with another ``url`` and ``topic``, and return the table that is there then."""
    assert [*folder.iterdir()] == []
    given = {USUAL: url, TOPIC: topic}
    for arguments in printed_commands():
        words = [sys.executable, "-m", "fastwire_daemon.cli", *(given.get(word, word) for word in arguments)]
        ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert ran.returncode == 0, f"{words[2:]}: {ran.stdout}{ran.stderr}"
        for file in folder.glob("*.toml"):  # other tests run at the same time, and the daemon's port is one
            text = file.read_text()
            file.write_text(text if text.startswith(NO_PORT) else NO_PORT + text)
    name = re.sub(r"[^A-Za-z0-9_]+", "_", topic)
    return SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db").load_table(f"default.{name}")
