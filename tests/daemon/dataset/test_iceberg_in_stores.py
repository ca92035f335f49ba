"""Iceberg tables whose files are in an object store, by the protocol of S3."""

from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from fastwire_daemon.dataset.verify import verify
from tests.support import icebergs, tables
from tests.support.s3_server import new_bucket, s3_server


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
        access = {
            "s3.endpoint": settings["endpoint"], "s3.region": settings["region"],
            "s3.access-key-id": settings["access_key_id"], "s3.secret-access-key": settings["secret_access_key"],
        }  # fmt: skip
        table = SqlCatalog("default", uri=catalog["uri"], **access).load_table(icebergs.NAME)
        rows = table.scan(row_filter="t = 'persistent://public/default/orders'").to_arrow()
        assert sorted(rows["offset"].to_pylist()) == list(range(10))
        assert table.location() == bucket.url
