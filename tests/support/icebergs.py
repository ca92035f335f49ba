"""Iceberg tables of tests: a catalog in SQLite beside the dataset, and what the table has."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from fastwire_daemon.dataset.writer import DatasetWriter
from tests.support import tables

__all__ = [
    "NAME",
    "assert_in",
    "assert_landed",
    "catalog",
    "database",
    "loaded",
    "numbers",
    "numbers_in",
    "opened",
    "set_properties",
    "writer",
]

NAME = "shop.orders"


def catalog(path: Path) -> dict[str, str]:
    """The settings of the catalog in the folder of the dataset."""
    return {"type": "sql", "name": "default", "uri": f"sqlite:///{path}/_catalog.db", "table": NAME}


def database(path: Path, store: Mapping[str, str] | None = None) -> SqlCatalog:
    """The catalog, as another program opens it, with its own access to the ``store`` of S3's protocol."""
    names = ("endpoint", "region", "access_key_id", "secret_access_key")
    access = {f"s3.{name.replace('_', '-')}": store[name] for name in names} if store else {}
    return SqlCatalog("default", uri=catalog(path)["uri"], **access)


def loaded(path: Path) -> Table:
    """The table as it is now."""
    return database(path).load_table(NAME)


def writer(path: Path, reached: Callable[[str], None] = lambda step: None, **changes: Any) -> DatasetWriter:
    return tables.writer(path, reached, **({"table": "iceberg", "catalog": catalog(path)} | changes))


def opened(path: Path, reached: Callable[[str], None] = lambda step: None, **changes: Any) -> DatasetWriter:
    made = writer(path, reached, **changes)
    made.open()
    return made


def numbers(path: Path) -> list[int]:
    """The numbers in the table by the format's own library, in ascending order."""
    return numbers_in(loaded(path))


def numbers_in(table: Table) -> list[int]:
    """The same of a table of any catalog."""
    found: list[int] = table.scan(selected_fields=("offset",)).to_arrow()["offset"].to_pylist()
    return sorted(found)


def set_properties(database: SqlCatalog, **properties: str | None) -> None:
    """Set properties of the table, or remove those that are None, whatever they would do to this library."""
    access = PyArrowFileIO(database.properties)
    database._load_file_io = lambda *_, **__: access  # type: ignore[method-assign]
    with database.load_table(NAME).transaction() as change:
        change.remove_properties(*(name for name, value in properties.items() if value is None))
        change.set_properties({name: value for name, value in properties.items() if value is not None})


def assert_landed(path: Path, wanted: Sequence[int]) -> None:
    """The table has each number once, by the format's own library and by DuckDB."""
    assert_in(loaded(path), wanted)


def assert_in(table: Table, wanted: Sequence[int]) -> None:
    """The same of a table of any catalog, whose files are in a folder."""
    assert numbers_in(table) == list(wanted)
    found = tables.rows_by_duckdb(table.metadata_location, '"offset"', "iceberg")
    assert Counter(number for (number,) in found) == Counter(wanted)
