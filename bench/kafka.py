"""From the socket of a replaying Kafka broker in another process to columns, which are thrown away.

    python -m bench.kafka [--json] [--all]

Beside it, in the same run, the asyncio client (``client.subscribe``), a socket that is read to compute the CRC-32C of
everything and no more, confluent-kafka, aiokafka where it is installed (``pip install 'fastwire[bench]'``) and franz-go
where Go is. CPU is that of the consumer's process, kernel included, from the first records to the last.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .child import Case, Child, run, run_program, serving, show
from .pipeline import landed, row
from .programs import franz_go

PARTITIONS = 4
CONFIG = """
[daemon]
memory = "512MiB"
http = ""

[pipelines.bench.source]
url = "{url}"
topics = ["{topic}"]
subscription = "bench"
group_protocol = "none"
start = "earliest"

[pipelines.bench.sink]
type = "discard"
"""


def cases() -> list[Case]:
    """Full batches; all sizes and codecs with ``--all``."""
    if "--all" not in sys.argv:
        return [Case(100, 1000, "none"), Case(100, 1000, "lz4")]
    return [Case(size, 1000, codec) for size in (100, 1024) for codec in ("none", "lz4", "zstd", "snappy", "gzip")]


def how_many(case: Case, who: str) -> int:
    """Messages, about a second of each consumer."""
    ours, franz, others = (16_000_000, 4_000_000, 1_000_000) if case.size == 100 else (2_000_000, 1_000_000, 400_000)
    return {"fastwire": ours, "fastwire client": ours, "raw socket with CRC": ours, "franz-go": franz}.get(who, others)


@contextmanager
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
        yield Path(folder)


def told_by(child: Child) -> dict[str, Any]:
    """The figures of a consumer that has ended."""
    return {**child.last("cpu_us_per_row"), "peak_rss_mib": child.peak_rss_mib}


def measured(case: Case, told: Mapping[str, Any], franz: list[str] | None) -> list[dict[str, Any]]:
    """A row for every consumer, ours first."""
    place = [urlsplit(told["url"]).netloc, told["topic"], str(PARTITIONS)]
    rows: list[dict[str, Any]] = []

    def add(who: str, figures: Mapping[str, Any]) -> None:
        rows.append(row("kafka", case, who, figures, rows[0] if rows else None))

    with temporary() as folder:
        config = folder / "bench.toml"
        config.write_text(CONFIG.format(**told))
        add("fastwire", landed(told, config, folder))
    peers = {"fastwire client": "subscribe", "confluent-kafka": "confluent-kafka", "aiokafka": "aiokafka"}
    if case.codec == "none":  # the bytes of every batch must be as many
        peers = {"raw socket with CRC": "raw", **peers}
    if importlib.util.find_spec("aiokafka") is None:
        print("aiokafka is not installed: left out", file=sys.stderr)
        del peers["aiokafka"]
    for who, name in peers.items():
        with temporary() as folder:
            messages = str(how_many(case, who))
            command = ["-m", "bench.kafka_peer", *place, messages, str(case.batch), str(told["batch_bytes"]), name]
            add(who, told_by(run(command, folder)))
    if franz is not None:
        with temporary() as folder:
            add("franz-go", told_by(run_program([*franz, *place, str(how_many(case, "franz-go"))], folder)))
    return rows


def main() -> None:
    """Measure and print."""
    franz = franz_go()
    found = []
    for case in cases():
        with serving(case, how_many(case, "fastwire"), PARTITIONS, server="kafka_server") as told:
            found += measured(case, told, franz)
    show(found)


if __name__ == "__main__":
    main()
