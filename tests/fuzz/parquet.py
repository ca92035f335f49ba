"""Drawn tables that span many pages, written as Parquet and read by others as pyarrow's file of the same rows is.

Each case is the number of a table: few or many distinct values, runs of them, nulls here and there or in blocks, lists
of any length, rows in batches of any size. It runs in the build with the sanitizers, too.
"""

import io
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from fastwire.parquet.file import ParquetWriter
from tests.fastwire.parquet.tables import FLAT, by_pyarrow, flat_value
from tests.fuzz.hunt import Case, Subject, counting, main

BLOCK = 50
_ROWS = (1, 1023, 1024, 1025, 19_999, 20_001, 40_001, 40_001, 65_537, 65_537)  # beside what a page and a look have
_CUTS = (1, 100, 5000, 16_384, 70_000)
_DISTINCT = {"few": 5, "runs": 50, "many": 2000}
_MOST_BATCHES = 40
_LONG = 200_000
_TYPES = [kind for kind in FLAT if not pa.types.is_null(kind)]


def _mask(chance: np.random.Generator, rows: int, nulls: float) -> Any:
    """Draw the places of nulls; None if there are none."""
    if not nulls:
        return None
    way = chance.integers(4)
    if way == 0:
        return chance.random(rows) < nulls
    if way == 1:
        return np.repeat(chance.random(rows // 1000 + 1) < nulls, 1000)[:rows]
    return np.ones(rows, bool) if way == 2 else np.arange(rows) > rows * (1 - nulls)


def _flat(rng: random.Random, kind: pa.DataType, rows: int, nulls: float) -> pa.Array:
    chance = np.random.default_rng(rng.randrange(1 << 32))
    style = rng.choice(list(_DISTINCT))
    distinct = _DISTINCT[style]
    values = [flat_value(rng, kind) for _ in range(distinct)]
    if style == "many" and pa.types.is_string(kind):
        values[0] = "y" * rng.randrange(_LONG)
    index = chance.integers(0, distinct, size=rows)
    if style == "runs":
        index = np.resize(np.repeat(index, chance.integers(1, 400, size=rows)[: max(rows, 1)])[:rows], rows)
    if rng.random() < 0.5:
        index.sort()  # pages have different values
    return pa.array(values, kind).take(pa.array(index, mask=_mask(chance, rows, nulls)))


def _nested(rng: random.Random, kind: pa.DataType, rows: int, nulls: float, depth: int) -> pa.Array:
    shape = rng.choice(["list", "struct", "map", "flat"]) if depth else "flat"
    if shape == "flat":
        return _flat(rng, kind, rows, nulls)
    chance = np.random.default_rng(rng.randrange(1 << 32))
    missing = _mask(chance, rows, nulls) if rng.random() < 0.5 else None
    mask = None if missing is None else pa.array(missing)
    if shape == "struct":
        members = [_nested(rng, kind, rows, nulls, depth - 1), _flat(rng, pa.int32(), rows, nulls)]
        return pa.StructArray.from_arrays(members, ["a", "b"], mask=mask)
    lengths = chance.integers(0, rng.choice([1, 2, 4, 9]), size=rows)
    if rng.random() < 0.3:
        lengths *= np.repeat(chance.random(rows // 3000 + 1) < 0.5, 3000)[:rows]
    if rng.random() < 0.1:
        lengths[rng.randrange(rows)] = 30_000
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    items = int(lengths.sum())
    inside = _nested(rng, kind, items, nulls, depth - 1) if items else pa.array([], kind)
    if shape == "list":
        return pa.ListArray.from_arrays(offsets, inside, mask=mask)
    keys = pa.array([str(at % 7) for at in range(items)], pa.string())
    return pa.MapArray.from_arrays(offsets, keys, inside, mask=mask)


def _table(rng: random.Random) -> pa.RecordBatch:
    rows = rng.choice(_ROWS)
    cells = {}
    for at in range(rng.randint(1, 4)):
        kind, depth = rng.choice(_TYPES), rng.choice([0, 0, 1, 2])
        column = _nested(rng, kind, rows, rng.choice([0, 0, 0.01, 0.5, 0.99]), depth)
        whole = not depth and not pa.types.is_boolean(kind) and rng.random() < 0.2
        cells[f"c{at}"] = column.dictionary_encode() if whole else column
    return pa.record_batch(cells).slice(rng.choice([0, 0, 1, 7, 13]) if rows > 20 else 0)


def _cut(rng: random.Random, table: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The same rows as batches."""
    batches: list[pa.RecordBatch] = []
    at = 0
    while at < table.num_rows:
        rows = rng.choice(_CUTS) if len(batches) < _MOST_BATCHES else table.num_rows
        batches.append(table.slice(at, rows))
        at += rows
    return batches


def _written(rng: random.Random, table: pa.RecordBatch) -> bytes:
    """A file of two row groups, of which one may be missing."""
    columns = {name: (rng.choice(["plain", "constant", "counter"]), rng.random() < 0.8) for name in table.schema.names}
    file = io.BytesIO()
    writer = ParquetWriter(
        table.schema, file.write, codec=rng.choice(["zstd", "none", "snappy", "lz4"]), columns=columns
    )
    batches = _cut(rng, table)
    middle = rng.randint(0, len(batches))
    writer.write_row_group(batches[:middle])
    writer.write_row_group(batches[middle:])
    writer.close()
    return file.getvalue()


def _counted(file: bytes) -> None:
    """Statistics of each row group are those that pyarrow has for its rows; of texts they may be shortened."""
    opened = pq.ParquetFile(io.BytesIO(file))
    for at in range(opened.num_row_groups):
        found = opened.metadata.row_group(at)
        expected = pq.ParquetFile(io.BytesIO(by_pyarrow(opened.read_row_group(at)))).metadata.row_group(0)
        for leaf in range(found.num_columns):
            ours, theirs = found.column(leaf), expected.column(leaf)
            assert ours.num_values == theirs.num_values, ours
            if theirs.statistics is None:
                continue
            assert ours.statistics.null_count == theirs.statistics.null_count, ours
            if not (ours.statistics.has_min_max and theirs.statistics.has_min_max):
                continue
            low, high = ours.statistics.min, ours.statistics.max
            if ours.physical_type == "BYTE_ARRAY":
                assert low <= theirs.statistics.min, ours
                assert high >= theirs.statistics.max, ours
            else:
                assert (low, high) == (theirs.statistics.min, theirs.statistics.max), ours


def _read_alike(file: bytes, reference: bytes, schema: pa.Schema) -> None:
    """DuckDB and Polars read both files alike."""
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "ours.parquet"), Path(folder, "theirs.parquet")
        ours.write_bytes(file)
        theirs.write_bytes(reference)
        with duckdb.connect(config={"threads": 1}) as database:
            query = "select count(*), md5(string_agg(md5(row::varchar), '')) from read_parquet('{}') row"
            found, expected = (database.sql(query.format(path)).fetchall() for path in (ours, theirs))
            assert found == expected, schema
        assert pl.read_parquet(ours).equals(pl.read_parquet(theirs), null_equal=True), schema


def agree(number: int) -> Counter[str]:
    """Write the table of ``number``; each reader finds what it finds in pyarrow's file of it. Returns what it had."""
    rng = random.Random(number)
    table = _table(rng)
    file = _written(rng, table)
    reference = by_pyarrow(pa.Table.from_batches([table]))
    assert pq.read_table(io.BytesIO(file)).equals(pq.read_table(io.BytesIO(reference))), table.schema
    _counted(file)
    if "decimal256" not in str(table.schema):  # those two have no type for so many digits
        _read_alike(file, reference, table.schema)
    return Counter(table=1, rows=table.num_rows)


def cases(seed: int) -> Iterator[Case]:
    """The numbers of the tables of a seed, without end."""
    for at in count():
        yield [str(seed * BLOCK + at)]


def run_case(words: Case) -> Counter[str]:
    """Write and read one table."""
    return agree(int(words[0]))


SUBJECT = Subject("tests.fuzz.parquet", "parquet_table", BLOCK, counting(cases, run_case), cases, run_case)


if __name__ == "__main__":
    sys.exit(main(SUBJECT, __doc__))
