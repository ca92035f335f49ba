"""The dataset of a job in a table: columns as Spark has them, and what a format cannot have."""

from dataclasses import dataclass
from typing import Any

import pytest

from fastwire.decode.evolution import Column
from fastwire_daemon.config import ConfigError
from fastwire_daemon.config.spark import SparkOutput
from fastwire_daemon.dataset.tableschema import column_of, plain_type, retyped
from fastwire_daemon.spark.job.table import table_options

LONGS = "list<item int64>"
INNER = {"type": "struct", "fields": [{"name": "n", "type": "integer", "nullable": True, "metadata": {}}]}


@dataclass
class Field:
    """A column as Spark has it; ``plain`` is its type in JSON."""

    name: str
    plain: Any
    text: str = ""

    @property
    def dataType(self) -> Any:  # noqa: N802 - Spark's name
        return self

    def simpleString(self) -> str:  # noqa: N802
        return self.text or str(self.plain)

    def jsonValue(self) -> dict[str, Any]:  # noqa: N802
        return {"name": self.name, "type": self.plain, "nullable": False, "metadata": {}}


def output(form: str, *partition_by: str) -> SparkOutput:
    folders = {"path": "/lake/table", "dead_letters": "/lake/bad", "checkpoint": "/lake/checkpoint"}
    return SparkOutput.model_validate({**folders, "format": form, "partition_by": list(partition_by)})


@pytest.mark.parametrize(
    "plain",
    [
        "boolean",
        "integer",
        "long",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "decimal(5,2)",
        INNER,
        {"type": "array", "elementType": INNER, "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
    ],
    ids=str,
)
def test_types_of_spark_are_those_of_a_table(plain: Any) -> None:
    assert plain_type(column_of(Field("a", plain).jsonValue())) == plain


def test_columns_and_partitions() -> None:
    fields = [Field("id", "long", "bigint"), Field("day", "date"), Field("n", "integer", "int")]
    options = table_options("orders", output("delta", "n", "day"), fields)
    assert (options.table, options.columns, options.levels) == ("delta", ("id",), ("n", "day"))
    assert options.types == (Column("id", "l", True),)
    assert options.level_types == (Column("n", "i", True), Column("day", "tdD", True))
    plain = table_options("orders", output("parquet", "day"), fields)
    assert (plain.table, plain.columns, plain.level_types) == ("", ("id", "n"), ())
    assert plain.types == (Column("id", "l", True), Column("n", "i", True))
    assert plain.older_columns == ("id bigint", "n int")


def test_all_that_a_table_cannot_have_is_told_at_once() -> None:
    fields = [Field("small", "byte", "tinyint"), Field("a b", "string"), Field("at", "timestamp"), Field("x", "double")]
    table_options("orders", output("parquet", "at"), fields)
    why = 'tables have no type for small byte; the name "a b" has a blank or one of ,;{}()='
    with pytest.raises(ConfigError) as caught:
        table_options("orders", output("delta", "at", "x"), fields)
    assert [(key, why) for _, key, why in caught.value.problems] == [
        (
            "spark.orders.output.partition_by[0]",
            '"at" is timestamp: only texts, integers, booleans and dates can partition a table',
        ),
        (
            "spark.orders.output.partition_by[1]",
            '"x" is double: only texts, integers, booleans and dates can partition a table',
        ),
        (
            "spark.orders.output.format",
            f"a table of Delta cannot have these columns: {why}",
        ),
    ]


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([Column("new", "u", True)], ""),
        ([Column("s", "+s", True, (Column("n", "i", True), Column("m", "u", True)))], ""),
        ([Column("s", "+s", True, (Column("n", "l", True),))], "s struct<n int32> cannot become s struct<n int64>"),
        ([Column("s", "+s", True, (Column("m", "i", True),))], "s struct<n int32> cannot become s struct<m int32>"),
        (
            [Column("l", "+l", True, (Column("item", "l", True),))],
            "l list<item int32> cannot become l list<item int64>",
        ),
        ([Column("n", "d:9,2", True)], "n d:8,2 cannot become n d:9,2"),
    ],
)
def test_columns_of_files_may_come_and_keep_their_types(after: list[Column], why: str) -> None:
    inner = (Column("n", "i", True),)
    before = [Column("s", "+s", True, inner), Column("l", "+l", True, (Column("item", "i", True),))]
    assert retyped([*before, Column("n", "d:8,2", True)], after) == why
