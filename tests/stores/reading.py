"""A store of S3's protocol as independent readers reach it; the access is by the names of Polars."""

from typing import Any

import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper


def s3_files(access: dict[str, str]) -> pyarrow.fs.S3FileSystem:
    """The store for pyarrow."""
    scheme, _, address = access["aws_endpoint_url"].partition("://")
    return pyarrow.fs.S3FileSystem(
        endpoint_override=address,
        scheme=scheme,
        access_key=access["aws_access_key_id"],
        secret_key=access["aws_secret_access_key"],
        region=access["aws_region"],
    )


def s3_for_duckdb(access: dict[str, str]) -> Any:
    """The store for DuckDB, whose own extension for it is not a package."""
    return _S3(s3_files(access))


class _S3(ArrowFSWrapper):  # type: ignore[misc]
    protocol = "s3"
    root_marker = ""

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("s3://").rstrip("/")
