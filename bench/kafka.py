"""From the socket of a replaying Kafka broker in another process to columns, thrown away or written as Parquet.

    python -m bench.kafka [--json] [--all]

Beside it, in the same run, pyarrow writing the very rows of the Parquet files, their codec alone, the asyncio client
(``client.subscribe``), a socket that is read to compute the CRC-32C of everything and no more, confluent-kafka,
aiokafka where it is installed (``pip install 'fastwire[bench]'``) and franz-go where Go is. CPU is that of the
consumer's process, kernel included, from the first records to the last.
"""

import importlib.util
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from . import replayed
from .child import Case, run_program, serving, show
from .pipeline import CHECKED, row, temporary, told_by
from .programs import franz_go

PARTITIONS = 4
SOURCE = 'group = "bench-{run}"\ngroup_protocol = "none"'


def cases() -> list[Case]:
    """Full batches; all sizes and codecs with ``--all``."""
    if "--all" not in sys.argv:
        return [Case(100, 1000, "none"), Case(100, 1000, "lz4")]
    return [Case(size, 1000, codec) for size in (100, 1024) for codec in ("none", "lz4", "zstd", "snappy", "gzip")]


def how_many(case: Case, who: str) -> int:
    """Messages, about a second of each consumer."""
    ours, franz, others = (16_000_000, 4_000_000, 1_000_000) if case.size == 100 else (2_000_000, 1_000_000, 400_000)
    return {"fastwire": ours, "fastwire client": ours, "raw socket with CRC": ours, "franz-go": franz}.get(who, others)


def measured(case: Case, told: Mapping[str, Any], franz: list[str] | None) -> list[dict[str, Any]]:
    """A row for every consumer, ours first."""
    place = [urlsplit(told["url"]).netloc, told["topic"], str(PARTITIONS)]
    peers = {"fastwire client": "subscribe", "confluent-kafka": "confluent-kafka", "aiokafka": "aiokafka"}
    if case.codec == "none":  # the bytes of every batch must be as many
        peers = {CHECKED: "raw", **peers}
    if importlib.util.find_spec("aiokafka") is None:
        print("aiokafka is not installed: left out", file=sys.stderr)
        del peers["aiokafka"]
    sizes = (str(case.batch), str(told["batch_bytes"]))
    others = {
        who: ["-m", "bench.kafka_peer", *place, str(how_many(case, who)), *sizes, name] for who, name in peers.items()
    }
    rows = replayed.measured("kafka", case, told, others, SOURCE)
    if franz is not None:
        with temporary() as folder:
            figures = told_by(run_program([*franz, *place, str(how_many(case, "franz-go"))], folder))
            rows.append(row("kafka", case, "franz-go", figures, rows[0]))
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
