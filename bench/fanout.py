"""A dataset for each of a thousand topics, and one dataset of the same topics: the same records, into a folder.

    python -m bench.fanout [TOPICS [RECORDS]] [--json]

``times_one`` is the CPU of the daemon's process by that of the run into one dataset, start and end included: with few
records a topic it is mostly the work for a topic, so compare runs of as many records. The embedded broker of Kafka
serves, in the process of the bench.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from fastwire_daemon.devbroker.base import dev_broker
from fastwire_daemon.devbroker.server import running

from .child import show
from .pipeline import landed

PARTITIONS = 2
SIZE, BATCH = 100, 1000


def config(url: str, path: str, folder: Path) -> Path:
    """Write the configuration of a run into ``path``."""
    file = folder / "fanout.toml"
    source = f'url = "{url}"\ntopics_pattern = "bench-.*"\ngroup = "{folder.name}"\ngroup_protocol = "none"'
    tables = f'[pipelines.bench.source]\n{source}\nstart = "earliest"\n[pipelines.bench.sink]\ntype = "parquet"'
    file.write_text(f'[daemon]\nhttp = ""\n{tables}\npath = "{path}"\n', encoding="utf-8")
    return file


def main() -> None:
    """Measure and print."""
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    topics, records = (*numbers, *(1000, 4_000_000)[len(numbers) :])
    each = max(1, records // (topics * PARTITIONS * BATCH))
    values = [bytes(SIZE)] * BATCH
    rows: list[dict[str, Any]] = []
    with running(dev_broker("kafka")) as broker:
        for number in range(topics):
            broker.create_topic(f"bench-{number:04}", PARTITIONS)
            for _ in range(each):
                for partition in range(PARTITIONS):
                    broker.produce(f"bench-{number:04}", values, partition)
        told = {"messages": topics * PARTITIONS * each * BATCH}
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
                    "records": told["messages"],
                    "cpu_us_per_record": round(cpu_s / told["messages"] * 1e6, 3),
                    "times_one": round(cpu_s / rows[0]["cpu_s"], 2) if rows else 1.0,
                    "cpu_s": round(cpu_s, 2),
                    "peak_rss_mib": figures["peak_rss_mib"],
                }
            )
    show(rows)


if __name__ == "__main__":
    main()
