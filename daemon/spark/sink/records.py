"""Rows as records: the columns of Spark's own Kafka sink."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fastwire.errors import FastwireError

from ...config import ConfigError, Problem
from ...config.text import nearest
from ...systems.writer import Put

__all__ = ["check_columns", "records"]

_HEADERS = "array<struct<key:string,value:binary>>"
_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (_HEADERS,),
}


def check_columns(schema: Any, *, topic: bool) -> None:
    """Check the columns of a frame, a StructType of Spark's; with ``topic``, an option names the topic.

    Raises ConfigError with all that is wrong.
    """
    problems = []
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        if name not in _TYPES:
            hint = nearest(name, _TYPES) or f": select {', '.join(_TYPES)}"
            problems.append(Problem("", f'column "{name}"', f"is not written to topics{hint}"))
        elif kind not in _TYPES[name]:
            problems.append(Problem("", f'column "{name}"', f"is {kind}, and must be {' or '.join(_TYPES[name])}"))
    if "value" not in types:
        problems.append(Problem("", 'column "value"', "is missing"))
    if not topic and "topic" not in types:
        problems.append(
            Problem("", "topic", 'is missing: an option names the topic, or a column "topic" that of each row')
        )
    if problems:
        raise ConfigError(problems)


def records(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Put]]:
    """Yield each row as its topic and its record. ``topic`` is that of all rows, None if they name theirs.

    A key of the type string is text, one of the type binary is bytes. Raises FastwireError for a row without a topic.
    """
    given = set(batch.schema.names)
    nulls = [None] * batch.num_rows

    def column(name: str, kind: pa.DataType | None = None) -> list[Any]:
        if name not in given:
            return nulls
        array = batch.column(name)
        return list((array if kind is None else array.cast(kind)).to_pylist())

    topics = column("topic") if topic is None else [topic] * batch.num_rows
    rows = zip(topics, column("value", pa.binary()), column("key"), column("partition"), column("headers"), strict=True)
    for name, value, key, partition, headers in rows:
        if name is None:
            raise FastwireError('a row has no topic: the column "topic" is null, and no option names one')
        properties = tuple((each["key"], each["value"]) for each in headers or ())
        yield name, Put(value, key, properties, partition=partition)
