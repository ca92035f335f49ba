"""Statistics from the footers of Parquet files: least, greatest, nulls; what has none, and rounding of times."""

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire_daemon.dataset.tables.statistics import statistics_of

_US = pa.timestamp("us", "UTC")
_END_OF_TIME = 253_402_300_799_999_999


def statistics(table: pa.Table, group: int = 2) -> dict[str, Any]:
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=group)
    found: dict[str, Any] = json.loads(statistics_of(file, table.num_rows))
    return found


@pytest.mark.parametrize(
    ("values", "low", "high", "nulls"),
    [
        (pa.array([3, 1, None, 7]), 1, 7, 1),
        (pa.array([None, None, 5], pa.int32()), 5, 5, 2),
        (pa.array([0, 1_500, 2_000], _US), "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.002Z", 0),
        (pa.array([1_999, 2_001], _US), "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.003Z", 0),
        (pa.array([-1], _US), "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", 0),
        (pa.array([0], pa.timestamp("us")), "1970-01-01T00:00:00.000", "1970-01-01T00:00:00.000", 0),
        (pa.array([1, 0], pa.date32()), "1970-01-01", "1970-01-02", 0),
    ],
)
def test_least_and_greatest_of_all_row_groups(values: pa.Array, low: object, high: object, nulls: int) -> None:
    assert statistics(pa.table({"a": values})) == {
        "numRecords": len(values),
        "minValues": {"a": low},
        "maxValues": {"a": high},
        "nullCount": {"a": nulls},
    }


@pytest.mark.parametrize(
    "values",
    [
        pa.array([None, None], pa.int64()),
        pa.array([1.0, float("nan")]),
        pa.array(["a", "b"]),
        pa.array([b"a"]),
        pa.array([True]),
        pa.array([_END_OF_TIME], _US),
        pa.array([0, _END_OF_TIME + 1], _US),
        pa.array([None, None, -62_135_596_800_000_001, 0], _US),
        pa.array([(1 << 63) - 1], _US),
        pa.array([_END_OF_TIME // 1000 + 1], pa.timestamp("ms")),
        pa.array([2_932_897, 0], pa.date32()),
        pa.array([-719_163], pa.date32()),
    ],
)
def test_types_and_values_without_an_order_have_none(values: pa.Array) -> None:
    found = statistics(pa.table({"a": values}))
    assert (found["minValues"], found["maxValues"], found["numRecords"]) == ({}, {}, len(values))
    assert found["nullCount"] == {"a": values.null_count}


def test_nested_columns_have_none() -> None:
    assert statistics(pa.table({"a": [{"b": 1}]}))["nullCount"] == {}


def test_a_file_without_a_footer_has_its_rows() -> None:
    assert json.loads(statistics_of(io.BytesIO(b"damaged"), 7)) == {"numRecords": 7}
