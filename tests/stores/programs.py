"""Programs of object stores, built or fetched once into a cache outside the tree."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.brokers.cache import cache_folder, cached
from tests.brokers.maven import BrokerUnavailableError


def go_program(module: str, version: str) -> Path:
    """The program that the package ``module`` of a Go module builds; minutes the first time."""
    name = module.rpartition("/")[2]

    def build(folder: Path) -> None:
        env = {"GOBIN": str(folder), "CGO_ENABLED": "0"}
        _run("go", "golang", "install", "-ldflags=-s -w", f"{module}@{version}", env=env)

    return cached(cache_folder("stores") / f"{name}-{version}", ("module", f"{module}@{version}"), build) / name


def node_package(name: str, version: str) -> Path:
    """The folder of a package of npm, with what it depends on beside it."""

    def install(folder: Path) -> None:
        quiet = ("--silent", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
        _run("npm", "npm", "install", *quiet, "--prefix", str(folder), f"{name}@{version}")

    folder = cached(cache_folder("stores") / f"{name}-{version}", ("package", f"{name}@{version}"), install)
    return folder / "node_modules" / name


def _run(program: str, package: str, *arguments: str, env: dict[str, str] | None = None) -> None:
    path = shutil.which(program)
    if path is None:
        raise BrokerUnavailableError(f"no {program} to fetch the object store with: apt-get install {package}")
    done = subprocess.run(
        ["nice", path, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise BrokerUnavailableError(f"{program} could not fetch the object store: " + " | ".join(said[-3:]))
