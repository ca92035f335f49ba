"""Jars of a broker, fetched once from Maven Central into a cache outside the tree.

A broker is described by a ``pom.xml``; the cache folder holds the jars and the very text they were made from, so a
changed description fetches anew and an unchanged one needs neither Maven nor a network.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["BrokerUnavailableError", "cached_jars", "java_executable", "pom"]

# Called by its full name: a bare `dependency:copy-dependencies` would first ask the registry which version is newest.
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
INSTALL_FILE = "org.apache.maven.plugins:maven-install-plugin:3.1.1:install-file"


class BrokerUnavailableError(RuntimeError):
    """This machine cannot run the broker; the message says what to install."""


def java_executable() -> str:
    """The path of ``java``, or BrokerUnavailableError naming the package that brings it."""
    java = shutil.which("java")
    if java is None:
        raise BrokerUnavailableError("no java: apt-get install openjdk-17-jre-headless")
    return java


def cache_folder() -> Path:
    """Return the folder that keeps jars between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "fastwire" / "brokers"


def pom(name: str, dependencies: str, managed: str = "") -> str:
    """Return the project for Maven, with ``dependencies`` as elements; ``managed`` may give their versions."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fastwire.tests</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
{managed}  <dependencies>
{dependencies}  </dependencies>
</project>
"""


def cached_jars(name: str, pom: str, *, missing: str = "") -> Path:
    """The folder with the jars that ``pom`` lists; downloads them the first time.

    ``missing`` is the parent (``group:artifact:version``) of one of them, if the registry lacks it: Maven gets an empty
    one.

    Several processes may ask at once: one downloads into a folder of its own and renames it, the others wait.
    """
    target = cache_folder() / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _made_from(target) == pom:
            return target
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
        try:
            if missing:
                _install_parent(missing, fresh)
            _download(pom, fresh)
            if target.exists():
                shutil.rmtree(target)
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return target


def _made_from(folder: Path) -> str | None:
    try:
        return (folder / "pom.xml").read_text()
    except OSError:
        return None


def _install_parent(missing: str, folder: Path) -> None:
    group, artifact, version = missing.split(":")
    file = folder / "parent.xml"
    file.write_text(
        f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version><packaging>pom</packaging>
</project>
"""
    )
    _maven(INSTALL_FILE, f"-Dfile={file}", f"-DpomFile={file}", "-Dpackaging=pom")


def _download(pom: str, into: Path) -> None:
    file = into / "pom.xml"
    file.write_text(pom)
    _maven("-f", str(file), COPY_DEPENDENCIES, "-DincludeScope=runtime", f"-DoutputDirectory={into}")


def _maven(*arguments: str) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise BrokerUnavailableError("no mvn to fetch the broker's jars with: apt-get install maven")
    done = subprocess.run([mvn, "-B", "-q", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise BrokerUnavailableError("Maven could not fetch the broker's jars: " + " | ".join(said[:3]))
