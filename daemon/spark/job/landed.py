"""Reads a landed dataset as a stream that has each row once."""

import os
from pathlib import Path
from typing import Any

from ...dataset.description import DESCRIPTION, read_description
from ...dataset.roots import datasets_in
from ...dataset.tableformat import TITLES
from ...runtime.errors import DatasetError, DatasetMismatchError
from ..source.rows import ddl, is_row
from .files import PATH

# Spark forgets files much older than the newest, so a job that was stopped for long would skip unread files.
_FOR_EVER = "36500d"
_FILES = "path string, modificationTime timestamp, length bigint, content binary"


def landed_columns(path: Path) -> list[str]:
    """Return the columns of the dataset's files. Raises DatasetError if there is no readable dataset."""
    try:
        data = (path / DESCRIPTION).read_bytes()
    except FileNotFoundError:
        if found := datasets_in(str(path)):
            raise DatasetMismatchError(
                f"{path} holds {len(found)} datasets, one for each topic, and a job reads one of them: give it "
                f'source = {{ dataset = "{found[0]}" }}, and each further one a job of its own. '
                f'A query reads all: spark.read.parquet("{path}/*")'
            ) from None
        raise DatasetError(f"there is no dataset at {path}: has the daemon landed anything yet?") from None
    description = read_description(data, str(path))
    if not is_row(description.columns) or description.extension != "parquet":
        raise DatasetMismatchError(
            f"the dataset at {path} holds {description.extension} files of {description.system}: the job reads Parquet "
            "that the daemon has landed"
        )
    if description.table:
        title = TITLES[description.table]
        raise DatasetMismatchError(
            f"the dataset at {path} is published in a table of {title}, whose files may be rewritten at any time: read "
            f"the table itself with a reader of {title}"
        )
    _refuse_links(path)
    return list(description.columns)


def _refuse_links(path: Path) -> None:
    """Raise DatasetError for a link to a folder: Spark follows it, and would read files again, or those of others."""
    for folder, below, _files in os.walk(path):
        below[:] = [name for name in below if not name.startswith(("_", "."))]
        for name in below:
            if (link := Path(folder, name)).is_symlink():
                raise DatasetError(
                    f"{link} is a symbolic link to a folder: Spark would read what is behind it as files of the "
                    "dataset. Remove it, or move the folder back into its place"
                )


def stream_landed(session: Any, path: Path, max_files: int) -> Any:
    """Return a streaming frame of the dataset's own columns."""
    columns = landed_columns(path)
    return _stream(session, path, max_files, "parquet", ddl(columns)).select(*columns)


def stream_files(session: Any, path: Path, max_files: int) -> Any:
    """Return a streaming frame of the names of the dataset's files, which has the checkpoints of ``stream_landed``."""
    return _stream(session, path, max_files, "binaryFile", _FILES).select(PATH)


def _stream(session: Any, path: Path, max_files: int, kind: str, schema: str) -> Any:
    reader = session.readStream.format(kind).schema(schema).option("maxFileAge", _FOR_EVER)
    return reader.option("maxFilesPerTrigger", max_files).load(str(path))


def read_landed(session: Any, path: Path) -> Any:
    """Return the rows that have landed so far as a batch frame."""
    columns = landed_columns(path)
    return session.read.schema(ddl(columns)).parquet(str(path)).select(*columns)
