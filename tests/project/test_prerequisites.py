"""The build names the packages to install for what a machine lacks."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

PRESENT = ("sh", "basename", "gcc", "git")


def missing(folder: Path, *tools: str, python: str = "python3") -> subprocess.CompletedProcess[str]:
    """Ask on a machine that has these tools only."""
    for tool in tools:
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    shell = shutil.which("sh")
    assert shell is not None
    command = [shell, str(ROOT / ".ci" / "missing"), python]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True, check=False)


def interpreter(folder: Path, name: str, *, version: str = "3.11", lacks: str = "") -> None:
    """An interpreter that answers as the check asks: by its version, and with a failure to whatever names ``lacks``."""
    old = "1" if version == "3.9" else "0"
    refuse = f"*{lacks}*) exit 1 ;;" if lacks else ""
    script = f"""#!/bin/sh
    case "$2" in
        *python%d*) echo python{version} ;;
        *platform*) echo {version}.0 ;;
        *version_info*) exit {old} ;;
        {refuse}
    esac
    """
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def test_nothing_is_missing_here(tmp_path: Path) -> None:
    interpreter(tmp_path, "python3")
    done = missing(tmp_path, *PRESENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_a_bare_machine(tmp_path: Path) -> None:
    done = missing(tmp_path, "sh", "basename")
    assert (done.returncode, done.stdout) == (0, "git gcc libc6-dev python3 python3-venv python3-dev\n")


@pytest.mark.parametrize(
    ("name", "lacks", "package"),
    [
        ("python3", "ensurepip", "python3-venv"),
        ("python3", "Python.h", "python3-dev"),
        ("python3.12", "ensurepip", "python3.12-venv"),
        ("python3.12", "Python.h", "python3.12-dev"),
    ],
)
def test_a_part_of_python_is_missing(tmp_path: Path, name: str, lacks: str, package: str) -> None:
    interpreter(tmp_path, name, version="3.12", lacks=lacks)
    done = missing(tmp_path, *PRESENT, python=name)
    assert (done.returncode, done.stdout) == (0, f"{package}\n")


def test_python_is_too_old(tmp_path: Path) -> None:
    interpreter(tmp_path, "python3", version="3.9")
    done = missing(tmp_path, *PRESENT)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer; python3 is 3.9.0" in done.stderr
    assert "make PYTHON=python3.11" in done.stderr


def test_there_is_no_such_interpreter(tmp_path: Path) -> None:
    done = missing(tmp_path, *PRESENT, python=str(tmp_path / "python"))
    assert done.returncode == 1
    assert f"There is no interpreter at {tmp_path / 'python'}." in done.stderr
