"""Checks of one data file: its number of rows, its bytes, and the positions of its rows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO, NamedTuple

import pyarrow.parquet as pq
from crc32c import crc32c

from fastwire.position import Span, positions_of

from ..commitlog.ipcfile import opened_ipc_file
from ..commitlog.linefile import OPENED

_PIECE_BYTES = 1 << 20


def checksum_of(pieces: Iterable[bytes]) -> int:
    """Return the CRC-32C of a file."""
    checksum = 0
    for piece in pieces:
        checksum = crc32c(piece, checksum)
    return checksum


# --- rows


def row_counter(extension: str) -> Callable[[BinaryIO], int] | None:
    """Return a function that counts the rows of a file; None for the format of a plug-in."""
    if (opened := OPENED.get(extension)) is not None:
        return lambda file: _count_lines(opened(file))
    return {"parquet": _rows_in_parquet, "arrow": _rows_in_arrow}.get(extension)


def _rows_in_parquet(file: BinaryIO) -> int:
    return int(pq.read_metadata(file).num_rows)


def _rows_in_arrow(file: BinaryIO) -> int:
    with opened_ipc_file(file, columns=[0]) as reader:
        return sum(batch.num_rows for batch in reader)


def _count_lines(file: BinaryIO | Any) -> int:
    count, last = 0, b"\n"
    while piece := file.read(_PIECE_BYTES):
        count += piece.count(b"\n")
        last = piece[-1:]
    if last != b"\n":
        raise ValueError("the last line has no end")
    return count


# --- positions


class _Range(NamedTuple):
    """The smallest and the largest value of a column in a row group."""

    low: Any
    high: Any


def misplaced_rows(file: BinaryIO, spans: Sequence[Span], prefix: str = "") -> str | None:
    """Compare the statistics of a Parquet file with the spans of its log entry.

    The columns of the records have names that begin with ``prefix``.
    Returns a description of the mismatch, "" if all rows can lie within the spans, None without such statistics.
    """
    metadata = pq.read_metadata(file)
    # The rows of a job are counted in the span of its query, and have their positions in those of its source.
    placed = [span for span in spans if positions_of(span.log.system).number_columns]
    spans = [span for span in placed if span.rows] if any(span.rows for span in placed) else _extended(placed)
    systems = {span.log.system for span in spans}
    places = {"topic", "partition", *(name for system in systems for name in positions_of(system).number_columns)}
    compared = metadata.num_row_groups > 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        found = {}
        for index in range(group.num_columns):
            column = group.column(index)
            name = column.path_in_schema.removeprefix(prefix)
            if (
                column.path_in_schema == prefix + name
                and name in places
                and (statistics := column.statistics)
                and statistics.has_min_max
            ):
                found[name] = _Range(statistics.min, statistics.max)
        problem = _misplaced(found, spans)
        if problem:
            return problem
        compared = compared and problem is not None
    return "" if compared else None


def _extended(spans: Sequence[Span]) -> list[Span]:
    return [span for span in spans if positions_of(span.log.system).precedes(span.start, span.end)]


def _misplaced(found: dict[str, _Range], spans: Sequence[Span]) -> str | None:
    for name, values in (
        ("topic", {span.log.topic for span in spans}),
        ("partition", {int(span.log.partition) for span in spans}),
    ):
        if name in found and not values.issuperset(found[name]):
            low, high = found[name]
            return f"has rows of {name} {low}" + (f" to {high}" if high != low else "")
    topics, partitions = found.get("topic"), found.get("partition")
    near = [
        span
        for span in spans
        if (topics is None or topics.low <= span.log.topic <= topics.high)
        and (partitions is None or partitions.low <= int(span.log.partition) <= partitions.high)
    ]
    if not near:
        return None
    low, high = min(span.start for span in near), max(span.end for span in near)
    return positions_of(near[0].log.system).misplaced(low, high, found)
