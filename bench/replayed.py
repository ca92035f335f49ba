"""Speed of a pipeline from a replaying server into each sink, beside pyarrow alone, the codec alone, and others."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from .child import Case, run
from .pipeline import Figures, by_itself, landed, least_disturbed, row, temporary, told_by

CONFIG = """
[daemon]
memory = "512MiB"
http = ""

[pipelines.bench.source]
url = "{url}"
topics = ["{topic}"]
start = "earliest"
{source}

[pipelines.bench.sink]
{sink}
"""
DISCARD = 'type = "discard"'
RAW = "raw socket"
PARQUET = 'type = "parquet"\npath = "{folder}/dataset"\ncreate = true\nwriters = '

SINKS = {"fastwire": DISCARD, "fastwire, 2 writers": PARQUET + "2", "fastwire, 1 writer": PARQUET + "1"}


def measured(
    system: str, case: Case, told: Mapping[str, Any], others: Mapping[str, Sequence[str]], source: str = ""
) -> list[dict[str, Any]]:
    """A row for every consumer, ours first, after turns of all; ``others`` are modules, by name, with their arguments.

    ``source`` has more keys of ours, in which {run} is the number of the run: each has a group of its own.
    """
    runs = count()

    def turn() -> Iterator[tuple[str, Figures]]:
        for who, sink in SINKS.items():
            with temporary() as folder:
                config = folder / "bench.toml"
                keys = source.format(run=next(runs))
                config.write_text(CONFIG.format(sink=sink.format(folder=folder), source=keys, **told))
                yield who, landed(told, config, folder)
                if who == list(SINKS)[-1]:
                    yield "pyarrow alone", by_itself("pyarrow", system, folder)
                    yield "codec alone", by_itself("codec", system, folder)
        for who, command in others.items():
            with temporary() as folder:
                yield who, told_by(run(command, folder))

    rows: list[dict[str, Any]] = []
    for who, figures in least_disturbed(turn).items():
        rows.append(row(system, case, who, figures, rows[0] if rows else None))
    return rows
