"""Writes each batch of a query into its tables once; ``foreachBatch`` calls it.

A batch is one entry in the commit log, and where that is published in a table of Delta or Iceberg, one commit.
The entry has the positions of the batch, because a checkpoint that is older than its table gives its number again.
Dead letters are committed first, so a batch that is in the table is complete. The settings that decide which rows are
dead letters are kept beside the checkpoint, so that a batch of which only those have landed is split in the same way
again.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span

from ...config import SparkOutput
from ...config.sinks.store import StoreUrl
from ...dataset.description import DatasetOptions
from ...dataset.place import bucket_of
from ...dataset.staging import ForeignFile
from ...dataset.storage.bucket import Bucket
from ...dataset.tableformat import EMPTY_TEXTS
from ...dataset.tableschema import misfit, retyped
from ...dataset.writer import DatasetWriter
from ...runtime.errors import ConfigurationRefused, SinkFailedError, Superseded
from ..source.offsets import read_offsets
from .checkpoint import keep, keep_split, landed_path, newest_batch, read_end, read_split, split_path
from .failure import OTHER_ROWS
from .files import RestOfFiles
from .plan import Plan
from .planned import Planned, PlannedBatches, landed_ranges
from .split import Pieces
from .standing import Standing, extended, standing_of
from .task import REPORT_DDL, Access, FileLayout, write_rows

if TYPE_CHECKING:
    from .keys import Keys  # NumPy is there where Spark is


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The numbers of rows that a batch has written and dropped, and the time of its newest record.

    ``replayed``: the batch had landed before, and nothing was counted.
    """

    rows_out: int = 0
    dead_letters: int = 0
    files: int = 0
    nbytes: int = 0
    newest_us: int | None = None
    replayed: bool = False
    duplicates: int = 0
    late: int = 0


class _Table:
    """A dataset in which batches of one query land."""

    def __init__(self, path: Path | StoreUrl, options: DatasetOptions, bucket: Bucket | None = None) -> None:
        self.path = path
        self._options = options
        self._bucket = bucket
        self._writer = DatasetWriter(path, options, bucket)
        self._log: Log | None = None

    def open(self) -> None:
        """Read the log. Raises ConfigurationRefused for a table with other types."""
        self._writer.open()
        self._check_columns()

    def check_batches(self, done: int | None) -> None:
        """Refuse a table without any batch where the checkpoint has ``done`` some: there may be nothing more to do."""
        if done is not None and not self._lines():
            raise ConfigurationRefused(
                f"the checkpoint has committed batch {done}, and the table at {self.path} has none: was it deleted, or "
                "is it not mounted? Without it the checkpoint must go, too"
            )

    def close(self) -> None:
        self._writer.close()

    @property
    def coverage(self) -> Coverage:
        """The landed batches of the query, and the landed spans of the logs that it reads."""
        return self._writer.coverage

    def begin(self, query: str) -> None:
        """Set the id of the query. Raises ConfigurationRefused for a table that another query has written, or that
        cannot get the columns; SinkFailedError for one that takes no files now.
        """
        self._writer.refresh()
        self._log = Log("spark", self._writer.cluster, query, "-1")
        self._check_query()
        # A checkpoint that has fallen behind its table has begun a new line of numbers.
        self._log = max([self._log, *self._lines()], key=lambda log: int(log.incarnation))
        self._check_columns()
        self._check_published()

    def _check_columns(self) -> None:
        """Refuse columns of other types: columns are added, and those that the job lacks are null in its files."""
        types = self._writer.types, self._options.types
        if why := (self._options.table and misfit(*types)) or retyped(*types):
            raise ConfigurationRefused(
                f"the columns of the job do not fit the table at {self.path}: {why}. Keep the type, or use a new path"
            )

    def _lines(self) -> list[Log]:
        return [log for log in self._writer.coverage.logs() if log.system == "spark"]

    def renumber(self) -> None:
        """Begin a new line of numbers of batches with the next commit."""
        assert self._log is not None
        self._log = replace(self._log, incarnation=str(int(self._log.incarnation) + 1))

    def _check_published(self) -> None:
        """Fail while the table lacks a batch: the query repeats it, and finds out whether it was published since."""
        if why := self._writer.stopped:
            raise SinkFailedError(f"a batch is committed, but not in its table yet: {why}. Start the job again")

    def _check_query(self) -> None:
        assert self._log is not None
        queries = {log.topic for log in self._lines()}
        if others := queries - {self._log.topic}:
            raise ConfigurationRefused(
                f"the table at {self.path} was written with another checkpoint (query {others.pop()}); with this one "
                f"(query {self._log.topic}) all rows would be written again. Use the old checkpoint, or a new path"
            )

    @property
    def end(self) -> int | None:
        """The number of the first batch that has not landed; None if no batch has landed."""
        assert self._log is not None
        end = self._writer.coverage.end(self._log)
        return None if end is None else end.a

    def place(self, compression: str, time: str | None = None) -> FileLayout:
        access = None if self._bucket is None else Access(self._bucket.url, self._bucket.access)
        table = self._options.table
        return FileLayout(
            self._writer.invite(), self._options.levels, compression, time, access, bool(table), table in EMPTY_TEXTS
        )

    def commit(
        self, first: int, batch: int, files: Sequence[ForeignFile], spans: Sequence[Span] = (), filtered: int = 0
    ) -> None:
        """Land batches ``first`` to ``batch``, of which only the last has rows here; ``spans`` are its positions."""
        assert self._log is not None
        rows = sum(file.rows for file in files) + filtered
        own = Span(self._log, Position(first, 0), Position(batch + 1, 0), rows)
        try:
            self._writer.commit(self._writer.adopt(files), [own, *spans], filtered=filtered, types=self._options.types)
        except Superseded:
            self._check_query()  # another query has committed to the same empty table first
            raise
        self._check_published()


class _DeadLetterTable(_Table):
    """The table of dead letters. Batches without dead letters have no log entry there."""

    def land(self, batch: int, files: Sequence[ForeignFile], spans: Sequence[Span]) -> None:
        """Land the dead letters of ``batch``; ``spans`` are its positions, with those of batches before it."""
        end = self.end
        if end is not None and end > batch:
            self.renumber()
        self.commit(self.end or 0, batch, files, spans)


class DatasetOutput:
    """A dataset: tasks write files into its staging folder, the driver commits one log entry for each batch."""

    def __init__(
        self,
        output: SparkOutput,
        table: DatasetOptions,
        dead_letters: DatasetOptions,
        settings: str,
        pieces: Callable[[], Pieces],
        time: str | None = None,
        batches: PlannedBatches | None = None,
        keys: "Keys | None" = None,
    ) -> None:
        self._table = _Table(output.path, table, bucket_of(output))
        self._dead_letters = _DeadLetterTable(output.dead_letters, dead_letters)
        self._compression = output.compression
        self._keys = keys
        self._settings = settings
        self._pieces = pieces
        self._time = time
        self._checkpoint = output.checkpoint
        self._batches = batches
        self._newest: int | None = None

    def open(self) -> None:
        """Read both logs, publish committed files, and keep what has landed where the source finds it.

        Raises ConfigurationRefused for settings that do not fit the tables.
        """
        self._table.open()
        self._table.check_batches(newest_batch(self._checkpoint, done=True))
        self._dead_letters.open()
        if self._batches is not None:
            self._batches.begin(self._table.coverage)
        self._newest = newest_batch(self._checkpoint)
        last = None
        if self._newest is not None and (document := read_end(self._checkpoint, self._newest)).get("sys"):
            last = read_offsets(document, document["sys"])
        found = (landed_ranges(table.coverage, last) for table in (self._table, self._dead_letters))
        ranges = [each.document() for each in found if each is not None]
        if ranges or landed_path(self._checkpoint).exists():
            keep(landed_path(self._checkpoint), json.dumps(ranges))

    def check_source(self) -> None:
        """Look whether the source is the one of the table: see ``PlannedBatches.check``. From any thread."""
        if self._batches is not None:
            self._batches.check()

    def close(self) -> None:
        """Drop uncommitted files."""
        self._table.close()
        self._dead_letters.close()

    def write(self, frame: Any, batch: int) -> BatchCounts:
        """Write the rows of ``frame`` unless the batch has landed."""
        query = query_id(frame)
        self._table.begin(query)
        self._dead_letters.begin(query)
        planned = Planned(()) if self._batches is None else self._batches.of(batch)
        table = standing_of(self._table.coverage, planned)
        dead = standing_of(self._dead_letters.coverage, planned, lags=True)
        end = self._table.end or 0
        if table.what == "unknown" and batch < end:
            self._check_known(batch, planned)
        if table.what == "all" or (table.what == "unknown" and batch < end):
            return self._replayed(frame, batch, end)
        if batch > end:
            raise ConfigurationRefused(
                f"the checkpoint goes on with batch {batch}, but the table at {self._table.path} ends before batch "
                f"{end}: was it deleted, or is it not mounted? Without it the checkpoint must go, too"
            )
        self._check_standing(batch, table, dead)
        if batch < end:
            self._table.renumber()
        return self._land(frame, batch, planned, table, dead)

    def _replayed(self, frame: Any, batch: int, end: int) -> BatchCounts:
        """Count a batch that has landed before."""
        if self._keys is not None:
            self._keys.search(frame, batch)
            self._keys.keep(batch)
        if batch == end:
            self._table.commit(batch, batch, ())  # of a checkpoint whose numbers differ: they go on
        return BatchCounts(replayed=True)

    def _land(self, frame: Any, batch: int, planned: Planned, table: Standing, dead: Standing) -> BatchCounts:
        """Write the rows of a batch of which the table lacks some."""
        before = dead.what == "all" or (dead.what == "unknown" and (self._dead_letters.end or 0) > batch)
        if before:
            self._check_split(batch)
        pieces = self._pieces
        if table.landed or (dead.landed and not before):
            pieces = RestOfFiles(pieces, table.landed, dead.landed).open
        place = self._table.place(self._compression, self._time)
        found = None
        if self._keys is not None:
            found = self._keys.search(frame, batch)
            pieces = found.pieces
        written = _Written(frame, write_rows(place, self._dead_letters.place(self._compression), pieces))
        if found is not None and (written.good_rows, written.dead_rows) != (found.good, found.dead):
            raise SinkFailedError(
                f"batch {batch} has {OTHER_ROWS}: {written.good_rows} that stay and {written.dead_rows} that do not "
                f"decode, instead of {found.good} and {found.dead}. Were some compacted or deleted in between?"
            )
        if written.dead:
            keep_split(self._checkpoint, self._settings)
        if written.dead and not before:
            self._dead_letters.land(batch, written.dead, self._dead_spans(planned, dead))
        news = planned.news(self._table.coverage, table.landed)
        if self._keys is not None:
            self._keys.keep(batch)
        self._table.commit(batch, batch, written.good, news, written.dead_rows)
        counts = written.counts()
        return counts if found is None else replace(counts, duplicates=found.duplicates, late=found.late)

    def _dead_spans(self, planned: Planned, dead: Standing) -> Sequence[Span]:
        if planned.files:
            return planned.news(self._dead_letters.coverage, dead.landed)
        return extended(self._dead_letters.coverage, planned, self._table.coverage)

    def _check_known(self, batch: int, planned: Planned) -> None:
        """Refuse to take a ``batch`` for landed whose number alone says so, unless it was planned before this run."""
        if planned.full and (self._newest is None or batch > self._newest):
            raise ConfigurationRefused(
                f"the checkpoint at {self._checkpoint} is older than the table at {self._table.path}: it plans batch "
                f"{batch} again, and the table has a batch of this number from a version that did not record what a "
                "batch reads, so records could be lost. Restore the newest checkpoint, or use a new path for the table "
                "and a new checkpoint"
            )

    def _check_standing(self, batch: int, table: Standing, dead: Standing) -> None:
        """Refuse a ``batch`` that fits neither behind the table nor into it."""
        why = table.why or dead.why
        if not why and self._keys is not None and (table.landed or dead.landed):
            why = f"the table has {len(table.landed | dead.landed)} of its files and lacks others"
        if why:
            raise ConfigurationRefused(
                f"batch {batch} of the checkpoint at {self._checkpoint} does not fit the table at {self._table.path}: "
                f"{why}. Was one of them restored from a backup, or the source replaced? Restore checkpoint and table "
                "of one time, or use a new path for the table and a new checkpoint"
            )

    def _check_split(self, batch: int) -> None:
        """Refuse changed split settings for a ``batch`` of which only the dead letters have landed."""
        kept = read_split(self._checkpoint)
        if kept not in (None, self._settings):
            raise ConfigurationRefused(
                f"the dead letters of batch {batch} are in {self._dead_letters.path}, its good rows are not yet "
                f"in the table at {self._table.path}, and decode or dedupe.key of the job has changed in between: rows "
                "could be lost, or be in both. Run the job once more with the settings and the schema that are kept "
                f"in {split_path(self._checkpoint)}, then with the new ones"
            )


def make_output(
    output: SparkOutput, plan: Plan, batches: PlannedBatches | None = None, watermark: float = 0
) -> DatasetOutput:
    """Return the output for the rows of ``plan``. Without ``batches`` a batch is known by its number alone."""
    types = {field.name: field.dataType.simpleString() for field in plan.table}
    time = next((name for name in ("_timestamp", "timestamp") if types.get(name) == "timestamp"), None)
    keys = None
    if plan.keyed is not None:
        from .keys import Keys

        keys = Keys(output.checkpoint, replace(plan.keyed, split=plan.pieces), watermark)
    return DatasetOutput(output, plan.dataset, plan.dead_letters, plan.settings, plan.pieces, time, batches, keys)


def query_id(frame: Any) -> str:
    """Return the id of the query of this batch, which the checkpoint keeps."""
    return str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


class _Written:
    """The files that the tasks of one run have written into staging."""

    def __init__(self, frame: Any, task: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        self.good: list[ForeignFile] = []
        self.dead: list[ForeignFile] = []
        self.newest_us: int | None = None
        for is_dead, *file, newest in frame.mapInArrow(task, REPORT_DDL).collect():
            (self.dead if is_dead else self.good).append(ForeignFile(*file))
            if newest is not None:
                self.newest_us = newest if self.newest_us is None else max(newest, self.newest_us)

    @property
    def good_rows(self) -> int:
        return sum(file.rows for file in self.good)

    @property
    def dead_rows(self) -> int:
        return sum(file.rows for file in self.dead)

    def counts(self) -> BatchCounts:
        return BatchCounts(
            rows_out=self.good_rows,
            dead_letters=self.dead_rows,
            files=len(self.good),
            nbytes=sum(file.nbytes for file in self.good),
            newest_us=self.newest_us,
        )
