"""Where a job's rows come from: a landed dataset or the brokers. What comes after does not know which."""

from typing import Any

from ..config import SparkSource
from .landed import read_landed, stream_landed

__all__ = ["read_rows", "stream_rows"]


def stream_rows(session: Any, name: str, source: SparkSource, *, ends: bool) -> Any:
    """The source of the job called ``name`` as a stream of rows, each once; ``ends`` when all that is there is read."""
    if source.dataset is not None:
        return stream_landed(session, source.dataset, source.max_files)
    from .direct import stream_brokers  # PySpark 4.0 and later

    return stream_brokers(session, name, source, ends=ends)


def read_rows(session: Any, name: str, source: SparkSource) -> Any:
    """What is there now, as a frame that is not a stream. No cursor moves."""
    if source.dataset is not None:
        return read_landed(session, source.dataset)
    from .direct import read_brokers

    return read_brokers(session, name, source)
