"""From the socket of a replaying server in another process to Parquet files, committed exactly once.

    python -m bench.to_parquet [--json] [--all]

The daemon with its defaults (all columns, zstd:1), with two writers and with one; beside it, in the same run, pyarrow
writing the very same rows with the same settings and nothing else, once with the machine for itself and once while the
server sends to somebody, as it does to the daemon; and pulsar-client filling columns for pyarrow in a loop as people
write it. So many messages that the memory of two row groups, which is touched for the first time, does not count.
"""

import sys

from .child import Case, cases, show
from .pipeline import consume

SINK = 'type = "parquet"\npath = "{folder}/dataset"\ncreate = true\nwriters = '
SINKS = {"fastwire, 2 writers": SINK + "2", "fastwire, 1 writer": SINK + "1"}


def how_many(case: Case) -> tuple[int, int]:
    """Messages for us and for pulsar-client."""
    if case.batch > 1:
        return (10_000_000, 150_000) if case.size == 100 else (1_000_000, 100_000)
    return (1_000_000, 100_000) if case.size == 100 else (300_000, 100_000)


def ways(case: Case) -> tuple[str, ...]:
    """Return the methods of pulsar-client to measure, in the usual cases."""
    return ("batch_receive",) if case.codec == "none" or case == Case(100, 1000, "lz4") else ()


def main() -> None:
    """Measure and print."""
    show(
        [
            row
            for case in (cases() if "--all" in sys.argv else [Case(100, 1000, "none")])
            for row in consume("to_parquet", case, *how_many(case), ways(case), SINKS, alone=case.codec == "none")
        ]
    )


if __name__ == "__main__":
    main()
