"""Rows as records: the columns of Spark's own Kafka sink."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fastwire.errors import FastwireError

from ...config import ConfigError, Problem
from ...config.values.text import nearest

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


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each topic and its rows in their order. ``topic`` is that of all rows, None if they name theirs.

    Raises FastwireError for a row without a topic.
    """
    if not batch.num_rows:
        return
    if topic is not None:
        yield topic, batch
        return
    names = batch.column("topic").dictionary_encode()
    if names.null_count:
        raise FastwireError('a row has no topic: the column "topic" is null, and no option names one')
    if len(names.dictionary) > 1:
        batch = batch.take(pc.array_sort_indices(names.indices))  # a stable sort
    counts = {count["values"]: count["counts"] for count in pc.value_counts(names.indices).to_pylist()}
    first = 0
    for number, name in enumerate(names.dictionary.to_pylist()):
        yield name, batch.slice(first, counts[number])
        first += counts[number]
