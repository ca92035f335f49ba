"""``write``: the rows of a table or a frame as records of a topic."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from fastwire.columns.rows import Rows
from fastwire.columns.text import LineFormatter

from ..config import Connection, parse_connection
from ..systems.produced import Produced
from ..systems.registry import system_named
from ..systems.writer import WriteOptions, Writer
from .loopthread import LoopThread
from .progress import Progress

AT_ONCE = 1 << 16
"""Rows that are handed on together: so many are named by a refusal at the latest, and Ctrl-C waits for no more."""
BATCH = 1000
_PLAIN: Sequence[tuple[Callable[[Any], bool], pa.DataType]] = (
    (pa.types.is_string_view, pa.large_string()),
    (pa.types.is_binary_view, pa.large_binary()),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_date64, pa.date32()),
)
_VALUE, _KEY, _HEADERS, _PARTITION, _TIME = "value", "key", "headers", "partition", "eventTime"


def write(
    url: str,
    topic: str,
    data: Any,
    *,
    value: str | Literal["json"] = "",
    key: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    event_time: str | None = None,
    compression: str | None = None,
    create: int = 0,
    progress: bool | None = None,
    **connection: Any,
) -> Produced:
    """Write the rows of ``data`` to ``topic``; return the totals once the brokers have confirmed all.

    ``data`` is a pyarrow table, batch or reader, or anything else with ``__arrow_c_stream__``: frames of Polars and
    pandas, results of DuckDB. ``value`` names the column of the values, text or bytes; by default the column "value" if
    there is one of such a type. Without one, or with "json", each row is a JSON object of all columns. ``key``,
    ``headers`` (a map, or lists of pairs of text and bytes), ``partition`` and ``event_time`` (a time) name columns as
    well, each by default none; a key that is neither text nor bytes is written as text.

    A topic that does not exist is created with ``create`` partitions; 0 leaves that to the brokers. ``connection`` has
    more keys of a connection as in a configuration file. Raises ConfigError for these, ValueError for columns that
    cannot be, and FastwireError (ProduceError) if not all records are confirmed: some may be in the topic. It is at
    least once.
    """
    made = parse_connection({"url": url} | connection)
    system = system_named(made.system)
    system.grammar.topic(topic)
    options = WriteOptions(batch=BATCH, compression=compression, create=create)
    columns = {_KEY: key, _HEADERS: headers, _PARTITION: partition, _TIME: event_time}
    stream = _stream_of(data)
    try:
        chosen = _chosen(stream.schema, value, columns)
        records = (_records(batch, chosen) for batch in _slices(stream))
        thread = LoopThread("fastwire write")
        try:
            with Progress(progress) as line:
                return thread.call(partial(_written, made, topic, options, records, line))
        finally:
            thread.close()
    except Exception:  # not after Ctrl-C, when another thread may read it still
        stream.close()  # a connection of DuckDB is busy until then
        raise


async def _written(
    connection: Connection, topic: str, options: WriteOptions, records: Iterator[pa.RecordBatch], line: Progress
) -> Produced:
    loop = asyncio.get_running_loop()
    writer: Writer
    async with system_named(connection.system).open_writer(connection, topic, options) as writer:
        # On another thread, so that connections live on while the rows are computed.
        while (batch := await loop.run_in_executor(None, next, records, None)) is not None:
            await writer.write_rows(Rows(batch))
            line.add(batch.num_rows)
    return writer.produced


def _stream_of(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if not hasattr(data, "__arrow_c_stream__") and hasattr(data, "__arrow_c_array__"):
        data = pa.Table.from_batches([pa.record_batch(data)])
    if not hasattr(data, "__arrow_c_stream__"):
        raise ValueError(f"{type(data).__name__} gives no Arrow data: a table, a frame, or a reader does")
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowException as exc:
        raise ValueError(f"{type(data).__name__} has a column of a type that pyarrow does not read: {exc}") from None


def _chosen(schema: pa.Schema, value: str, columns: dict[str, str | None]) -> dict[str, str | None]:
    """Return ``columns`` with that of the values. Raises ValueError for names that are not there, or there twice."""
    chosen = {_VALUE: _value_of(schema, value), **columns}
    if twice := next((name for name, count in Counter(schema.names).items() if count > 1), None):
        raise ValueError(f'there are several columns "{twice}": give each a name of its own')
    for name in filter(None, chosen.values()):
        if name not in schema.names:
            raise ValueError(f'there is no column "{name}": there are {", ".join(schema.names)}')
    return chosen


def _value_of(schema: pa.Schema, value: str) -> str | None:
    """Return the name of the column of the values, None if the rows are objects."""
    if value == "json":
        return None
    if value:
        return value
    fits = _VALUE in schema.names and _is_bytes(schema.field(_VALUE).type)
    return _VALUE if fits else None


def _slices(stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in stream:
        for first in range(0, batch.num_rows, AT_ONCE):
            yield batch.slice(first, AT_ONCE)


def _records(batch: pa.RecordBatch, chosen: dict[str, str | None]) -> pa.RecordBatch:
    """Return the rows in the columns of records."""
    columns: dict[str, pa.Array] = {}
    for name, source in chosen.items():
        if source is not None:
            columns[name] = _FORMS[name](source, batch.column(source))
        elif name == _VALUE:
            columns[name] = _objects(batch)
    return pa.RecordBatch.from_pydict(columns)


def _objects(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object; bytes are base64. Raises ValueError for a column that has no JSON form."""
    columns: dict[str, pa.Array] = {}
    pieces: list[bytes] = []
    try:
        for name in batch.schema.names:
            columns[name] = _flat(batch.column(name))
        LineFormatter(pa.RecordBatch.from_pydict(columns), base64=columns).write(pieces.append)
    except (TypeError, pa.ArrowException) as exc:
        types = ", ".join(f"{field.name} is {field.type}" for field in batch.schema)
        raise ValueError(f"a column has no JSON form, cast it first: {exc} ({types})") from None
    text = pa.array([b"".join(pieces)], pa.large_binary())
    return pc.split_pattern(text, "\n").values.slice(0, batch.num_rows)


def _flat(column: pa.Array) -> pa.Array:
    """Return a column in types that have a JSON form, where others have one with the same values."""
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, _flat(column.dictionary))
    plain = _plain(column.type)
    return column if plain == column.type else column.cast(plain)


def _plain(kind: Any) -> pa.DataType:
    for is_kind, plain in _PLAIN:
        if is_kind(kind):
            return plain
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in map(kind.field, range(kind.num_fields))])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return _is_text(kind) or any(test(kind) for test in tests)


def _blobs(name: str, column: pa.Array) -> pa.Array:
    """Return a column of text or bytes with offsets of 64 bits."""
    if not _is_bytes(column.type):
        raise ValueError(f'the column "{name}" is {column.type}, and must be text or bytes')
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_string() if _is_text(column.type) else pa.large_binary())


def _keys(name: str, column: pa.Array) -> pa.Array:
    if _is_bytes(column.type):
        return _blobs(name, column)
    try:
        return column.cast(pa.large_string())
    except pa.ArrowNotImplementedError:
        raise ValueError(f'the column "{name}" is {column.type}, which is no key: text, bytes or numbers are') from None


def _headers(name: str, column: pa.Array) -> pa.Array:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    try:
        if pa.types.is_map(column.type):
            pairs = pa.StructArray.from_arrays(
                [column.keys.cast(pa.string()), column.items.cast(pa.binary())], names=["key", "value"]
            )
            return pa.ListArray.from_arrays(column.offsets, pairs, mask=column.is_null() if column.null_count else None)
        return column.cast(pa.list_(pair))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise ValueError(
            f'the column "{name}" is {column.type}; headers are a map, or lists of pairs of text and bytes'
        ) from None


def _partitions(name: str, column: pa.Array) -> pa.Array:
    if not pa.types.is_integer(column.type):
        raise ValueError(f'the column "{name}" is {column.type}; partitions are whole numbers')
    try:
        return column.cast(pa.int32())
    except pa.ArrowInvalid as exc:
        raise ValueError(f'the column "{name}" has no partition in a row: {exc}') from None


def _times(name: str, column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        raise ValueError(f'the column "{name}" is {column.type}; event times are timestamps')
    return column.cast(pa.timestamp("us", column.type.tz), safe=False)


_FORMS = {_VALUE: _blobs, _KEY: _keys, _HEADERS: _headers, _PARTITION: _partitions, _TIME: _times}
