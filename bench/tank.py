"""From the socket of a replaying TANK broker in another process to columns, thrown away or written as Parquet.

    python -m bench.tank [--json] [--all]

Beside it, in the same run, a socket that is read without looking at anything but sizes, and pyarrow writing the very
rows of the Parquet files and nothing else. CPU is that of the consumer's process, kernel included, from the first
records to the last.
"""

import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .child import Case, run, serving, show
from .kafka import temporary, told_by
from .pipeline import landed, pyarrow, row

PARTITIONS = 4
CONFIG = """
[daemon]
memory = "512MiB"
http = ""

[pipelines.bench.source]
url = "{url}"
topics = ["{topic}"]
start = "earliest"

[pipelines.bench.sink]
{sink}
"""
DISCARD = 'type = "discard"'
PARQUET = 'type = "parquet"\npath = "{folder}/dataset"\ncreate = true\nwriters = '

SINKS = {"fastwire": DISCARD, "fastwire, 2 writers": PARQUET + "2", "fastwire, 1 writer": PARQUET + "1"}


def cases() -> list[Case]:
    """Those with targets; all sizes and codecs with ``--all``."""
    found = [Case(100, 1000, "none"), Case(100, 1000, "snappy"), Case(1024, 1000, "none")]
    return [*found, Case(1024, 1000, "snappy")] if "--all" in sys.argv else found


def how_many(case: Case) -> int:
    """Messages, about a second."""
    return 16_000_000 if case.size == 100 else 2_000_000


def measured(case: Case, told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for every consumer, ours first."""
    rows: list[dict[str, Any]] = []

    def add(who: str, figures: Mapping[str, Any]) -> None:
        rows.append(row("tank", case, who, figures, rows[0] if rows else None))

    for who, sink in SINKS.items():
        with temporary() as folder:
            config = folder / "bench.toml"
            config.write_text(CONFIG.format(sink=sink.format(folder=folder), **told))
            add(who, landed(told, config, folder))
            if who == list(SINKS)[-1]:
                add("pyarrow alone", pyarrow("tank", folder))
    if case.codec == "none":  # the bytes of every bundle must be as many
        place = [urlsplit(told["url"]).netloc, told["topic"], str(PARTITIONS)]
        with temporary() as folder:
            sizes = [str(told["messages"]), str(case.batch), str(told["batch_bytes"])]
            add("raw socket", told_by(run(["-m", "bench.tank_peer", *place, *sizes], folder)))
    return rows


def main() -> None:
    """Measure and print."""
    found = []
    for case in cases():
        with serving(case, how_many(case), PARTITIONS, server="tank_server") as told:
            found += measured(case, told)
    show(found)


if __name__ == "__main__":
    main()
