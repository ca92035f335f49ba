"""Speed of a pipeline from a replaying server into each sink, beside pyarrow alone, the codec alone, and others."""

from collections.abc import Mapping, Sequence
from typing import Any

from .child import Case, run
from .pipeline import by_itself, landed, row, temporary, told_by

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
    """A row for every consumer, ours first; ``others`` are the modules of the others, by name, with their arguments.

    ``source`` has more keys of ours, in which {run} is the number of the run: each has a group of its own.
    """
    rows: list[dict[str, Any]] = []

    def add(who: str, figures: Mapping[str, Any]) -> None:
        rows.append(row(system, case, who, figures, rows[0] if rows else None))

    for number, (who, sink) in enumerate(SINKS.items()):
        with temporary() as folder:
            config = folder / "bench.toml"
            config.write_text(CONFIG.format(sink=sink.format(folder=folder), source=source.format(run=number), **told))
            add(who, landed(told, config, folder))
            if who == list(SINKS)[-1]:
                add("pyarrow alone", by_itself("pyarrow", system, folder))
                add("codec alone", by_itself("codec", system, folder))
    for who, command in others.items():
        with temporary() as folder:
            add(who, told_by(run(command, folder)))
    return rows
