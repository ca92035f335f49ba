"""The writers that Spark calls. ``write`` runs in the executors on a pickled copy, the rest in the driver.

At least once: a task ends when the brokers have confirmed all its records. A task that Spark repeats writes them again.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from fastwire.columns.rows import Rows
from fastwire.errors import FastwireError

from ...config import ConfigError, Problem
from ...systems.registry import system_named
from ...systems.writer import Writer
from .options import SinkOptions, parse_sink_options
from .records import by_topic, check_columns

try:  # PySpark 4.1 and later
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # 4.0 writes streams only row by row
    DataSourceStreamArrowWriter = None

logger = logging.getLogger("fastwire.spark")


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The number of records that a task has written."""

    records: int


class _Sink:
    """The common base of the writers of batches and of streams."""

    def __init__(self, given: Mapping[str, str], schema: Any) -> None:
        self._given = dict(given)
        check_columns(schema, topic=parse_sink_options(given).topic is not None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task. Raises FastwireError where a record is refused, or not confirmed."""
        return asyncio.run(_write(parse_sink_options(self._given), iterator))


async def _write(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    loop = asyncio.get_running_loop()
    count = 0
    async with AsyncExitStack() as stack:
        topics = _Topics(options, stack)
        # The next rows are awaited in another thread, so that connections live on while Spark computes them.
        while (batch := await loop.run_in_executor(None, next, batches, None)) is not None:
            for topic, rows in by_topic(batch, options.topic):
                writer = topics.open.get(topic) or await topics.opened(topic)
                try:
                    await writer.write_rows(Rows(rows))
                except ValueError as exc:
                    raise FastwireError(f"a row cannot be written to {topic}: {exc}") from None
            count += batch.num_rows
    return Written(count)


class _Topics:
    """The writers that a task has opened, by topic. Leaving ``stack`` in order waits until all is confirmed."""

    def __init__(self, options: SinkOptions, stack: AsyncExitStack) -> None:
        self.open: dict[str, Writer] = {}
        self._options = options
        self._stack = stack

    async def opened(self, topic: str) -> Writer:
        """Open a topic. Raises FastwireError."""
        options = self._options
        system = system_named(options.connection.system)
        try:
            system.grammar.topic(topic)
        except ValueError as exc:
            raise FastwireError(f"a row cannot be written: {exc}") from None
        writer = await self._stack.enter_async_context(system.open_writer(options.connection, topic, options.writing))
        self.open[topic] = writer
        return writer


def _told(messages: Sequence[Any]) -> int:
    return sum(message.records for message in messages if message is not None)


class BatchWriter(_Sink, DataSourceArrowWriter):
    """Writes one frame."""

    def commit(self, messages: Sequence[Written | None]) -> None:
        """Log the number of records."""
        logger.info("%d records are written", _told(messages))

    def abort(self, messages: Sequence[Written | None]) -> None:
        """Log that records may remain: topics only grow."""
        logger.warning("a write has failed; at least %d of its records are in the topics", _told(messages))


class StreamWriter(_Sink, DataSourceStreamArrowWriter or object):  # type: ignore[misc]
    """Writes the batches of a stream."""

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log the number of records."""
        logger.info("batch %d: %d records are written", batchId, _told(messages))

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log that records may remain: Spark runs the batch again, and writes them once more."""
        logger.warning("batch %d has failed; at least %d of its records are written", batchId, _told(messages))


def batch_writer(given: Mapping[str, str], schema: Any, *, overwrite: bool) -> BatchWriter:
    """Return the writer for ``df.write``. Raises ConfigError with all that is wrong with the options or the columns."""
    _refuse_overwrite(overwrite)
    return BatchWriter(given, schema)


def stream_writer(given: Mapping[str, str], schema: Any, *, overwrite: bool) -> Any:
    """Return the writer for ``df.writeStream``. Raises ConfigError as ``batch_writer``, and before PySpark 4.1."""
    _refuse_overwrite(overwrite)
    if DataSourceStreamArrowWriter is None:
        raise ConfigError([Problem("", "format", "streams are written with PySpark 4.1 and later; use foreachBatch")])
    return StreamWriter(given, schema)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError(
            [Problem("", "mode", 'topics are not overwritten: use mode("append"), or outputMode("append")')]
        )
