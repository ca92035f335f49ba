"""The table of a job as a dataset: its columns and folders, and what its format cannot have."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...config import ConfigError, Problem, SparkOutput
from ...config.sinks.catalog import catalog_of
from ...dataset.columnnames import twice
from ...dataset.description import DatasetOptions
from ...dataset.place import table_refusal
from ...dataset.tableschema import column_of

# Types that have the same text in the name of a folder and in the log of a table.
_IN_TABLES = ("string", "int", "bigint", "boolean", "date")


def table_options(job: str, output: SparkOutput, fields: Sequence[Any]) -> DatasetOptions:
    """Return the options of the dataset in which ``job`` lands rows with the columns ``fields``, which are Spark's.

    It gets the columns that it lacks. Raises ConfigError, with all reasons, for columns that cannot be folders, or not
    in a table of this format, and if its library is not installed.
    """
    types = {field.name: field.dataType.simpleString() for field in fields}
    options = replace(
        columns_of(job, [field for field in fields if field.name not in output.partition_by]),
        levels=output.partition_by,
    )
    if output.table_format:
        columns = {field.name: column_of(field.jsonValue()) for field in fields}
        options = replace(
            options,
            level_types=tuple(columns[name] for name in output.partition_by),
            table=output.table_format,
            catalog=catalog_of(output),
        )
    problems = [
        Problem("", f"spark.{job}.output.partition_by[{i}]", why)
        for i, name in enumerate(output.partition_by)
        if (why := _no_folder(name, types[name], options.table))
    ]
    nested = [why for each in fields for why in twice(column_of(each.jsonValue()).children, f"{each.name}.")]
    if nested and not output.table_format:  # a table refuses them itself
        problems.append(Problem("", f"spark.{job}.decode.schema", "; ".join(nested)))
    if why := table_refusal(options):
        problems.append(Problem("", f"spark.{job}.output.format", why))
    if problems:
        raise ConfigError(problems)
    return options


def columns_of(job: str, fields: Sequence[Any], *, typed: bool = True) -> DatasetOptions:
    """Return the options of a dataset of ``job`` with the columns ``fields``, which are Spark's.

    Without ``typed`` an older version described the columns by their names alone.
    """
    names = tuple(field.name for field in fields)
    kinds = [f" {field.dataType.simpleString()}" if typed else "" for field in fields]
    return DatasetOptions(
        system="spark",
        cluster=job,
        columns=names,
        types=tuple(column_of(field.jsonValue()) for field in fields),
        older_columns=tuple(map(str.__add__, names, kinds)),
        single_log=True,
    )


def _no_folder(name: str, kind: str, table: str) -> str:
    """Return why the values of a column cannot be the names of folders; "" if they can."""
    if kind == "binary" or "<" in kind:
        return f'"{name}" is {kind}, which cannot be a folder name'
    if table and kind not in _IN_TABLES:
        return f'"{name}" is {kind}: only texts, integers, booleans and dates can partition a table'
    return ""
