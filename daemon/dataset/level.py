"""Folder levels of a dataset, Hive style: t=<topic>/p=<partition>/dt=<day>/hh=<hour>/, any of them, in this order.

Readers take columns from such names only if every file of the dataset lies under the same levels, so they are fixed
when the dataset is created. Day and hour are those of the record in UTC, never of the wall clock. A table that a Spark
job writes has the levels of its configuration instead.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

SPLITS = {"none": (), "topic": ("t",), "partition": ("t", "p")}
PARTITION_BY = {"none": (), "day": ("dt",), "hour": ("dt", "hh")}
_TIME = re.compile(r"(none|day|hour)|(day|hour)\(([A-Za-z_][A-Za-z0-9_]*)\)")

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The value that Hive, Spark, DuckDB, Polars and pyarrow read as null. It stands for times that no calendar has."""
NAME_BYTES = 255
"""The longest name of a folder on Linux file systems, in bytes; a longer one is shortened."""
# A shortened name ends like this; a name that looks shortened is shortened, too, so that names stay unique.
_DIGEST = re.compile("-[0-9a-f]{32}")
_ENCODED = re.compile(r"[\x00-\x7F](?<![A-Za-z0-9_.-])")
_CHARACTER_BYTES = 12  # at most, of one encoded character
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
LAST_US = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) + 999_999
"""The first and the last microsecond of the calendar, which has the years 1 to 9999."""


def time_level(partition_by: str) -> tuple[str, str]:
    """Return the unit of ``partition_by``, and the column of values that it is of; "" for the record's timestamp.

    Its forms are none, day, hour, day(column) and hour(column). Raises ValueError for others.
    """
    found = _TIME.fullmatch(partition_by)
    if found is None:
        raise ValueError(f"partition_by is {partition_by!r}; it can be {', '.join(PARTITION_BY)}")
    return found[1] or found[2], found[3] or ""


def level_keys(split: str, partition_by: str) -> tuple[str, ...]:
    """Return the names of a dataset's folder levels, outermost first."""
    return (*SPLITS[split], *PARTITION_BY[time_level(partition_by)[0]])


def level_directory(
    split: str, partition_by: str, *, topic: str = "", partition: str = "", timestamp_us: int = 0, table: bool = False
) -> str:
    """Return the folder for rows of one partition and hour, with a final slash ("" without levels).

    ``table`` is that of ``hive_directory``.
    The name of a topic that is too long for a folder is shortened to a prefix, "-" and 32 hex digits of its SHA-256.
    """
    values: dict[str, str | None] = {"t": shortened("t", topic), "p": shortened("p", partition)}
    if FIRST_US <= timestamp_us <= LAST_US:
        time = _EPOCH + timedelta(microseconds=timestamp_us)
        values |= {"dt": f"{time.year:04d}-{time.month:02d}-{time.day:02d}", "hh": f"{time.hour:02d}"}
    return hive_directory(((key, values.get(key)) for key in level_keys(split, partition_by)), table=table)


def hive_directory(levels: Iterable[tuple[str, str | None]], *, table: bool = False) -> str:
    """Return the folder of rows with these values, outermost first; None becomes the name that readers take for null.

    Readers of a ``table`` have the values from its log, so its folders have names of ASCII only, which all readers
    find in all stores. Raises ValueError for a level whose name would be longer than ``NAME_BYTES``.
    """
    directory = ""
    for key, value in levels:
        level = _level(key, value, table)
        if (size := len(level.encode())) > NAME_BYTES:
            raise ValueError(
                f"a value of {key} is too long for the name of a folder, which may have {NAME_BYTES} bytes and would "
                f"have {size}: {value!s:.60}…"
            )
        directory += f"{level}/"
    return directory


def level_fits(key: str, value: str, *, table: bool = False) -> bool:
    """Return True if the name of the level is short enough."""
    return len(_level(key, value, table).encode()) <= NAME_BYTES


def _level(key: str, value: str | None, table: bool) -> str:
    if value == NO_VALUE:
        return f"{key}=%5F{value[1:]}"  # Spark and tables take it for the text, other readers for null all the same
    if value is None:
        return f"{key}={NO_VALUE}"
    return f"{key}={_all_encoded(value) if table else _encode(value)}"


def shortened(key: str, value: str) -> str:
    """Return ``value``, or its short form if the name of its level would be too long.

    The short form is a prefix, "-" and 32 hex digits, half of the SHA-256 of the value; it is stable and unique.
    """
    room = NAME_BYTES - len(key) - 1
    size = len(_all_encoded(value))  # of tables, and of folders of older versions, which go on
    # A value that looks like a short form is shortened, too: it could be the short form of another value.
    if size <= room - _CHARACTER_BYTES or (size <= room and not _DIGEST.fullmatch(value[-33:])):
        return value
    digest = f"-{hashlib.sha256(value.encode()).hexdigest()[:32]}"
    room -= len(digest)
    end = 0
    while (room := room - len(_all_encoded(value[end : end + 1]))) >= 0:
        end += 1
    return value[:end] + digest


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
    """Encode the characters of ASCII but letters, digits, "_", "." and "-", by percent.

    They are more than those that Hive and Spark encode, so that stores take all names. Each reader decodes them. Other
    letters stay: Hive and Spark decode a byte to a character, and would read two for one.
    """
    return _ENCODED.sub(lambda found: f"%{ord(found[0]):02X}", value)


def _all_encoded(value: str) -> str:
    # quote() never encodes "~", which is not among the characters that every reader decodes alike.
    return quote(value, safe="").replace("~", "%7E")
