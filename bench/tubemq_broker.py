"""The same from a real TubeMQ Broker, into ``discard``, beside its own Java consumer.

    python -m bench.tubemq_broker [--json]

ZooKeeper, Master and Broker are started from the jars of Maven Central, and filled by ``produce``; then the daemon and
the command-line consumer that comes with TubeMQ read the same topic. CPU is that of the consumer's process, without
what the Java consumer takes for its start and one message; its messages a second are those between the first and the
last tenth. Beside it the CPU that the Broker takes for a message. Without Java or Maven nothing is measured, which is
said.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.brokers.maven import BrokerUnavailableError
from tests.brokers.tubemq import TubeMQBroker

from .child import ROOT, Case, show
from .pipeline import landed, row, temporary
from .replayed import CONFIG, DISCARD

CASE = Case(100, 1, "none")
MESSAGES = 2_000_000
LIMIT_S = 600.0  # for producing them; 90 here
SAMPLED_S = 0.02


def fill(url: str, topic: str) -> dict[str, Any]:
    """Store the messages; return what a replaying server would tell of itself."""
    command = [sys.executable, "-m", "fastwire_daemon.cli", "produce", url, topic, "--load", str(MESSAGES)]
    subprocess.run([*command, "--size", str(CASE.size)], cwd=ROOT, check=True, timeout=LIMIT_S, stdout=sys.stderr)
    return {"url": url, "topic": topic, "messages": MESSAGES}


def ours(told: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Measure the daemon."""
    with temporary() as folder:
        config = folder / "bench.toml"
        config.write_text(CONFIG.format(sink=DISCARD, source=f'group = "{group}"', **told))
        return landed(told, config, folder)


class Sample(NamedTuple):
    """CPU and bytes of a process up to a moment."""

    at: float
    read_bytes: int
    cpu_s: float
    rss: int


def java(broker: TubeMQBroker, topic: str, messages: int) -> list[Sample]:
    """A run of the Java consumer, sampled to its end."""
    command = broker.tool_command(
        "CliConsumer", "--topicName", topic, "--groupName", f"java-{messages}", "--messages", str(messages),
        "--consume-position", "-1", start=(),
    )  # fmt: skip
    samples = []
    with temporary() as folder, (folder / "said").open("w+") as said:
        with psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process:
            while process.poll() is None:
                with suppress(psutil.Error), process.oneshot():
                    cpu, read = process.cpu_times(), process.io_counters().read_chars
                    samples.append(Sample(time.monotonic(), read, cpu.user + cpu.system, process.memory_info().rss))
                time.sleep(SAMPLED_S)
        said.seek(0)
        if f"Topic Name = {topic}, count=" not in (told := said.read()):
            raise SystemExit(f"the Java consumer has not read what it should:\n{told[-2000:]}")
    return samples


def theirs(broker: TubeMQBroker, topic: str) -> dict[str, Any]:
    """Measure the Java consumer. It reads for seconds and sleeps for more, so its bytes tell its speed."""
    one, whole = (java(broker, topic, messages) for messages in (1, MESSAGES))
    end = whole[-1].read_bytes
    got = end - one[-1].read_bytes
    early, late = (next(each for each in whole if each.read_bytes >= end - got * share) for share in (0.9, 0.1))
    return {
        "rows": MESSAGES,
        "cpu_us_per_row": (whole[-1].cpu_s - one[-1].cpu_s) / MESSAGES * 1e6,
        "rows_per_s": round((late.read_bytes - early.read_bytes) / got * MESSAGES / (late.at - early.at)),
        "peak_rss_mib": round(max(each.rss for each in whole) / 2**20, 1),
    }


def measured(broker: TubeMQBroker) -> list[dict[str, Any]]:
    """A row for each consumer, ours first."""
    told = fill(broker.url, broker.fresh_topic())
    assert broker.process is not None
    server = psutil.Process(broker.process.pid)
    rows: list[dict[str, Any]] = []

    def add(who: str, consume: Callable[[], dict[str, Any]]) -> None:
        before = server.cpu_times()
        figures = consume()
        after = server.cpu_times()
        server_s = after.user + after.system - before.user - before.system
        found = row("tubemq_broker", CASE, who, figures, rows[0] if rows else None)
        rows.append({**found, "broker_cpu_us": round(server_s / MESSAGES * 1e6, 2)})

    ours(told, "warm-up")  # of the Broker
    add("fastwire", lambda: ours(told, "bench"))
    add("Java consumer", lambda: theirs(broker, told["topic"]))
    return rows


def main() -> None:
    """Measure and print."""
    with temporary() as folder:
        broker = TubeMQBroker(Path(folder), start=())
        try:
            broker.start()
            show(measured(broker))
        except BrokerUnavailableError as reason:
            print(f"no real broker, so nothing is measured against one: {reason}", file=sys.stderr)
        finally:
            broker.stop(at_once=True)


if __name__ == "__main__":
    main()
