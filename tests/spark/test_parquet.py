"""Files of the encoder, read by Spark with both of its readers of Parquet: each cell, and what filters find."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fastwire.parquet.footers import chunks_of, places_of
from tests.fastwire.parquet.tables import FLAT, batches_of, by_pyarrow, written

pytestmark = pytest.mark.spark

ROWS = 60_000
GROUP = 30_000  # rows, of more than one page
READERS = {"vectorised": "true", "row by row": "false"}


@pytest.fixture(params=READERS)
def reader(spark: Any, request: pytest.FixtureRequest) -> Any:
    """A reader of Parquet files of one kind; nested columns are read by the same one."""
    for key in ("enableVectorizedReader", "enableNestedColumnVectorizedReader"):
        spark.conf.set(f"spark.sql.parquet.{key}", READERS[request.param])
    yield spark.read
    for key in ("enableVectorizedReader", "enableNestedColumnVectorizedReader"):
        spark.conf.unset(f"spark.sql.parquet.{key}")


def has_type(kind: pa.DataType) -> bool:
    """Spark has no type for milliseconds or nanoseconds of a day, and none for more than 38 digits."""
    return not (pa.types.is_null(kind) or pa.types.is_time(kind) or pa.types.is_decimal256(kind))


def test_every_cell(reader: Any, tmp_path: Path) -> None:
    item = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))])
    schema = pa.schema(
        [
            *(pa.field(f"c{at}", kind) for at, kind in enumerate(filter(has_type, FLAT))),
            pa.field("word", pa.dictionary(pa.int32(), pa.string())),
            pa.field("nested", pa.list_(item)),
            pa.field("map", pa.map_(pa.string(), pa.float64())),
        ]
    )
    rng = random.Random(11)
    batches = [each for _ in range(4) for each in batches_of(rng, schema)]
    ours, theirs = tmp_path / "ours.parquet", tmp_path / "theirs.parquet"
    ours.write_bytes(written([batches], schema, columns=dict.fromkeys(schema.names, ("constant", True))))
    theirs.write_bytes(by_pyarrow(pa.Table.from_batches(batches, schema)))
    found = reader.parquet(str(ours))
    expected = reader.parquet(str(theirs))
    assert found.schema == expected.schema
    rows = found.collect()
    assert len(rows) == sum(batch.num_rows for batch in batches) > 0
    assert rows == expected.collect()


def test_filters_find_what_is_there(reader: Any, tmp_path: Path) -> None:
    """Row groups are left out by their statistics and dictionaries; none is left out that has a row."""
    batch = pa.record_batch(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "word": pa.array([None if at % 7 == 0 else f"w{at // 9000}" for at in range(ROWS)]),
            "long": pa.array([f"{at:064d}{'x' * (at % 3)}" for at in range(ROWS)]),
        }
    )
    columns = {"id": ("counter", True), "word": ("constant", True), "long": ("plain", True)}
    path = tmp_path / "ours.parquet"
    groups = [[batch.slice(at, GROUP)] for at in range(0, ROWS, GROUP)]
    path.write_bytes(written(groups, batch.schema, columns=columns))
    frame = reader.parquet(str(path))
    for condition, count in {
        "id = 59999": 1,
        "id >= 9999 and id < 10001": 2,
        "id < 0": 0,
        "word = 'w3'": sum(at // 9000 == 3 and at % 7 != 0 for at in range(ROWS)),
        "word is null": len(range(0, ROWS, 7)),
        "word = 'w9'": 0,
        f"long = '{30_001:064d}x'": 1,
        f"long > '{59_998:064d}xx'": 1,
    }.items():
        assert frame.where(condition).count() == count, condition
    # Whoever reads the first group now stumbles over it.
    first = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = bytearray(path.read_bytes())
    begin = first.data_page_offset
    data[begin : begin + first.total_compressed_size] = bytes(first.total_compressed_size)
    (damaged := tmp_path / "damaged.parquet").write_bytes(data)
    with pytest.raises(Exception, match="damaged"):
        reader.parquet(str(damaged)).select("id").collect()
    assert reader.parquet(str(damaged)).where("id >= 30000").select("id").collect()[0].id == 30_000
    # So does a reader of the first page in a single group; others go by the index of pages.
    data = bytearray(written([[batch]], batch.schema, columns=columns))
    begin, size, _ = places_of(bytes(data), chunks_of(bytes(data))[0][0])[0]
    data[begin : begin + size] = bytes(size)
    damaged.write_bytes(data)
    with pytest.raises(Exception, match="damaged"):
        reader.parquet(str(damaged)).select("id").collect()
    assert reader.parquet(str(damaged)).where("id >= 40000").select("id").count() == ROWS - 40_000
