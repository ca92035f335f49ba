"""The landed dataset as a stream of rows, each once."""

from pathlib import Path
from typing import Any

from ..config import SparkSource
from ..dataset.description import DESCRIPTION, read_description
from ..errors import DatasetError, DatasetMismatchError

__all__ = ["PLACE", "landed_columns", "read_landed", "stream_landed"]

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "ledger": "bigint",
    "batchIndex": "int",
    "eventTime": "timestamp",
    "producer": "string",
    "sequenceId": "bigint",
    "orderingKey": "binary",
    "schemaVersion": "binary",
    "redeliveryCount": "int",
}
# Where a row comes from: with these it can be found again.
PLACE = ("topic", "partition", "ledger", "offset", "batchIndex", "timestamp")

# Spark forgets files that are much older than the newest, and so would skip what a job that rested has not read yet.
_FOR_EVER = "36500d"


def landed_columns(path: Path) -> list[str]:
    """The columns of the dataset's files. Raises DatasetError if there is none that can be read here."""
    try:
        data = (path / DESCRIPTION).read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"there is no dataset at {path}: has the daemon landed anything yet?") from None
    description = read_description(data, str(path))
    unknown = [name for name in description.columns if name not in _TYPES]
    if unknown or description.extension != "parquet":
        raise DatasetMismatchError(
            f"the dataset at {path} holds {description.extension} files of {description.system}: the job reads Parquet "
            "that the daemon has landed"
        )
    return list(description.columns)


def stream_landed(session: Any, source: SparkSource) -> Any:
    """A streaming frame of the dataset's own columns."""
    columns = landed_columns(source.dataset)
    reader = session.readStream.schema(_ddl(columns)).option("maxFileAge", _FOR_EVER)
    return reader.option("maxFilesPerTrigger", source.max_files).parquet(str(source.dataset)).select(*columns)


def read_landed(session: Any, source: SparkSource) -> Any:
    """What is landed now, as a frame that is not a stream."""
    columns = landed_columns(source.dataset)
    return session.read.schema(_ddl(columns)).parquet(str(source.dataset)).select(*columns)


def _ddl(columns: list[str]) -> str:
    return ", ".join(f"`{name}` {_TYPES[name]}" for name in columns)
