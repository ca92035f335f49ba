"""A real Apicurio Registry, which has the API of Confluent's, started from its archive on Maven Central."""

import json
import shutil
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

from tests.brokers.maven import cached_jars, java_executable, pom
from tests.brokers.ports import free_ports
from tests.brokers.process import JavaBroker

VERSION = "2.6.13.Final"
NAME = f"apicurio-registry-app-{VERSION}"

POM = pom(
    "apicurio",
    f"""\
    <dependency>
      <groupId>io.apicurio</groupId><artifactId>apicurio-registry-app</artifactId><version>{VERSION}</version>
      <type>tar.gz</type><classifier>all</classifier>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
""",
)


class Apicurio(JavaBroker):
    """A registry whose schemas are in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"
        """URL of the API of Confluent."""

    def command(self) -> list[str]:
        program = self.folder / "data"
        if not program.exists():
            with tarfile.open(cached_jars(NAME, POM) / f"{NAME}-all.tar.gz") as archive:
                archive.extractall(program, filter="data")
        return [
            java_executable(),
            "-Xms64m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self._port}",
            "-jar",
            str(program / f"{NAME}-runner.jar"),
        ]

    def healthy(self) -> bool:
        try:
            self._ask("/subjects")
        except OSError:
            return False
        return True

    def register(self, subject: str, schema: Any, references: list[dict[str, Any]] | None = None) -> int:
        """Register an Avro schema, and return its id."""
        body = {"schema": json.dumps(schema), "references": references or []}
        found: int = self._ask(f"/subjects/{subject}/versions", body)["id"]
        return found

    def _ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def remove_data(self) -> None:
        shutil.rmtree(self.folder / "data", ignore_errors=True)
