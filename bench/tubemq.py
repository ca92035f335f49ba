"""From the sockets of a replaying TubeMQ in another process to columns, thrown away or written as Parquet.

    python -m bench.tubemq [--json]

Beside it, in the same run, a socket that is read without looking at anything, and pyarrow writing the very rows of the
Parquet files and nothing else. CPU is that of the consumer's process, kernel included, from the first records to the
last.
"""

from .child import Case, serving, show
from .replayed import RAW, measured
from .tubemq_batch import cases

PARTITIONS = 4
SOURCE = 'group = "bench-{run}"\nheartbeat = "50ms"'  # its responses assign the partitions


def how_many(case: Case) -> int:
    """Messages, about a second."""
    return 16_000_000 if case.size == 100 else 2_000_000


def main() -> None:
    """Measure and print."""
    found = []
    for case in cases():
        with serving(case, how_many(case), PARTITIONS, server="tubemq_server") as told:
            sizes = (told["messages"], case.batch, told["batch_bytes"])
            raw = ["-m", "bench.tubemq_peer", *map(str, (told["broker"], told["topic"], PARTITIONS, *sizes))]
            found += measured("tubemq", case, told, {RAW: raw}, SOURCE)
    show(found)


if __name__ == "__main__":
    main()
