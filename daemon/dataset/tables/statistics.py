"""Statistics of a data file for the log of a table, from the footer of the file."""

import json
from datetime import date, datetime, timedelta
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

_MILLISECOND = timedelta(milliseconds=1)
# The first and the last day of Python's calendar, in days since 1970; and the parts of a day by unit.
_FIRST_DAY, _LAST_DAY = (
    date.min.toordinal() - date(1970, 1, 1).toordinal(),
    date.max.toordinal() - date(1970, 1, 1).toordinal(),
)
_A_DAY = {"milliseconds": 86_400_000, "microseconds": 86_400_000_000, "nanoseconds": 86_400_000_000_000}


def statistics_of(file: BinaryIO, rows: int) -> str:
    """Return number of rows, least and greatest values and nulls of the columns of a Parquet file, as JSON.

    Columns without statistics, and of types whose order readers do not agree about, are left out. A file without a
    readable footer has its ``rows`` only.
    """
    try:
        metadata = pq.read_metadata(file)
    except (OSError, pa.ArrowException):
        return orjson.dumps({"numRecords": rows}).decode()
    found: dict[str, list[Any]] = {}
    groups = metadata.num_row_groups
    far = beyond_calendar(metadata)
    for number in range(groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            name = column.path_in_schema
            if "." not in name and column.statistics is not None:
                found.setdefault(name, []).append(column.statistics)
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, parts in found.items():
        if len(parts) < groups:
            continue
        if all(part.has_null_count for part in parts):
            nulls[name] = sum(part.null_count for part in parts)
        known = [part for part in parts if part.has_min_max]
        # A group of nulls has no least value.
        if known and name not in far and all(part.has_min_max or not part.num_values for part in parts):
            ends = _ends(min(part.min for part in known), max(part.max for part in known))
            if ends is not None:
                low[name], high[name] = ends
    return orjson.dumps({"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls}).decode()


def beyond_calendar(metadata: pq.FileMetaData) -> frozenset[str]:
    """Return the paths of the columns of a Parquet file with dates or times outside of the years 1 to 9999.

    Such a value has no text that all readers understand, and the statistics of pyarrow raise OverflowError for it.
    """
    days = [(index, _parts_of_day(metadata.schema.column(index))) for index in range(metadata.num_columns)]
    found = set()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index, parts in days:
            known = group.column(index).statistics if parts else None
            if known is not None and known.has_min_max:
                first, last = _FIRST_DAY * parts, (_LAST_DAY + 1) * parts - 1
                if not first <= known.min_raw <= known.max_raw <= last:
                    found.add(group.column(index).path_in_schema)
    return frozenset(found)


def _parts_of_day(column: Any) -> int:
    """Return the parts of a day that the numbers of a column of dates or times count; 0 for other columns."""
    logical = column.logical_type
    if logical.type == "DATE":
        return 1
    return _A_DAY[json.loads(logical.to_json())["timeUnit"]] if logical.type == "TIMESTAMP" else 0


def _ends(low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return the least and the greatest value in the form of the format; None for types without one."""
    if isinstance(low, datetime):
        try:
            # Readers look at milliseconds, so the greatest is rounded up.
            return _text(low), _text(high + (datetime.min.replace(tzinfo=high.tzinfo) - high) % _MILLISECOND)
        except OverflowError:
            return None
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    return (low, high) if isinstance(low, int) and not isinstance(low, bool) else None


def _text(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"
