"""Jars of a broker, fetched once from Maven Central into a cache outside the tree.

A broker is described by a ``pom.xml``; the cache folder holds the jars and the very text they were made from, so a
changed description fetches anew and an unchanged one needs neither Maven nor a network.
"""

import shutil
import subprocess
from pathlib import Path

from tests.brokers.cache import cache_folder, cached

# Called by its full name: a bare `dependency:copy-dependencies` would first ask the registry which version is newest.
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
POM_FILE = "pom.xml"
INSTALL_FILE = "org.apache.maven.plugins:maven-install-plugin:3.1.1:install-file"


class BrokerUnavailableError(RuntimeError):
    """This machine cannot run the broker; the message says what to install."""


def java_executable() -> str:
    """The path of ``java``, or BrokerUnavailableError naming the package that brings it."""
    java = shutil.which("java")
    if java is None:
        raise BrokerUnavailableError("no java: apt-get install openjdk-17-jre-headless")
    return java


def dependency(name: str, version: str, more: str = "") -> str:
    """Return the element for a jar called ``group:artifact``, with ``more`` elements in it."""
    group, artifact = name.split(":")
    where = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    return f"    <dependency>{where}{more}</dependency>\n"


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
    """

    def fill(folder: Path) -> None:
        if missing:
            _install_parent(missing, folder)
        _maven(
            "-f",
            str(folder / POM_FILE),
            COPY_DEPENDENCIES,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={folder}",
        )

    return cached(cache_folder("brokers") / name, (POM_FILE, pom), fill)


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


def _maven(*arguments: str) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise BrokerUnavailableError("no mvn to fetch the broker's jars with: apt-get install maven")
    done = subprocess.run([mvn, "-B", "-q", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise BrokerUnavailableError("Maven could not fetch the broker's jars: " + " | ".join(said[:3]))
