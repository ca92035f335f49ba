"""From the socket of a replaying TANK broker in another process to columns, thrown away or written as Parquet.

    python -m bench.tank [--json] [--all]

Beside it, in the same run, a socket that is read without looking at anything but sizes, and pyarrow writing the very
rows of the Parquet files and nothing else. CPU is that of the consumer's process, kernel included, from the first
records to the last.
"""

import sys
from urllib.parse import urlsplit

from .child import Case, serving, show
from .replayed import RAW, measured

PARTITIONS = 4


def cases() -> list[Case]:
    """Those with targets; all sizes and codecs with ``--all``."""
    found = [Case(100, 1000, "none"), Case(100, 1000, "snappy"), Case(1024, 1000, "none")]
    return [*found, Case(1024, 1000, "snappy")] if "--all" in sys.argv else found


def how_many(case: Case) -> int:
    """Messages, about a second."""
    return 16_000_000 if case.size == 100 else 2_000_000


def main() -> None:
    """Measure and print."""
    found = []
    for case in cases():
        with serving(case, how_many(case), PARTITIONS, server="tank_server") as told:
            raw = {}
            if case.codec == "none":  # the bytes of every bundle must be as many
                place = (urlsplit(told["url"]).netloc, told["topic"], PARTITIONS)
                sizes = (told["messages"], case.batch, told["batch_bytes"])
                raw[RAW] = ["-m", "bench.tank_peer", *map(str, (*place, *sizes))]
            found += measured("tank", case, told, raw)
    show(found)


if __name__ == "__main__":
    main()
