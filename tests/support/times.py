"""Rows of batches whose times may lie outside of Python's calendar."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MILLI = ((1 << 63) - 1) // 1000
"""The most milliseconds that 64 bits of microseconds hold."""


def nearest_millis(number: int) -> int:
    """The microseconds of a 64-bit number of milliseconds, as a column has them."""
    signed = number - (1 << 64) if number >= 1 << 63 else number
    return max(-LAST_MILLI, min(LAST_MILLI, signed)) * 1000


def micros_of(time: datetime | int) -> int:
    """The microseconds of a time of ``rows_with_times``."""
    return time if isinstance(time, int) else (time - EPOCH) // timedelta(microseconds=1)


def rows_with_times(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts; a time that Python's calendar lacks is its number of microseconds."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            columns[name] = [_time(micros) for micros in column.cast(pa.int64()).to_pylist()]
        else:
            columns[name] = column.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _time(micros: int | None) -> datetime | int | None:
    if micros is None:
        return None
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros
