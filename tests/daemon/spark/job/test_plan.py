"""The columns of a job: those of its schema, with the names that a table has already."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config import SparkConfig
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.spark.job.plan import _planned, plan_job

pytest.importorskip("pyspark")

CARD, CASH = ({"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]} for name in ("Card", "Cash"))


class Rows:
    """A frame that is never read."""

    isStreaming = False  # noqa: N815

    def __init__(self) -> None:
        from pyspark.sql.types import BinaryType, StructField, StructType

        self.schema = StructType([StructField("value", BinaryType())])

    def mapInArrow(self, function: Any, schema: Any) -> "Rows":  # noqa: N802
        return self


@pytest.mark.parametrize("format", ["parquet", "delta"])
@pytest.mark.parametrize("by_number", [True, False])
def test_the_table_names_the_columns_of_unions(tmp_path: Path, format: str, *, by_number: bool) -> None:
    schema = tmp_path / "pay.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "Pay", "fields": [{"name": "body", "type": [CARD, CASH]}]}))
    job = SparkConfig.model_validate({
        "source": {"dataset": str(tmp_path / "in")},
        "decode": {"format": "avro", "schema": str(schema)},
        "output": {"path": str(tmp_path / "out"), "dead_letters": str(tmp_path / "bad"), "format": format,
                   "checkpoint": str(tmp_path / "check"), "metadata": False},
    })  # fmt: skip
    rows = Rows()
    assert plan_job(rows, "pay", job).table[0].dataType.names == ["Card", "Cash"]
    writer = DatasetWriter(tmp_path / "out", _planned(rows, "pay", job, by_number=by_number).dataset)
    writer.open()
    writer.stage().close()
    writer.close()
    names = plan_job(rows, "pay", job).table[0].dataType.names
    assert names == (["member0", "member1"] if by_number else ["Card", "Cash"])
