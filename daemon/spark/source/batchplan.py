"""The plan of a batch: the rows of each partition, and the number of its tasks."""

from collections.abc import Mapping

from .ranges import QueryPartition


def share(budget: int, backlog: Mapping[QueryPartition, int]) -> dict[QueryPartition, int]:
    """Return the rows of each partition in proportion to its backlog, at least one, so that no partition starves."""
    total = sum(backlog.values())
    return {partition: max(1, budget * rows // total) for partition, rows in backlog.items()}


def pieces(rows: Mapping[QueryPartition, int], least: int | None, most_rows: int | None) -> dict[QueryPartition, int]:
    """Return the number of tasks of each partition: of at most ``most_rows`` rows each, about ``least`` in all."""
    found = {partition: -(-count // most_rows) if most_rows else 1 for partition, count in rows.items()}
    total = sum(rows.values())
    if least is not None and sum(found.values()) < least and total:
        for partition, count in rows.items():
            found[partition] = max(found[partition], round(least * count / total))
    return found
