"""Iceberg tables whose files are in an object store, and catalogs that are services beside it."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog import load_catalog

from fastwire_daemon.dataset.place import storage_at
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.bucket import open_bucket
from fastwire_daemon.dataset.tableformat import TableRacedError
from fastwire_daemon.dataset.tables.iceberg import IcebergTable
from tests.support import icebergs, tables
from tests.support.s3_server import Settings, new_bucket, s3_server


def test_the_files_of_commits_are_in_the_table(tmp_path: Path) -> None:
    with s3_server() as settings:
        bucket = new_bucket(settings, tmp_path.name)
        catalog = icebergs.catalog(tmp_path)
        writer = tables.writer(Path(), medium=bucket, table="iceberg", catalog=catalog, split="topic")
        writer.open()
        folder = "t=persistent%3A%2F%2Fpublic%2Fdefault%2Forders/"
        tables.land(writer, -1, 4, directory=folder)
        tables.land(writer, 4, 9, directory=folder)
        assert writer.stopped == ""
        writer.close()
        report = verify("", medium=bucket, strict=True)
        assert report.problems == [] and "the table has all 10 rows of log entries 1 to 2, once" in report.proven
        table = icebergs.database(tmp_path, settings).load_table(icebergs.NAME)
        rows = table.scan(row_filter="t = 'persistent://public/default/orders'").to_arrow()
        assert sorted(rows["offset"].to_pylist()) == list(range(10))
        assert table.location() == bucket.url


@pytest.mark.parametrize("own", [True, False], ids=["of the daemon", "of the library"])
def test_properties_of_the_table_do_not_replace_the_access_to_the_store(tmp_path: Path, own: bool) -> None:
    """Otherwise whoever may change the table could send files, and requests with our key, to another server."""
    with s3_server() as settings:
        bucket = new_bucket(settings, tmp_path.name)
        catalog = icebergs.catalog(tmp_path)
        writer = tables.writer(Path(), medium=bucket, table="iceberg", catalog=catalog)
        writer.open()
        tables.land(writer, -1, 4)
        theirs = {"endpoint": "http://127.0.0.1:1", "allow_http": "true", "region": "r", "access_key_id": "them"}
        change = {"s3.endpoint": theirs["endpoint"], "s3.access-key-id": "them", "s3.secret-access-key": "them"}
        if own:
            change = {"fastwire.access": json.dumps(theirs), "fastwire.location": "s3://elsewhere"}
        else:
            # Metadata beside the dataset: the library has no way of the daemon there.
            change["write.metadata.path"] = f"{bucket.url}-metadata"
        icebergs.set_properties(icebergs.database(tmp_path, settings), **change)
        tables.land(writer, 4, 9)
        assert writer.stopped == ""
        writer.close()
        for name in change:
            icebergs.set_properties(icebergs.database(tmp_path, settings), **{name: None})
        assert icebergs.numbers_in(icebergs.database(tmp_path, settings).load_table(icebergs.NAME)) == list(range(10))


def glue(settings: Settings) -> dict[str, str]:
    """The settings of a catalog beside the store. Its tables are those of all servers of this process."""
    key = {name: settings[name] for name in ("region", "access_key_id", "secret_access_key")}
    table = f"shop.orders_{uuid4().hex}"
    return {"type": "glue", "name": "default", "uri": settings["endpoint"], **key, "table": table}


def test_a_catalog_of_glue(tmp_path: Path) -> None:
    with s3_server() as settings:
        bucket = new_bucket(settings, tmp_path.name)
        catalog = glue(settings)
        for first in (0, 10):
            writer = tables.writer(Path(), medium=bucket, table="iceberg", catalog=catalog)
            writer.open()
            tables.land(writer, first - 1, first + 4)
            tables.land(writer, first + 4, first + 9)
            assert writer.stopped == ""
            writer.close()
        kept = bucket.get("_fastwire/dataset.json") or b""
        assert b"access_key_id" in kept and b"secret" not in kept
        report = verify("", medium=bucket, strict=True, catalog=catalog)
        assert report.problems == [] and "the table has all 20 rows of log entries 1 to 4, once" in report.proven
        names = {name: settings[name.replace("-", "_")] for name in ("region", "access-key-id", "secret-access-key")}
        theirs = load_catalog(
            "theirs",
            **{"type": "glue", "glue.endpoint": settings["endpoint"], "s3.endpoint": settings["endpoint"]},
            **{f"{service}.{name}": value for service in ("glue", "s3") for name, value in names.items()},
        )
        assert icebergs.numbers_in(theirs.load_table(catalog["table"])) == list(range(20))


def test_a_commit_to_glue_from_a_stale_look_is_refused(tmp_path: Path) -> None:
    with s3_server() as settings:
        bucket = new_bucket(settings, tmp_path.name)
        catalog = glue(settings)
        one, other = (IcebergTable(storage_at("", bucket), "0123456789abcdef", catalog) for _ in range(2))
        one.create([], [])
        with pytest.raises(TableRacedError):
            other.create([], [])
        one.look()
        other.look()
        one.add([], 1, 1)
        with pytest.raises(TableRacedError):
            other.add([], 1, 1)


@pytest.mark.parametrize(
    ("root", "access", "location"),
    [
        ("/data/orders", {}, "file:///data/orders"),
        ("s3://lake/orders", {}, "s3://lake/orders"),
        ("gs://lake/orders", {}, "gs://lake/orders"),
        ("az://lake/orders", {"account_name": "me"}, "abfss://lake@me.dfs.core.windows.net/orders"),
        (
            "az://lake",
            {"account_name": "me", "endpoint": "http://127.0.0.1:10000/me"},
            "abfss://lake@me.dfs.core.windows.net",
        ),
        (
            "az://lake/orders",
            {"account_name": "me", "endpoint": "https://me.blob.core.chinacloudapi.cn"},
            "abfss://lake@me.dfs.core.chinacloudapi.cn/orders",
        ),
    ],
)
def test_the_location_of_the_table(root: str, access: dict[str, str], location: str) -> None:
    """Its files and its metadata have URLs that other programs understand."""
    storage = storage_at(root) if root.startswith("/") else storage_at("", open_bucket(root, access))
    table = IcebergTable(storage, "0123456789abcdef", {"table": icebergs.NAME})
    assert table.location == location
