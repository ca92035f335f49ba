"""Partition values that readers have had trouble with, and how each reader of tests sees them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

NULL = "__HIVE_DEFAULT_PARTITION__"
VALUES = (
    "Bern", "New York", "Zürich", "Málaga", "東京", "😀", "e\u0301", "\u00a0", "\u200b", "\x85", "A/A", "a=b", "x%20x",
    "100%", "%", "%2F", "R&D", "ID$", "x:y", ".", "..", "/lead", "trail/", "null", "NULL", "a\nb", "a\tb", "_hidden",
    ".dot", "~", "^", "#frag", "a?b", "*", "[a]", "{b}", "|", "back\\slash", "+", "trailing ", " ", "'q'", '"dq"',
    "a,b", "\x7f", "\x01", "2024-01-01", "01", "1e3", "true", "<x>`", "日" * 25,
)  # fmt: skip

Rows = list[tuple[int, str | None]]


def plain_readers(path: Path) -> Mapping[str, Callable[[], Rows]]:
    """The rows ``id, city`` of a folder of Parquet files with folders by city, by reader."""
    folders = ds.partitioning(pa.schema([("city", pa.string())]), flavor="hive")

    def rows(table: Any) -> Rows:
        return list(zip(table["id"].to_pylist(), table["city"].to_pylist(), strict=True))

    return {
        "pyarrow": lambda: rows(ds.dataset(path, format="parquet", partitioning=folders).to_table()),
        "polars": lambda: pl.read_parquet(
            f"{path}/*/*.parquet", hive_partitioning=True, hive_schema={"city": pl.String}
        ).select("id", "city").rows(),
        "duckdb": lambda: duckdb.connect().execute(
            f"select id, city from read_parquet('{path}/*/*.parquet', hive_partitioning=true,"
            " hive_types={'city': varchar})"
        ).fetchall(),
    }  # fmt: skip
