"""The source of a job's rows: a landed dataset or the brokers, behind the same functions."""

from typing import Any

from ...config import SparkDataset, SparkSource
from .landed import read_landed, stream_landed

__all__ = ["read_rows", "stream_rows"]


def stream_rows(session: Any, name: str, source: SparkSource, *, ends: bool) -> Any:
    """Return a stream that has each row of the job ``name`` once; with ``ends`` it ends with the existing rows."""
    if isinstance(source, SparkDataset):
        return stream_landed(session, source.dataset, source.max_files)
    from .direct import stream_brokers  # PySpark 4.0 and later

    return stream_brokers(session, name, source, ends=ends)


def read_rows(session: Any, name: str, source: SparkSource) -> Any:
    """Return the existing rows as a batch frame. Moves no cursor."""
    if isinstance(source, SparkDataset):
        return read_landed(session, source.dataset)
    from .direct import read_brokers

    return read_brokers(session, name, source)
