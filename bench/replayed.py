"""Speed of a pipeline from a replaying server into each sink, beside pyarrow alone and a socket that is only read."""

from collections.abc import Mapping, Sequence
from typing import Any

from .child import Case, run
from .kafka import temporary, told_by
from .pipeline import landed, pyarrow, row

__all__ = ["CONFIG", "DISCARD", "measured"]

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
PARQUET = 'type = "parquet"\npath = "{folder}/dataset"\ncreate = true\nwriters = '

SINKS = {"fastwire": DISCARD, "fastwire, 2 writers": PARQUET + "2", "fastwire, 1 writer": PARQUET + "1"}


def measured(
    system: str, case: Case, told: Mapping[str, Any], raw: Sequence[str], source: str = ""
) -> list[dict[str, Any]]:
    """A row for every consumer, ours first; ``raw`` runs the bare socket.

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
                add("pyarrow alone", pyarrow(system, folder))
    if raw:
        with temporary() as folder:
            add("raw socket", told_by(run(raw, folder)))
    return rows
