"""Kafka's own command-line tools: the Java client as its makers drive it."""

import subprocess
from pathlib import Path

from tests.brokers.kafka import POM, VERSION
from tests.brokers.maven import cached_jars, java_executable, pom
from tests.brokers.process import ends_with_parent

TOOL_LIMIT = 120.0  # seconds; 3 on a quiet machine

# All that the tools need besides comes with the broker.
TOOLS_POM = pom(
    "kafka-tools",
    f"""\
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
""",
)


def tool_jars() -> list[Path]:
    """The folders with all that a tool needs; BrokerUnavailableError where they cannot be had."""
    return [cached_jars(f"kafka-{VERSION}", POM), cached_jars(f"kafka-tools-{VERSION}", TOOLS_POM)]


def kafka_tool(name: str, *arguments: str, lines: str = "") -> None:
    """Run a tool to its end, with ``lines`` at its input; fails with what it has said.

    ``name`` is its class, those of ``org.apache.kafka.tools`` without the package.
    """
    name = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
    java = [java_executable(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [*java, "-cp", ":".join(f"{one}/*" for one in tool_jars()), name, *arguments]
    done = subprocess.run(
        [*ends_with_parent(), *command],
        input=lines.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TOOL_LIMIT,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-4000:]
