"""Each command of the documents is one that there is; what they show against the embedded broker works as it stands."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from fastwire_daemon.cli.app import app
from tests.brokers.ports import free_ports
from tests.project.test_docs import PAGES, blocks, of
from tests.support.source_tree import ROOT

COMMAND = "fastwire-consume"
DEFAULT = {"pulsar": "6650", "kafka": "9092", "tank": "11011", "tubemq": "8715"}
PORTS = (*DEFAULT.values(), "8650", "8651")
# A run whose configuration names no address: without the one that all daemons of this machine would have.
QUIETLY = r"""grep -q daemon \1 || sed -i '1i daemon.http = ""' \1
\g<0>"""
# Blocks that another test runs, or nobody can here.
ELSEWHERE = ("not-run", "spark")


def commands(block: str) -> Iterator[list[str]]:
    """The arguments of each call of our program in a block of shell."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while COMMAND in words:
            words = words[words.index(COMMAND) + 1 :]
            ends = [place for place, word in enumerate(words) if word in ("|", "&", "&&", ";", ">", ">>", "2>&1")]
            yield words[: ends[0]] if ends else words


@pytest.mark.parametrize("page", PAGES, ids=of)
def test_commands_and_options_exist(page: Path) -> None:
    known = vars(typer.main.get_command(app))["commands"]
    wrong = []
    for _, block in blocks(page, "sh"):
        for arguments in commands(block):
            try:
                known[arguments[0]].make_context(arguments[0], arguments[1:])
            except (KeyError, typer.TyperException) as exc:
                wrong.append(f"{arguments}: {exc}")
    assert wrong == []


def test_a_wrong_option_is_found() -> None:
    [arguments] = commands("true && fastwire-consume verify --depp data | cat  # a comment")
    assert arguments == ["verify", "--depp", "data"]


RUN = [page for page in PAGES if any(how not in ELSEWHERE for how, _ in blocks(page, "sh"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    return tmp_path


def listening(started: re.Match[str]) -> str:
    """A broker with its default port, which stands nowhere; a busy machine may start its clients seconds earlier."""
    port = DEFAULT[started[1]]
    line = started[0].replace(started[1], f"{started[1]} --port {port}", 1)
    return f"{line}until (: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do kill -0 $!; sleep 0.1; done\n"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", RUN, ids=of)
def test_what_a_page_shows_works(page: Path, folder: Path) -> None:
    """All blocks of shell in one script, then those of Python; ports that everybody uses become free ones."""
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))

    def moved(text: str) -> str:
        return re.sub(r"\b(" + "|".join(PORTS) + r")\b", lambda found: ports[found[1]], text)

    for _, block in blocks(page, "toml"):
        if named := re.match(r" *# (\S+\.toml)\n", block):
            (folder / named[1]).write_text(moved(block), encoding="utf-8")
    script = ["set -eo pipefail", "trap 'jobs -p | xargs -r kill' EXIT"]
    for how, block in blocks(page, "sh"):
        if how not in ELSEWHERE:
            block = re.sub(rf"dev-broker ({'|'.join(DEFAULT)}).*&.*\n", listening, block)
            script.append(moved(re.sub(r"^fastwire-consume run (\S+)", QUIETLY, block, flags=re.MULTILINE)))
    for how, block in blocks(page, "python"):
        if not how and "async def main(url" not in block:  # which never ends: test_readme.py
            shown = folder / f"shown{len(script)}.py"
            shown.write_text(textwrap.dedent(moved(block)), encoding="utf-8")
            script.append(f"python -W error {shown.name}")
    shell("\n".join(script), folder)


def shell(script: str, folder: Path) -> None:
    """Run a script, which must end well. It and what it leaves in the background end with this call."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env={**os.environ, "PATH": path}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=540)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    assert process.returncode == 0, said[-3000:]
