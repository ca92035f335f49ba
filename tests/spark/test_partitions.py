"""Spark reads the folders of partition values as the values that they were, as the other readers do."""

from pathlib import Path
from typing import Any

import pytest

from tests.daemon.sinks.test_partitions import ALL, assert_read, land, numbered
from tests.support.partitions import NULL

pytestmark = pytest.mark.spark


def test_every_value_is_read(spark: Any, tmp_path: Path) -> None:
    land(tmp_path, ALL)
    frame = spark.read.schema("id int, city string").parquet(str(tmp_path))
    wanted = {number: value or None for number, value in numbered(ALL).items() if value != NULL}
    assert_read("spark", [tuple(row) for row in frame.collect()], wanted)
    assert [row["id"] for row in frame.where("city = 'Zürich'").collect()] == [ALL.index("Zürich")]
