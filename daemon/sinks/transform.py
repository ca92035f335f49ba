"""Rows of records after a row-wise SQL query, run by DuckDB over the Arrow columns in a process of its own."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, overload

import pyarrow as pa

from fastwire.decode.evolution import Column, columns_of, grown, program_of
from fastwire.decode.program import SchemaError
from fastwire.position import Log
from fastwire.reason import Reason

from ..config.sql.arrowcolumns import arrow_schema, check_result, columns_in
from ..config.sql.process import NoTimeError, QueryError, RowsError, SqlProcess
from ..config.sql.rowwise import ROW, Query
from ..dataset.columnnames import ANY_NAME, NameRule
from ..dataset.tableschema import misfit
from ..runtime.errors import DatasetMismatchError, SinkFailedError
from .recordrows import DecodedRows, RecordRows, Runs
from .recordschemas import Pause
from .valuedecoder import misnamed

# Failing rows of a batch whose reason is asked for, each by a query.
_EXPLAINED = 16
_PARTS = 16  # of rows among which one fails, and DuckDB cannot tell which
_UNEXPLAINED = f"{Reason.TRANSFORM}: the query fails for this value, as for others before it"


class TransformedValues:
    """Rows of records, with decoded values (a ``ValueDecoder``) or as they are, that become those of a query.

    ``result`` has the columns of the query as they are now; with * in it they grow with those of the decoder. Columns
    that are ``levels`` name folders. A row that the query does not select is counted, and one for which it fails is a
    dead letter, or stops its log like a value that cannot be decoded. ``for_table`` columns are never made wider.
    """

    def __init__(
        self,
        decoder: RecordRows,
        query: Query,
        result: pa.Schema,
        *,
        own: Sequence[str] = (),
        levels: Sequence[str] = (),
        evolve: Literal["add", "strict", "dead_letter"] = "add",
        for_table: bool = False,
        names: NameRule = ANY_NAME,
    ) -> None:
        self._decoder = decoder
        self._query = query
        self._process = SqlProcess()
        self._own = frozenset(own)
        self._levels = tuple(levels)
        self._evolve = evolve
        self._for_table = for_table
        self._names = names
        self._found = result  # as the query has them
        self._result = result
        self._wider: dict[str, pa.DataType] = {}  # types of the dataset for columns that are narrower here
        self._running = 0
        self._numbers = _counting(0)
        self._pause: Pause | None = None
        self.prefix = decoder.prefix
        """Stands before the names of the columns of the records."""
        self.needed = decoder.needed
        """Columns that the batches must have."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the files."""
        return tuple(name for name in self._result.names if name not in self._levels)

    @property
    def types(self) -> tuple[Column, ...]:
        """The columns of the files that are not those of the records."""
        return tuple(column for column in columns_in(self._result) if column.name not in (*self._levels, *self._own))

    @property
    def level_types(self) -> tuple[Column, ...]:
        """The columns of the query that name folders, in the order of the folders."""
        types = {column.name: column for column in columns_in(self._result)}
        return tuple(types[name] for name in self._levels)

    @property
    def texts(self) -> dict[str, str]:
        """The types of these columns, by name."""
        names = {column.name for column in self.types}
        return {field.name: str(field.type) for field in self._result if field.name in names}

    @property
    def nbytes(self) -> int:
        """Memory of decoded columns that are not written yet, and of the query that runs, in bytes. From any thread."""
        return self._decoder.nbytes + self._running

    def trim(self) -> None:
        """Give memory back: see ``ValueDecoder.trim``."""
        self._decoder.trim()

    def adopt(self, types: Sequence[Column]) -> None:
        """Compare the columns with those of the dataset, whose wider types they take.

        Raises SchemaError if they conflict, or differ and must not.
        """
        mine = self.types
        if self._evolve != "add":
            if types and (differing := set(mine) ^ set(types)):
                names = ", ".join(sorted({column.name for column in differing}))
                raise SchemaError("", f"the dataset and the transform differ in these columns: {names}")
            return
        union = columns_of(grown(program_of(mine), program_of(types)))
        if self._for_table and types and (why := misfit(types, union)):
            raise SchemaError("", why)
        wider = [one for one in union if any(one.name == each.name and one.arrow != each.arrow for each in mine)]
        self._wider |= {field.name: field.type for field in arrow_schema(wider)}
        self._take_columns()

    def decode(self, batch: pa.RecordBatch, runs: Runs, pause: Pause) -> Iterator[DecodedRows]:
        """Yield the rows of the query for those of ``batch``, in their order: see ``ValueDecoder.decode``."""
        for rows in self._decoder.decode(batch, runs, pause):
            yield self._transformed(rows, batch, runs, pause)

    def _transformed(self, rows: DecodedRows, batch: pa.RecordBatch, runs: Runs, pause: Pause) -> DecodedRows:
        given = rows.batch.num_rows
        self._pause = pause
        self._running = 2 * rows.batch.get_total_buffer_size()  # the result, and room for the query
        try:
            tables, bad = self._run(rows.batch.append_column(ROW, self._count(given)))
            result, kept = self._taken(tables, given)
        finally:
            self._running = 0
        if endless := _endless(result, rows.batch, kept):
            bad |= {kept[row]: f"{Reason.TRANSFORM}: {why}" for row, why in endless.items()}
            left = [row for row in range(result.num_rows) if row not in endless]
            result, kept = result.take(pa.array(left, pa.int64())), [kept[row] for row in left]
        dead_letters = [
            self._decoder.letter(rows.numbers[row], bad[row], batch, runs, "cannot be transformed")
            for row in sorted(bad)
        ]
        filtered = given - len(kept) - len(bad)
        if no := misnamed(result, self._levels, _Numbers(rows.numbers, kept), table=self._for_table):
            left = [row for row in range(result.num_rows) if row not in no]
            result, kept = result.take(pa.array(left, pa.int64())), [kept[row] for row in left]
            dead_letters += [self._decoder.dead_letter_of(each, batch, runs) for each in no.values()]
        return DecodedRows(
            result,
            rows.runs if len(kept) == given else _surviving(rows.runs, kept),
            rows.numbers if len(kept) == given else _Numbers(rows.numbers, kept),
            [*rows.dead_letters, *dead_letters],
            result.get_total_buffer_size(),
            filtered,
            apart=True,
        )

    def _count(self, rows: int) -> pa.Array:
        """Return the numbers from 0 to before ``rows``."""
        if len(self._numbers) < rows:
            self._numbers = _counting(2 * rows)
        return self._numbers.slice(0, rows)

    def _run(self, source: pa.RecordBatch) -> tuple[list[pa.Table], dict[int, str]]:
        """Return the result in pieces, and for each row that makes the query fail the reason."""
        try:
            return [self._select(self._query.sql, source)], {}
        except RowsError as exc:
            if source.num_rows == 1:
                return [], {source.column(ROW)[0].as_py(): f"{Reason.TRANSFORM}: {exc}"}
            over_time = isinstance(exc, NoTimeError)
        failing = [] if over_time else self._failing(source)
        if not failing:
            return self._in_parts(source)
        first = source.column(ROW)[0].as_py()
        bad = dict.fromkeys(failing, _UNEXPLAINED)
        for row in failing[:_EXPLAINED]:
            bad |= self._run(source.slice(row - first, 1))[1]
        left = [row - first for row in range(first, first + source.num_rows) if row not in bad]
        pieces, more = self._run_sound(source.take(pa.array(left, pa.int64()))) if left else ([], {})
        return pieces, bad | more

    def _run_sound(self, source: pa.RecordBatch) -> tuple[list[pa.Table], dict[int, str]]:
        """Return the same as :meth:`_run` for rows whose expressions do not fail one by one."""
        try:
            return [self._select(self._query.sql, source)], {}
        except RowsError as exc:
            if source.num_rows == 1:
                return [], {source.column(ROW)[0].as_py(): f"{Reason.TRANSFORM}: {exc}"}
        return self._in_parts(source)

    def _in_parts(self, source: pa.RecordBatch) -> tuple[list[pa.Table], dict[int, str]]:
        pieces: list[pa.Table] = []
        bad: dict[int, str] = {}
        size = -(-source.num_rows // _PARTS)
        for first in range(0, source.num_rows, size):
            more, others = self._run_sound(source.slice(first, size))
            pieces += more
            bad |= others
        return pieces, bad

    def _failing(self, source: pa.RecordBatch) -> list[int]:
        """Return the rows for which an expression fails; none if DuckDB cannot tell."""
        if not self._query.failing:
            return []
        try:
            rows: list[int] = self._select(self._query.failing, source).column(0).to_pylist()
        except RowsError:
            return []
        return rows

    def _select(self, sql: str, source: pa.RecordBatch) -> pa.Table:
        """Run a query over ``source``. Raises RowsError."""
        try:
            return self._process.select(sql, source, self._pause)
        except QueryError as exc:
            raise DatasetMismatchError(f"the transform does not fit the columns: {exc}") from exc
        except OSError as exc:
            raise SinkFailedError(f"the process of the transform: {exc}") from exc

    def _taken(self, tables: Sequence[pa.Table], given: int) -> tuple[pa.RecordBatch, Sequence[int]]:
        """Return the rows of the result with the columns that land or name folders, and their numbers."""
        if not tables:
            return pa.RecordBatch.from_pylist([], schema=self._result), []
        table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
        batch = _one_batch(table)
        *columns, numbers = batch.columns
        _check_order(numbers, given)
        fields = list(batch.schema)[:-1]
        time = None
        if self._query.carries_time:
            time = columns.pop(), fields.pop().with_name(f"{self.prefix}timestamp")
        if pa.schema(fields) != self._found:
            before = self.types
            self._found = pa.schema(fields)
            self._take_columns()
            if self._for_table and (why := misfit(before, self.types)):
                raise DatasetMismatchError(f"the transform does not fit the table: {why}")
            if (why := self._names.refusal(self.types)) and not self._names.refusal(before):
                raise DatasetMismatchError(f"the transform does not fit the dataset: {why}")
        for index, field in enumerate(self._result):
            if field.type != fields[index].type:
                columns[index] = columns[index].cast(field.type)
        fields = list(self._result)
        if time is not None and time[1].name not in self._result.names:
            columns.append(time[0])
            fields.append(time[1])
        kept = memoryview(numbers.buffers()[1]).cast("q")[numbers.offset : numbers.offset + len(numbers)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), kept

    def _take_columns(self) -> None:
        """Take the columns of the result that the query has for those of the decoder now."""
        try:
            check_result(self._found)
        except ValueError as exc:
            raise DatasetMismatchError(f"the transform {exc}. It was sound for the columns at the start") from exc
        self._result = pa.schema([field.with_type(self._wider.get(field.name, field.type)) for field in self._found])


class _Numbers(Sequence[int]):
    """The numbers of rows of which some are left."""

    def __init__(self, numbers: Sequence[int], kept: Sequence[int]) -> None:
        self._numbers = numbers
        self._kept = kept

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice, /) -> int | Sequence[int]:
        if isinstance(index, slice):
            return _Numbers(self._numbers, self._kept[index])
        return self._numbers[self._kept[index]]


def _endless(result: pa.RecordBatch, source: pa.RecordBatch, kept: Sequence[int]) -> dict[int, str]:
    """Return the rows of a result with an infinite date or timestamp of the query, and why they do not land.

    Files would have the largest or smallest number instead. A record that has this number itself keeps it.
    """
    found: dict[int, str] = {}
    for name, column in zip(result.schema.names, result.columns, strict=True):
        if not _has_times(column.type) or not _is_endless(column):
            continue
        alike = [each for each in source.columns if each.type == column.type]
        for row in range(result.num_rows):
            value = column.slice(row, 1)
            if _is_endless(value) and not any(value.equals(each.slice(kept[row], 1)) for each in alike):
                found.setdefault(row, f"the column {name} is infinite")
    return found


def _has_times(kind: pa.DataType) -> bool:
    inner = (_has_times(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or any(inner)


def _is_endless(column: pa.Array) -> bool:
    """Return True if a value, or one within it, is a date or timestamp that DuckDB calls infinite."""
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_map(kind):
        column = pa.concat_arrays([column])  # keys and items of a slice are those of all
        return _is_endless(column.keys) or _is_endless(column.items)
    if pa.types.is_struct(kind):
        return any(map(_is_endless, column.flatten()))
    if pa.types.is_list(kind):
        return _is_endless(column.flatten())
    if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return False
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    most = (1 << number.bit_width - 1) - 1
    ends = pc.min_max(column.view(number)).as_py()
    return bool(ends["min"] == -most or ends["max"] == most)


def _counting(rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(array("q", range(rows)))])


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _check_order(numbers: pa.Array, given: int) -> None:
    """Raise SinkFailedError unless the rows of a result are some of those that were ``given``, in their order."""
    import pyarrow.compute as pc

    if not len(numbers):
        return
    ascending = pc.all(pc.less(numbers.slice(0, len(numbers) - 1), numbers.slice(1))).as_py()
    if numbers.null_count or ascending is False or numbers[0].as_py() < 0 or numbers[-1].as_py() >= given:
        raise SinkFailedError("the transform has returned rows that are not those of the batch, in its order")


def _surviving(runs: Runs, kept: Sequence[int]) -> Runs:
    """Return the runs of the rows that are ``kept``, an ascending sequence, numbered from 0."""
    surviving: list[tuple[Log, int, int]] = []
    for log, first, rows in runs:
        low, high = bisect_left(kept, first), bisect_left(kept, first + rows)
        if low < high:
            surviving.append((log, low, high - low))
    return surviving
