"""Folder levels of a dataset, Hive style: t=<topic>/p=<partition>/dt=<day>/hh=<hour>/, any of them, in this order.

Readers find columns in such names only if every file of the dataset lies under the same levels, so they are fixed when
the dataset is created. Day and hour are those of the record in UTC, never of the wall clock. A table that a job writes
has the levels that its configuration names instead.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

__all__ = ["PARTITION_BY", "SPLITS", "check_directory", "hive_directory", "level_directory", "level_keys"]

SPLITS = {"none": (), "topic": ("t",), "partition": ("t", "p")}
PARTITION_BY = {"none": (), "day": ("dt",), "hour": ("dt", "hh")}

# What Hive, Spark, DuckDB, Polars and pyarrow read as null: for times that no calendar has.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_US = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LAST_US = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def level_keys(split: str, partition_by: str) -> tuple[str, ...]:
    """The levels that a dataset has, from the outside in."""
    return (*SPLITS[split], *PARTITION_BY[partition_by])


def level_directory(
    split: str, partition_by: str, *, topic: str = "", partition: str = "", timestamp_us: int = 0
) -> str:
    """The folder, with a slash at its end ("" without levels), for rows of one partition and hour."""
    values: dict[str, str | None] = {"t": topic, "p": partition}
    if _FIRST_US <= timestamp_us <= _LAST_US:
        time = _EPOCH + timedelta(microseconds=timestamp_us)
        values |= {"dt": f"{time.year:04d}-{time.month:02d}-{time.day:02d}", "hh": f"{time.hour:02d}"}
    return hive_directory((key, values.get(key)) for key in level_keys(split, partition_by))


def hive_directory(levels: Iterable[tuple[str, str | None]]) -> str:
    """The folder of rows with these values, outermost first; None is what all readers take for null."""
    return "".join(f"{key}={_NO_VALUE if value is None else _encode(value)}/" for key, value in levels)


def check_directory(directory: str, keys: Sequence[str]) -> None:
    """Raise ValueError unless ``directory`` has exactly the levels ``keys``."""
    parts = directory.split("/")
    if (
        len(parts) != len(keys) + 1
        or parts[-1]
        or any(not part.startswith(f"{key}=") or "\0" in part for part, key in zip(parts, keys, strict=False))
    ):
        raise ValueError(f"{directory!r} does not have the levels {'/'.join(keys) or 'none'} of this dataset")


def _encode(value: str) -> str:
    # quote() never encodes "~", which is not among the characters that every reader decodes alike.
    return quote(value, safe="").replace("~", "%7E")
