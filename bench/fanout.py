"""A dataset for each of many topics, and one dataset of the same topics: the same records, into a folder.

    python -m bench.fanout [TOPICS RECORDS_A_TOPIC]... [--json]

``times_one`` is the CPU of the daemon's process by that of the run into one dataset, start and end included: with few
records a topic it is mostly the work for a topic, ``cpu_ms_per_topic``, so there is a row for each of several numbers
of records. The embedded broker of Kafka serves, in the process of the bench. The folder is that of ``TMPDIR``: the work
for a topic is mostly files, whose price is that of the file system.
"""

import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.server import running

from .child import show
from .message import Messages
from .pipeline import landed

PARTITIONS = 2
SIZE, BATCH = 100, 1000
DISTINCT = 200
"""Batches with values of their own, in turn: values that repeat within a file cost their encoding nothing."""
MEMORY = "256MiB"
PLANS = [(1000, 2_000), (200, 20_000), (20, 200_000)]
"""Topics, and records of each: 2 to 4 million together."""


def config(url: str, path: str, folder: Path) -> Path:
    """Write the configuration of a run into ``path``."""
    file = folder / "fanout.toml"
    source = f'url = "{url}"\ntopics_pattern = "bench-.*"\ngroup = "{folder.name}"\ngroup_protocol = "none"'
    tables = f'[pipelines.bench.source]\n{source}\nstart = "earliest"\n[pipelines.bench.sink]\ntype = "parquet"'
    file.write_text(f'[daemon]\nhttp = ""\nmemory = "{MEMORY}"\n{tables}\npath = "{path}"\n', encoding="utf-8")
    return file


def measured(topics: int, each: int) -> list[dict[str, Any]]:
    """Land ``each`` records of so many topics in one dataset, and in one for each of them."""
    batches = max(1, each // (PARTITIONS * BATCH))
    told = {"messages": topics * PARTITIONS * batches * BATCH}
    messages = Messages(SIZE)
    distinct = [[messages.value(each * BATCH + number) for number in range(BATCH)] for each in range(DISTINCT)]
    values = cycle(distinct)
    rows: list[dict[str, Any]] = []
    with running(dev_broker("kafka")) as broker:
        for number in range(topics):
            broker.create_topic(f"bench-{number:04}", PARTITIONS)
            for _ in range(batches):
                for partition in range(PARTITIONS):
                    broker.produce(f"bench-{number:04}", next(values), partition)
        for kind, path in (("one dataset", "all"), ("a dataset a topic", "{topic}")):
            with tempfile.TemporaryDirectory() as folder:
                figures = landed(told, config(broker.url, f"{folder}/{path}", Path(folder)), Path(folder))
            cpu_s = figures["process_cpu_s"]
            rows.append(
                {
                    "bench": "fanout",
                    "into": kind,
                    "topics": topics,
                    "partitions": topics * PARTITIONS,
                    "records_a_topic": told["messages"] // topics,
                    "cpu_us_per_record": round(cpu_s / told["messages"] * 1e6, 3),
                    "times_one": round(cpu_s / rows[0]["cpu_s"], 2) if rows else 1.0,
                    "cpu_s": round(cpu_s, 2),
                    "cpu_ms_per_topic": round(1e3 * (cpu_s - rows[0]["cpu_s"]) / topics, 2) if rows else 0.0,
                    "peak_rss_mib": figures["peak_rss_mib"],
                }
            )
    return rows


def main() -> None:
    """Measure and print."""
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    plans = [*zip(numbers[::2], numbers[1::2], strict=True)] or PLANS
    show([row for topics, each in plans for row in measured(topics, each)])


if __name__ == "__main__":
    main()
