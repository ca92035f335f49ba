"""A landed dataset as a stream of rows, each once."""

from pathlib import Path
from typing import Any

from ..dataset.description import DESCRIPTION, read_description
from ..errors import DatasetError, DatasetMismatchError
from .rows import ddl, is_row

__all__ = ["landed_columns", "read_landed", "stream_landed"]

# Spark forgets files that are much older than the newest, and so would skip what a job that rested has not read yet.
_FOR_EVER = "36500d"


def landed_columns(path: Path) -> list[str]:
    """The columns of the dataset's files. Raises DatasetError if there is none that can be read here."""
    try:
        data = (path / DESCRIPTION).read_bytes()
    except FileNotFoundError:
        raise DatasetError(f"there is no dataset at {path}: has the daemon landed anything yet?") from None
    description = read_description(data, str(path))
    if not is_row(description.columns) or description.extension != "parquet":
        raise DatasetMismatchError(
            f"the dataset at {path} holds {description.extension} files of {description.system}: the job reads Parquet "
            "that the daemon has landed"
        )
    return list(description.columns)


def stream_landed(session: Any, path: Path, max_files: int) -> Any:
    """A streaming frame of the dataset's own columns."""
    columns = landed_columns(path)
    reader = session.readStream.schema(ddl(columns)).option("maxFileAge", _FOR_EVER)
    return reader.option("maxFilesPerTrigger", max_files).parquet(str(path)).select(*columns)


def read_landed(session: Any, path: Path) -> Any:
    """What is landed now, as a frame that is not a stream."""
    columns = landed_columns(path)
    return session.read.schema(ddl(columns)).parquet(str(path)).select(*columns)
