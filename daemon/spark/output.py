"""A batch of a query into its tables, once: what ``foreachBatch`` calls.

Bad rows are committed first. So whoever finds a batch in the table knows that nothing of it is left to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fastwire.position import Log, Position, Span

from ..config import SparkOutput
from ..dataset.description import DatasetOptions
from ..dataset.staging import ForeignFile
from ..dataset.writer import DatasetWriter
from ..errors import ConfigurationRefused
from .task import BAD, REPORT_DDL, Place, write_rows

__all__ = ["BatchCounts", "DatasetOutput", "Output", "SparkParquetOutput", "make_output"]


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What a batch has put into its tables, and the time of its newest record.

    ``replayed`` means that it was there already, and nothing was counted.
    """

    rows_out: int = 0
    bad: int = 0
    files: int = 0
    nbytes: int = 0
    newest_us: int | None = None
    replayed: bool = False


class Output(Protocol):
    """Where batches of one query go. The seam for other table formats: ``write`` must be idempotent by batch."""

    def open(self) -> None:
        """Look at what is there, before the query starts. Raises for settings that do not fit it."""

    def write(self, frame: Any, batch: int) -> BatchCounts:
        """Put the rows of ``frame`` there unless they are. ``__bad`` is null in good rows."""

    def close(self) -> None:
        """Let go of it."""


class _Table:
    """A dataset that batches of one query are landed in."""

    def __init__(self, path: Path, job: str, columns: Sequence[str], levels: tuple[str, ...]) -> None:
        options = DatasetOptions(system="spark", cluster=job, columns=tuple(columns), levels=levels)
        self.path = path
        self.levels = levels
        self._writer = DatasetWriter(path, options)
        self._log: Log | None = None

    def open(self) -> None:
        self._writer.open()

    def close(self) -> None:
        self._writer.close()

    def begin(self, query: str) -> None:
        """Say which query it is. Raises ConfigurationRefused for a table that another one has written."""
        self._log = Log("spark", self._writer.cluster, query, "-1")
        others = [log.topic for log in self._writer.coverage.logs() if log != self._log]
        if others:
            raise ConfigurationRefused(
                f"the table at {self.path} was written with another checkpoint (query {others[0]}); with this one "
                f"(query {query}) all rows would be written again. Use the old checkpoint, or a new path"
            )

    @property
    def end(self) -> int | None:
        """The number of the first batch that has not landed; None if nothing has."""
        assert self._log is not None
        end = self._writer.coverage.end(self._log)
        return None if end is None else end.a

    def place(self, compression: str, time: str | None = None) -> Place:
        return Place(self._writer.invite(), self.levels, compression, time)

    def commit(self, first: int, batch: int, files: Sequence[ForeignFile], filtered: int = 0) -> None:
        """Land batches ``first`` to ``batch``, of which only the last has rows here."""
        assert self._log is not None
        rows = sum(file.rows for file in files) + filtered
        span = Span(self._log, Position(first, 0), Position(batch + 1, 0), rows)
        self._writer.commit(self._writer.adopt(files), [span], filtered=filtered)


class _Quarantine(_Table):
    """The table of bad rows. Batches without any leave no trace there."""

    def land(self, batch: int, files: Sequence[ForeignFile]) -> None:
        end = self.end or 0
        if files and end <= batch:
            self.commit(end, batch, files)


class DatasetOutput:
    """A dataset: tasks write files into its staging folder, the driver commits one log entry a batch."""

    def __init__(
        self, job: str, output: SparkOutput, columns: Sequence[str], bad: Sequence[str], stateful: bool
    ) -> None:
        self._table = _Table(output.path, job, columns, output.partition_by)
        self._bad = _Quarantine(output.quarantine, job, bad, ())
        self._compression = output.compression
        self._stateful = stateful

    def open(self) -> None:
        """Read both logs; publish what was committed."""
        self._table.open()
        self._bad.open()

    def close(self) -> None:
        """Drop what is not committed."""
        self._table.close()
        self._bad.close()

    def write(self, frame: Any, batch: int) -> BatchCounts:
        """See ``Output``."""
        query = query_id(frame)
        self._table.begin(query)
        self._bad.begin(query)
        end = self._table.end or 0
        if batch < end:
            if self._stateful:
                # What Spark remembers of this batch comes into being only by running it.
                frame.write.format("noop").mode("append").save()
            return BatchCounts(replayed=True)
        if batch > end:
            raise ConfigurationRefused(
                f"the checkpoint goes on with batch {batch}, but the table at {self._table.path} ends before batch "
                f"{end}: was it deleted, or is it not mounted? Without it the checkpoint must go, too"
            )
        place = self._table.place(self._compression, _time_column(frame))
        written = _Written(frame, place, self._bad.place(self._compression))
        self._bad.land(batch, written.bad)
        self._table.commit(batch, batch, written.good, filtered=written.bad_rows)
        return written.counts()


class SparkParquetOutput:
    """Spark's own writer: one folder a batch, which a repeated batch replaces as a whole.

    While a batch is written, and while it is written again, a plain listing may see part of it.
    """

    def __init__(self, job: str, output: SparkOutput, bad: Sequence[str]) -> None:
        self._output = output
        self._bad = _Quarantine(output.quarantine, job, bad, ())

    def open(self) -> None:
        """Read the log of the quarantine."""
        self._bad.open()

    def close(self) -> None:
        """Let go of the quarantine."""
        self._bad.close()

    def write(self, frame: Any, batch: int) -> BatchCounts:
        """See ``Output``."""
        from pyspark.sql import functions as fn

        output = self._output
        self._bad.begin(query_id(frame))
        frame = frame.persist()  # two jobs, and a state that must be asked once
        try:
            spoilt = frame.filter(fn.col(BAD).isNotNull())
            written = _Written(spoilt, None, self._bad.place(output.compression))
            self._bad.land(batch, written.bad)
            good = frame.filter(fn.col(BAD).isNull()).drop(BAD)
            writer = good.write.mode("overwrite").option("compression", output.compression.partition(":")[0])
            writer.partitionBy(*output.partition_by).parquet(f"{output.path}/batch={batch}")
            rows = good.count()
        finally:
            frame.unpersist()
        return replace(written.counts(), rows_out=rows)


def make_output(job: str, output: SparkOutput, frame: Any, bad: Sequence[str], *, stateful: bool) -> Output:
    """The output for ``frame``, which has the columns of the table and ``__bad``."""
    if output.format == "spark-parquet":
        return SparkParquetOutput(job, output, bad)
    names = [field for field in frame.schema.fields if field.name not in (BAD, *output.partition_by)]
    columns = [f"{field.name} {field.dataType.simpleString()}" for field in names]
    return DatasetOutput(job, output, columns, bad, stateful)


def query_id(frame: Any) -> str:
    """The id that the checkpoint has given to the query of this batch."""
    return str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


class _Written:
    """What the tasks of one run have left in staging."""

    def __init__(self, frame: Any, good: Place | None, bad: Place) -> None:
        self.good: list[ForeignFile] = []
        self.bad: list[ForeignFile] = []
        self.newest_us: int | None = None
        for is_bad, name, directory, rows, nbytes, newest in frame.mapInArrow(
            write_rows(good, bad), REPORT_DDL
        ).collect():
            (self.bad if is_bad else self.good).append(ForeignFile(name, directory, rows, nbytes))
            if newest is not None:
                self.newest_us = newest if self.newest_us is None else max(newest, self.newest_us)

    @property
    def bad_rows(self) -> int:
        return sum(file.rows for file in self.bad)

    def counts(self) -> BatchCounts:
        return BatchCounts(
            rows_out=sum(file.rows for file in self.good),
            bad=self.bad_rows,
            files=len(self.good),
            nbytes=sum(file.nbytes for file in self.good),
            newest_us=self.newest_us,
        )


def _time_column(frame: Any) -> str | None:
    """Where the table has the times of the records, if it does."""
    return next(
        (name for name, kind in frame.dtypes if name in ("_timestamp", "timestamp") and kind == "timestamp"), None
    )
