"""``read``: records of topics, from a start to an end, as one Arrow table, a frame, or batches."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.errors import FastwireError
from fastwire.position import Log

from ..config import Connection, Start, TopicChoice, parse_connection
from ..config.decode import DecodeConfig
from ..config.sql.arrowcolumns import types_of_records
from ..config.sql.rowwise import quoted
from ..config.values.fields import parse_moment
from ..sinks.recordrows import taken
from ..systems.base import TopicReader
from ..systems.registry import reading, system_named
from .background import Background
from .columns import asked_for, in_schema, only_columns, schema_with_nulls, with_columns
from .decoding import Undecoded, check_chosen, chosen_columns, decode_table, decoded, decoder_for, first_inferred
from .feed import Feed
from .progress import Progress

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from ..sinks.valuedecoder import ValueDecoder

KEPT_LETTERS = 1000
NEWEST = 1000
"""Number of records before the end of each partition whose columns count where none of those asked for is there."""


def read(
    url: str,
    topic: str | Iterable[str] = (),
    *,
    start: str | datetime = "earliest",
    end: str | datetime = "now",
    pattern: str | None = None,
    partitions: Iterable[int] | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    decode: str | Mapping[str, Any] | None = None,
    progress: bool | None = None,
    **connection: Any,
) -> "Records":
    """Return the records of ``topic``, of several, or of all that match ``pattern``; nothing is read yet.

    ``url`` names the brokers and their system, and ``connection`` has more keys of a connection as in a configuration
    file (``auth``, ``tls``). Nothing is left at the brokers: no group, no cursor.

    ``start`` is what the command ``tail`` takes as ``--from``: earliest, latest, ``-5m``, an RFC 3339 time or a
    position; or a datetime with a zone. ``end`` is "now", what the topics hold when the reading begins, or a time: each
    partition then ends before its first record of that time or later. ``partitions`` are numbers in the column
    ``partition``, ``columns`` the names of the columns, and ``limit`` is the largest number of rows; which ones of
    several partitions come first is not said. ``decode`` is the table ``[decode]`` of a configuration, or its format
    where that suffices; columns are then the fields of the values, and those of the record with a _ before their name.

    ``progress`` shows a line with rows, rate and, but for Pulsar, the share of what the topics hold; by default on a
    terminal and in a notebook.

    Raises ConfigError for keys that cannot be, ValueError for the rest. What brokers refuse raises FastwireError, when
    the records are asked for.
    """
    made = parse_connection({"url": url} | connection)
    system = system_named(made.system)
    choice, begin = system.chosen(topic, pattern, start)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, Integral) or limit < 0):
        raise ValueError(f"limit is a number of rows, not {limit!r}")
    numbers = None if partitions is None else _numbers(partitions)
    table = decode_table(decode, columns, made.system)
    return Records(
        made,
        choice,
        begin,
        end=_moment(end),
        partitions=numbers,
        columns=None if columns is None else tuple(columns),
        limit=limit,
        decode=table,
        progress=progress,
    )


def _numbers(partitions: Iterable[int]) -> frozenset[int]:
    numbers = frozenset(partitions) if isinstance(partitions, Iterable) else None
    if numbers is None or not all(isinstance(each, Integral) for each in numbers):
        raise ValueError(f"partitions are several numbers, such as [1], not {partitions!r}")
    return numbers


def _moment(end: str | datetime) -> datetime | None:
    if end == "now":
        return None
    moment = parse_moment(end)
    if moment is None:
        raise ValueError(f'end is "now" or a time with its zone, such as "2025-01-31T00:00:00Z" or "-1h", not {end!r}')
    return moment


class Records:
    """The records of a ``read``. Each way to take them reads the topics once: a second one reads them again.

    Anything that takes a stream of Arrow data (``__arrow_c_stream__``) takes it: ``polars.DataFrame(records)``.
    """

    def __init__(
        self,
        connection: Connection,
        topics: TopicChoice,
        start: Start,
        *,
        end: datetime | None,
        partitions: frozenset[int] | None,
        columns: tuple[str, ...] | None,
        limit: int | None,
        decode: DecodeConfig | None,
        progress: bool | None,
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._start = start
        self._end = end
        self._partitions = partitions
        self._columns = columns
        self._limit = limit
        self._decode = decode
        self._progress = progress
        self.dead_letters: list[DeadLetter] = []
        """Records of the last reading that could not be decoded, the first thousand: position, reason and payload."""
        self.dead_letter_count = 0
        """Number of all of these."""
        self.failure: FastwireError | None = None
        """The error that ended the last reading, where it is lost within that of who reads, such as DuckDB."""
        self.names: tuple[str, ...] = ()
        """The columns of the first records, once ``to_reader`` has been called; it may leave some out."""
        self._feeds: list[Feed[TopicReader, Chunk]] = []

    def __repr__(self) -> str:
        names = ", ".join(self._topics.names) or self._topics.pattern
        return f"<Records of {names} at {self._connection.url}: to_polars() and others read them>"

    def batches(self, only: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records as they come. Memory is bounded: nothing more is read while nothing is taken.

        Of columns that are inferred those alone are decoded that ``only`` names, in the case of SQL. Records that
        cannot be decoded are left out; ``dead_letters`` has them, and a warning counts them at the end. Raises
        FastwireError where brokers refuse or do not answer, and for a value that does not fit if ``decode.on_error`` is
        "stop".
        """
        self.dead_letters, self.dead_letter_count, self.failure, self.names = [], 0, None, ()
        try:
            with Progress(self._progress) as progress:
                for batch in self._limited(progress, only):
                    progress.add(batch.num_rows)
                    yield batch
        except FastwireError as exc:
            self.failure = exc
            raise
        if self.dead_letter_count:
            first = self.dead_letters[0]
            warnings.warn(
                f"{self.dead_letter_count} records cannot be decoded and are left out; the first one, of {first.log}: "
                f"{first.reason}. `dead_letters` has them",
                stacklevel=2,
            )

    def close(self) -> None:
        """End all readings that are under way, from any thread: who takes their records gets FastwireError."""
        for feed in [*self._feeds]:
            feed.close()

    def to_reader(self, only: Collection[str] | None = None) -> pa.RecordBatchReader:
        """Return a reader for what does not fit into memory; its columns are those of the first records.

        Columns that are inferred are those of the first 10,000. A later record with a further field ends the reading
        with FastwireError, unless ``columns`` of ``read`` or ``only``, in the case of SQL, leave its column out.
        """
        batches = self.batches(only)
        first = next(batches, None)
        schema = self._empty() if first is None else first.schema
        self.names = self.names or tuple(schema.names)
        if only is not None:
            first = None if first is None else only_columns(first, only)
            schema = schema if first is None else first.schema
            batches = (only_columns(batch, only) for batch in batches)

        def rest() -> Iterator[pa.RecordBatch]:
            if first is not None:
                yield first
            for batch in batches:
                try:
                    yield batch if batch.schema == schema else in_schema(batch, schema)
                except FastwireError as exc:
                    self.failure = exc
                    raise

        return pa.RecordBatchReader.from_batches(schema, rest())

    def to_table(self) -> pa.Table:
        """Return all records; columns that newer schemas bring are null in older records.

        Where columns widen (``decode.evolve``), older records have the types of the newest.
        """
        batches = [*self.batches()]
        if not batches:
            return self._empty().empty_table()
        if self._decode is not None and self._decode.widens:
            batches = [in_schema(batch, batches[-1].schema) for batch in batches]
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()

    def to_pandas(self, **options: Any) -> Any:
        """Return a ``pandas.DataFrame``; ``options`` are those of ``pyarrow.Table.to_pandas``."""
        return self.to_table().to_pandas(**options)

    def to_polars(self) -> "pl.DataFrame":
        """Return a frame of Polars."""
        import polars as pl

        frame = pl.from_arrow(self.to_table())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_duckdb(self, connection: "duckdb.DuckDBPyConnection", name: str) -> "duckdb.DuckDBPyRelation":
        """Make the table ``name`` of a DuckDB connection from the records, a batch at a time, and return it."""
        table = quoted(name)
        self.store(connection, table, with_columns(self.to_reader(), ", ".join(self._topics.names) or "the pattern"))
        return connection.table(table)

    def store(self, connection: "duckdb.DuckDBPyConnection", table: str, reader: pa.RecordBatchReader) -> None:
        """Make a table, whose name is quoted, of what ``reader`` reads of these records."""
        connection.register("_fastwire_records", reader)
        create = partial(connection.execute, f"CREATE TABLE {table} AS SELECT * FROM _fastwire_records")
        try:
            with Background(connection, [self.close], create) as creating:
                creating.result()
        finally:
            connection.unregister("_fastwire_records")

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    # --- reading

    def _limited(self, progress: Progress, only: Collection[str] | None) -> Iterator[pa.RecordBatch]:
        left = self._limit
        if left == 0:
            return
        decoder = self._decoder()
        with self._feeding() as feed:
            progress.share = lambda: None if feed.opened is None else feed.opened.share
            pieces = self._pieces(feed)
            if decoder is not None and decoder.infers:
                pieces = first_inferred(decoder, pieces, left, self._columns, partial(self._inferred, decoder, only))
            for batch, runs in pieces:
                for rows, letters in decoded(decoder, batch, runs, self._columns):
                    self._note(letters)
                    piece = rows if left is None else rows[:left]
                    if piece.num_rows:
                        yield piece
                    if left is not None:
                        left -= piece.num_rows
                        if left <= 0:
                            return

    def _decoder(self) -> "ValueDecoder | None":
        decoder = decoder_for(self._connection, self._decode, self._topics.names)
        if decoder is not None and decoder.fields and not decoder.infers:
            check_chosen(decoder, self._columns, "the newest schema has")
        return decoder

    def _inferred(self, decoder: "ValueDecoder", only: Collection[str] | None) -> None:
        self.names = decoder.columns
        if only is not None:
            decoder.keep(asked_for(decoder.columns, only))

    def _pieces(self, feed: Feed[TopicReader, Chunk]) -> Iterator[Undecoded]:
        """Yield what is wanted of the chunks of ``feed``."""
        cut = Cut(self._partitions, self._end)
        count = self._count(feed) if self._end is not None and self._partitions is None else 0
        while (chunk := feed.next()) is not None:
            self._note(chunk.dead_letters)
            if chunk.rows:
                yield from cut.pieces(chunk)
            if count and cut.ended >= count:
                return

    def _built(self) -> frozenset[str] | None:
        """Return the columns of records to build, those that the choice of rows looks at among them."""
        if self._decode is not None or self._columns is None:
            return None
        is_cut = self._partitions is not None or self._end is not None
        return frozenset((*self._columns, *(("partition", "timestamp") if is_cut else ())))

    @contextmanager
    def _feeding(self) -> Iterator[Feed[TopicReader, Chunk]]:
        opening = partial(reading, self._connection, self._topics, self._start, self._built())
        feed = Feed("fastwire read", opening, lambda reader: reader.up_to_now())
        self._feeds.append(feed)
        try:
            with feed:
                yield feed
        finally:
            self._feeds.remove(feed)

    def _count(self, feed: Feed[TopicReader, Chunk]) -> int:
        """Return the number of partitions of the topics."""
        system = system_named(self._connection.system)
        described = feed.call(partial(system.describe, self._connection, self._topics))
        return sum(max(1, count) for _, count in described.topics)

    def _empty(self) -> pa.Schema:
        """Return the columns of no records."""
        decoder = self._decoder()
        if decoder is not None:
            if decoder.infers:
                self._infer_from_end(decoder)
            own = types_of_records(self._connection.system, decoder.prefix)
            fields = decoder.fields
            made = [fields[name] if name in fields else pa.field(name, own[name]) for name in decoder.columns]
            chosen = chosen_columns(self._columns)
            return pa.schema(made) if chosen is None else schema_with_nulls(pa.schema(made), chosen)
        own = types_of_records(self._connection.system)
        return pa.schema([pa.field(name, own[name]) for name in self._columns or own])

    def _infer_from_end(self, decoder: "ValueDecoder") -> None:
        """Infer the columns of no records from the newest ones that the topics hold: a quiet hour has these columns."""
        newest = copy(self)  # shares the list of what is to be closed
        newest._start = system_named(self._connection.system).start_of(f"-{NEWEST}", self._topics)
        newest._end = None
        with newest._feeding() as feed:
            pieces = newest._pieces(feed)
            next(first_inferred(decoder, pieces, None, self._columns, partial(self._inferred, decoder, None)), None)

    def _note(self, letters: Sequence[DeadLetter]) -> None:
        self.dead_letter_count += len(letters)
        self.dead_letters.extend(letters[: KEPT_LETTERS - len(self.dead_letters)])


class Cut:
    """Cuts chunks to some ``partitions`` (None: all), and each of them before its first record of ``end`` or later."""

    def __init__(self, partitions: frozenset[int] | None, end: datetime | None) -> None:
        self._partitions = partitions
        self._end = None if end is None else pa.scalar(end, pa.timestamp("us", "UTC"))
        self._over: set[Log] = set()

    @property
    def ended(self) -> int:
        """The number of partitions of which nothing more is taken."""
        return len(self._over)

    def pieces(self, chunk: Chunk) -> Iterator[Undecoded]:
        """Yield what is left of a chunk, with the log of its rows; a chunk of which all is left stays in one piece."""
        batch, runs = taken(chunk)
        if self._partitions is None and self._end is None:
            yield batch, runs
            return
        for log, first, rows in runs:
            number = batch["partition"][first].as_py()
            if log in self._over or (self._partitions is not None and number not in self._partitions):
                continue
            kept = self._kept(log, batch["timestamp"].slice(first, rows))
            if kept:
                yield batch.slice(first, kept), [(log, 0, kept)]

    def _kept(self, log: Log, times: pa.Array) -> int:
        if self._end is None:
            return len(times)
        import pyarrow.compute as pc  # takes as long as the rest of pyarrow

        later = pc.index(pc.greater_equal(times, self._end), True).as_py()
        if later < 0:
            return len(times)
        self._over.add(log)
        return int(later)
