"""From topic to topic of a real Kafka: exactly once beside at least once, and a copy by confluent-kafka's transactions.

    python -m bench.topics [--json] [--rows N]

CPU is that of the copying process, kernel included, without that of the same command when nothing is left to copy.
``ratio`` compares it with that of at least once. Needs Java and Maven, as the tests of real brokers do.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.brokers.kafka import KafkaBroker

from .child import ROOT, show
from .spark_kafka import PARTITIONS, fill

CONFIG = """\
daemon.http = ""
daemon.memory = "512MiB"
[pipelines.copy.source]
url = "{url}"
topics = ["bench"]
group = "{target}"
start = "earliest"
[pipelines.copy.sink]
type = "kafka"
url = "{url}"
topic = "{target}"
{more}
"""
TRANSACTION = 100_000  # records of one of the peer's transactions


def peer(servers: str, target: str, rows: int) -> None:
    """Copy ``rows`` records by the official client: a batch, its transaction with the offsets, and the next one."""
    from confluent_kafka import Consumer, Producer

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": target,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": target,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 2 * TRANSACTION,
        }
    )
    producer.init_transactions()
    consumer.subscribe(["bench"])
    left = rows
    while left:
        producer.begin_transaction()
        taken = 0
        while taken < min(left, TRANSACTION):
            for message in consumer.consume(10_000, 1.0):
                taken += 1
                producer.produce(target, message.value(), message.key(), timestamp=message.timestamp()[1])
            producer.poll(0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )
        producer.commit_transaction()
        left -= taken
    consumer.close()


def measured(arguments: list[str]) -> tuple[float, float]:
    """Run a command; return the seconds of CPU and of the clock that it took."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} has failed")
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def figures(broker: KafkaBroker, folder: Path, rows: int) -> list[dict[str, Any]]:
    """Copy with each way."""
    ways = {
        "at least once": f'path = "{folder / "memory"}"',
        "exactly once": 'delivery = "exactly-once"',
    }
    found = []
    for number, (way, more) in enumerate(ways.items()):
        target, config = f"target-{number}", folder / f"{number}.toml"
        broker.create_topic(target, PARTITIONS)
        config.write_text(CONFIG.format(url=broker.url, target=target, more=more))
        command = ["-c", "from fastwire_daemon.cli.app import main; main()", "run", str(config), "--until-end"]
        taken, nothing = measured(command), measured(command)
        copied(broker, target, rows)
        found.append(row(f"fastwire {way}", taken, nothing, rows))
    broker.create_topic("peer", PARTITIONS)
    command = ["-m", "bench.topics", "--peer", broker.servers, "peer"]
    taken, nothing = measured([*command, str(rows)]), measured([*command, "0"])
    found.append(row("confluent-kafka transactions", taken, nothing, rows))
    for one in found:
        one["ratio"] = round(one["cpu_us_per_row"] / found[0]["cpu_us_per_row"], 2)
    return found


def copied(broker: KafkaBroker, target: str, rows: int) -> None:
    """Refuse figures of a copy that is not whole; a marker of a transaction takes an offset, too."""
    ends = sum(broker.ends(target))
    if ends < rows:
        raise SystemExit(f"{target} has {ends} of {rows} records")


def row(way: str, taken: tuple[float, float], nothing: tuple[float, float], rows: int) -> dict[str, Any]:
    """Return the figures of one way."""
    cpu, wall = (one - other for one, other in zip(taken, nothing, strict=True))
    return {
        "bench": "topics",
        "way": way,
        "rows": rows,
        "cpu_us_per_row": round(cpu / rows * 1e6, 3),
        "rows_per_s": round(rows / wall),
    }


def main() -> None:
    """Measure, or be the peer."""
    if "--peer" in sys.argv:
        servers, target, count = sys.argv[sys.argv.index("--peer") + 1 :]
        peer(servers, target, int(count))
        return
    rows = int(sys.argv[sys.argv.index("--rows") + 1]) if "--rows" in sys.argv else 4_000_000
    folder = Path(tempfile.mkdtemp(prefix="fastwire-bench-"))
    broker = KafkaBroker(folder / "kafka")
    try:
        (folder / "kafka").mkdir()
        broker.start()
        broker.create_topic("bench", PARTITIONS)
        fill(broker.url, "bench", rows)
        show(figures(broker, folder, rows))
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
